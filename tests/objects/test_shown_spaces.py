"""What a notebook shows of spaces and of what stands on them."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest

from checkpoint import CheckpointKind, Reader, RunWriter
from objectspace import PersistedObjectSpace, SpacePart, VolatileObjectSpace
from objectspace.kvt import KeyValueTableManager


def test_a_space_is_shown_by_its_store_its_epoch_and_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "s.db")
    space = PersistedObjectSpace.open(path)
    assert repr(space) == f"PersistedObjectSpace({path!r}, no checkpoint yet, 0 objects)"
    space.create_list("l").append(1)
    space.checkpoint(epoch=7)
    space.create_list("other")
    space.checkpoint(epoch=1009)
    for method in ("item", "items", "metadata", "metadatum"):
        monkeypatch.setattr(Reader, method, None)
    shown = f"PersistedObjectSpace({path!r}, epoch 1009, 2 objects)"
    assert repr(space) == f"{space}" == shown
    assert repr(space.at(7)) == f"PersistedObjectSpace({path!r}, epoch 7, 1 object, read-only)"
    assert repr(SpacePart(SpacePart(space, "a/"), "b/")) == f"SpacePart(SpacePart({shown}, 'a/'), 'b/')"


def test_a_space_that_can_be_used_no_more_is_shown_as_such(tmp_path: Path) -> None:
    path = str(tmp_path / "s.db")
    space = PersistedObjectSpace.open(path)
    space.checkpoint()
    space.checkpoint()
    earlier, later = space.at(1), space.at(2)
    space.rollback(1)
    assert repr(later) == f"<PersistedObjectSpace {path!r} [the checkpoint that it shows no longer exists]>"
    space.close()
    assert repr(space) == f"<PersistedObjectSpace {path!r} [closed]>"
    assert repr(SpacePart(space, "a/")) == f"SpacePart({space!r}, 'a/')"
    assert repr(earlier) == f"<PersistedObjectSpace {path!r} [its store is closed]>"


def test_a_space_that_others_have_overtaken_is_shown_as_what_it_reads(space: PersistedObjectSpace) -> None:
    space.checkpoint(epoch=9)
    PersistedObjectSpace(space.store).checkpoint(epoch=12)
    assert repr(space) == "PersistedObjectSpace(':memory:', checkpoint 1, 0 objects)"
    space.rollback()
    assert repr(space) == "PersistedObjectSpace(':memory:', epoch 12, 0 objects)"


def test_a_space_is_shown_without_waiting_for_a_commit_in_another_thread(space: PersistedObjectSpace) -> None:
    shown: list[str] = []
    with space.store.unchanged_since(None):
        thread = Thread(target=lambda: shown.append(repr(space)))
        thread.start()
        thread.join(60)
        assert shown == ["PersistedObjectSpace(':memory:', no checkpoint yet, 0 objects)"]
    thread.join()


def test_a_volatile_space_is_shown_by_its_size() -> None:
    space = VolatileObjectSpace()
    space.create_list("l")
    assert repr(space) == "VolatileObjectSpace(1 object)"
    space.close()
    assert repr(space) == "<VolatileObjectSpace [closed]>"


def test_a_manager_is_shown_by_its_space(space: PersistedObjectSpace) -> None:
    assert repr(KeyValueTableManager(space)) == f"KeyValueTableManager({space!r})"
    manager = KeyValueTableManager(space, autocommit=True)
    assert repr(manager) == f"KeyValueTableManager({space!r}, autocommit=True)"
    space.store.close()
    assert "[its store is closed]" in repr(manager)


def test_a_reader_is_shown_by_its_store_its_checkpoint_and_its_runs(space: PersistedObjectSpace) -> None:
    readers = [space.store.reader()]
    for number in (1, 2):
        space.create_value(str(number), number)
        space.checkpoint()
        readers.append(space.store.reader())
    between = readers[2].since(readers[1])
    assert [repr(one) for one in (*readers, between)] == [
        "Reader(':memory:', checkpoint 0, runs none)",
        "Reader(':memory:', checkpoint 1, runs 1)",
        "Reader(':memory:', checkpoint 2, runs 2, 1)",
        "Reader(':memory:', changes up to checkpoint 2, runs 2)",
    ]
    space.rollback(1)
    assert repr(readers[2]) == "<Reader of ':memory:', checkpoint 2 [which no longer exists]>"
    space.store.close()
    assert repr(readers[1]) == "Reader(':memory:', checkpoint 1, runs 1)"


def test_a_writer_is_shown_by_what_it_is_for_and_its_state(space: PersistedObjectSpace) -> None:
    writer = space.store.writer(epoch=7)
    assert repr(writer) == "<CheckpointWriter differential, epoch 7 [open, with nothing saved into it]>"
    space.create_list("l")
    space.save(writer)
    writer.commit()
    assert repr(writer) == "<CheckpointWriter differential, epoch 7 [committed]>"
    assert repr(RunWriter(CheckpointKind.FULL)) == "<RunWriter full [open, with nothing saved into it]>"
    space.on_saved()
