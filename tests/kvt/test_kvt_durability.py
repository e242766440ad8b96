"""What is written when, what a write dirties, and how handles go on after recovery and rollback."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from checkpoint import CheckpointError, CheckpointStore
from objectspace import (
    CheckpointProtocolError,
    DamagedObjectError,
    PersistedObjectSpace,
    SpacePart,
    VolatileObjectSpace,
)
from objectspace.kvt import (
    BadKeyVersionError,
    IteratorState,
    KeyValueTable,
    KeyValueTableConfiguration,
    KeyValueTableManager,
    KeyVersion,
    NoSuchTableError,
    Put,
    Remove,
    TableEntry,
    TableKey,
    TableSealedError,
    clock_floor,
    stored_entries,
)
from objectspace.objects import limits
from objectspace.testing.faults import FAILURES, LASTING, ONCE, Fault, failing
from tests.objects.interruptions import at_exit, interrupted

Table = KeyValueTable[Any, Any]


def slots(space: PersistedObjectSpace) -> list[int]:
    """The slots that a checkpoint writes, by object, without objects that have none."""
    return sorted(cost.slots for cost in space.checkpoint().objects.values())


@pytest.mark.parametrize("size", [1, 100, 5_000])
def test_a_put_dirties_one_slot_and_one_counter_whatever_the_size(
    space: PersistedObjectSpace, table: Table, size: int
) -> None:
    version = table.put_all("f", [(b"k%06d" % place, b"v") for place in range(size)])[0]
    space.checkpoint()
    for write in (
        lambda: table.put(b"k000000", b"w", "f"),
        lambda: table.put(b"new", b"w", "f"),
        lambda: table.update(b"new", lambda value: value + b"!", "f"),
        lambda: table.remove(b"new", key_family="f"),
    ):
        write()
        assert slots(space) == [1, 1]
    table.put_all("f", [(b"new%d" % place, b"") for place in range(10)])
    assert slots(space) == [1, 10]
    with pytest.raises(BadKeyVersionError):
        table.replace_all("f", [TableEntry(TableKey(b"x"), b""), TableEntry(TableKey(b"k000000", version), b"")])
    table.remove(b"absent", key_family="f")
    table.get_all([b"k000000", b"absent"], "f")
    assert slots(space) == []


def test_what_is_stored_can_be_read(space: PersistedObjectSpace, table: Table) -> None:
    text = table.put(b"k", b'{"colour": "blue"}', "f")
    raw = table.put(b"k", b"\xff\x00", "g")
    space.checkpoint()
    image = space.store.reader().image()
    names = {object_id: name for object_id, name, _, _ in image.index}
    stored = {(names[row[0]], row[1], row[2]) for row in image.items}
    assert (f"kvt/s/t/{text.partition}", b"\x00\x01fk", f'{text.number} {{"colour": "blue"}}') in stored
    assert (f"kvt/s/t/{raw.partition}", b"\x00\x01gk", b"%d \xff\x00" % raw.number) in stored
    assert [value for name, _, value in stored if name.endswith("/version")].count(str(raw.number)) == 1


@pytest.mark.parametrize("found", ["{broken", "", b"\xff\x00"])
@pytest.mark.parametrize("mend", ["put", "remove"])
def test_an_entry_that_cannot_be_read_is_told_with_its_key_and_can_be_put_or_removed(
    space: PersistedObjectSpace, table: Table, found: str | bytes, mend: str
) -> None:
    number = table.put_all("f", [(b"k", b"v"), (b"m", b"w")])[0].partition
    rows = space.get_sorted_dictionary(f"kvt/s/t/{number}")
    rows[b"\x00\x01fk"] = found
    reads: list[Callable[[], Any]] = [
        lambda: table.get(b"k", "f"),
        lambda: table.get_all([b"m", b"k"], "f"),
        lambda: list(table.entry_iterator("f")),
        lambda: list(stored_entries(rows)),
    ]
    told = re.escape(f"partition 'kvt/s/t/{number}' of a key-value table, key b'k' of family 'f': ")
    for read in reads:
        with pytest.raises(DamagedObjectError, match=f"^{told}.* found {re.escape(repr(found))}, .* put or remove"):
            read()
    _ = table.put(b"k", b"new", "f") if mend == "put" else table.remove(b"k", key_family="f")
    left = [(b"k", b"new"), (b"m", b"w")] if mend == "put" else [(b"m", b"w")]
    assert list(table.family("f").items()) == left


def test_a_partition_that_keeps_lists_goes_on_to_do_so(space: PersistedObjectSpace, table: Table) -> None:
    index = int(table.put(b"k", b"new", "f").partition)
    space.delete(f"kvt/s/t/{index}")
    rows = space.create_sorted_dictionary(f"kvt/s/t/{index}")
    rows[b"\x00\x01fk"] = [1, "old"]
    rows[b"\x00\x01fm"] = [1, b"\xff"]
    space.checkpoint()
    space.rollback()
    table = KeyValueTableManager(space).open_key_value_table("s", "t")
    assert [entry and entry.value for entry in table.get_all([b"k", b"m", b"n"], "f")] == [b"old", b"\xff", None]
    version = table.put(b"k", b"newer", "f")
    assert list(stored_entries(rows)) == [(b"\x00\x01fk", version.number, b"newer"), (b"\x00\x01fm", 1, b"\xff")]
    assert rows[b"\x00\x01fk"] == [version.number, "newer"]


def test_autocommit_makes_each_call_one_checkpoint(space: PersistedObjectSpace, manager: KeyValueTableManager) -> None:
    space.checkpoint()
    table = manager.open_key_value_table("s", "t", autocommit=True)
    calls = [
        lambda: table.put(b"a", b"1", "f"),
        lambda: table.put_all("f", [(b"b", b"2"), (b"c", b"3")]),
        lambda: table.apply("f", [Remove(b"a"), Remove(b"b")]),
        lambda: table.family("f").update({b"d": b"4", b"e": b"5"}),
    ]
    for done, call in enumerate(calls, start=2):
        call()
        assert space.store.checkpoints()[-1].number == done
    space.rollback()
    assert list(table.family("f").items()) == [(b"c", b"3"), (b"d", b"4"), (b"e", b"5")]
    with pytest.raises(BadKeyVersionError):
        table.put_if_absent(b"c", b"", "f")
    assert space.store.checkpoints()[-1].number == len(calls) + 1


@pytest.mark.usefixtures("only_new_garbage")
def test_an_interruption_that_is_let_go_late_puts_no_value_back() -> None:
    for number in count():
        space, kept = PersistedObjectSpace(CheckpointStore(":memory:")), list[BaseException]()
        manager = KeyValueTableManager(space, autocommit=True)
        manager.create_scope("s")
        manager.create_key_value_table("s", "t", KeyValueTableConfiguration(1))
        table = manager.open_key_value_table("s", "t")
        if not interrupted(lambda: table.put(b"k", b"1", "f"), number, where=at_exit, kept=kept):  # noqa: B023
            break
        space.rollback()
        table.put(b"k", b"2", "f")
        kept.clear()
        gc.collect()
        assert list(table.family("f").items()) == [(b"k", b"2")]
    assert number > 0


def test_a_call_that_cannot_commit_leaves_nothing_behind(
    space: PersistedObjectSpace, manager: KeyValueTableManager
) -> None:
    table = manager.open_key_value_table("s", "t", autocommit=True)
    kept = table.put(b"kept", b"1", "f")
    calls = [
        lambda: table.put(b"new", b"2", "f"),
        lambda: table.put_all("f", [(b"kept", b"2"), (b"new", b"2")]),
        lambda: table.remove(b"kept", key_family="f"),
    ]
    writer = space.store.writer()
    space.save(writer)
    for call in calls:
        with pytest.raises(CheckpointProtocolError):
            call()
    assert [table.get(b"kept", "f"), table.get(b"new", "f")] == [TableEntry(TableKey(b"kept", kept), b"1"), None]
    writer.rollback()
    assert table.put(b"other", b"3", "f").number > kept.number
    again = KeyValueTableManager(PersistedObjectSpace(space.store)).open_key_value_table("s", "t")
    assert [key for key, _ in again.family("f").items()] == [b"kept", b"other"]


def test_an_autocommitting_manager_commits_its_calls_and_those_of_its_tables() -> None:
    store = CheckpointStore(":memory:")
    manager = KeyValueTableManager(PersistedObjectSpace(store), autocommit=True)
    manager.create_scope("s")
    manager.create_key_value_table("s", "t", KeyValueTableConfiguration(1))
    manager.open_key_value_table("s", "t").put(b"k", b"v")
    again = KeyValueTableManager(PersistedObjectSpace(store)).open_key_value_table("s", "t")
    assert again.exists(b"k")


def test_a_call_of_the_manager_that_cannot_commit_can_be_made_again(space: PersistedObjectSpace) -> None:
    manager = KeyValueTableManager(space, autocommit=True)
    calls = [
        lambda: manager.create_scope("s"),
        lambda: manager.create_key_value_table("s", "t", KeyValueTableConfiguration(1)),
        lambda: manager.seal_key_value_table("s", "t"),
        lambda: manager.delete_key_value_table("s", "t"),
        lambda: manager.delete_scope("s"),
    ]
    for done, call in enumerate(calls, start=1):
        writer = space.store.writer()
        space.save(writer)
        with pytest.raises(CheckpointProtocolError):
            call()
        writer.rollback()
        assert call()
        assert space.store.checkpoints()[-1].number == done
    assert not manager.delete_key_value_table("s", "t")


def test_a_table_that_could_not_be_sealed_takes_writes(space: PersistedObjectSpace, table: Table) -> None:
    space.checkpoint()
    writer = space.store.writer()
    space.save(writer)
    with pytest.raises(CheckpointProtocolError):
        KeyValueTableManager(space, autocommit=True).seal_key_value_table("s", "t")
    assert table.put(b"k", b"v")


def test_a_volatile_space_has_nothing_to_commit_to() -> None:
    with pytest.raises(ValueError, match="PersistedObjectSpace"):
        KeyValueTableManager(VolatileObjectSpace(), autocommit=True)
    with pytest.raises(ValueError, match="PersistedObjectSpace"):
        KeyValueTableManager(VolatileObjectSpace()).checkpoint()


def test_a_part_of_a_space_has_nothing_to_commit_to(space: PersistedObjectSpace) -> None:
    part = SpacePart(space, "op/")
    manager = KeyValueTableManager(part)
    manager.create_scope("s")
    manager.create_key_value_table("s", "t", KeyValueTableConfiguration(1))
    refused: list[Callable[[], object]] = [
        lambda: KeyValueTableManager(part, autocommit=True),
        lambda: manager.open_key_value_table("s", "t", autocommit=True),
        manager.checkpoint,
        manager.rollback,
    ]
    advice = ["leave out autocommit=True", "leave out autocommit=True", r"call checkpoint\(\)", r"call rollback\(\)"]
    for call, said in zip(refused, advice, strict=True):
        with pytest.raises(
            CheckpointProtocolError, match=rf"key-value tables in a part of a space \(op/\) cannot commit.*{said}"
        ):
            call()


def test_handles_follow_a_rollback(space: PersistedObjectSpace, manager: KeyValueTableManager, table: Table) -> None:
    with pytest.raises(CheckpointError):
        space.rollback(epoch=1)
    space.checkpoint(epoch=1)
    table.put(b"k", b"1", "f")
    space.rollback()
    assert table.get(b"k", "f") is None
    assert table.count() == 0
    table.put(b"k", b"2", "f")
    space.checkpoint(epoch=2)
    table.put(b"k", b"3", "f")
    manager.seal_key_value_table("s", "t")
    manager.rollback()
    assert table.get(b"k", "f").value == b"2"  # type: ignore[union-attr]
    table.put(b"k", b"4", "f")
    space.rollback(epoch=1)
    assert table.get(b"k", "f") is None
    table.put(b"k", b"5", "f")


def test_a_table_whose_creation_was_rolled_back_is_gone(
    space: PersistedObjectSpace, manager: KeyValueTableManager, table: Table
) -> None:
    table.put(b"k", b"v", "f")
    space.rollback()
    with pytest.raises(NoSuchTableError):
        table.get(b"k", "f")
    assert list(space) == []
    assert manager.list_scopes() == []
    assert manager.create_scope("s")


@pytest.mark.parametrize("count", [4, 16])
@pytest.mark.parametrize("is_scope_kept", [False, True])
@pytest.mark.parametrize("floor", [clock_floor, lambda: 0], ids=["clock", "none"])
def test_a_handle_of_before_a_rollback_is_none_on_the_table_created_anew(
    space: PersistedObjectSpace, floor: Callable[[], int], is_scope_kept: bool, count: int
) -> None:
    manager = KeyValueTableManager(space, version_floor=floor)
    manager.create_scope("s")
    if is_scope_kept:
        space.checkpoint()
    manager.create_key_value_table("s", "t", KeyValueTableConfiguration(16))
    old = manager.open_key_value_table("s", "t")
    old.put(b"k", b"old", "f")
    state = IteratorState.from_bytes(next(old.key_iterator("f")).state.to_bytes())
    manager.rollback()
    manager.create_scope("s")
    manager.create_key_value_table("s", "t", KeyValueTableConfiguration(count))
    for call in (lambda: old.put(b"k", b"v", "f"), lambda: old.get(b"k", "f"), lambda: old.key_iterator("f")):
        with pytest.raises(NoSuchTableError, match="open it again"):
            call()
    table = manager.open_key_value_table("s", "t")
    assert table.count() == 0
    if floor is clock_floor:  # Without it nothing that is stored tells the one creation from the other.
        with pytest.raises(ValueError, match="a state resumes where it was taken"):
            table.key_iterator("f", 1, state)


def test_a_state_of_a_creation_lost_in_a_crash_is_refused(space: PersistedObjectSpace, table: Table) -> None:
    table.put(b"k", b"v", "f")
    state = next(table.key_iterator("f")).state
    manager = KeyValueTableManager(PersistedObjectSpace(space.store))
    manager.create_scope("s")
    manager.create_key_value_table("s", "t", KeyValueTableConfiguration(4))
    with pytest.raises(ValueError, match="a state resumes where it was taken"):
        manager.open_key_value_table("s", "t").key_iterator("f", 1, state)


def test_a_table_of_before_there_were_tokens_goes_on(space: PersistedObjectSpace, manager: Any) -> None:
    entries = space.get_sorted_dictionary("kvt/catalogue")
    entries["s/t"] = {name: value for name, value in entries["s/t"].items() if name != "created"}
    table = manager.open_key_value_table("s", "t")
    table.put_all("f", [(b"a", b"1"), (b"b", b"2")])
    state = next(table.key_iterator("f", 1)).state.to_bytes()
    assert state.startswith(b'["kvt1","s/t",0,"f","00016661"]')
    manager.seal_key_value_table("s", "t")
    rest = list(table.key_iterator("f", 1, IteratorState.from_bytes(state)))
    assert [item.key for page in rest for item in page.items] == [b"b"]


def test_without_a_clock_a_creation_that_is_replayed_writes_the_same(space: PersistedObjectSpace) -> None:
    def attempt() -> Any:
        again = PersistedObjectSpace(space.store)
        manager = KeyValueTableManager(again, version_floor=lambda: 0)
        for table in "ab":
            manager.create_scope("r")
            manager.create_key_value_table("r", table, KeyValueTableConfiguration(3))
        return again.get_sorted_dictionary("kvt/catalogue").copy()

    assert attempt() == attempt()


def test_a_deletion_that_was_rolled_back_leaves_the_table(
    space: PersistedObjectSpace, manager: KeyValueTableManager, table: Table
) -> None:
    table.put(b"k", b"v", "f")
    space.checkpoint()
    manager.delete_key_value_table("s", "t")
    with pytest.raises(NoSuchTableError):
        table.exists(b"k", "f")
    space.rollback()
    assert table.exists(b"k", "f")


def test_an_earlier_epoch_can_be_read_and_not_written(space: PersistedObjectSpace, table: Table) -> None:
    table.put(b"k", b"1", "f")
    space.checkpoint(epoch=1)
    table.put(b"k", b"2", "f")
    space.checkpoint(epoch=2)
    then = KeyValueTableManager(space.at(epoch=1)).open_key_value_table("s", "t")
    assert then.get(b"k", "f").value == b"1"  # type: ignore[union-attr]
    for write in (lambda: then.put(b"k", b"3", "f"), lambda: then.put(b"new", b"3", "other")):
        with pytest.raises(CheckpointError, match="read-only"):
            write()
    assert then.get(b"k", "f").value == b"1"  # type: ignore[union-attr]


def test_handles_see_what_the_others_write(manager: KeyValueTableManager) -> None:
    one, other = (manager.open_key_value_table("s", "t") for _ in range(2))
    assert (one.get(b"k", "f"), other.get(b"k", "f")) == (None, None)
    version = one.put(b"k", b"1", "f")
    assert other.get(b"k", "f").key.version == version  # type: ignore[union-attr]
    assert other.put(b"k", b"2", "f") > version
    assert one.count() == 1


def test_a_sealed_table_can_be_read_only(manager: KeyValueTableManager, table: Table) -> None:
    version = table.put(b"k", b"v", "f")
    assert manager.seal_key_value_table("s", "t")
    for write in (
        lambda: table.put(b"k", b"w", "f"),
        lambda: table.remove(b"k", version, "f"),
        lambda: manager.open_key_value_table("s", "t").put_all("f", [(b"a", b"b")]),
    ):
        with pytest.raises(TableSealedError, match="sealed"):
            write()
    assert dict(table.family("f")) == {b"k": b"v"}
    assert manager.seal_key_value_table("s", "t")
    assert not manager.seal_key_value_table("s", "other")


def test_several_hundred_partitions_cost_what_is_used(space: PersistedObjectSpace, manager: Any) -> None:
    manager.create_key_value_table("s", "wide", KeyValueTableConfiguration(700))
    table = manager.open_key_value_table("s", "wide")
    objects = len(space)
    table.put(b"k", b"v", "f")
    assert len(space) == objects + 2
    versions = [table.put(b"k%d" % place, b"v") for place in range(3_000)]
    space.checkpoint()
    assert len({version.partition for version in versions}) > 600
    again = KeyValueTableManager(PersistedObjectSpace(space.store)).open_key_value_table("s", "wide")
    pages = list(again.global_key_iterator(500))
    assert [len(page.items) for page in pages] == [500] * 6 + [1]
    assert manager.delete_key_value_table("s", "wide")
    assert len(space) == 2


class Interrupted:
    """A dictionary of rows whose writes fail from the second on, or after so many."""

    def __init__(self, rows: Any, allowed: int = 1) -> None:
        self.rows, self.left = rows, allowed

    def __setitem__(self, key: bytes, row: Any) -> None:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        self.rows[key] = row

    def __getattr__(self, name: str) -> Any:
        self.left = 10 if name == "pop" else self.left
        return getattr(self.rows, name)

    def __contains__(self, key: bytes) -> bool:
        return key in self.rows

    def __getitem__(self, key: bytes) -> Any:
        return self.rows[key]


@pytest.mark.parametrize("write", ["put", "put_if_absent"])
def test_an_interrupted_write_wastes_a_number_and_gives_none_twice(table: Table, write: str) -> None:
    old = table.put(b"b", b"old", "f")
    partition = table._partition(table._family_place("f")[1])
    rows = partition._rows
    for allowed in (0, 1):
        partition._rows = Interrupted(rows, allowed)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            getattr(table, write)(b"%d" % allowed, b"v", "f")
            getattr(table, write)(b"again", b"v", "f")
        partition._rows = rows
    versions = [entry.key.version for page in table.entry_iterator("f") for entry in page.items]
    assert (len(set(versions)), min(versions)) == (2, old)
    assert table.put(b"next", b"v", "f") > max(versions)
    assert partition._counter.value == old.number + 4


@pytest.mark.parametrize("deleted", range(6))
def test_a_deletion_that_is_interrupted_is_finished_by_the_next(
    space: PersistedObjectSpace, manager: Any, table: Table, monkeypatch: pytest.MonkeyPatch, deleted: int
) -> None:
    written = {table.put(b"k%d" % place, b"v").partition for place in range(9)}
    calls = [*[space.delete] * deleted, Mock(side_effect=KeyboardInterrupt)]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(space, "delete", lambda name: calls.pop(0)(name))
        manager.delete_key_value_table("s", "t")
    assert len(written) > 2
    assert manager.list_key_value_tables("s") == ["t"]
    assert table.count() < 9 or deleted < 2
    with pytest.raises(TableSealedError):
        table.put(b"k", b"v", "f")
    assert manager.delete_key_value_table("s", "t")
    assert sorted(space) == ["kvt/catalogue", "kvt/partitions"]
    assert not manager.delete_key_value_table("s", "t")


def test_a_batch_that_is_interrupted_is_undone(space: PersistedObjectSpace, table: Table) -> None:
    table.put(b"b", b"old", "f")
    partition = table._partition(table._family_place("f")[1])
    rows = partition._rows
    partition._rows = Interrupted(rows)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        table.put_all("f", [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
    partition._rows = rows
    assert dict(table.family("f")) == {b"b": b"old"}
    assert table.put(b"b", b"new", "f") != KeyVersion.NO_VERSION


PARTITION = ("objectspace.kvt.partition", "objectspace.objects.sorted", "objectspace.objects.table")
"""Where the lines are at which a batch is interrupted."""


def test_a_batch_that_removes_a_key_and_sets_it_again_is_undone_or_refused_wherever_it_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, at_scale: bool
) -> None:
    monkeypatch.setattr(limits, "WHOLE_SLOTS", 0)
    entries, came, lines = {b"%02d" % place: b"v" for place in range(40)}, True, 0
    with CheckpointStore(":memory:") as store:
        tables = KeyValueTableManager(PersistedObjectSpace(store), autocommit=True)
        tables.create_scope("s")
        tables.create_key_value_table("s", "t", KeyValueTableConfiguration(1))
        tables.open_key_value_table("s", "t").put_all("f", list(entries.items()))
        while came:
            space = PersistedObjectSpace(store)
            table = KeyValueTableManager(space).open_key_value_table("s", "t")
            batch = [Remove(b"07"), Put(b"07", b"new"), Put(b"new", b""), Remove(b"new"), Put(b"new", b"")]
            came = interrupted(lambda: table.apply("f", batch), lines, PARTITION)  # noqa: B023
            with suppress(CheckpointProtocolError):
                space.checkpoint()
                found = dict(
                    KeyValueTableManager(PersistedObjectSpace(store)).open_key_value_table("s", "t").family("f")
                )
                assert found == (entries if came else entries | {b"07": b"new", b"new": b""}), f"after {lines} lines"
                assert table.count() == table.count("f") == len(found)
                assert store.verify()
            lines += 1 if at_scale else 4
    assert lines > 300


def fill(path: Path, entries: dict[bytes, bytes]) -> None:
    """Make a store with a table of one partition and some entries in one family."""
    with PersistedObjectSpace.open(path) as space:
        manager = KeyValueTableManager(space, autocommit=True)
        manager.create_scope("s")
        manager.create_scope("s")
        manager.create_key_value_table("s", "t", KeyValueTableConfiguration(1))
        manager.open_key_value_table("s", "t").put_all("f", entries.items())


@pytest.mark.parametrize("operation", range(1, 26, 2))
@pytest.mark.parametrize("autocommit", [False, True])
def test_a_batch_whose_storage_fails_from_then_on_is_undone(tmp_path: Path, operation: int, autocommit: bool) -> None:
    old = {b"%d" % place: b"old" for place in range(1_500)}
    with failing(fault := Fault(10**9, LASTING)):
        fill(tmp_path / "state.db", old)
        with PersistedObjectSpace.open(tmp_path / "state.db", cache_slots=1) as space:
            table = KeyValueTableManager(space).open_key_value_table("s", "t", autocommit=autocommit)
            fault.at = fault.seen + operation
            try:
                table.apply("f", [Remove(b"9"), Remove(b"absent"), Put(b"0", b"new"), Put(b"x", b"new"), Remove(b"3")])
            except FAILURES:
                fault.at = 10**9
                space.store.reopen()
                assert dict(table.family("f")) == old


@pytest.mark.parametrize("operation", range(1, 9))
def test_a_handle_goes_on_after_a_reading_that_has_failed(tmp_path: Path, operation: int) -> None:
    with failing(fault := Fault(10**9, ONCE)):
        with PersistedObjectSpace.open(tmp_path / "state.db") as space:
            manager = KeyValueTableManager(space, autocommit=True)
            manager.create_scope("s")
            manager.create_key_value_table("s", "t", KeyValueTableConfiguration(1))
            manager.open_key_value_table("s", "t").put(b"k", b"v", "f")
        with PersistedObjectSpace.open(tmp_path / "state.db") as space:
            table = KeyValueTableManager(space).open_key_value_table("s", "t")
            fault.at = fault.seen + operation
            with suppress(*FAILURES):
                table.get(b"k", "f")
            fault.at = 10**9
            assert table.get(b"k", "f").value == b"v"  # type: ignore[union-attr]
            assert table.put(b"k", b"w", "f").partition == 0


@pytest.mark.parametrize("interrupted", ["create_sorted_dictionary", "get_or_create_value"])
def test_a_partition_whose_making_was_interrupted_is_made(
    space: PersistedObjectSpace, manager: Any, table: Table, monkeypatch: pytest.MonkeyPatch, interrupted: str
) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(space, interrupted, Mock(side_effect=KeyboardInterrupt))
        table.put(b"k", b"v", "f")
    assert table.get(b"k", "f") is None
    for handle in (table, manager.open_key_value_table("s", "t")):
        assert handle.put(b"k", b"v", "f").number


def test_a_partition_without_a_counter_gets_one(space: PersistedObjectSpace, manager: Any, table: Table) -> None:
    first = table.put(b"k", b"v", "f")
    space.delete(f"kvt/s/t/{first.partition}/version")
    again = manager.open_key_value_table("s", "t")
    assert again.get(b"k", "f").key.version == first
    assert again.put(b"k", b"v", "f") > first


@pytest.mark.parametrize("second", range(1, 14))
def test_a_removal_that_fails_twice_loses_no_key(tmp_path: Path, second: int) -> None:
    old = {b"%d" % place: b"old" for place in range(3)}
    with failing(fault := Fault(10**9, LASTING)):
        fill(tmp_path / "state.db", old)
        with PersistedObjectSpace.open(tmp_path / "state.db", cache_slots=1) as space:
            table = KeyValueTableManager(space).open_key_value_table("s", "t", autocommit=True)
            for operation in (10, second):  # The first commit succeeds, and its end is not seen.
                fault.at = fault.seen + operation
                with pytest.raises(FAILURES):
                    table.remove(b"1", key_family="f")
                fault.at = 10**9
                space.store.reopen()
                assert dict(table.family("f")) == old
            space.checkpoint()
        with PersistedObjectSpace.open(tmp_path / "state.db") as space:
            after = KeyValueTableManager(space).open_key_value_table("s", "t")
            assert dict(after.family("f")) == old
