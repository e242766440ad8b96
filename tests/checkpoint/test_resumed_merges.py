"""A merge that other processes have begun is gone on with: nothing is copied twice, and no damage gets into it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from checkpoint import CheckpointStore, CorruptStoreError, digests
from checkpoint.catalogue import noted_checks
from checkpoint.tiers import FAN_IN
from tests.checkpoint.store_helpers import quick_store, run_of, values_in

SLOTS, ROWS = 20_000, 2_000


def edits_of(number: int) -> dict[int, int]:
    """Return what a checkpoint changes; the first one has all slots."""
    changed = random.Random(number).sample(range(SLOTS), ROWS) if number else range(SLOTS)
    return dict.fromkeys(changed, number)


def process(path: Path, number: int) -> tuple[int, int]:
    """Make one checkpoint and end; return how many runs are live, and how many parts of a merge have been checked."""
    with quick_store(path, history=1) as store:
        store.append(run_of(edits_of(number)))
        merge = store._upkeep.merging
        checked = noted_checks(store.session.connection, merge.run) if merge else 0
        return len(store.reader().runs), checked


@pytest.fixture(scope="module")
def noted_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Return a store of which some, but not all parts of a merge are noted as checked, and the next number."""
    path = tmp_path_factory.mktemp("noted") / "state.db"
    for number in range(100):
        if 0 < process(path, number)[1] < FAN_IN:
            return path, number + 1
    raise AssertionError("no merge is being checked")


@pytest.fixture
def noted(noted_once: tuple[Path, int], tmp_path: Path) -> tuple[Path, int]:
    """Return a copy of that store, and the next number."""
    return Path(shutil.copy(noted_once[0], tmp_path / "state.db")), noted_once[1]


@pytest.mark.slow
def test_processes_of_one_checkpoint_each_merge_what_one_process_would(tmp_path: Path) -> None:
    state: dict[int, int] = {}
    most = most_checked = 0
    for number in range(100):
        live, checked = process(tmp_path / "state.db", number)
        most, most_checked = max(most, live), max(most_checked, checked)
        state |= edits_of(number)
        with CheckpointStore(tmp_path / "state.db", read_only=True) as store:
            assert number % 10 or store.verify()
    assert most < 3 * FAN_IN
    assert most_checked > 1, "the checking goes on where another process has stopped"
    with CheckpointStore(tmp_path / "state.db", read_only=True) as store:
        assert values_in(store.reader()) == state
        merged = store.database.execute("SELECT count(*) FROM run JOIN filter USING (run) WHERE state = 'merged'")
        assert merged.fetchone()[0], "a run of which others have copied a part has a filter, too"


def test_no_part_is_checked_twice(noted: tuple[Path, int], monkeypatch: pytest.MonkeyPatch) -> None:
    path, following = noted
    checked: list[float] = []
    check = digests.check_run
    monkeypatch.setattr("checkpoint.merging.check_run", lambda session, run: checked.append(run) or check(session, run))
    with quick_store(path, history=1) as store:
        merge = store._upkeep.merging
        assert merge is not None
        done = noted_checks(store.session.connection, merge.run)
        while store._upkeep.merging is merge:
            store._work()
    assert checked[: len(merge.parts) - done] == list(merge.parts[done:])
    assert process(path, following)[0] < 3 * FAN_IN


@pytest.mark.parametrize("place", ["copied before", "noted as right"])
def test_a_part_that_is_damaged_after_it_was_copied_is_found(place: str, noted: tuple[Path, int]) -> None:
    with quick_store(noted[0], history=1) as store:
        merge = store._upkeep.merging
        assert merge is not None
        done = noted_checks(store.session.connection, merge.run)
        part = merge.parts[-1] if place == "copied before" else merge.parts[0]
        assert done < len(merge.parts)
        store.database.execute(
            "UPDATE state_item SET value = '7777' WHERE checkpoint = ?1 AND slot ="
            " (SELECT min(slot) FROM state_item WHERE checkpoint = ?1)",
            (part,),
        )
        if place == "copied before":
            with pytest.raises(CorruptStoreError, match=f"checkpoint {part} "):
                while store._upkeep.merging is merge:
                    store._work()
            assert merge.result is None
        else:
            # What was copied was right: the part was, when it was checked after that.
            while store._upkeep.merging is merge:
                store._work()
            assert merge.result is not None
            assert 7777 not in values_in(store.reader()).values()
