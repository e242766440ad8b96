"""Differences: what leads from one checkpoint to another, applied or inverted, gives just the other one."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint import (
    Change,
    CheckpointError,
    CheckpointStore,
    IndexEntry,
    Reader,
    Table,
    UnknownCheckpointError,
    invert,
)
from checkpoint.diff import _Comparison
from checkpoint.tool.patch import changes_of, lines_of
from objectspace import PersistedObjectSpace
from objectspace.objects import limits
from tests.checkpoint.store_helpers import FULL, image_of, quick_store, retained, run_of, values_in
from tests.checkpoint.world import World, store_of


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from([1, 3, 60]), st.integers(2, 40))
def test_a_difference_leads_from_any_checkpoint_to_any_other(rng: random.Random, history: int, count: int) -> None:
    world = World(rng)
    runs = [world.run() for _ in range(count)]
    store = store_of(runs, history)
    a, b = rng.choice([0, *retained(store)]), rng.choice(retained(store))
    changes = list(store.diff(a, b))
    assert list(invert(changes)) == list(store.diff(b, a))
    before, after = store_of(runs[:a], history), store_of(runs[:b], history)
    assert changes == list(_Comparison(before.reader(), after.reader()).changes())
    expected_before, expected_after = image_of(before.reader()), image_of(after.reader())
    before.apply_changes(changes)
    assert image_of(before.reader()) == expected_after
    after.apply_changes(invert(changes))
    assert image_of(after.reader()) == expected_before
    assert list(before.diff(after.reader())) == changes


@settings(max_examples=15, deadline=None)
@given(st.randoms(use_true_random=False))
def test_what_is_applied_and_taken_back_many_times_stays_right(rng: random.Random) -> None:
    world = World(rng)
    store = store_of([world.run() for _ in range(12)], 3)
    images = {}
    for _ in range(25):
        newest = store.next_number() - 1
        images[newest] = image_of(store.reader())
        target = rng.choice(retained(store))
        images.setdefault(target, image_of(store.reader(target)))
        store.apply_changes(store.diff(newest, target))
        assert image_of(store.reader()) == images[target]
    assert store.verify() == len(retained(store))


def test_an_owned_object_that_came_back_and_went_again_is_in_no_difference() -> None:
    store = quick_store(":memory:")
    space = PersistedObjectSpace(store)
    groups = space.create_dictionary("groups", of=list)
    groups["a"] = [1]
    space.checkpoint(epoch=1)
    groups["a"].append(2)
    space.checkpoint(epoch=2)
    groups["a"] = [3]
    space.checkpoint(epoch=3)
    # The list of the first epoch is out of reach in the third, with one value more.
    first, third = store.reader(1), store.reader(3)
    for state in (first, third, first, third):
        store.apply_changes(store.diff(store.reader(), state))
        assert image_of(store.reader()) == image_of(state)
        assert list(store.diff(store.reader(), state)) == []


def space_with_everything(store: CheckpointStore) -> PersistedObjectSpace:
    space = PersistedObjectSpace(store)
    groups = space.create_dictionary("groups", of=list)
    groups["a"], groups["b"] = [1, 2], [3]
    cells = space.create_array("cells", 1000, default=0)
    space.checkpoint(epoch=10)
    cells[7] = 42
    groups["a"].append(9)
    del groups["b"]
    space.rename("cells", "board")
    space.create_value("v", 1)
    space.checkpoint(epoch=20)
    return space


def test_changes_are_typed_and_name_what_changed() -> None:
    store = quick_store(":memory:")
    space_with_everything(store)
    changes = list(store.diff(a_epoch=10, b_epoch=20))
    renamed, cell = (change for change in changes if change.name == "board")
    assert (renamed.table, renamed.slot) == (Table.INDEX, None)
    assert isinstance(renamed.old, IndexEntry)
    assert renamed.old.name == "cells"
    assert (cell.table, cell.kind, cell.slot, cell.old, cell.new) == (Table.ITEM, "Array", 7, "0", "42")
    owned = {(change.old, change.new) for change in changes if change.name is None and change.table is Table.ITEM}
    assert owned == {(None, "9"), ("3", None)}
    key = next(change for change in changes if change.name == "groups" and change.slot == "b")
    assert (key.new, key.old_rank, key.new_rank) == (None, 1, None)


def test_a_space_goes_back_and_forth_by_its_changes() -> None:
    store = quick_store(":memory:")
    space = space_with_everything(store)
    forth = list(store.diff(1, 2))
    store.apply_changes(invert(forth), epoch=30)
    space.rollback()
    assert {key: list(group) for key, group in space.get("groups").items()} == {"a": [1, 2], "b": [3]}
    assert (list(space), space.get("cells")[7]) == (["groups", "cells"], 0)
    store.apply_changes(forth)
    space.rollback()
    assert {key: list(group) for key, group in space.get("groups").items()} == {"a": [1, 2, 9]}
    assert (space.get("board")[7], space.get("v").value) == (42, 1)


def test_only_the_rows_of_the_runs_between_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    store = quick_store(":memory:")
    store.append(run_of(dict.fromkeys(range(5000), 0)))
    store.append(run_of({17: 1, 4000: 2}))
    seen: list[Any] = []
    rows = store.session.rows
    monkeypatch.setattr(store.session, "rows", lambda *query: [seen.extend(found := rows(*query)), found][1])
    assert [change.slot for change in store.diff(1, 2)] == [17, 4000]
    assert [change.slot for change in store.diff(2, 1)] == [17, 4000]
    assert len(seen) < 30


def test_a_difference_holds_few_large_values_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    store = quick_store(":memory:")
    for letter in "ab":
        store.append(run_of(dict.fromkeys(range(40), letter * 200000)))
    asked: list[int] = []
    items_at = Reader.items_at

    def _noted(reader: Reader, object_id: int, slots: Sequence[Any]) -> Any:
        asked.append(len(slots))
        return items_at(reader, object_id, slots)

    monkeypatch.setattr(Reader, "items_at", _noted)
    assert [change.slot for change in store.diff(1, 2)] == list(range(40))
    assert (sum(asked), asked[0] <= 16, max(asked[1:]) < 12) == (40, True, True)


def test_a_difference_stays_what_it_was_while_the_store_goes_on() -> None:
    store = quick_store(":memory:", history=1)
    store.append(run_of({slot: slot for slot in range(3000)}))
    store.append(run_of({slot: -slot for slot in range(3000)}))
    changes = store.diff(1, 2)
    first = next(changes)
    for number in range(40):
        store.append(run_of({number: "later"}, FULL if number == 20 else "differential"))
    assert (first.old, first.new) == ("1", "-1")
    assert [(change.old, change.new) for change in changes] == [(str(n), str(-n)) for n in range(2, 3000)]


def of_two_forks(path: Path) -> tuple[CheckpointStore, CheckpointStore]:
    """Return two stores with objects of their own under the same ids."""
    with PersistedObjectSpace.open(path / "a.db") as space:
        space.checkpoint()
        space.store.fork(path / "b.db")
    return quick_store(path / "a.db"), quick_store(path / "b.db")


def changed_afterwards(store: CheckpointStore, name: str, kind: str) -> list[Change]:
    """Return what changes in an object that was stored before."""
    space = PersistedObjectSpace(store)
    target = getattr(space, f"create_{kind}")(name)
    space.checkpoint()
    getattr(target, "append" if kind == "list" else "add")(2)
    space.checkpoint()
    return list(store.diff(2, 3))


@pytest.mark.parametrize("is_inverted", [False, True])
@pytest.mark.parametrize(("name", "kind"), [("log", "List"), ("prices", "List"), ("log", "Set")])
def test_changes_of_another_object_of_the_same_id_are_refused(
    tmp_path: Path, name: str, kind: str, is_inverted: bool
) -> None:
    here, there = of_two_forks(tmp_path)
    space = PersistedObjectSpace(here)
    space.create_set("prices").add(1)
    space.checkpoint()
    changes = changed_afterwards(there, name, kind.lower())
    expected = rf"is of {kind} '{name}', but object 1 is Set 'prices' here.*nothing was written"
    with pytest.raises(CheckpointError, match=expected):
        here.apply_changes(invert(changes) if is_inverted else changes)
    assert (set(PersistedObjectSpace(here).get("prices")), here.next_number()) == ({1}, 3)


def test_changes_of_an_owned_object_are_none_of_a_named_one_of_its_id(tmp_path: Path) -> None:
    here, there = of_two_forks(tmp_path)
    ours, theirs = PersistedObjectSpace(here), PersistedObjectSpace(there)
    for name in ("one", "two"):
        ours.create_list(name)
    ours.checkpoint()
    owned = theirs.create_dictionary("one", of=list).setdefault("a")
    theirs.checkpoint()
    owned.append(5)
    theirs.checkpoint()
    with pytest.raises(CheckpointError, match="is of an object that another one owns, but object 2 is List 'two' here"):
        here.apply_changes(there.diff(2, 3))
    assert PersistedObjectSpace(here).get("two") == []


def test_changes_of_an_object_that_was_renamed_since_are_applied() -> None:
    store = quick_store(":memory:")
    space = PersistedObjectSpace(store)
    items = space.create_list("l")
    for value in (1, 2):
        items.append(value)
        space.checkpoint()
    space.rename("l", "m")
    space.checkpoint()
    store.apply_changes(invert(store.diff(1, 2)))
    space.rollback()
    assert (list(space), items, space.get("m") is items) == (["m"], [1], True)
    store.apply_changes(invert(store.diff(1, 4)))
    space.rollback()
    assert (list(space), items, space.get("l") is items) == (["l"], [1], True)


def test_changes_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    store = quick_store(tmp_path / "state.db")
    store.append(run_of({1: "a"}))
    store.append(run_of({1: "b"}))
    store.append(run_of({1: "c"}))
    with pytest.raises(
        CheckpointError, match=r"slot 1 of object 1, 'o1', holds [^(]*: something else has changed it since"
    ):
        store.apply_changes(store.diff(1, 2))
    with pytest.raises(
        CheckpointError, match=r"object 9, 'gone', is to change, but there is no such object \(any more\)"
    ):
        store.apply_changes([Change(Table.ITEM, 9, "gone", "Array", 1, None, "1")])
    with pytest.raises(CheckpointError, match="slot None of object 1, 'o1', holds"):
        store.apply_changes(store.diff(0, 1))
    with pytest.raises(CheckpointError, match="bring an object 'o1', and another one has this name"):
        store.apply_changes([Change(Table.INDEX, 9, "o1", "Array", None, None, IndexEntry("o1", "Array", "{}"))])
    with pytest.raises(CheckpointError, match="names no slot"):
        store.apply_changes([Change(Table.ITEM, 1, "o1", "Sample", None, None, "1")])
    with pytest.raises(UnknownCheckpointError, match="has no checkpoint 9"):
        store.diff(1, 9)
    assert (values_in(store.reader()), store.next_number()) == ({1: "c"}, 4)
    store.close()
    with quick_store(tmp_path / "state.db", read_only=True) as reading:
        assert len(list(reading.diff())) == 2
        with pytest.raises(CheckpointError, match="read_only=True"):
            reading.apply_changes([])


Edit = Callable[[PersistedObjectSpace], object]


def put(name: str, key: Any) -> Edit:
    return lambda space: space.get_dictionary(name).update({key: [name]})


def create(name: str) -> Edit:
    return lambda space: space.create_list(name).append(name)


def forked(path: Path) -> tuple[PersistedObjectSpace, PersistedObjectSpace]:
    """Return a space with two dictionaries of lists, and one on a fork of its store."""
    here = PersistedObjectSpace.open(path / "a.db")
    for name in ("g", "h"):
        here.create_dictionary(name, of=list)["x"] = [0]
    here.checkpoint(epoch=1)
    here.store.fork(path / "b.db")
    return here, PersistedObjectSpace.open(path / "b.db")


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (put("g", "k"), put("h", "q"), r"bring object 5, h\['q'\], but object 5 is g\['k'\] here"),
        (put("g", (1, b"k")), put("h", b"q"), r"5, h\[b'q'\], but object 5 is g\[{'\$tuple': \[1, {'\$bytes': "),
        (create("mine"), put("h", "q"), r"bring object 5, h\['q'\], but object 5 is List 'mine' here"),
        (put("g", "k"), create("theirs"), r"bring object 5, List 'theirs', but object 5 is g\['k'\] here"),
    ],
)
def test_an_object_of_a_fork_takes_the_place_of_none_that_has_its_id(
    tmp_path: Path, ours: Edit, theirs: Edit, expected: str
) -> None:
    here, there = forked(tmp_path)
    for space, edit in ((here, ours), (there, theirs)):
        edit(space)
        space.checkpoint(epoch=2)
    image = image_of(here.store.reader())
    with pytest.raises(CheckpointError, match=f"{expected}.*gives ids that are free; nothing was written"):
        here.store.apply_changes(there.store.diff(a_epoch=1, b_epoch=2))
    assert (image_of(here.store.reader()), here.last_epoch) == (image, 2)


@pytest.mark.parametrize("is_inverted", [False, True])
def test_changes_of_an_owned_object_are_none_of_the_one_that_has_its_id(tmp_path: Path, is_inverted: bool) -> None:
    here, there = forked(tmp_path)
    put("h", "q")(there)
    there.checkpoint(epoch=2)
    there.get_dictionary("h")["q"].append(7)
    there.checkpoint(epoch=3)
    here.get_dictionary("g")["k"] = ["h", 7] if is_inverted else ["h"]
    here.checkpoint(epoch=2)
    changes = list(there.store.diff(a_epoch=2, b_epoch=3))
    with pytest.raises(CheckpointError, match=r"is of object 5, h\['q'\], but object 5 is g\['k'\] here.*nothing was"):
        here.store.apply_changes(invert(changes) if is_inverted else changes)
    there.store.apply_changes(invert(changes))
    there.rollback()
    assert there.get_dictionary("h")["q"] == ["h"]


def test_changes_of_a_fork_in_owned_objects_of_both_are_applied(tmp_path: Path) -> None:
    here, there = forked(tmp_path)
    here.get_dictionary("g")["x"].append("here")
    here.rename("h", "renamed")
    here.checkpoint(epoch=2)
    there.get_dictionary("h")["x"].append("there")
    there.checkpoint(epoch=2)
    changes = list(there.store.diff(a_epoch=1, b_epoch=2))
    assert {change.owner and (change.owner.name, change.owner.slot, change.owner.new) for change in changes} == {
        ("h", "x", '{"$object":4}')
    }
    here.store.apply_changes(changes)
    here.rollback()
    assert {name: here.get_dictionary(name).copy() for name in here} == {
        "g": {"x": [0, "here"]},
        "renamed": {"x": [0, "there"]},
    }


def test_an_object_of_a_fork_may_have_the_id_of_one_that_is_gone(tmp_path: Path) -> None:
    here, there = forked(tmp_path)
    create("mine")(here)
    here.checkpoint(epoch=2)
    here.delete("mine")
    here.checkpoint(epoch=3)
    put("h", "q")(there)
    there.checkpoint(epoch=2)
    here.store.apply_changes(there.store.diff(a_epoch=1, b_epoch=2))
    here.rollback()
    assert here.get_dictionary("h").copy() == {"x": [0], "q": ["h"]}
    old, new = here.store.reader(epoch=2), here.store.reader()
    assert list(here.store.diff(old, new)) == list(_Comparison(old, new).changes())
    here.store.apply_changes(here.store.diff(new, old))
    assert image_of(here.store.reader()) == image_of(old)


def test_changes_of_an_owned_object_are_applied_with_the_new_name_of_its_owner(tmp_path: Path) -> None:
    here, there = forked(tmp_path)
    there.get_dictionary("h")["x"].append(1)
    there.rename("h", "renamed")
    there.checkpoint(epoch=2)
    changes = list(there.store.diff(a_epoch=1, b_epoch=2))
    here.store.apply_changes(changes)
    assert image_of(here.store.reader()) == image_of(there.store.reader())
    assert list(invert(changes)) == list(there.store.diff(there.store.reader(), there.store.reader(epoch=1)))
    here.store.apply_changes(invert(changes))
    assert image_of(here.store.reader()) == image_of(there.store.reader(epoch=1))


@pytest.mark.parametrize(
    ("ours", "theirs", "value", "expected"),
    [
        (list, None, "plain", """of Dictionary 'g', but object 2 is Dictionary 'g' with {"of":"List"} here"""),
        (None, list, ["a"], """of Dictionary 'g' with {"of":"List"}, but object 2 is Dictionary 'g' here"""),
        (list, set, {"a"}, """'g' with {"of":"Set"}, but object 2 is Dictionary 'g' with {"of":"List"} here"""),
    ],
)
@pytest.mark.parametrize("is_patch", [False, True])
def test_changes_of_a_dictionary_are_none_of_one_of_other_members_that_has_its_name_and_id(
    tmp_path: Path, ours: Any, theirs: Any, value: Any, expected: str, is_patch: bool
) -> None:
    here, there = (PersistedObjectSpace.open(tmp_path / name) for name in ("a.db", "b.db"))
    for space, of in ((here, ours), (there, theirs)):
        space.create_list("first")
        space.create_dictionary("g", of=of)
        space.checkpoint()
    there.get("g")["k"] = value
    there.checkpoint()
    changes = list(there.store.diff(1, 2))
    image = image_of(here.store.reader())
    with pytest.raises(CheckpointError, match=re.escape(expected)):
        here.store.apply_changes(changes_of(b"\n".join(lines_of(changes)).splitlines()) if is_patch else changes)
    assert (image_of(here.store.reader()), here.last_epoch) == (image, 1)


@pytest.mark.parametrize("is_raw", [False, True])
@pytest.mark.parametrize("is_patch", [False, True])
def test_changes_of_a_sorted_dictionary_are_none_of_one_that_keeps_its_keys_otherwise(
    tmp_path: Path, is_raw: bool, is_patch: bool
) -> None:
    here, there = (PersistedObjectSpace.open(tmp_path / name) for name in ("a.db", "b.db"))
    here.create_sorted_dictionary("prices", raw=not is_raw)
    theirs: Any = there.create_sorted_dictionary("prices", raw=is_raw)
    for space in (here, there):
        space.checkpoint()
    theirs[b"apples" if is_raw else "apples"] = "80"
    there.checkpoint()
    changes = list(there.store.diff(1, 2))
    image = image_of(here.store.reader())
    with pytest.raises(CheckpointError, match=r"the change is of SortedDictionary 'prices'.*'prices'.* here: apply"):
        here.store.apply_changes(changes_of(b"\n".join(lines_of(changes)).splitlines()) if is_patch else changes)
    assert (image_of(here.store.reader()), here.last_epoch) == (image, 1)


def keep_texts(space: PersistedObjectSpace) -> None:
    space.create_dictionary("x")["k"] = "text"


def keep_bytes(space: PersistedObjectSpace) -> None:
    space.create_sorted_dictionary("x", raw=True)[b"k"] = "text"


def keep_numbers(space: PersistedObjectSpace) -> None:
    space.create_tensor("x", (3,), "int8")[0] = 1


def keep_lists(space: PersistedObjectSpace) -> None:
    space.create_dictionary("x", of=list)["k"] = [1]


def keep_a_list_beside(space: PersistedObjectSpace) -> None:
    space.create_dictionary("x", of=list)
    space.create_list("y").append(2)


@pytest.mark.parametrize("other", [keep_texts, keep_bytes, keep_numbers, keep_a_list_beside])
@pytest.mark.parametrize("is_inverted", [False, True])
def test_a_difference_between_forks_that_gave_one_id_to_different_objects_fits_where_it_was_made(
    tmp_path: Path, other: Edit, is_inverted: bool
) -> None:
    here, there = forked(tmp_path)
    for space, edit in zip((here, there), (other, keep_lists) if is_inverted else (keep_lists, other), strict=True):
        edit(space)
        space.checkpoint(epoch=2)
    images = [image_of(space.store.reader()) for space in (here, there)]
    here.store.apply_changes(list(here.store.diff(here.store.reader(), there.store.reader())))
    assert image_of(here.store.reader()) == images[1]
    here.store.apply_changes(invert(here.store.diff(2, 3)))
    assert image_of(here.store.reader()) == images[0]
    assert here.store.verify() == here.store.reader().newest


@pytest.mark.parametrize("is_inverted", [False, True])
def test_what_another_one_wrote_since_goes_into_no_other_object_of_the_id(tmp_path: Path, is_inverted: bool) -> None:
    here, there = forked(tmp_path)
    here.create_dictionary("x", of=list)["k"] = ["same"]
    there.create_dictionary("x", of=list)
    there.create_list("y").append("same")
    for space in (here, there):
        space.checkpoint(epoch=2)
    source, target = (there, here) if is_inverted else (here, there)
    changes = list(source.store.diff(source.store.reader(), target.store.reader()))
    assert changes == list(invert(invert(changes)))
    (there.get_list("y") if is_inverted else here.get_dictionary("x")["k"]).append("later")
    source.checkpoint(epoch=3)
    with pytest.raises(CheckpointError, match="slot 'length' of object 6, 'y', holds 2, but the change is from 1"):
        source.store.apply_changes(changes)
    source.rollback(epoch=2)
    source.store.apply_changes(changes)
    assert image_of(source.store.reader()) == image_of(target.store.reader())


def test_an_order_is_said_of_no_object_that_is_not_sorted_any_more(tmp_path: Path) -> None:
    here, there = forked(tmp_path)
    for space, of in ((here, "sorted_set"), (there, set)):
        space.create_dictionary("x", of=of).setdefault("k").add(2**64)
        keys: Any = space.create_set("y") if of is set else space.create_sorted_set("y")
        keys.update([2**64] if of is set else [2**64, 2**65])
        space.checkpoint(epoch=2)
    here.store.apply_changes(list(here.store.diff(here.store.reader(), there.store.reader())))
    assert image_of(here.store.reader()) == image_of(there.store.reader())


@pytest.mark.parametrize("value", ["text", "{", '{"$object":"k"}', '{"$object":[2]}', '{"$object":', b"raw"])
@pytest.mark.parametrize("is_new", [False, True])
def test_what_says_no_object_goes_into_no_dictionary_of_objects(value: str | bytes, is_new: bool) -> None:
    store = quick_store(":memory:")
    space = PersistedObjectSpace(store)
    space.create_dictionary("x", of=list)
    space.checkpoint()
    codec = '{"of":"List"}'
    changes = [
        Change(Table.INDEX, 2, "y", "Dictionary", None, None, IndexEntry("y", "Dictionary", codec)),
        Change(Table.ITEM, 2, "y", "Dictionary", "k", None, value, None, 0, codec=codec),
    ]
    if not is_new:
        changes = [replace(changes[1], object=1, name="x")]
    with pytest.raises(CheckpointError, match=r"slot 'k'.*nothing was written"):
        store.apply_changes(changes)
    assert store.verify() == 1


def test_the_length_of_an_array_is_none_of_one_that_a_fork_made_longer(tmp_path: Path) -> None:
    here, there = forked(tmp_path)
    here.store.fork(tmp_path / "c.db")
    with PersistedObjectSpace.open(tmp_path / "c.db") as other:
        for space, length in ((here, 8), (there, 4), (other, 6)):
            space.create_array("cells", length, default=0)
            space.checkpoint(epoch=2)
        changes = list(other.store.diff(other.store.reader(), there.store.reader()))
        with pytest.raises(
            CheckpointError, match="slot 'length' of object 5, 'cells', holds 8, but the change is from 6"
        ):
            here.store.apply_changes(changes)
        assert here.store.verify() == 2
        other.store.apply_changes(changes)
        assert image_of(other.store.reader()) == image_of(there.store.reader())


def test_changes_that_hold_an_entry_of_the_index_twice_are_refused() -> None:
    store = quick_store(":memory:")
    space = PersistedObjectSpace(store)
    space.create_list("l")
    space.checkpoint()
    gone = list(store.diff(1, 0))
    with pytest.raises(CheckpointError, match=r"hold object 1, 'l', 2 times.*give each change once; nothing was"):
        store.apply_changes([*gone, *(change for change in gone if change.table is Table.INDEX)])
    assert PersistedObjectSpace(store).get("l") == []


@pytest.mark.parametrize("kind", ["full", "differential"])
def test_changes_of_what_is_gone_are_none_of_the_object_of_a_fork_that_has_its_id_since(
    tmp_path: Path, kind: Literal["full", "differential"]
) -> None:
    here, there = forked(tmp_path)
    create("mine")(here)
    here.checkpoint(epoch=2)
    here.get_list("mine").append(8)
    here.checkpoint(epoch=3)
    changes = list(here.store.diff(a_epoch=3, b_epoch=2))
    here.delete("mine")
    here.checkpoint(epoch=4, kind=kind)
    there.create_list("theirs").extend(["theirs", 8])
    there.checkpoint(epoch=2)
    here.store.apply_changes(there.store.diff(a_epoch=1, b_epoch=2))
    with pytest.raises(CheckpointError, match="the change is of List 'mine', but object 5 is List 'theirs' here"):
        here.store.apply_changes(changes)
    here.rollback()
    assert here.get_list("theirs") == ["theirs", 8]


def test_changes_of_what_is_gone_are_none_of_another_object_also_where_its_deletion_was_merged(tmp_path: Path) -> None:
    here, there = of_two_forks(tmp_path)
    theirs = PersistedObjectSpace(there)
    theirs.create_dictionary("theirs")["x"] = 1
    theirs.checkpoint()
    space = PersistedObjectSpace(here)
    mine = space.create_dictionary("mine")
    for key, value in (("x", 1), ("secret", 5)):
        mine[key] = value
        space.checkpoint()
    changes = list(here.diff(2, 3))
    held = here.reader(2)
    space.delete("mine")
    space.checkpoint()
    here.apply_changes(there.diff(1, 2))
    space.rollback()
    here.prune(keep=1)
    here.compact()
    with pytest.raises(
        CheckpointError, match="the change is of Dictionary 'mine', but object 1 is Dictionary 'theirs'"
    ):
        here.apply_changes(changes)
    assert (PersistedObjectSpace(here).get("theirs"), held.newest) == ({"x": 1}, 2)


def test_changes_of_a_member_are_none_of_that_of_a_dictionary_which_has_its_id_since(tmp_path: Path) -> None:
    here, there = forked(tmp_path)
    here.create_dictionary("mine", of=list)["x"] = [0]
    here.checkpoint(epoch=2)
    here.get_dictionary("mine")["x"].append(8)
    here.checkpoint(epoch=3)
    changes = list(here.store.diff(a_epoch=2, b_epoch=3))
    here.delete("mine")
    here.checkpoint(epoch=4)
    there.create_dictionary("theirs", of=list)["x"] = [0]
    there.checkpoint(epoch=2)
    here.store.apply_changes(there.store.diff(a_epoch=1, b_epoch=2))
    with pytest.raises(CheckpointError, match=r"of object 6, mine\['x'\], but object 6 is theirs\['x'\] here"):
        here.store.apply_changes(changes)
    here.rollback()
    assert here.get_dictionary("theirs").copy() == {"x": [0]}


def test_changes_of_an_object_that_was_renamed_before_a_full_checkpoint_are_applied(tmp_path: Path) -> None:
    here, _ = forked(tmp_path)
    create("mine")(here)
    here.checkpoint(epoch=2)
    here.get_list("mine").append(8)
    here.checkpoint(epoch=3)
    here.rename("mine", "renamed")
    here.checkpoint(epoch=4, kind="full")
    here.store.apply_changes(here.store.diff(a_epoch=3, b_epoch=2))
    here.rollback()
    assert here.get_list("renamed") == ["mine"]


SKIPPED = [datetime(2026, 3, 8, *time, tzinfo=ZoneInfo("America/New_York")) for time in ((2, 9), (2, 30), (2, 59))]
"""Times that the clocks of their zone never show."""

SHOWN = [SKIPPED[0].replace(hour=3, minute=minute) for minute in (0, 1)]
DISORDERLY: list[list[Any]] = [
    [Decimal("1.49"), Decimal("1.51"), Decimal("0.49"), 1, 2],
    [2**64, -(2**64), -1e30, 0, 1.5],
    [*SKIPPED, *SHOWN],
    [(1, time) for time in (*SKIPPED, *SHOWN)],
]
"""Keys of which each but the last two has a slot that does not sort as the key."""


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no object read whole because it is small."""
    monkeypatch.setattr(limits, "WHOLE_SLOTS", 0)


def sorted_objects(space: PersistedObjectSpace) -> list[Any]:
    """Return two sorted sets, one of which another object owns."""
    members = space.create_dictionary("members", of="sorted_set")
    return [space.create_sorted_set("own"), members.setdefault("m")]


def in_order(store: CheckpointStore) -> list[list[Any]]:
    """Return what iterations from the least and from the greatest key give."""
    space = PersistedObjectSpace(store)
    found = [space.get("own"), space.get("members")["m"]]
    return [list(keys) for one in found for keys in (one.irange(min(one.copy()), max(one.copy())), reversed(one))]


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("keys", DISORDERLY)
def test_keys_stay_in_order_where_the_first_that_sorts_unlike_its_slot_is_taken_back(keys: list[Any]) -> None:
    store = quick_store(":memory:")
    space = PersistedObjectSpace(store)
    found = sorted_objects(space)
    for some in (keys[3:], keys[:1], keys[1:3]):
        for one in found:
            one.update(some)
        space.checkpoint()
    store.apply_changes(invert(store.diff(1, 2)))
    wanted = sorted(keys[1:])
    assert in_order(store) == [wanted, wanted[::-1]] * 2
    assert store.verify() == 4


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("is_later", [False, True])
@pytest.mark.parametrize("keys", DISORDERLY)
def test_keys_that_sort_unlike_their_slots_are_in_order_in_a_fork_too(
    tmp_path: Path, keys: list[Any], is_later: bool
) -> None:
    with PersistedObjectSpace.open(tmp_path / "a.db") as space:
        found = sorted_objects(space)
        for some in (keys[3:], keys[:1], keys[1:3]):
            for one in found:
                one.update(some)
            space.checkpoint()
        space.store.fork(tmp_path / "b.db", epoch=1)
    here, there = quick_store(tmp_path / "a.db"), quick_store(tmp_path / "b.db")
    changes = list(here.diff(2, 3) if is_later else here.diff(1, 2))
    there.apply_changes(changes)
    wanted = sorted(keys[1:] if is_later else [keys[0], *keys[3:]])
    assert in_order(there) == [wanted, wanted[::-1]] * 2
    there.apply_changes(invert(changes))
    assert in_order(there) == [keys[3:], keys[3:][::-1]] * 2
    assert is_later or image_of(there.reader()) == image_of(here.reader(1))


@pytest.mark.parametrize("keys", [[2**64, Decimal("0.5")], [b"x"], [(1, "x")], [datetime(2026, 1, 1)]])
def test_keys_that_do_not_compare_with_those_that_a_sorted_object_has_by_now_are_refused(keys: list[Any]) -> None:
    store = quick_store(":memory:")
    space = PersistedObjectSpace(store)
    found = sorted_objects(space)
    steps: list[list[Any]] = [keys, [], ["text"], []]
    for some in steps:
        for one in found:
            one.clear()
            one.update(some)
        space.checkpoint()
    store.apply_changes(store.diff(4, 3))
    with pytest.raises(CheckpointError, match="holds 'text', and the keys of a sorted object compare with each other"):
        store.apply_changes(store.diff(2, 1))
    store.apply_changes(store.diff(3, 1))
    assert in_order(store) == [sorted(keys), sorted(keys)[::-1]] * 2


@pytest.mark.parametrize(
    ("keys", "others", "do_compare"),
    [
        ([(1,)], [("a",)], False),
        ([(1, "x")], [("x", 1)], False),
        ([((1,),)], [(("a",),)], False),
        ([((1,),)], [(1,)], False),
        ([()], [("a",)], True),
        ([((), 1)], [(("a",),)], True),
        ([(1, "x")], [(2, 5)], True),
    ],
)
def test_tuples_come_to_others_where_their_first_elements_compare(
    keys: list[Any], others: list[Any], do_compare: bool
) -> None:
    store = quick_store(":memory:")
    space = PersistedObjectSpace(store)
    found = sorted_objects(space)
    steps: list[list[Any]] = [keys, [], others]
    for some in steps:
        for one in found:
            one.clear()
            one.update(some)
        space.checkpoint()
    if do_compare:
        store.apply_changes(store.diff(2, 1))
        assert in_order(store) == [sorted(keys + others), sorted(keys + others)[::-1]] * 2
    else:
        with pytest.raises(CheckpointError, match="the keys of a sorted object compare with each other"):
            store.apply_changes(store.diff(2, 1))


@pytest.mark.parametrize("kind", ["dictionary", "set"])
def test_the_next_rank_stays_where_changes_of_no_slot_would_let_it_fall(kind: str) -> None:
    store = quick_store(":memory:")
    space = PersistedObjectSpace(store)
    keys: Any = getattr(space, f"create_{kind}")("keys")
    steps: list[Any] = [list, lambda: keys.update({"a": 1}), keys.clear, lambda: keys.update({"b": 1})]
    for step in steps:
        step()
        space.checkpoint()
    store.apply_changes(store.diff(3, 1))
    assert (store.verify(), store.reader().metadata(1)) == (5, {"length": "[1,2]"})


@pytest.mark.parametrize("kind", ["dictionary", "set", "sorted_dictionary"])
def test_keys_that_a_fork_inserted_come_where_others_were_only_removed(tmp_path: Path, kind: str) -> None:
    with PersistedObjectSpace.open(tmp_path / "a.db") as here:
        items: Any = getattr(here, f"create_{kind}")("d")
        items.update({1: 1, 2: 2, 3: 3})
        here.checkpoint(epoch=1)
        here.store.fork(tmp_path / "b.db")
        with PersistedObjectSpace.open(tmp_path / "b.db") as there:
            there.get("d").update({4: 4, 5: 5})
            there.checkpoint(epoch=2)
            changes = list(there.store.diff(1, 2))
        items.pop(1) if kind != "set" else items.remove(1)
        here.checkpoint(epoch=2)
        here.store.apply_changes(changes)
        here.rollback()
        items.update({6: 6})
        here.checkpoint(epoch=4)
        assert list(items) == [2, 3, 4, 5, 6]
        assert here.store.verify() == 4
        why = "something else has changed" if kind == "sorted_dictionary" else "keys were inserted on both sides"
        with pytest.raises(CheckpointError, match=why):
            here.store.apply_changes(changes)


@pytest.mark.parametrize("kind", ["dictionary", "set"])
def test_more_keys_than_are_left_are_not_removed(tmp_path: Path, kind: str) -> None:
    with PersistedObjectSpace.open(tmp_path / "a.db") as here:
        items: Any = getattr(here, f"create_{kind}")("d")
        items.update({1: 1, 2: 2})
        here.checkpoint(epoch=1)
        here.store.fork(tmp_path / "b.db")
        with PersistedObjectSpace.open(tmp_path / "b.db") as there:
            there.get("d").clear()
            there.checkpoint(epoch=2)
            changes = list(there.store.diff(1, 2))
        items.pop(1) if kind != "set" else items.remove(1)
        here.checkpoint(epoch=2)
        with pytest.raises(CheckpointError, match=r"from 2.*something else has changed it since"):
            here.store.apply_changes(changes)
