"""Programs with type hints that are right: mypy must accept each line of them, and they must do what they say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_type

import pyarrow as pa
import pytest

from checkpoint import IndexEntry, Receipt
from objectspace import (
    Array,
    Dictionary,
    List,
    ObjectDictionary,
    ObjectSpace,
    PersistedObjectSpace,
    Queue,
    Set,
    SortedDictionary,
    SortedSet,
    SpacePart,
    SparseArray,
    VolatileObjectSpace,
    register_dataclass,
)
from objectspace.kvt import (
    UTF8,
    Insert,
    KeyValueTable,
    KeyValueTableConfiguration,
    KeyValueTableManager,
    Put,
    Remove,
    TableEntry,
)
from objectspace.operators import Pipeline
from objectspace.spark import Operator


def test_a_dictionary_gives_its_keys_and_values() -> None:
    counts: Dictionary[str, int] = VolatileObjectSpace().get_or_create_dictionary("counts")
    counts.update({"a": 1}, b=2)
    counts.update([("c", 3)])
    counts |= {"d": 4}
    assert [assert_type(word, str).upper() for word in counts.keys()] == ["A", "B", "C", "D"]
    assert [assert_type(number, int).bit_length() for number in counts.values()] == [1, 2, 2, 3]
    assert {assert_type(word, str): assert_type(number, int) for word, number in counts.items()} == counts
    assert assert_type(counts.get("x"), int | None) is None
    assert assert_type(counts.get_many(["a", "x"]), list[int | None]) == [1, None]
    assert assert_type(counts.get_many(["a", "x"], 0), list[int]) == [1, 0]
    assert assert_type(counts.get_many(["a", "x"], "none"), list[int | str]) == [1, "none"]
    assert assert_type(counts.pop("a"), int) == 1
    assert assert_type(counts.pop("a", None), int | None) is None
    assert assert_type(counts.setdefault("e", 5), int) == 5
    assert assert_type({**counts}, dict[str, int]) == assert_type(dict(counts), dict[str, int]) == counts.copy()
    assert assert_type(counts | {"f": "six"}, dict[str, int | str])["f"] == "six"


def test_a_dictionary_takes_what_its_values_may_be() -> None:
    space = VolatileObjectSpace()
    places: Dictionary[int, list[int | None]] = space.create_dictionary("places")
    places.update({1: [1]})
    places.update({key: [None] for key in (2, 3)})
    places |= [(4, [])]
    assert assert_type(places.pop(2, []), list[int | None]) == [None]
    names: Dictionary[str, int | None] = space.create_dictionary("names")
    names.update(a=1)
    assert assert_type(names.setdefault("b"), int | None) is None


def test_a_dictionary_without_hints_takes_everything() -> None:
    space = VolatileObjectSpace()
    assert_type(space.create_dictionary("d"), Dictionary[Any, Any])
    space.get_dictionary("d").update({1: "x"}, y=2)
    space.get_dictionary("d").setdefault("list", []).append(1)
    assert list(assert_type(space.get_dictionary("d"), Dictionary[Any, Any])) == [1, "y", "list"]


def test_a_dictionary_of_objects_has_the_kind_of_its_objects() -> None:
    space = VolatileObjectSpace()
    groups: ObjectDictionary[str, List[int]] = space.create_dictionary("groups", of=list)
    groups.setdefault("a").append(1)
    groups["b"] = [2]
    groups["b"] += [3]
    groups.update({"c": ()}, d=range(2))
    assert [assert_type(numbers, List[int]).copy() for numbers in groups.values()] == [[1], [2, 3], [], [0, 1]]
    assert_type(groups.get("a"), List[int] | None)
    assert assert_type(groups.copy(), dict[str, list[int]])["a"] == [1]
    assert assert_type(groups.pop("b"), list[int]) == [2, 3]
    assert assert_type(groups.pop("b", None), list[int] | None) is None
    assert_type(space.create_dictionary("sets", of="set"), ObjectDictionary[Any, Set[Any]])
    assert_type(space.create_dictionary("queues", of=Queue), ObjectDictionary[Any, Queue[Any]])
    assert_type(space.get_or_create_dictionary("queues", of="queue"), ObjectDictionary[Any, Queue[Any]])
    assert_type(
        space.create_dictionary("ages", of="sorted_dictionary"), ObjectDictionary[Any, SortedDictionary[Any, Any]]
    )
    assert_type(space.get_or_create_dictionary("sets", of=set), ObjectDictionary[Any, Set[Any]])
    nested: ObjectDictionary[str, Dictionary[str, int]] = space.create_dictionary("nested", of=dict)
    assert assert_type(nested.setdefault("a").setdefault("b", 1), int) == 1


def test_a_dictionary_is_got_as_what_it_is() -> None:
    space = VolatileObjectSpace()
    space.create_dictionary("groups", of=list)
    space.create_dictionary("counts")
    groups: ObjectDictionary[str, List[int]] = space.get_dictionary("groups")
    counts: Dictionary[str, int] = space.get_dictionary("counts")
    whatever: ObjectDictionary[str] = space.get_dictionary("groups")
    whatever["a"] = [1]
    whatever["a"].append(2)
    whatever.pop("b", [3]).append(4)
    counts["n"] = sum(groups["a"])
    assert counts == {"n": 3}


def test_the_kind_of_the_objects_can_be_left_out_of_a_hint() -> None:
    assert ObjectDictionary[str] == ObjectDictionary[str, Any]
    assert ObjectDictionary[str, List[int]] != ObjectDictionary[str]


def test_a_sorted_dictionary_gives_its_keys_and_values() -> None:
    ages: SortedDictionary[str, int] = VolatileObjectSpace().create_sorted_dictionary("ages")
    ages.update({"b": 2}, a=1)
    ages |= [("c", 3)]
    assert assert_type(ages | {4: "d"}, dict[str | int, int | str]) == {"a": 1, "b": 2, "c": 3, 4: "d"}
    assert assert_type({0: 0} | ages, dict[int | str, int]) == {0: 0, "a": 1, "b": 2, "c": 3}
    assert assert_type(ages.get_many(["a", "x"], 0), list[int]) == [1, 0]
    assert assert_type(ages.pop("x", 0), int) == 0


def test_the_operators_of_a_set_give_plain_sets() -> None:
    space = VolatileObjectSpace()
    tags: Set[int] = space.get_or_create_set("tags")
    tags |= {1, 2}
    tags -= {2}
    both: set[int] = tags | {3}
    both.add(4)
    assert both == {1, 3, 4}
    assert assert_type(tags | {"x"}, set[int | str]) == assert_type(tags.union(["x"]), set[int | str]) == {1, "x"}
    assert assert_type(tags & {1, "x"}, set[int]) == assert_type(tags - {"x"}, set[int]) == {1}
    assert assert_type(tags ^ {"x"}, set[int | str]) == {1, "x"}
    assert assert_type({5} | tags, set[int]) == {1, 5}
    assert isinstance(assert_type(frozenset({5}) | tags, frozenset[int]), frozenset)
    order: SortedSet[int] = space.create_sorted_set("order")
    order |= tags
    assert assert_type(order.view_between(0, 9) | {2}, set[int]) == {1, 2}


def test_sets_and_views_are_compared_with_plain_sets() -> None:
    space = VolatileObjectSpace()
    tags: Set[str] = space.create_set("tags")
    order: SortedSet[str] = space.create_sorted_set("order")
    counts: Dictionary[str, int] = space.create_dictionary("counts")
    ages: SortedDictionary[str, int] = space.create_sorted_dictionary("ages")
    for elements in (tags, order):
        elements.add("a")
    for mapping in (counts, ages):
        mapping["a"] = 1
    assert tags == {"a"} == tags == order == frozenset("a") != tags.copy() - {"a"}
    assert tags in [{"a"}]
    assert order.view_between("a", "b") == {"a"} == order
    assert counts.keys() == {"a"} == ages.keys() == tags
    assert counts.items() == {("a", 1)} == ages.items()


def test_copies_of_sets_are_plain_sets_of_their_elements() -> None:
    space = VolatileObjectSpace()
    tags: Set[str] = space.create_set("tags")
    order: SortedSet[str] = space.create_sorted_set("order")
    assert assert_type(tags.copy(), set[str]) == assert_type(order.copy(), set[str]) == set()
    groups: ObjectDictionary[int, Set[str]] = space.create_dictionary("groups", of=set)
    groups.update({1: "a", 2: "b", 3: "c"})
    assert assert_type(groups.copy(), dict[int, set[str]])[1] == {"a"}
    assert assert_type(groups.pop(1), set[str]) == {"a"}
    assert assert_type(groups.popitem(), tuple[int, set[str]]) == (3, {"c"})


def test_arrays_and_lists_give_and_take_their_elements() -> None:
    space = VolatileObjectSpace()
    array: Array[int] = space.create_array("array", 3, default=0)
    array[0], array[1:] = 1, (2, 3)
    assert assert_type(array[0], int) + sum(assert_type(array[1:], list[int])) == 6
    sparse: SparseArray[int] = space.create_sparse_array("sparse", default=0)
    sparse[-1], sparse[0:2] = 1, (2, 3)
    del sparse[-1]
    assert assert_type(sparse[-1], int) + sum(assert_type(sparse[0:2], list[int])) == 5
    numbers: List[int] = space.create_list("numbers")
    numbers += array
    numbers *= 2
    numbers.sort(reverse=True)
    numbers.sort(key=lambda number: -number)
    assert assert_type(numbers + [0], list[int]) == [3, 3, 2, 2, 1, 1, 0]
    assert assert_type(numbers[4:] + ["x"], list[int | str]) == [1, 1, "x"]


@pytest.mark.parametrize("make", [VolatileObjectSpace, lambda: PersistedObjectSpace.open(":memory:")])
def test_every_space_takes_checkpoints_and_is_closed(make: Callable[[], ObjectSpace]) -> None:
    with make() as space:
        space.create_list("l").append(1)
        assert assert_type(space.checkpoint(), Receipt).number == 1
        assert assert_type(space.entry_of("l"), IndexEntry).kind == "List"
    space.close()


class Counting:
    def process(self, rows: pa.RecordBatch, part: PersistedObjectSpace) -> None:
        part.get_or_create_list("counts").append(rows.num_rows)


def test_an_operator_of_spark_takes_one_name_or_several() -> None:
    operators = [Operator("o", "k", Counting(), keyed=["d"]), Operator("o", ["k"], Counting(), keyed="d")]
    assert [assert_type(one.key, tuple[str, ...]) for one in operators] == [("k",), ("k",)]
    assert [assert_type(one.keyed, tuple[str, ...]) for one in operators] == [("d",), ("d",)]


class Trimmed:
    def serialize(self, text: str) -> bytes:
        return text.strip().encode()

    def deserialize(self, stored: bytes) -> str:
        return stored.decode()


class Doubled:
    def process(self, rows: pa.RecordBatch, part: SpacePart) -> list[dict[str, int]]:
        return [{"id": row["id"], "v": 2 * row["v"]} for row in rows.to_pylist()]


def test_a_protocol_leaves_the_names_of_parameters_to_its_classes() -> None:
    manager = KeyValueTableManager(VolatileObjectSpace())
    manager.create_scope("s")
    manager.create_key_value_table("s", "t", KeyValueTableConfiguration(1))
    table = manager.open_key_value_table("s", "t", key_serializer=Trimmed())
    assert_type(table, KeyValueTable[str, bytes]).put(" key ", b"value")
    assert table.exists("key")
    pipeline = Pipeline()
    rows = pipeline.source("rows", {"id": "int64", "v": "int64"}, key=["id"])
    rows.apply(Doubled(), "doubled", {"id": "int64", "v": "int64"}, "id", "id").materialize("result")
    with pipeline.run_local([{"rows": [(1, 2)]}]) as run:
        assert run.rows("result") == [(1, 4)]


def test_a_registered_dataclass_is_the_class_that_it_was() -> None:
    @dataclass
    class Place:
        name: str

    assert assert_type(register_dataclass(Place), type[Place])("here").name.upper() == "HERE"


def test_the_faces_of_a_table_have_its_types() -> None:
    manager = KeyValueTableManager(VolatileObjectSpace())
    manager.create_scope("s")
    manager.create_key_value_table("s", "t", KeyValueTableConfiguration(4))

    async def keep() -> list[str]:
        async with manager.open_key_value_table("s", "t", key_serializer=UTF8).as_async() as table:
            await table.put("key", b"value", key_family="f")
            assert_type(await table.get("key", "f"), TableEntry[str, bytes] | None)
            return [item.key async for page in table.key_iterator("f") for item in page.items]

    assert asyncio.run(keep()) == ["key"]
    table = manager.open_key_value_table("s", "t", key_serializer=UTF8)
    batch = [Insert("new", b"1"), Put("key", b"2"), Remove("none")]
    assert [version is not None for version in table.apply("f", batch)] == [True, True, False]
    table.apply("f", [Remove("new")])
    table.update("key", lambda value: (value or b"") + b"!", "f")
    table.update("new", lambda value: value + b"!", default=b"")
    table.update("key", lambda value: value + b"!", "f", b"")
    table.update("none", lambda value: value if isinstance(value, bytes) else b"%d" % value, default=1)
    family = table.family("f")
    family.update({"other": b"1"}, more=b"2")
    assert assert_type(family.pop("other"), bytes) == assert_type(family.setdefault("one", b"1"), bytes)
    assert assert_type(family.pop("none", None), bytes | None) is None
