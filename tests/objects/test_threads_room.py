"""A thread makes room for what it reads while another one changes something else: nothing of that is lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from checkpoint import CheckpointStore, inherited
from objectspace import PersistedObjectSpace, held_slots
from objectspace.held_slots import HeldSlots
from objectspace.objects import object_dictionary, table
from objectspace.objects.variants import is_cold

COUNT = 3_000
MOMENT_SECONDS = 0.1
"""How long a thread is given that may have to wait for the one that makes room."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def opened(path: Path) -> PersistedObjectSpace:
    return PersistedObjectSpace.open(path, durability="normal", cache_slots=300)


def read_until(read: Any, is_over: Event) -> None:
    """Read one slot after another, which makes room again and again, until what another thread does is over."""
    for number in range(COUNT):
        assert read[number] == number
        if is_over.is_set():
            break
    assert is_over.wait(60)


def in_the_midst(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, work: Callable[[], None]) -> Event:
    """Have another thread begin a work when a function of a module is called next, and give it a moment to end it.

    Returns:
        what is set when the work has ended.
    """

    def paused(*args: Any) -> Any:
        if not worker.ident:
            worker.start()
            worker.join(MOMENT_SECONDS)
        return function(*args)

    def done() -> None:
        work()
        ended.set()

    ended, worker, function = Event(), Thread(target=done, daemon=True), getattr(module, name)
    monkeypatch.setattr(module, name, paused)
    return ended


def created(space: PersistedObjectSpace, kind: str) -> Any:
    make = getattr(space, f"create_{kind}")
    target = make("changed", COUNT, 0) if kind == "array" else make("changed")
    for number in range(COUNT):
        target[number] = number
    return target


def set_one(space: PersistedObjectSpace, target: Any) -> None:
    target[number_to_change(target)] = -1


def number_to_change(target: Any) -> int:
    """Return a number whose slot is in memory and clean, near those that are dropped last."""
    return next(number for number in reversed(list(target._table.live)) if number not in target._table.edits)


def clear(space: PersistedObjectSpace, target: Any) -> None:
    target.clear()
    target[1] = -1


def delete(space: PersistedObjectSpace, target: Any) -> None:
    space.delete("changed")


@pytest.mark.parametrize(
    ("kind", "edit"),
    [
        *product(["dictionary", "sorted_dictionary", "sparse_array", "array"], [set_one, delete]),
        *product(["dictionary", "sorted_dictionary", "sparse_array"], [clear]),
    ],
)
def test_an_edit_of_what_another_thread_drops_from_memory_is_whole(
    path: Path, kind: str, edit: Callable[[Any, Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as space:
        created(space, kind)
        space.create_dictionary("read").update(zip(range(COUNT), range(COUNT), strict=True))
        space.checkpoint()
    with opened(path) as space:
        target, read = space.get("changed"), space.get("read")
        for number in range(100):
            assert target[number] == number
        target[0] = "first"  # So the next edit need not note that there is one.
        end_of_edit = in_the_midst(monkeypatch, table, "_pop", lambda: edit(space, target))
        read_until(read, end_of_edit)
        space._check()
        expected = contents(space)
        space.checkpoint()
    with opened(path) as again:
        assert contents(again) == expected
        if edit is set_one:
            assert -1 in expected
            assert expected.count("first") == 1
        else:
            assert expected == ([-1] if edit is clear else None)


@pytest.mark.parametrize("edited", [True, False])
def test_a_raw_entry_that_another_thread_may_drop_is_set(
    path: Path, edited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = {number.to_bytes(2): str(number) for number in range(COUNT)}
    with opened(path) as space:
        space.create_sorted_dictionary("changed", raw=True).update(entries)
        space.create_dictionary("read").update(zip(range(COUNT), range(COUNT), strict=True))
        space.checkpoint()
    with opened(path) as space:
        target: Any = space.get("changed")
        assert [target[key] for key in list(entries)[:100]] == [str(number) for number in range(100)]
        target[b"\0\0"] = "first"
        key = b"\0\0" if edited else number_to_change(target)
        worked = in_the_midst(monkeypatch, table, "_pop", lambda: target.__setitem__(key, "set"))
        read_until(space.get("read"), worked)
        space._check()
        space.checkpoint()
    with opened(path) as again:
        assert again.get("changed").copy() == {**entries, b"\0\0": "first", key: "set"}  # type: ignore[attr-defined]


def test_an_object_may_get_a_new_id_while_another_thread_looks_for_what_to_drop(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take_out(held: HeldSlots, object_id: int) -> int | None:
        reader.start()
        is_looking.wait(MOMENT_SECONDS)
        return take(held, object_id)

    def is_known(handles: dict[int, Any], object_id: int) -> bool:
        is_looking.set()
        is_cleared.wait(MOMENT_SECONDS)
        return known(handles, object_id)

    def read_all() -> None:
        assert [read[number] for number in range(COUNT)] == list(range(COUNT))
        is_read.set()

    with opened(path) as space:
        created(space, "dictionary")
        space.create_dictionary("read").update(zip(range(COUNT), range(COUNT), strict=True))
        space.checkpoint()
    with opened(path) as space:
        target, read = space.get_dictionary("changed"), space.get_dictionary("read")
        assert target[1] == 1
        is_looking, is_cleared, is_read, reader = Event(), Event(), Event(), Thread(target=read_all, daemon=True)
        take, known = HeldSlots.take_out, held_slots.is_known_elsewhere
        monkeypatch.setattr(HeldSlots, "take_out", take_out)
        monkeypatch.setattr(held_slots, "is_known_elsewhere", is_known)
        target.clear()
        is_cleared.set()
        assert is_read.wait(60)
        reader.join(60)
        space._check()


def contents(space: PersistedObjectSpace) -> Any:
    if "changed" not in space:
        return None
    target: Any = space.get("changed")
    copy = target.copy()
    return list(copy.values()) if isinstance(copy, dict) else copy


def test_an_owned_object_that_is_got_while_another_thread_makes_room_stays_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def append() -> None:
        held.append(groups[29])
        held[0].append("one")

    with opened(path) as space:
        groups = space.create_dictionary("groups", of=list)
        groups.update({number: [*range(9)] for number in range(30)})
        groups[(1, "a")] = [7]
        space.create_dictionary("read").update(zip(range(COUNT), range(COUNT), strict=True))
        space.checkpoint()
    held: list[Any] = []
    with opened(path) as space:
        groups, read = space.get_dictionary("groups"), space.get("read")
        kept = groups[3]
        assert [len(one) for one in groups.values()] == [9] * 30 + [1]
        read_until(read, in_the_midst(monkeypatch, object_dictionary, "replace_unknown", append))
        assert groups[29] is held[0]
        assert groups[3] is kept
        assert groups[29][-1] == "one"
        groups[29].append("two")
        space._check()
        space.checkpoint()
    with opened(path) as again:
        assert again.get("groups")[29][8:] == [8, "one", "two"]  # type: ignore[index]


def test_owned_objects_that_nobody_has_are_dropped_and_read_again(path: Path) -> None:
    with opened(path) as space:
        groups = space.create_dictionary("groups", of=list)
        groups.update({number: [*range(9)] for number in range(30)})
        space.create_dictionary("read").update(zip(range(COUNT), range(COUNT), strict=True))
        space.checkpoint()
    with opened(path) as space:
        groups: Any = space.get_dictionary("groups")
        kept = groups[3]
        assert [len(one) for one in groups.values()] == [9] * 30
        for number in range(COUNT):
            assert space.get_dictionary("read")[number] == number
        assert [is_cold(one) for one in groups._owned()].count(False) == 1
        assert groups[3] is kept
        assert groups[29] == [*range(9)]
        space._check()


def test_a_store_is_opened_while_another_thread_opens_or_closes_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Changing(dict[sqlite3.Connection, Any]):
        def items(self) -> Any:
            return self._until_it_changes() if fails.pop() else super().items()

        def _until_it_changes(self) -> Iterator[Any]:
            yield from ()
            raise RuntimeError("dictionary changed size during iteration")

    with CheckpointStore(path):
        fails = [False, True, True]
        monkeypatch.setattr(inherited, "_OPENED", Changing(inherited._OPENED))
        assert inherited.is_open_elsewhere(path, None)
        assert fails == []
