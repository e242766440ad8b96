"""Code in C takes a list or a dictionary for a plain one and writes into it past its methods."""

from __future__ import annotations

import bisect
import heapq
import random
from collections.abc import Callable
from typing import Any

import pytest

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.objects import limits

PLAIN = [1, 3, 2, 7, 5, 9, 4]
LISTS = {"atoms": PLAIN, "lists": [[value] for value in PLAIN]}


def new_list(values: list[Any]) -> tuple[PersistedObjectSpace, Any]:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    space.create_list("t").extend(values)
    space.checkpoint()
    return space, space.get("t")


def expect_stored(space: PersistedObjectSpace, found: Any) -> None:
    space.checkpoint()
    space._check()
    space.store.verify()
    expected = dict(found) if isinstance(found, dict) else list(found)
    again = PersistedObjectSpace(space.store).get("t")
    assert again == expected
    assert list(again) == list(expected)
    assert space.check_mutations() == []


@pytest.mark.parametrize("kind", ["list", "dictionary", "set", "queue", "stack"])
def test_what_is_emptied_again_and_again_is_looked_at_once_a_save(kind: str) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    found: Any = getattr(space, f"create_{kind}")("t")
    put = getattr(found, {"list": "append", "set": "add", "queue": "enqueue", "stack": "push"}.get(kind, "setdefault"))
    for _ in range(5):
        for number in range(limits.CLEAR_ROWS + 1):
            put(number)
        space.checkpoint()
        found.clear()
        space._check()
        assert len(space._lent) <= 1
    found.clear()
    space.rollback()
    space._check()
    assert len(found) == limits.CLEAR_ROWS + 1


FOUND: dict[str, Callable[[Any, Any], object]] = {
    "heappush": lambda found, value: heapq.heappush(found, value),
    "heappop": lambda found, value: heapq.heappop(found),
    "both": lambda found, value: [heapq.heappop(found), heapq.heappop(found), heapq.heappush(found, value)],
    "insort": lambda found, value: bisect.insort(found, value),
    "shuffle": lambda found, value: random.Random(1).shuffle(found),
}

NEXT: dict[str, Callable[[Any, Any], object]] = {
    "nothing": lambda found, value: None,
    "append": lambda found, value: found.append(value),
    "extend": lambda found, value: found.extend([value, value]),
    "insert": lambda found, value: found.insert(1, value),
    "assign": lambda found, value: found.__setitem__(2, value),
    "splice": lambda found, value: found.__setitem__(slice(1, 3), [value]),
    "remove": lambda found, value: found.__delitem__(slice(0, 5, 2)),
    "reverse": lambda found, value: found.reverse(),
}


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("following", NEXT)
@pytest.mark.parametrize("write", FOUND)
def test_what_changes_the_length_of_a_list_is_saved(write: str, following: str, kind: str) -> None:
    space, found = new_list(LISTS[kind])
    value = 0 if kind == "atoms" else [0]
    FOUND[write](found, value)
    NEXT[following](found, value)
    expect_stored(space, found)


@pytest.mark.parametrize("write", FOUND)
def test_a_list_that_was_only_read_is_saved_too(write: str) -> None:
    space, _ = new_list(PLAIN)
    again = PersistedObjectSpace(space.store)
    found = again.get("t")
    assert list(found) == PLAIN
    FOUND[write](found, 0)
    expect_stored(again, found)


def test_a_list_that_nobody_holds_and_one_that_is_not_read_yet_keep_what_is_pushed() -> None:
    space, found = new_list(PLAIN)
    del found
    for number in range(3):
        heapq.heappush(space.get("t"), -number)
        expect_stored(space, space.get("t"))
    again = PersistedObjectSpace(space.store)
    heapq.heappush(again.get("t"), 100)
    again.checkpoint()
    assert PersistedObjectSpace(space.store).get("t")[-1] == 100


@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.parametrize("write", ["heappush", "heappop"])
def test_a_list_that_is_written_into_while_it_is_saved_is_saved_whole(write: str, is_committed: bool) -> None:
    space, found = new_list(PLAIN)
    found[2] = 8
    writer = space.store.writer()
    space.save(writer)
    FOUND[write](found, 0)
    found.insert(0, -1)
    if is_committed:
        writer.commit()
        space.on_saved()
    else:
        writer.rollback()
    expect_stored(space, found)


@pytest.mark.parametrize("kind", LISTS)
def test_what_keeps_the_length_of_a_list_is_named_and_saved_where_it_is_assigned_again(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OPEN_SHARE", 1)
    space, found = new_list(LISTS[kind])
    heapq.heapreplace(found, 8 if kind == "atoms" else [8])
    changed = space.check_mutations()
    assert changed == [("t", 0), ("t", 2), ("t", 6)]
    for _, place in changed:
        found[place] = found[place]
    assert space.check_mutations() == []
    writer = space.store.writer()
    space.save(writer)
    writer.rollback()
    expect_stored(space, found)


def test_an_owned_list_that_no_save_looks_at_is_found_by_the_check() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    space.create_dictionary("t", of=list)["heap"] = PLAIN
    for _ in range(2):
        space.checkpoint()
    heapq.heappush(space.get("t")["heap"], 0)
    assert space.check_mutations() == []
    space.checkpoint()
    assert PersistedObjectSpace(space.store).get("t")["heap"] == space.get("t")["heap"]


DICTIONARIES: dict[str, Callable[[Any], object]] = {
    "new": lambda found: dict.update(found, {"new": [1]}),
    "new and noted": lambda found: [dict.__setitem__(found, "new", [1]), found.update(new=2, more=3)],
    "gone": lambda found: dict.pop(found, "b"),
    "gone and noted": lambda found: [found.update(b=5), dict.pop(found, "b"), found.update(d=6, a=8)],
    "cleared": lambda found: dict.clear(found),
    "executed": lambda found: [exec("a = 7; z = 8", {}, found), found.setdefault("y", 9)],
}


@pytest.mark.parametrize("is_read_again", [False, True])
@pytest.mark.parametrize("write", DICTIONARIES)
def test_what_changes_the_length_of_a_dictionary_is_saved(write: str, is_read_again: bool) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    space.create_dictionary("t").update(a=1, b=[2], c=3)
    space.checkpoint()
    if is_read_again:
        space = PersistedObjectSpace(space.store)
    found = space.get("t")
    assert len(found) == 3
    DICTIONARIES[write](found)
    expect_stored(space, found)


def test_a_dictionary_that_is_not_read_yet_or_only_in_part_keeps_what_is_put_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    space.create_dictionary("t").update(dict.fromkeys(range(100), 0))
    space.checkpoint()
    monkeypatch.setattr(limits, "WHOLE_SLOTS", 0)
    monkeypatch.setattr(limits, "PROMOTE_SHARE", 0)
    for key in (-1, 50):
        space = PersistedObjectSpace(space.store)
        dict.update(space.get("t"), {key: 1})
        expect_stored(space, space.get("t"))
        space = PersistedObjectSpace(space.store)
        found = space.get("t")
        assert found[key] == 1
        dict.update(found, {key - 1: 2})
        expect_stored(space, found)
        assert found[key - 1] == 2
