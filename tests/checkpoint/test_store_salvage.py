"""Salvaging: what can be read of a store that nothing proves goes on where that is asked for, and losses are told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoint import CheckpointKind, CheckpointStore, CorruptStoreError, Repair, Run, UnknownCheckpointError
from objectspace import (
    CheckpointProtocolError,
    DamagedObjectError,
    ObjectSpaceError,
    PersistedObjectSpace,
    WrongKindError,
)
from tests.checkpoint.store_helpers import FULL, Fault, crash_points, image_of, images, quick_store, retained, values_in
from tests.checkpoint.test_store_repair import make, merged_runs

SPOIL = "UPDATE state_item SET value = '{broken' WHERE object = 1"


def two_lists(path: Path | str, damage: str = SPOIL) -> CheckpointStore:
    """Return a store of two lists and a dictionary of lists, of whose first checkpoint something is damaged."""
    store = CheckpointStore(path, durability="normal")
    space = PersistedObjectSpace(store)
    space.create_list("a").append(1)
    space.create_list("b").append(7)
    space.create_dictionary("lists", of=list)["x"] = [1, 2]
    space.checkpoint(epoch=10)
    space.get_list("b").append(8)
    space.checkpoint(epoch=20)
    store.database.conn.execute(damage)
    store.reopen()  # which forgets the rows that it has in memory still
    return store


def require_sound(store: CheckpointStore) -> None:
    """Do all that a store with a damaged run refuses."""
    assert store.verify() > 0
    space = PersistedObjectSpace(store)
    space.checkpoint(kind=CheckpointKind.FULL)
    store.compact()
    store.prune(keep=1)
    assert store.verify() > 0


def test_what_can_be_read_goes_on_where_nothing_can_be_proved(tmp_path: Path) -> None:
    store = two_lists(tmp_path / "state.db")
    report = store.repair(salvage=True)
    assert len(report.damage) == 1
    assert report.objects_lost == (
        "List 'a' has a slot 0 of '{broken', which cannot be read (unexpected character, expected a string key:"
        " line 1 column 2 (char 1))",
    )
    assert report.unproved == ("List 'b'", "Dictionary 'lists'")
    assert (report.lost, report.newest) == ((1, 2), 3)
    space = PersistedObjectSpace(store)
    assert (sorted(space), list(space.get_list("b"))) == (["b", "lists"], [7, 8])
    assert list(space.get_dictionary("lists")["x"]) == [1, 2]
    require_sound(store)


def test_an_object_that_was_deleted_first_is_lost_to_nobody_anew(tmp_path: Path) -> None:
    store = two_lists(tmp_path / "state.db")
    space = PersistedObjectSpace(store)
    with pytest.raises(DamagedObjectError, match=r"delete this one, .* repair\(salvage=True\) makes it sound"):
        list(space.get_list("a"))
    space.delete("a")
    space.checkpoint()
    report = store.repair(salvage=True)
    assert (report.objects_lost, report.newest) == ((), 4)
    require_sound(store)


def test_nothing_is_salvaged_unasked() -> None:
    store = two_lists(":memory:")
    before = image_of(store.reader())
    for refused in (store.verify, store.compact, store.repair, lambda: store.prune(keep=1)):
        with pytest.raises(CorruptStoreError, match=r"or go on with what can still be read by repair\(salvage=True\)"):
            refused()
    assert (retained(store), image_of(store.reader())) == ([1, 2], before)


def test_where_the_newest_checkpoint_can_be_proved_a_salvage_is_a_repair() -> None:
    reports: list[Repair] = []
    for salvage in (False, True):
        store = make(":memory:")
        before = images(store)
        store.database.conn.execute(f"DELETE FROM state_item WHERE checkpoint = {merged_runs(store)[0]}")
        reports.append(store.repair(salvage=salvage))
        assert (images(store), reports[-1].newest) == (before, 40)
    assert reports[0] == reports[1]


def test_the_newest_state_is_kept_rather_than_the_one_before_the_damage_and_its_epoch_stays() -> None:
    store = make(":memory:")
    before, newest = images(store), store.reader()
    store.database.conn.execute("UPDATE state_item SET value = '7' WHERE checkpoint = 38 AND slot = 138")
    expected = values_in(store.reader())
    report = store.repair(salvage=True)
    assert (report.lost, report.newest, report.unproved) == ((38, 39, 40), 41, ("Sample 'o1'",))
    assert values_in(store.reader()) == expected
    assert (expected[138], expected[140]) == (7, "x")
    assert {number: image for number, image in images(store).items() if number < 41} == {
        number: image for number, image in before.items() if number < 38
    }
    assert [record.epoch for record in store.checkpoints()][-2:] == [37, 40]
    assert store.next_epoch() == 41
    with pytest.raises(UnknownCheckpointError, match="dropped by a repair"):
        newest.item(1, 138)
    assert store.verify() == 38


def test_a_space_that_is_open_takes_the_salvaged_state_over_by_its_rollback() -> None:
    store = two_lists(":memory:")
    space = PersistedObjectSpace(store)
    space.get_list("b").append(9)
    store.repair(salvage=True)
    with pytest.raises(CheckpointProtocolError, match=r"pick that up with rollback\(\)"):
        space.checkpoint()
    space.rollback()
    space.get_list("b").append(10)
    space.checkpoint(epoch=21)
    assert list(space.get_list("b")) == [7, 8, 10]
    assert store.verify() == 2


@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        ("DELETE FROM state_item WHERE object = 1", "List 'a' has 0 slots where its metadata says 1"),
        ("UPDATE state_item SET value = CAST(x'ff31' AS TEXT) WHERE object = 1", "List 'a' has a text that cannot be"),
        ("UPDATE state_item SET rank = 'x' WHERE object = 1", "List 'a' has a slot 0 of rank 'x'"),
        ("UPDATE state_metadata SET value = 'x' WHERE object = 1", "List 'a' has invalid metadata"),
        ("UPDATE state_metadata SET value = 7 WHERE object = 1", "List 'a' has 1 slots where its metadata says 7"),
        ("UPDATE state_index SET codec = '{' WHERE object = 1", "List 'a' has a codec '{' in the index"),
        ("UPDATE state_index SET name = x'ff' WHERE object = 1", "object 1 has the name b'\\xff' and the kind 'List'"),
        ("UPDATE state_index SET name = CAST(x'ff' AS TEXT) WHERE object = 1", "object 1 has an index row that cannot"),
        ("UPDATE state_index SET name = 'b' WHERE object = 1", "List 'b' (object 2) has a name that another one has"),
        ("DELETE FROM state_index WHERE object = 1", "rows of objects that have no name: 1 ("),
        ("UPDATE state_item SET value = '{' WHERE object = 3", "Dictionary 'lists' has a slot 'x' of '{', which"),
        (
            "UPDATE state_item SET value = '[]' WHERE object = 3",
            "Dictionary 'lists' has a slot 'x' that says no object",
        ),
        ("UPDATE state_item SET value = '{' WHERE object = 4", "List 4 in 'lists' has a slot 0 of '{', which"),
        ("DELETE FROM state_item WHERE object = 4 AND slot = 1", "List 4 in 'lists' has 1 slots where its metadata"),
    ],
)
def test_an_object_that_cannot_be_read_whole_is_left_out_and_named(damage: str, lost: str) -> None:
    store = two_lists(":memory:", damage)
    report = store.repair(salvage=True)
    assert report.objects_lost[0].startswith(lost)
    space = PersistedObjectSpace(store)
    assert len(space) == 2
    for name in space:
        list(space.get(name))
    require_sound(store)


def test_a_value_whose_slot_is_gone_is_left_out() -> None:
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    space.create_value("v", 1)
    space.checkpoint()
    store.database.conn.execute("DELETE FROM state_item")
    assert store.repair(salvage=True).objects_lost == ("Value 'v' has no slot 'value'",)


def test_a_store_whose_base_is_damaged_goes_on_from_it() -> None:
    store = make(":memory:")
    store.compact()
    expected = values_in(store.reader())
    store.database.conn.execute("UPDATE state_item SET value = '7' WHERE slot = 138")
    with pytest.raises(CorruptStoreError, match="no checkpoint can be proved"):
        store.repair()
    report = store.repair(salvage=True)
    assert (report.lost, report.newest) == ((40,), 41)
    assert values_in(store.reader()) == expected | {138: 7}
    assert (store.verify(), store.append(Run(FULL)).number) == (1, 42)


def test_a_salvage_survives_every_crash_point(
    tmp_path: Path, inject: Callable[[Fault | None], None], some_fault: dict[str, Any], at_scale: bool, apart: int
) -> None:
    begin, path = tmp_path / "begin.db", tmp_path / "state.db"
    with make(begin, 38) as store:
        store.database.conn.execute("UPDATE state_item SET value = '7' WHERE checkpoint = 36 AND slot = 136")
        expected = values_in(store.reader())
    points = 0

    def work() -> None:
        path.write_bytes(begin.read_bytes())
        with quick_store(path, history=100) as store:
            store.repair(salvage=True)

    for _ in crash_points(inject, some_fault, work, step=1 if at_scale else 20 * apart):
        with quick_store(path, history=100) as store:
            report = store.repair(salvage=True)
            assert report.newest == 39
            assert values_in(store.reader()) == expected
            assert store.verify() == 36
        for file in tmp_path.glob("state.db*"):
            file.unlink()
        points += 1
    assert apart * points > 20


def test_a_fork_of_what_cannot_be_proved_is_refused_and_one_from_before_it_is_made(tmp_path: Path) -> None:
    store = make(tmp_path / "state.db")
    store.database.conn.execute("UPDATE state_item SET value = '7' WHERE checkpoint = 38")
    with pytest.raises(CorruptStoreError, match=r"checkpoint 38 .* do not have the digest .*repair\(salvage=True\)"):
        store.fork(tmp_path / "fork.db")
    assert [file.name for file in tmp_path.iterdir() if "fork" in file.name] == []
    store.fork(tmp_path / "fork.db", epoch=37)
    with CheckpointStore(tmp_path / "fork.db") as fork:
        assert fork.verify() == 37
    store.repair(salvage=True)
    store.fork(tmp_path / "later.db")
    with CheckpointStore(tmp_path / "later.db") as later:
        assert (later.verify(), values_in(later.reader())) == (38, values_in(store.reader()))


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        ("UPDATE state_index SET kind = 'x' WHERE name = 'a'", WrongKindError),
        ("""UPDATE state_item SET value = '{"$":1}' WHERE object = 1""", DamagedObjectError),
    ],
)
def test_what_can_be_read_and_is_nothing_is_kept_and_says_to_delete_it(
    damage: str, error: type[ObjectSpaceError]
) -> None:
    store = two_lists(":memory:", damage)
    assert store.repair(salvage=True).objects_lost == ()
    space = PersistedObjectSpace(store)
    with pytest.raises(error, match="delete this one"):
        list(space.get("a"))
    space.delete("a")
    space.checkpoint()
    assert sorted(space) == ["b", "lists"]
    require_sound(store)
