"""What a checkpoint writes: nothing for what came back to its stored value, little for everything else."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.objects.sequence import Sequenced

Change = Callable[[Any], None]
NAN = float("nan")


def written(space: PersistedObjectSpace) -> list[Any]:
    """Return every row that a checkpoint writes now."""
    writer = space.store.writer()
    space.save(writer)
    run = writer._run
    assert run is not None
    writer.commit()
    space.on_saved()
    return [*run.index, *run.metadata, *run.items]


def fill(target: Any, count: int = 10) -> None:
    """Put the numbers from 0 into an object of any kind."""
    for method in ("append", "enqueue", "push", "add_last", "add"):
        if hasattr(target, method):
            for number in range(count):
                getattr(target, method)(number)
            return
    for number in range(count):
        target[number] = number


def set_and_back(target: Any) -> None:
    target[3] = "other"
    target[3] = 3


def insert_and_remove(target: Any) -> None:
    target[99] = "new"
    del target[99]


def rotate(target: Any) -> None:
    node = target.find(4)
    target.remove_node(node)
    target.add_before(target.find(5), node)


NETTED: list[tuple[str, Change]] = [
    ("list", set_and_back),
    ("list", lambda t: (t.append(1), t.pop())),
    ("list", lambda t: (t.insert(4, "x"), t.pop(4))),
    ("list", lambda t: t.insert(4, t.pop(4))),
    ("list", lambda t: (t.__delitem__(slice(None, None, 2)), [t.insert(place, place) for place in range(0, 10, 2)])),
    ("list", lambda t: (t.__delitem__(slice(None, None, -3)), [t.insert(place, place) for place in range(0, 10, 3)])),
    ("list", lambda t: (t.reverse(), t.reverse())),
    ("list", lambda t: (t.reverse(), t.sort())),
    ("list", lambda t: t.__setitem__(slice(2, 5), [2, 3, 4])),
    ("list", lambda t: (t.extend(range(50)), t.__delitem__(slice(10, None)))),
    ("dictionary", set_and_back),
    ("dictionary", insert_and_remove),
    ("dictionary", lambda t: t.update(dict(t))),
    ("sorted_dictionary", set_and_back),
    ("sorted_dictionary", insert_and_remove),
    ("sorted_dictionary", lambda t: (t.pop(3), t.__setitem__(3, 3))),
    ("sparse_array", set_and_back),
    ("sparse_array", insert_and_remove),
    ("set", lambda t: (t.add("new"), t.discard("new"))),
    ("set", lambda t: t.update(range(10))),
    ("sorted_set", lambda t: (t.add(99), t.discard(99))),
    ("sorted_set", lambda t: (t.discard(4), t.add(4))),
    ("stack", lambda t: (t.push(1), t.pop())),
    ("stack", lambda t: t.push(t.pop())),
    ("linked_list", lambda t: t.remove_node(t.add_after(t.first, "x"))),
    ("linked_list", rotate),
]


@pytest.mark.parametrize(("kind", "change"), NETTED)
def test_netted(space: PersistedObjectSpace, kind: str, change: Change) -> None:
    target = getattr(space, f"create_{kind}")("t")
    fill(target)
    assert written(space)
    before = list(target)
    change(target)
    assert list(target) == before
    assert written(space) == []


@pytest.mark.parametrize("kind", ["dictionary", "set"])
def test_what_goes_and_comes_back_stands_at_the_end_of_a_dictionary_or_set(
    space: PersistedObjectSpace, kind: str
) -> None:
    target = getattr(space, f"create_{kind}")("t")
    fill(target)
    space.checkpoint()
    target.pop(9) if kind == "dictionary" else target.discard(9)
    target.setdefault(9, 9) if kind == "dictionary" else target.add(9)
    assert list(target) == [*range(10)]
    assert space.checkpoint().slots == 1


REFILLED = [("dictionary", 2, 2), ("set", 2, 2), ("queue", 2, 4), ("queue", 33, 33)]
for _kind in ("list", "stack", "linked_list", "sorted_set", "sorted_dictionary"):
    REFILLED += [(_kind, 32, 0), (_kind, 33, 33)]


@pytest.mark.parametrize(("kind", "count", "slots"), REFILLED)
def test_what_is_cleared_and_filled_in_again_is_written_anew_where_it_is_many(
    space: PersistedObjectSpace, kind: str, count: int, slots: int
) -> None:
    target = getattr(space, f"create_{kind}")("t")
    fill(target, count)
    space.checkpoint()
    target.clear()
    fill(target, count)
    assert space.checkpoint().slots == slots


@pytest.mark.parametrize("kind", ["array", "dictionary", "list", "sorted_dictionary", "sparse_array"])
@pytest.mark.parametrize("values", [range(40), [[number] for number in range(40)]], ids=["numbers", "lists"])
def test_what_was_saved_in_vain_and_set_back_is_not_written(
    space: PersistedObjectSpace, kind: str, values: list[Any]
) -> None:
    target = space.create_array("t", 40) if kind == "array" else getattr(space, f"create_{kind}")("t")
    if kind == "list":
        target.extend(values)
    else:
        for place, value in enumerate(values):
            target[place] = value
    written(space)
    for saved_in_vain in range(3):
        for place in range(40):
            target[place] = saved_in_vain - 5
        writer = space.store.writer()
        space.save(writer)
        writer.rollback()
    for place, value in enumerate(values):
        target[place] = value
    assert written(space) == []


def test_a_key_that_went_and_came_back_around_a_save_in_vain_stands_at_the_end(space: PersistedObjectSpace) -> None:
    target = space.create_dictionary("t")
    target.update({1: "a", 2: "b"})
    written(space)
    target[1] = target.pop(1)
    writer = space.store.writer()
    space.save(writer)
    writer.rollback()
    target[1] = "a"
    assert len(written(space)) > 0
    assert list(PersistedObjectSpace(space.store).get_dictionary("t").items()) == [(2, "b"), (1, "a")]


@pytest.mark.parametrize("key", [True, 1.0])
@pytest.mark.parametrize("kind", ["sorted_set", "set", "sorted_dictionary", "dictionary"])
def test_a_key_that_went_with_a_save_in_vain_and_came_back_as_an_equal_one_is_another_key(
    space: PersistedObjectSpace, kind: str, key: Any
) -> None:
    target = getattr(space, f"create_{kind}")("t")
    is_set = kind.endswith("set")
    target.update([1] if is_set else {1: "x"})
    written(space)
    (target.discard if is_set else target.pop)(1)
    writer = space.store.writer()
    space.save(writer)
    target.update([key] if is_set else {key: "x"})
    writer.rollback()
    space.checkpoint()
    (found,) = PersistedObjectSpace(space.store).get("t")
    assert (found, type(found)) == (key, type(key))


def test_a_queue_nets_what_came_and_went(space: PersistedObjectSpace) -> None:
    queue = space.create_queue("q")
    written(space)
    for number in range(100):
        queue.enqueue(number)
        assert queue.dequeue() == number
    assert written(space) == []


@pytest.mark.parametrize("value", [NAN, float("nan"), -0.0, 0, True, 1, 1.0, [1], {"a": []}, "x", None])
def test_setting_an_equal_value_writes_nothing(space: PersistedObjectSpace, value: Any) -> None:
    target = space.create_value("v", value)
    written(space)
    target.value = "other"
    target.value = value
    assert written(space) == []
    target.value = "other"
    assert len(written(space)) == 1


def test_an_equal_value_of_another_type_is_another_value(space: PersistedObjectSpace) -> None:
    target = space.create_value("v", 0)
    written(space)
    for value, text in ((0.0, "0.0"), (-0.0, "-0.0"), (False, "false"), (0, "0")):
        target.value = value
        assert written(space) == [(1, "value", text, None)]


@pytest.mark.parametrize("key", [2**63, Decimal("1.5")], ids=str)
@pytest.mark.parametrize("kind", ["sorted_set", "sorted_dictionary"])
def test_the_first_key_without_a_place_in_the_order_of_slots_costs_a_row_more(
    space: PersistedObjectSpace, kind: str, key: Any
) -> None:
    target = getattr(space, f"create_{kind}")("t")
    put = target.add if kind == "sorted_set" else partial(target.setdefault, default=None)
    written(space)
    put(key)
    item, *metadata = reversed(written(space))
    assert (len(item), metadata) == (4, [(1, "order", '"memory"'), (1, "length", "1")])
    put(key + 1)
    assert len(written(space)) == 2


def test_an_array_nets_its_default(space: PersistedObjectSpace) -> None:
    for name, length in (("small", 8), ("large", 5000)):
        array = space.create_array(name, length, default=0)
        written(space)
        array[5] = 1
        array[5] = 0
        assert written(space) == []


def test_a_tensor_writes_chunks_that_changed(space: PersistedObjectSpace) -> None:
    tensor = space.create_tensor("t", (100, 100), chunks=(10, 10))
    written(space)
    tensor[0, 0] = 5
    tensor[0, 0] = 0
    assert written(space) == []
    tensor[5, :] = 1
    assert space.checkpoint().slots == 10
    assert PersistedObjectSpace(space.store).get_tensor("t").touched() == 10


KINDS = ["list", "dictionary", "sorted_dictionary", "set", "sorted_set", "queue", "stack", "linked_list"]


@pytest.mark.parametrize("kind", [*KINDS, "sparse_array"])
@pytest.mark.parametrize("recovered", [False, True])
def test_clear_and_delete_cost_the_same_at_any_size(kind: str, recovered: bool) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    target = getattr(space, f"create_{kind}")("t")
    for _ in range(1000):
        fill(target)
    if kind not in ("list", "queue", "stack", "linked_list"):
        for number in range(10_000):
            target.add(number) if hasattr(target, "add") else target.__setitem__(number, number)
    assert len(target) == 10_000
    space.checkpoint()
    if recovered:
        space = PersistedObjectSpace(space.store)
    space.get("t").clear()
    assert len(written(space)) <= 5
    assert list(PersistedObjectSpace(space.store).get("t")) == []
    fill(space.get("t"))
    space.checkpoint()
    space.delete("t")
    assert len(written(space)) == 1


def test_an_owner_is_cleared_with_what_it_owns(space: PersistedObjectSpace) -> None:
    groups = space.create_dictionary("groups", of=list)
    for key in range(1000):
        groups[key] = range(10)
    assert space.checkpoint().slots == 11_000
    del groups[5]
    assert len(written(space)) == 2
    groups.clear()
    assert len(written(space)) <= 4
    assert space.store.reader().image().items == []


@pytest.mark.parametrize("kind", ["list", "linked_list"])
def test_an_insertion_in_the_middle_is_one_row(space: PersistedObjectSpace, kind: str) -> None:
    numbers = random.Random(1)
    target = getattr(space, f"create_{kind}")("t")
    if kind == "list":
        target.extend(range(100_000))
        places = [numbers.randrange(100_000) for _ in range(200)]
        insert, remove = target.insert, target.pop
    else:
        nodes = [target.add_last(number) for number in range(10_000)]
        places = numbers.sample(nodes, 200)
        insert, remove = target.add_before, target.remove_node
    space.checkpoint()
    for place in places:
        insert(place, "new")
    assert space.checkpoint().slots < 2 * 200
    for place in dict.fromkeys(places):
        remove(place)
    assert space.checkpoint().slots < 2 * 200
    assert list(PersistedObjectSpace(space.store).get("t")) == list(target)


PLACES: dict[str, tuple[Callable[[int, int], int], float]] = {
    "one place": (lambda number, length: 500, 1.5),
    "the middle": (lambda number, length: length // 2, 4.5),
    "a third": (lambda number, length: length // 3, 4.5),
    "behind the last one": (lambda number, length: 500 + number, 1.5),
    "about the last one": (lambda number, length: 500 + number // 2 + number % 2, 4.5),
    "two places": (lambda number, length: 300 if number % 2 else 700, 1.5),
    "two near places": (lambda number, length: 500 if number % 2 else 503, 1.5),
    "the end, then the middle": (lambda number, length: length if number // 50 % 2 else length // 2, 2),
    "before the last": (lambda number, length: length - 1, 1.5),
    "behind the first": (lambda number, length: 1, 1.5),
    "anywhere": (lambda number, length: number * 7919 % (length + 1), 1.01),
    "anywhere in the middle": (lambda number, length: length // 2 + number * 7919 % 11 - 5, 4.5),
}
"""Where insertions come, and how many rows each costs at most."""


@pytest.mark.parametrize("each", [1, 100])
@pytest.mark.parametrize(("place", "rows"), PLACES.values(), ids=PLACES)
def test_insertions_cost_few_rows_wherever_they_come(
    space: PersistedObjectSpace, place: Callable[[int, int], int], rows: float, each: int
) -> None:
    target = space.create_list("l")
    target.extend(range(1000))
    space.checkpoint()
    slots = 0
    for number in range(600):
        target.insert(place(number, len(target)), number)
        if number % each == 0:
            slots += len(written(space)) - 1  # Without the length.
    slots += len(written(space)) - 1
    assert slots < rows * 600
    assert list(PersistedObjectSpace(space.store).get("l")) == list(target)


@pytest.mark.parametrize("count", [2, 100])
@pytest.mark.parametrize(("place", "rows"), PLACES.values(), ids=PLACES)
def test_many_insertions_at_once_cost_few_rows_wherever_they_come(
    space: PersistedObjectSpace, place: Callable[[int, int], int], rows: float, count: int
) -> None:
    target = space.create_list("l")
    target.extend(range(1000))
    space.checkpoint()
    slots, times = 0, 600 // count + 20
    for number in range(times):
        at = place(number * count, len(target))
        target[at:at] = range(count)
        slots += len(written(space)) - 1  # Without the length.
    space._check()
    assert slots <= rows * times * count
    assert list(PersistedObjectSpace(space.store).get("l")) == list(target)


def test_many_insertions_at_once_move_what_follows_once(
    space: PersistedObjectSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, model = space.create_list("l"), list(range(1000))
    target.extend(model)
    space.checkpoint()
    monkeypatch.setattr(Sequenced, "insert", lambda *where: pytest.fail("one by one"))
    for start, stop, count in [(500, 500, 300), (500, 510, 100_000), (0, 0, 50), (700, 700, 5000), (0, 2, 7)]:
        target[start:stop] = model[start:stop] = range(count)
    space._check()
    assert len(written(space)) <= 300 + 100_000 + 50 + 5000 + 7 + 40
    assert target == model == list(PersistedObjectSpace(space.store).get("l"))


def change_some(target: Any) -> None:
    """Make some elements of a list of a thousand dirty, in every way but too many for it to note them."""
    target[10], target[11], target[40], target[41] = "other", ["new"], [40, "other"], 41
    target.insert(500, "inserted")
    del target[700:703]
    target.extend([["at the end"], "at the end", 1, 2])


APART = [slice(None, None, 2), slice(None, 1000, 2), slice(None, None, -3), slice(900, 5, -7), slice(1, None, 600)]


@pytest.mark.parametrize("change", [lambda target: None, change_some])
@pytest.mark.parametrize("apart", APART, ids=str)
def test_removing_places_apart_writes_what_removing_them_one_by_one_does(apart: slice, change: Change) -> None:
    rows, left = [], []
    for is_at_once in (True, False):
        space = PersistedObjectSpace(CheckpointStore(":memory:"))
        target = space.create_list("l")
        target.extend([place] if place % 40 == 0 else place for place in range(1000))
        space.checkpoint()
        change(target)
        places = range(*apart.indices(len(target)))
        for place in [apart] if is_at_once else sorted(places, reverse=True):
            del target[place]
        space._check()
        rows.append(sorted(written(space), key=str))
        left.append(list(PersistedObjectSpace(space.store).get("l")))
        assert left[-1] == target
    assert rows[0] == rows[1]
    assert left[0] == left[1]


def test_half_of_a_list_is_removed_at_once(space: PersistedObjectSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    target, model = space.create_list("l"), list(range(1000))
    target.extend(model)
    space.checkpoint()
    monkeypatch.setattr(Sequenced, "remove", lambda *where: pytest.fail("one by one"))
    for apart, count in [(slice(None, None, 2), 500), (slice(None, None, -3), 167), (slice(-1, 50, -40), 8)]:
        del target[apart], model[apart]
        assert len(written(space)) == count + 1  # With the length.
        assert target == model == list(PersistedObjectSpace(space.store).get("l"))
    target.extend(model[:3])
    del target[5:2:2], model[5:2:2]
    assert len(written(space)) == 3 + 1
    space._check()


@pytest.mark.parametrize("is_before", [lambda number: True, lambda number: number % 2, lambda number: number % 3])
def test_insertions_into_a_linked_list_cost_few_rows(
    space: PersistedObjectSpace, is_before: Callable[[int], bool]
) -> None:
    target = space.create_linked_list("l")
    node = [target.add_last(number) for number in range(100)][50]
    space.checkpoint()
    for number in range(800):
        node = (target.add_before if is_before(number) else target.add_after)(node, number)
    slots = len(written(space))
    for number in range(800):
        node = (target.add_before if is_before(number) else target.add_after)(node, number)
        slots += len(written(space)) - 1
    assert slots < 3 * 1600
    space._check()
    assert list(PersistedObjectSpace(space.store).get("l")) == list(target)


@pytest.mark.parametrize(("shape", "chunks"), [((7, 9), (2, 3)), ((7,), (7,)), ((), ()), ((0, 3), (1, 2))])
def test_a_tensor_that_is_filled_and_put_back_writes_nothing(
    space: PersistedObjectSpace, shape: tuple[int, ...], chunks: tuple[int, ...]
) -> None:
    tensor = space.create_tensor("t", shape, "int64", chunks=chunks)
    tensor[...] = 5
    space.checkpoint()
    before = tensor[...]
    tensor.fill(1)
    assert (tensor[...] == 1).all()
    tensor[...] = before
    assert space.checkpoint().slots == 0


def test_a_receipt_can_be_hashed(space: PersistedObjectSpace) -> None:
    space.create_list("l").append(1)
    receipts = [space.checkpoint(), space.checkpoint()]
    assert len({*receipts, replace(receipts[0], objects={})}) == 3


def test_a_receipt_tells_the_cost_of_each_object(space: PersistedObjectSpace) -> None:
    space.create_list("l").extend(range(10))
    space.create_value("v", 1)
    receipt = space.checkpoint(epoch=7)
    assert (receipt.number, receipt.epoch, receipt.slots) == (1, 7, 11)
    assert {name: cost.slots for name, cost in receipt.objects.items()} == {"l": 10, "v": 1}
    assert all(cost.bytes > 0 <= cost.seconds for cost in receipt.objects.values())


def test_a_receipt_tells_the_cost_of_each_object_where_the_steps_are_taken_one_by_one(
    space: PersistedObjectSpace,
) -> None:
    space.create_list("l").extend(range(10))
    writer = space.store.writer()
    space.save(writer)
    receipt = writer.commit()
    assert receipt is not None
    assert {name: cost.slots for name, cost in receipt.objects.items()} == {"l": 10}
    assert writer.receipt == receipt


def test_a_deletion_among_many_changes_of_a_list_costs_one_row_more() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    target = space.create_list("l")
    target.extend(range(5_000))
    space.checkpoint()
    for place in range(0, 5_000, 10):
        target[place] = -1
    target.pop(7)
    del target[3_001:3_009]
    assert space.checkpoint().slots == 500 + 1 + 8


@pytest.mark.parametrize("is_recovered", [False, True])
def test_a_raw_dictionary_takes_bytes_alone_and_an_empty_update_changes_nothing(is_recovered: bool) -> None:
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    space.create_sorted_dictionary("raw", raw=True).update({b"a": "1"})
    space.checkpoint()
    raw = (PersistedObjectSpace(store) if is_recovered else space).get_sorted_dictionary("raw")
    with pytest.raises(TypeError, match="a key is bytes, found 'b'"):
        raw.update({}, b="2")
    raw.update({})
    assert dict(raw) == {b"a": "1"}
    assert raw._home.checkpoint().slots == 0


def test_the_costs_of_objects_of_one_name_add_up(space: PersistedObjectSpace) -> None:
    space.create_dictionary("g", of=list)["a"] = [1, 2, 3]
    space.create_list("g['a']").append(9)
    receipt = space.checkpoint()
    assert {name: cost.slots for name, cost in receipt.objects.items()} == {"g": 1, "g['a']": 4}
    assert sum(cost.slots for cost in receipt.objects.values()) == receipt.slots
