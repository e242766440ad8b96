"""Programs with type hints that are wrong, and never run: mypy must refuse each line that is marked.

A mark on a line that mypy accepts is one too many, and that is an error by itself.
"""

from __future__ import annotations

from objectspace import (
    Array,
    Dictionary,
    List,
    ObjectDictionary,
    ObjectSpace,
    PersistedObjectSpace,
    Set,
    SortedDictionary,
    SortedSet,
    SparseArray,
    register_dataclass,
)
from objectspace.kvt import AsyncKeyValueTable, FamilyView, Insert, KeyValueTable, Put, Remove
from objectspace.operators import AggCall, Pipeline, Stream
from objectspace.spark import Operator, Process


def reads_of_a_dictionary(counts: Dictionary[str, int]) -> None:
    for word in counts.keys():
        word.nope()  # type: ignore[attr-defined]
    for number in counts.values():
        number.nope()  # type: ignore[attr-defined]
    for word, number in counts.items():
        word.nope()  # type: ignore[attr-defined]
        number.nope()  # type: ignore[attr-defined]
    assert counts.values() == [1]  # type: ignore[comparison-overlap]
    counts.pop("a").nope()  # type: ignore[attr-defined]
    counts.pop("a", None).bit_length()  # type: ignore[union-attr]
    counts.get("a").bit_length()  # type: ignore[union-attr]
    counts.setdefault("a", 0).nope()  # type: ignore[attr-defined]
    counts.get_many(["a"])[0].bit_length()  # type: ignore[union-attr]
    counts.get_many(["a"], 0)[0].nope()  # type: ignore[attr-defined]
    counts.get_many([1])  # type: ignore[list-item]
    numbers: dict[int, int] = {**counts}  # type: ignore[dict-item]
    print(numbers)


def changes_of_a_dictionary(counts: Dictionary[str, int]) -> None:
    counts[1] = 1  # type: ignore[index]
    counts["a"] = "x"  # type: ignore[assignment]
    counts.pop(1)  # type: ignore[call-overload]
    counts.setdefault("a")  # type: ignore[call-arg]
    counts.setdefault("a", "x")  # type: ignore[arg-type]
    counts.update({1: "x"})  # type: ignore[dict-item]
    counts.update([(1, 1)])  # type: ignore[list-item]
    counts.update(a="x")  # type: ignore[call-overload]
    counts |= {"a": "x"}  # type: ignore[dict-item]
    Dictionary.fromkeys(["a"])  # type: ignore[arg-type]


def sorted_dictionaries(ages: SortedDictionary[int, str]) -> None:
    ages.update({"a": 1})  # type: ignore[dict-item]
    ages.update(a="x")  # type: ignore[call-overload]
    ages |= {1: 1}  # type: ignore[dict-item]
    wrong: dict[int, str] = ages | {"a": 1}  # type: ignore[dict-item]
    ages.pop(1).nope()  # type: ignore[attr-defined]
    ages.get_many([1], "")[0].nope()  # type: ignore[attr-defined]
    print(wrong)


def dictionaries_of_objects(space: ObjectSpace, groups: ObjectDictionary[str, List[int]]) -> None:
    groups["a"].append("x")  # type: ignore[arg-type]
    groups.setdefault("a").nope()  # type: ignore[attr-defined]
    groups[1]  # type: ignore[index]
    groups.pop("a").append("x")  # type: ignore[arg-type]
    groups.popitem()[1].append("x")  # type: ignore[arg-type]
    groups.update({1: [1]})  # type: ignore[arg-type]
    for numbers in groups.values():
        numbers.append("x")  # type: ignore[arg-type]
    space.create_dictionary("groups", of=list).setdefault("a").add(1)  # type: ignore[attr-defined]
    space.create_dictionary("groups", of=1)  # type: ignore[call-overload]
    sets: ObjectDictionary[str, Set[int]] = space.create_dictionary("sets", of=list)  # type: ignore[assignment]
    counts: Dictionary[str, int] = space.create_dictionary("counts", of=list)  # type: ignore[assignment]
    words: List[str] = space.get_dictionary("words")  # type: ignore[assignment]
    print(sets, counts, words)


def spaces(space: ObjectSpace) -> None:
    ObjectSpace()  # type: ignore[abstract]
    space.checkpoint("x")  # type: ignore[arg-type]
    with space as opened:
        opened.nope()  # type: ignore[attr-defined]
    space.entry_of("l").nope()  # type: ignore[attr-defined]


def names_of_options(stream: Stream, pipeline: Pipeline) -> None:
    PersistedObjectSpace.open("s.db", durabilty="full")  # type: ignore[call-arg]
    PersistedObjectSpace.open("s.db", durability="none")  # type: ignore[arg-type]
    pipeline.run_local([], drop_change=True)  # type: ignore[call-arg]
    stream.join(stream, on="k", how="outter")  # type: ignore[arg-type]
    stream.materialize("result", conflict="owerwrite")  # type: ignore[arg-type]
    AggCall("summ", "v")  # type: ignore[arg-type]
    AggCall("sum", "v").name = "total"  # type: ignore[misc]


def operators_of_spark(process: Process) -> None:
    Operator("o", 1, process)  # type: ignore[arg-type]
    Operator("o", "k", process, keyed=[1])  # type: ignore[list-item]


def hints_of_what_is_no_object(groups: ObjectDictionary[str, list[int]]) -> None:  # type: ignore[type-var]
    print(groups)


def sets(tags: Set[int], order: SortedSet[int]) -> None:
    tags |= {"x"}  # type: ignore[arg-type]
    tags |= [1]  # type: ignore[arg-type]
    tags ^= {"x"}  # type: ignore[arg-type]
    tags.update(["x"])  # type: ignore[list-item]
    order |= {"x"}  # type: ignore[arg-type]
    union: set[int] = tags | {"x"}  # type: ignore[arg-type]
    order.union(["x"]).pop().bit_length()  # type: ignore[union-attr]
    tags | [1]  # type: ignore[operator]
    tags.copy().nope()  # type: ignore[attr-defined]
    order.copy().nope()  # type: ignore[attr-defined]
    print(union)


def arrays_and_lists(array: Array[int], sparse: SparseArray[int], numbers: List[int]) -> None:
    array[0] = "x"  # type: ignore[call-overload]
    array[0:1] = ["x"]  # type: ignore[list-item]
    array["a"] = 1  # type: ignore[call-overload]
    sparse[0] = "x"  # type: ignore[call-overload]
    sparse[0:1] = 1  # type: ignore[call-overload]
    sparse[0].nope()  # type: ignore[attr-defined]
    sparse[0:1].nope()  # type: ignore[attr-defined]
    words: list[str] = numbers + ["x"]  # type: ignore[assignment]
    numbers.sort(backwards=True)  # type: ignore[call-overload]
    numbers.sort(key=lambda number: number.nope())  # type: ignore[attr-defined]
    (numbers + [1]).nope()  # type: ignore[attr-defined]
    numbers + (1,)  # type: ignore[operator]
    numbers *= "x"  # type: ignore[arg-type]
    print(words, numbers < ["x"])  # type: ignore[list-item]
    List([1])  # type: ignore[arg-type]


def registered_dataclasses() -> None:
    register_dataclass(1)  # type: ignore[arg-type]
    register_dataclass(int)("x").nope()  # type: ignore[attr-defined]


def families(family: FamilyView[str, bytes]) -> None:
    family.update({"key": "value"})  # type: ignore[arg-type]
    family.setdefault("key", "value")  # type: ignore[arg-type]
    family.pop("key").nope()  # type: ignore[attr-defined]


def tables(table: KeyValueTable[str, bytes]) -> None:
    table.apply("f", [Insert("key", "value")])  # type: ignore[arg-type]
    table.apply("f", [Put(1, b"value"), Remove("key")])  # type: ignore[arg-type]
    table.apply("f", [Remove(1)])  # type: ignore[arg-type]
    batch = [Insert("key", "value"), Put("key", "value")]
    table.apply("f", batch)  # type: ignore[arg-type]
    table.update("key", lambda value: value + b"!")  # type: ignore[operator]
    table.update("key", str.encode, default=b"")  # type: ignore[arg-type]
    table.update("key", bytes.upper, default="")  # type: ignore[arg-type]
    table.update("key", bytes.decode, default=b"")  # type: ignore[arg-type]


async def asynchronous_tables(table: AsyncKeyValueTable[str, bytes]) -> None:
    await table.put(1, b"value")  # type: ignore[arg-type]
    await table.put("key", "value")  # type: ignore[arg-type]
    (await table.get("key")).value  # type: ignore[union-attr]
    await table.apply("f", [Put("key", "value")])  # type: ignore[arg-type]
    await table.update("key", lambda value: value + b"!")  # type: ignore[operator]
    async for page in table.entry_iterator("f"):
        page.items[0].value.nope()  # type: ignore[attr-defined]
