"""State machines of the objects whose slots lie in a sequence, and of the tensor."""

from __future__ import annotations

from collections import deque
from copy import deepcopy
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from checkpoint import CheckpointKind
from tests.objects.machine import ObjectMachine
from tests.objects.samples import shape, values

places = st.integers(-12, 60)
apart = st.sampled_from([2, 3, 7, -2, -3])


def is_fixed(value: Any) -> bool:
    return not isinstance(value, list | dict | set | bytearray)


class ListMachine(ObjectMachine):
    kind = "list"

    def new_model(self) -> Any:
        return []

    @rule(value=values)
    def append(self, value: Any) -> None:
        self.both("append", value)

    @rule(place=places, value=values)
    def insert(self, place: int, value: Any) -> None:
        self.both("insert", place, value)

    @rule(place=places, count=st.integers(1, 60))
    def insert_at_one_place(self, place: int, count: int) -> None:
        for value in range(count):
            self.both("insert", place, value)

    @rule(place=places, value=values)
    def assign(self, place: int, value: Any) -> None:
        self.both("__setitem__", place, value)

    @rule(place=places, method=st.sampled_from(["pop", "__getitem__", "__delitem__"]))
    def one(self, place: int, method: str) -> None:
        self.both(method, place)

    @rule(place=places)
    def move(self, place: int) -> None:
        if self.model:
            place %= len(self.model)
            for target in (self.handle, self.model):
                target.insert(0, target.pop(place))

    @rule(place=places)
    def mutate(self, place: int) -> None:
        if self.model:
            self.change_and_assign(place % len(self.model))

    @rule(added=st.lists(values, max_size=20))
    def extend(self, added: list[Any]) -> None:
        self.both("extend", added)

    @rule(low=places, high=places, step=st.sampled_from([None, 1, 2, -1, -3]))
    def remove_slice(self, low: int, high: int, step: int | None) -> None:
        self.both("__delitem__", slice(low, high, step))

    @rule(bound=places, is_start=st.booleans(), step=apart)
    def remove_apart(self, bound: int, is_start: bool, step: int) -> None:
        self.both("__delitem__", slice(bound, None, step) if is_start else slice(None, bound, step))

    @precondition(ObjectMachine.is_free)
    @rule(added=st.lists(values, max_size=2), step=apart)
    def remove_apart_from_what_is_unread(self, added: list[Any], step: int) -> None:
        """Remove from a list of which nothing was read, or no more than its end since elements were appended."""
        self.checkpoint(CheckpointKind.DIFFERENTIAL)
        self.space = self.new_space()
        self.prepare()
        for value in added:
            self.both("append", value)
        self.both("__delitem__", slice(None, None, step))

    @rule(low=places, high=places, added=st.lists(values, max_size=8), step=st.sampled_from([None, 1, 2, -1]))
    def assign_slice(self, low: int, high: int, added: list[Any], step: int | None) -> None:
        self.both("__setitem__", slice(low, high, step), added)

    @rule(reverse=st.booleans())
    def sort(self, reverse: bool) -> None:
        for target in (self.handle, self.model):
            target.sort(key=shape, reverse=reverse)

    @rule(method=st.sampled_from(["reverse", "clear", "pop"]))
    def whole(self, method: str) -> None:
        self.both(method)

    @rule(times=st.integers(-1, 2))
    def multiply(self, times: int) -> None:
        # What is repeated must not be mutable: to change one slot in place would change its copies too.
        if len(self.model) < 100 and all(map(is_fixed, self.model)):
            self.both("__imul__", times)

    @rule(value=values.filter(lambda value: value == value))
    def remove(self, value: Any) -> None:
        self.both("remove", value)

    @precondition(ObjectMachine.is_free)
    @rule(place=places, value=values, removes=st.booleans())
    def write_behind(self, place: int, value: Any, removes: bool) -> None:
        """Do what code in C does that takes the list for a plain one: its methods hear nothing of it."""
        self.checkpoint(CheckpointKind.DIFFERENTIAL)
        self.handle.copy()
        if not removes:
            list.insert(self.handle, place % (len(self.handle) + 1), deepcopy(value))
            self.model.insert(place % (len(self.model) + 1), deepcopy(value))
        elif self.model:
            list.pop(self.handle, place % len(self.handle))
            self.model.pop(place % len(self.model))

    @rule()
    def compare(self) -> None:
        more = [0]
        assert shape(more + self.handle) == shape([0, *self.model])
        assert shape(self.handle + more) == shape([*self.model, 0])
        assert shape(list(reversed(self.handle))) == shape(self.model[::-1])
        assert (self.handle == [*self.model, 1]) is False


class QueueModel(deque[Any]):
    """A queue."""

    enqueue = deque.append
    dequeue = deque.popleft

    def peek(self) -> Any:
        return self[0]


class QueueMachine(ObjectMachine):
    kind = "queue"

    def new_model(self) -> Any:
        return QueueModel()

    @rule(value=values)
    def enqueue(self, value: Any) -> None:
        self.both("enqueue", value)

    @rule(count=st.integers(1, 50))
    def enqueue_many(self, count: int) -> None:
        for value in range(count):
            self.both("enqueue", value)

    @rule(count=st.integers(1, 50))
    def dequeue(self, count: int) -> None:
        for _ in range(count):
            self.both("dequeue")

    @rule(turns=st.integers(1, 9))
    def rotate(self, turns: int) -> None:
        for target in (self.handle, self.model) if self.model else ():
            for _ in range(turns):
                target.enqueue(target.dequeue())

    @rule(method=st.sampled_from(["peek", "clear"]))
    def whole(self, method: str) -> None:
        self.both(method)


class StackModel(list[Any]):
    """A stack that is read from its top."""

    push = list.append

    def peek(self) -> Any:
        return self[-1]

    def __iter__(self) -> Any:
        return reversed(self)


class StackMachine(ObjectMachine):
    kind = "stack"

    def new_model(self) -> Any:
        return StackModel()

    @rule(value=values)
    def push(self, value: Any) -> None:
        self.both("push", value)

    @rule(count=st.integers(1, 50))
    def push_many(self, count: int) -> None:
        for value in range(count):
            self.both("push", value)

    @rule(count=st.integers(1, 50))
    def pop(self, count: int) -> None:
        for _ in range(count):
            self.both("pop")

    @rule()
    def push_back(self) -> None:
        for target in (self.handle, self.model) if len(self.model) else ():
            target.push(target.pop())

    @rule(method=st.sampled_from(["peek", "clear"]))
    def whole(self, method: str) -> None:
        self.both(method)


class LinkedListMachine(ObjectMachine):
    kind = "linked_list"

    def new_model(self) -> Any:
        return []

    def node(self, place: int) -> Any:
        return list(self.handle.nodes())[place]

    def place(self, place: int) -> int:
        return place % len(self.model)

    @rule(value=values, is_first=st.booleans())
    def add_at_end(self, value: Any, is_first: bool) -> None:
        node = (self.handle.add_first if is_first else self.handle.add_last)(deepcopy(value))
        self.model.insert(0 if is_first else len(self.model), deepcopy(value))
        assert node.list is self.handle

    @rule(place=places, count=st.integers(1, 60), is_before=st.booleans())
    def add_beside(self, place: int, count: int, is_before: bool) -> None:
        if self.model:
            node, place = self.node(self.place(place)), self.place(place)
            for value in range(count):
                (self.handle.add_before if is_before else self.handle.add_after)(node, value)
                self.model.insert(place + value if is_before else place + 1, value)

    @rule(place=places)
    def remove_node(self, place: int) -> None:
        if self.model:
            node = self.node(self.place(place))
            self.handle.remove_node(node)
            assert shape(node.value) == shape(self.model.pop(self.place(place) if self.model else 0))
            assert node.list is None

    @rule(place=places, goal=places, is_before=st.booleans())
    def move(self, place: int, goal: int, is_before: bool) -> None:
        if self.model:
            place, goal = self.place(place), self.place(goal)
            move = self.handle.move_before if is_before else self.handle.move_after
            move(self.node(place), self.node(goal))
            if place != goal:
                value = self.model.pop(place)
                self.model.insert(goal - (place < goal) + (not is_before), value)

    @rule(place=places, value=values)
    def assign(self, place: int, value: Any) -> None:
        if self.model:
            self.node(self.place(place)).value = deepcopy(value)
            self.model[self.place(place)] = deepcopy(value)

    @rule(place=places)
    def mutate(self, place: int) -> None:
        if self.model:
            node = self.node(self.place(place))
            value = node.value
            if isinstance(value, list):
                value.append(1)
                self.model[self.place(place)].append(1)
            node.value = value

    @rule(is_first=st.booleans())
    def remove_end(self, is_first: bool) -> None:
        if self.model:
            value = self.handle.remove_first() if is_first else self.handle.remove_last()
            assert shape(value) == shape(self.model.pop(0 if is_first else -1))

    @rule(value=values.filter(lambda value: value == value))
    def remove(self, value: Any) -> None:
        self.both("remove", value)

    @rule()
    def clear(self) -> None:
        self.both("clear")


class ArrayMachine(ObjectMachine):
    kind = "array"

    length, default = 5, None

    @rule(length=st.sampled_from([0, 1, 5, 50]), default=values)
    def choose(self, length: int, default: Any) -> None:
        self.length, self.default = length, default
        self.recreate()

    def new_model(self) -> Any:
        return [deepcopy(self.default) for _ in range(self.length)]

    def create(self) -> Any:
        return self.space.create_array(self.name, self.length, default=deepcopy(self.default))

    @rule(place=places, value=values)
    def assign(self, place: int, value: Any) -> None:
        self.both("__setitem__", place, value)

    @rule(place=places)
    def set_default(self, place: int) -> None:
        self.both("__setitem__", place, self.default)

    @rule(place=places)
    def read(self, place: int) -> None:
        self.both("__getitem__", place)
        self.both("__getitem__", slice(place, None, 3))

    @rule(place=places)
    def mutate(self, place: int) -> None:
        if self.model:
            self.change_and_assign(place % len(self.model))

    @rule(low=places, value=values)
    def assign_slice(self, low: int, value: Any) -> None:
        count = len(self.model[low:])
        self.both("__setitem__", slice(low, None), [deepcopy(value) for _ in range(count)])

    @rule(when=places, changed=st.lists(places, max_size=4), value=values)
    def walk_and_set(self, when: int, changed: list[int], value: Any) -> None:
        for count, (ours, theirs) in enumerate(zip(self.handle, self.model, strict=True)):
            assert shape(ours) == shape(theirs)
            for place in changed if count == when else ():
                self.both("__setitem__", place, value)

    @rule(value=st.integers(0, 9))
    def fill(self, value: Any) -> None:
        self.handle.fill(value)
        self.model[:] = [value] * len(self.model)


class TensorMachine(ObjectMachine):
    kind = "tensor"
    spans = st.tuples(st.integers(-7, 7), st.integers(-7, 7), st.sampled_from([1, 2, -1]))

    blank = -1.0

    @rule(blank=st.sampled_from([-1.0, -0.0, float("inf"), -float("inf"), float("nan")]))
    def choose(self, blank: float) -> None:
        self.blank = blank
        self.recreate()

    def new_model(self) -> Any:
        return np.full((6, 7), self.blank)

    def create(self) -> Any:
        return self.space.create_tensor(self.name, (6, 7), chunks=(2, 3), fill=self.blank)

    def contents(self, target: Any) -> Any:
        return np.asarray(target).tobytes()

    @rule(row=spans, column=spans, value=st.sampled_from([-1.0, 0.0, -0.0, 5, float("nan"), float("inf")]))
    def assign(self, row: tuple[int, int, int], column: tuple[int, int, int], value: float) -> None:
        index = (slice(*row), slice(*column))
        self.both("__setitem__", index, value)
        assert self.handle[index].tobytes() == self.model[index].tobytes()

    @rule(row=st.integers(-6, 5), column=st.integers(-7, 6))
    def one(self, row: int, column: int) -> None:
        self.handle[row, column] = self.model[row, column] = row * column

    @rule(rows=st.lists(st.integers(-6, 5), min_size=1, max_size=4, unique_by=lambda row: row % 6))
    def fancy(self, rows: list[int]) -> None:
        block = np.arange(7.0 * len(rows)).reshape(len(rows), 7)
        self.handle[rows] = block
        self.model[rows] = block
        mask = self.model > 3
        assert self.handle[mask].tobytes() == self.model[mask].tobytes()
        self.handle[mask] = 2
        self.model[mask] = 2

    @rule(value=st.sampled_from([-1.0, 4.0]))
    def fill(self, value: float) -> None:
        self.both("fill", value)


TestList = ListMachine.TestCase
TestQueue = QueueMachine.TestCase
TestStack = StackMachine.TestCase
TestLinkedList = LinkedListMachine.TestCase
TestArray = ArrayMachine.TestCase
TestTensor = TensorMachine.TestCase
