"""State machines of the objects whose slots are keys: dictionaries, sets, sparse arrays, the value."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from sortedcontainers import SortedDict

from objectspace.objects.variants import is_dead
from tests.objects.machine import ObjectMachine, outcome
from tests.objects.samples import NUMBERS, TEXTS, TUPLES, keys, shape, values

small_keys = st.integers(0, 40)
some = st.randoms(use_true_random=False)


class Mapping(ObjectMachine):
    """The rules of every mapping."""

    keys: Any = keys

    def contents(self, target: Any) -> Any:
        return list(target.items())

    def known(self, position: int) -> Any:
        return list(self.model)[position % len(self.model)]

    def is_filled(self) -> bool:
        return len(self.model) > 0

    @rule(data=st.data(), value=values)
    def assign(self, data: Any, value: Any) -> None:
        self.both("__setitem__", data.draw(self.keys), value)

    @rule(data=st.data())
    def remove(self, data: Any) -> None:
        self.both("__delitem__", data.draw(self.keys))

    @precondition(is_filled)
    @rule(position=st.integers(0, 99), again=st.booleans(), value=values)
    def remove_known(self, position: int, again: bool, value: Any) -> None:
        key = self.known(position)
        self.both("pop", key)
        if again:
            self.both("__setitem__", key, value)

    @precondition(is_filled)
    @rule(position=st.integers(0, 99))
    def set_back(self, position: int) -> None:
        key = self.known(position)
        self.both("__setitem__", key, self.model[key])

    @precondition(is_filled)
    @rule(position=st.integers(0, 99))
    def mutate(self, position: int) -> None:
        self.change_and_assign(self.known(position))

    @rule(data=st.data())
    def read(self, data: Any) -> None:
        key = data.draw(self.keys)
        self.both("get", key, "absent")
        self.both("__contains__", key)

    @rule(data=st.data())
    def read_many(self, data: Any) -> None:
        wanted = data.draw(st.lists(self.keys, max_size=8)) + list(self.model)[::2]
        expected = [self.model.get(key, "absent") for key in wanted]
        assert shape(self.handle.get_many(wanted, "absent")) == shape(expected)

    @rule(data=st.data(), is_long=st.booleans())
    def discard_many(self, data: Any, is_long: bool) -> None:
        unwanted = data.draw(st.lists(self.keys, max_size=8)) + (list(self.model)[::3] if is_long else [])
        self.handle.discard_many(unwanted)
        for key in unwanted:
            self.model.pop(key, None)

    @rule(data=st.data(), value=values)
    def update_any(self, data: Any, value: Any) -> None:
        self.both("update", {key: deepcopy(value) for key in data.draw(st.lists(self.keys, max_size=8))})

    @rule(data=st.data(), value=values)
    def setdefault(self, data: Any, value: Any) -> None:
        self.both("setdefault", data.draw(self.keys), value)

    @rule(data=st.data())
    def pop(self, data: Any) -> None:
        self.both("pop", data.draw(self.keys), None)

    @rule()
    def popitem(self) -> None:
        self.both("popitem")

    @rule(start=st.integers(0, 40), count=st.integers(0, 60))
    def update(self, start: int, count: int) -> None:
        self.both("update", {self.number(place): -place for place in range(start, start + count)})

    def number(self, place: int) -> Any:
        return place

    @precondition(ObjectMachine.is_uncommitted)
    @rule()
    def put_back_in_flight(self) -> None:
        """Give the keys back that the save under way removes."""
        before = self.committed.get(self.name, {})
        self.both("update", {key: "back" for key in before if key not in self.model})

    @rule()
    def clear(self) -> None:
        self.both("clear")

    @rule()
    def walk_and_read(self) -> None:
        assert shape([(key, self.handle[key]) for key in self.handle]) == shape(self.contents(self.model))

    @precondition(is_filled)
    @rule(when=st.integers(0, 99), positions=st.lists(st.integers(0, 99), max_size=4), value=values)
    def walk_and_set(self, when: int, positions: list[int], value: Any) -> None:
        """Slots that are set while the mapping is iterated come in their turn, with what they hold then."""
        pairs = zip(self.handle.items(), self.model.items(), strict=True)
        for count, (ours, theirs) in enumerate(pairs):
            assert shape(ours) == shape(theirs)
            for position in positions if count == when % len(self.model) else ():
                self.both("__setitem__", self.known(position), value)


class DictionaryMachine(Mapping):
    kind = "dictionary"

    def new_model(self) -> dict[Any, Any]:
        return {}

    @rule()
    def backwards(self) -> None:
        assert shape(list(reversed(self.handle))) == shape(list(reversed(self.model)))

    @rule()
    def equal(self) -> None:
        assert (self.handle == {**self.model, "more": 1}) is False
        assert shape(self.handle | {"more": 1}) == shape(self.model | {"more": 1})
        assert shape(dict(self.handle)) == shape(self.model)
        assert shape({**self.handle}) == shape(self.model)


class SortedDictionaryMachine(Mapping):
    kind = "sorted_dictionary"

    @initialize(family=st.sampled_from([NUMBERS, TEXTS, TUPLES]))
    def choose(self, family: list[Any]) -> None:
        self.family = family
        self.keys = st.sampled_from(family)
        if family is NUMBERS:
            self.keys = st.one_of(self.keys, st.integers(0, 40))

    def number(self, place: int) -> Any:
        return {"NUMBERS": place, "TEXTS": f"{place:03}", "TUPLES": (place, place)}[self.family_name()]

    def family_name(self) -> str:
        return next(name for name in ("NUMBERS", "TEXTS", "TUPLES") if globals()[name] is self.family)

    def new_model(self) -> Any:
        return SortedDict()

    @rule(data=st.data(), inclusive=st.tuples(st.booleans(), st.booleans()), reverse=st.booleans())
    def irange(self, data: Any, inclusive: tuple[bool, bool], reverse: bool) -> None:
        low, high = (data.draw(st.none() | self.keys) for _ in range(2))
        expected = list(self.model.irange(low, high, inclusive, reverse))
        assert shape(list(self.handle.irange(low, high, inclusive, reverse))) == shape(expected)
        pairs = self.handle.items_between(low, high, inclusive, reverse)
        assert shape(list(pairs)) == shape([(key, self.model[key]) for key in expected])
        pages = list(self.handle.pages_between(low, high, inclusive, reverse))
        assert all(pages), "a page is empty"
        assert shape([pair for page in pages for pair in page]) == shape([(key, self.model[key]) for key in expected])

    @rule(data=st.data())
    def neighbours(self, data: Any) -> None:
        key = data.draw(self.keys)
        floor = next(self.model.irange(None, key, reverse=True), None)
        assert shape([self.handle.floor(key), self.handle.ceiling(key)]) == shape(
            [floor, next(self.model.irange(key), None)]
        )

    @rule(index=st.integers(-45, 45))
    def peekitem(self, index: int) -> None:
        self.both("peekitem", index)

    @rule(index=st.sampled_from([0, -1]), count=st.integers(1, 8))
    def take_from_an_end(self, index: int, count: int) -> None:
        for _ in range(count):
            self.both("popitem", index)

    @rule()
    def no_order(self) -> None:
        for key in (None, float("nan"), "\ud800", frozenset()):
            assert outcome(self.handle, "__setitem__", (key, 1)) == "TypeError"
        if len(self.model):
            other = b"" if self.family is not NUMBERS else "a"
            assert outcome(self.handle, "__setitem__", (other, 1)) == "TypeError"


class RawSortedDictionaryMachine(SortedDictionaryMachine):
    """Keys are bytes, and values text that is stored as it is."""

    mutate = None  # text cannot be changed in place

    @initialize()
    def choose(self) -> None:  # type: ignore[override]
        self.keys = st.binary(max_size=2)

    def create(self) -> Any:
        return self.space.create_sorted_dictionary(self.name, raw=True)

    def number(self, place: int) -> bytes:
        return bytes([place])

    def both(self, method: str, *arguments: Any) -> Any:
        if method in ("__setitem__", "setdefault"):
            arguments = (arguments[0], repr(arguments[1]))
        elif method == "update":
            arguments = ({key: repr(value) for key, value in arguments[0].items()},)
        return super().both(method, *arguments)

    @rule()
    def no_order(self) -> None:
        for key, value in (("a", "1"), (1, "1"), (b"a", 1), (b"a", "\ud800"), (b"a", None)):
            assert outcome(self.handle, "__setitem__", (key, value)) == "TypeError"
            assert outcome(self.handle, "update", ({key: value},)) == "TypeError"


class SetModel(dict[Any, None]):
    """A set in order of insertion."""

    def add(self, value: Any) -> None:
        self.setdefault(value)

    def discard(self, value: Any) -> None:
        super().pop(value, None)

    def remove(self, value: Any) -> None:
        del self[value]

    def pop(self) -> Any:  # type: ignore[override]
        value = next(iter(self), "nothing")
        del self[value]
        return value

    def update(self, values: Any) -> None:  # type: ignore[override]
        super().update(dict.fromkeys(values))

    def difference_update(self, values: Any) -> None:
        for value in values:
            self.discard(value)

    def intersection_update(self, values: Any) -> None:
        self.difference_update([value for value in self if value not in set(values)])

    def symmetric_difference_update(self, values: Any) -> None:
        for value in dict.fromkeys(values):
            (self.discard if value in self else self.add)(value)


class SetMachine(ObjectMachine):
    kind = "set"
    keys: Any = keys

    def new_model(self) -> Any:
        return SetModel()

    @rule(data=st.data(), method=st.sampled_from(["add", "discard", "remove", "__contains__"]))
    def one(self, data: Any, method: str) -> None:
        self.both(method, data.draw(self.keys))

    @rule(data=st.data())
    def discard_known(self, data: Any) -> None:
        if self.model:
            value = data.draw(st.sampled_from(list(self.model)))
            self.both("remove", value)
            if data.draw(st.booleans()):
                self.both("add", value)

    @rule(data=st.data(), method=st.sampled_from(["update", "difference_update", "intersection_update"]))
    def many(self, data: Any, method: str) -> None:
        self.both(method, data.draw(st.lists(self.keys, max_size=8)))

    @rule(data=st.data())
    def symmetric(self, data: Any) -> None:
        self.both("symmetric_difference_update", data.draw(st.lists(self.keys, max_size=8)))

    @rule(start=st.integers(0, 40), count=st.integers(0, 60))
    def fill(self, start: int, count: int) -> None:
        self.both("update", [self.number(place) for place in range(start, start + count)])

    def number(self, place: int) -> Any:
        return place

    @rule()
    def pop(self) -> None:
        self.both("pop")

    @rule()
    def clear(self) -> None:
        self.both("clear")

    @rule()
    def compare(self) -> None:
        assert shape(list(reversed(self.handle))) == shape(list(reversed(list(self.model))))
        assert self.handle == set(self.model)
        assert shape(self.handle | {"more"}) == shape(set(self.model) | {"more"})


class SortedSetModel(SetModel):
    """A set in order; an element that is equal to one that is there does not replace it."""

    def __iter__(self) -> Any:
        return iter(sorted(self.keys()))

    def __reversed__(self) -> Any:
        return iter(sorted(self.keys(), reverse=True))

    def pop(self, index: int = -1) -> Any:  # type: ignore[override]
        if not len(self):
            raise KeyError
        value = sorted(self.keys())[index]
        del self[value]
        return value


class SortedSetMachine(SetMachine):
    kind = "sorted_set"

    @initialize(family=st.sampled_from([NUMBERS, TEXTS, TUPLES]))
    def choose(self, family: list[Any]) -> None:
        self.family = family
        self.keys = st.sampled_from(family)

    number = SortedDictionaryMachine.number
    family_name = SortedDictionaryMachine.family_name

    def new_model(self) -> Any:
        return SortedSetModel()

    @rule(index=st.integers(-45, 45))
    def pop_at(self, index: int) -> None:
        self.both("pop", index)

    @rule(index=st.sampled_from([0, -1]), count=st.integers(1, 8))
    def take_from_an_end(self, index: int, count: int) -> None:
        for _ in range(count):
            self.both("pop", index)

    @rule(data=st.data())
    def view(self, data: Any) -> None:
        low, high = sorted([data.draw(self.keys), data.draw(self.keys)])
        view = self.handle.view_between(low, high)
        inside = [value for value in self.model if low <= value <= high]
        assert shape(list(view)) == shape(inside)
        assert shape(list(reversed(view))) == shape(inside[::-1])
        value = data.draw(self.keys)
        if low <= value <= high:
            view.add(value)
            self.model.add(value)
            view.discard(low)
            self.model.discard(low)
        else:
            assert outcome(view, "add", (value,)) == "ValueError"
            assert value not in view


class SparseModel(dict[int, Any]):
    """A sparse array whose default is 0."""

    def __missing__(self, index: int) -> Any:
        return 0

    def __delitem__(self, index: int) -> None:
        self.pop(index, None)

    def assigned(self) -> Any:
        return sorted(self.items())


class SparseArrayMachine(ObjectMachine):
    kind = "sparse_array"
    places = st.one_of(st.integers(-5, 40), st.sampled_from([2**63 - 1, -(2**63)]))

    def new_model(self) -> Any:
        return SparseModel()

    def create(self) -> Any:
        return self.space.create_sparse_array(self.name, default=0)

    def contents(self, target: Any) -> Any:
        return list(target.assigned())

    @rule(place=places, value=values)
    def assign(self, place: int, value: Any) -> None:
        self.both("__setitem__", place, value)

    @rule(place=places, method=st.sampled_from(["__getitem__", "__delitem__", "__contains__"]))
    def one(self, place: int, method: str) -> None:
        self.both(method, place)

    @rule(start=st.integers(-5, 40), count=st.integers(0, 50))
    def fill(self, start: int, count: int) -> None:
        self.handle[start : start + count] = list(range(count))
        self.model.update({start + place: place for place in range(count)})
        assert self.handle[start - 1 : start + count] == [self.model[start - 1], *range(count)]

    @rule(start=st.integers(-5, 40), count=st.integers(0, 50), step=st.sampled_from([1, 3, -2]))
    def remove(self, start: int, count: int, step: int) -> None:
        stop = start + count * step
        del self.handle[start:stop:step]
        for place in range(start, stop, step):
            del self.model[place]

    @rule(low=places, high=places, step=st.sampled_from([1, -1, 2**40, -(2**62)]))
    def remove_far(self, low: int, high: int, step: int) -> None:
        del self.handle[low:high:step]
        for place in [place for place in self.model if place in range(low, high, step)]:
            del self.model[place]

    @rule(low=st.integers(-5, 40), high=st.integers(-5, 40))
    def between(self, low: int, high: int) -> None:
        expected = [pair for pair in self.model.assigned() if low <= pair[0] < high]
        assert shape(list(self.handle.assigned(low, high))) == shape(expected)

    @precondition(lambda self: len(self.model))
    @rule(when=st.integers(0, 99), positions=st.lists(st.integers(0, 99), max_size=4), value=values)
    def walk_and_set(self, when: int, positions: list[int], value: Any) -> None:
        expected = self.model.assigned()
        for count, ours in enumerate(self.handle.assigned()):
            assert shape(ours) == shape((expected[count][0], self.model[expected[count][0]]))
            for position in positions if count == when % len(expected) else ():
                self.both("__setitem__", expected[position % len(expected)][0], value)
        assert count + 1 == len(expected)

    @rule(place=places)
    def mutate(self, place: int) -> None:
        if place in self.model:
            self.change_and_assign(place)

    @rule()
    def clear(self) -> None:
        self.both("clear")


class ValueModel(list[Any]):
    """One value; a list so that it can be told from what it holds."""

    @property
    def value(self) -> Any:
        return self[0]


class ValueMachine(ObjectMachine):
    kind = "value"

    def new_model(self) -> Any:
        return ValueModel([None])

    def contents(self, target: Any) -> Any:
        return target.value

    def expect(self, name: str, model: Any) -> None:
        assert shape(self.space.get(name).value) == shape(model.value)

    @rule(value=values)
    def assign(self, value: Any) -> None:
        self.handle.value = deepcopy(value)
        self.model[0] = deepcopy(value)

    @rule(value=values)
    def assign_and_set_back(self, value: Any) -> None:
        before = self.handle.value
        self.handle.value = value
        self.handle.value = before

    @rule()
    def mutate(self) -> None:
        value = self.handle.value
        self.model[0] = value
        if isinstance(value, list):
            value.append(1)
        self.handle.value = value
        self.model[0] = deepcopy(value)


class ObjectDictionaryMachine(ObjectMachine):
    """A dictionary of lists; the lists are held on to, whatever becomes of their owner."""

    kind = "dictionary"
    names = st.sampled_from(["a", "b", 1, True, (1,), "c"])

    def new_model(self) -> Any:
        return {}

    def create(self) -> Any:
        return self.space.create_dictionary(self.name, of=list)

    def prepare(self) -> None:
        super().prepare()
        self.held: dict[Any, Any] = {}

    def contents(self, target: Any) -> Any:
        return [(key, list(value)) for key, value in target.items()]

    def child(self, key: Any) -> Any:
        """Return the list of a key, by the handle got first as long as it lives."""
        known = self.held.get(key)
        if known is None or is_dead(known):
            known = self.held[key] = self.handle[key]
        assert known is self.handle[key]
        return known

    @rule(key=names, contents=st.lists(values, max_size=6))
    def assign(self, key: Any, contents: list[Any]) -> None:
        self.both("__setitem__", key, contents)

    @rule(key=names, value=values)
    def append(self, key: Any, value: Any) -> None:
        self.handle.setdefault(key).append(deepcopy(value))
        self.model.setdefault(key, []).append(deepcopy(value))

    @rule(key=names, method=st.sampled_from(["clear", "pop", "reverse"]))
    def change_child(self, key: Any, method: str) -> None:
        if key in self.model:
            assert outcome(self.child(key), method, ()) == outcome(self.model[key], method, ())

    @rule(key=names, count=st.integers(1, 50))
    def extend_child(self, key: Any, count: int) -> None:
        if key in self.model:
            self.child(key).extend(range(count))
            self.model[key].extend(range(count))

    @rule(key=names)
    def let_go(self, key: Any) -> None:
        self.held.pop(key, None)

    @rule(key=names)
    def remove(self, key: Any) -> None:
        known = self.held.get(key)
        self.both("__delitem__", key)
        assert known is None or is_dead(known)

    @rule(key=names)
    def pop(self, key: Any) -> None:
        self.both("pop", key, None)

    @rule()
    def popitem(self) -> None:
        self.both("popitem")
        assert shape(list(reversed(self.handle))) == shape(list(reversed(self.model)))

    @rule()
    def clear(self) -> None:
        self.both("clear")
        assert all(map(is_dead, self.held.values()))

    @rule(count=st.integers(1, 40))
    def fill(self, count: int) -> None:
        for key in range(100, 100 + count):
            self.both("__setitem__", key, [key])

    @rule()
    def bad_contents(self) -> None:
        assert outcome(self.handle, "__setitem__", ("bad", 5)) == "TypeError"


TestDictionary = DictionaryMachine.TestCase
TestSortedDictionary = SortedDictionaryMachine.TestCase
TestRawSortedDictionary = RawSortedDictionaryMachine.TestCase
TestSet = SetMachine.TestCase
TestSortedSet = SortedSetMachine.TestCase
TestSparseArray = SparseArrayMachine.TestCase
TestValue = ValueMachine.TestCase
TestObjectDictionary = ObjectDictionaryMachine.TestCase
