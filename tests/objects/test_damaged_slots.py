"""Slots that are damaged or lost are named, and others can be read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest

from objectspace import (
    DamagedObjectError,
    PersistedObjectSpace,
)
from tests.objects.kinds import create


def test_a_damaged_slot_is_named_and_others_can_be_read(space: PersistedObjectSpace) -> None:
    space.create_list("good").append(1)
    space.create_list("bad").append(2)
    space.checkpoint()
    space.store.database.conn.execute("UPDATE state_item SET value = '{\"$decimal\":\"x\"}' WHERE value = '2'")
    found = PersistedObjectSpace(space.store)
    for _ in range(2):
        with pytest.raises(DamagedObjectError, match="'bad', slot 0"):
            list(found.get("bad"))
    assert list(found.get("good")) == [1]


@pytest.mark.parametrize("count", [1, 2_000])
@pytest.mark.parametrize("kind", ["dictionary", "sorted_dictionary", "set", "sorted_set", "dictionary of lists"])
def test_a_key_that_damage_has_made_no_key_is_named(space: PersistedObjectSpace, kind: str, count: int) -> None:
    days = [date(2020, 1, 1) + timedelta(number) for number in range(count)]
    if kind == "dictionary of lists":
        space.create_dictionary("bad", of=list).update(dict.fromkeys(days, ()))
    elif kind.endswith("set"):
        create(space, kind, "bad").update(days)
    else:
        create(space, kind, "bad").update(dict.fromkeys(days, 1))
    space.checkpoint()
    space.store.database.conn.execute("UPDATE state_item SET value = replace(value, '$date', ',date')")
    for read in (list, repr, lambda found: found.copy(), lambda found: days[-1] in found):
        found = PersistedObjectSpace(space.store, cache_slots=100).get("bad")
        with pytest.raises(DamagedObjectError, match=r"'bad', slot .*unhashable type"):
            read(found)


@pytest.mark.parametrize("depth", [500, 1_000])
def test_a_value_that_is_nested_deeper_than_any_that_is_written_is_named(
    space: PersistedObjectSpace, depth: int
) -> None:
    space.create_value("v", 1)
    space.create_list("l").append(1)
    space.create_dictionary("d")["a"] = 1
    space.create_dictionary("lists", of=list)["a"] = [1]
    space.checkpoint()
    deep = '{"$tuple":[' * depth + "]}" * depth
    space.store.database.conn.execute("UPDATE state_item SET value = ? WHERE value = '1'", (deep,))
    found = PersistedObjectSpace(space.store)
    for read in (
        lambda: found.get("l")[0],
        lambda: list(found.get("l")),
        lambda: found.get("d")["a"],
        lambda: found.get("d").copy(),
        lambda: found.get("lists")["a"][0],
    ):
        with pytest.raises(DamagedObjectError, match=r"nested too deep|depth limit"):
            read()


@pytest.mark.parametrize("length", [3, 1_024])
def test_a_lost_row_of_an_array_that_stores_every_slot_is_found(space: PersistedObjectSpace, length: int) -> None:
    space.create_array("a", length, default=0)[1] = 5
    assert space.checkpoint().slots == length
    assert list(PersistedObjectSpace(space.store).get("a"))[:3] == [0, 5, 0]
    space.store.database.conn.execute("DELETE FROM state_item WHERE value = '5'")
    with pytest.raises(DamagedObjectError, match="'a'"):
        list(PersistedObjectSpace(space.store).get("a"))


@pytest.mark.parametrize("read", [lambda found: found.get_many([10, 11]), lambda found: list(found.items())])
def test_a_text_that_lost_its_end_is_not_completed_by_its_neighbour(
    space: PersistedObjectSpace, read: Callable[[Any], object]
) -> None:
    space.create_dictionary("bad").update({number: f"v{number}" for number in range(3_000)})
    space.checkpoint()
    for slot, text in ((10, '"x'), (11, 'y","z"')):  # Joined by a comma they are two texts: "x,y" and "z".
        space.store.database.conn.execute("UPDATE state_item SET value = ? WHERE slot = ?", (text, slot))
    with pytest.raises(DamagedObjectError, match=r"'bad', slot 10: .*; found '\"x'"):
        read(PersistedObjectSpace(space.store).get("bad"))
