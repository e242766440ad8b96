"""Looking for something gives what it gives in a plain container, wherever the slots are at the moment."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, time, timedelta
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from operator import and_, iand, ior, isub, ixor, or_, sub, xor
from typing import Any
from unittest.mock import ANY, Mock
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from sortedcontainers import SortedDict

from objectspace import EmptyError, PersistedObjectSpace, UnencodableValueError
from objectspace.objects import Dictionary, Set, limits


class Level(IntEnum):
    LOW = 2


class Word(str):
    pass


class Amount(Decimal):
    pass


EQUAL = [
    *(np.int64(2), np.float64(1.5), Level.LOW, Word("a"), Fraction(3, 2), (np.int64(1), Word("b")), True),
    *(np.True_, np.complex128(3 + 4j), np.complex64(2), Amount("0.1"), frozenset({np.int64(7)})),
]
"""Keys of types that cannot be stored, but for the last, each equal to one that is stored."""

UNKNOWN = [
    *(object(), range(3), Word("nosuch"), np.int64(77), Fraction(1, 3), Decimal("1E+7000"), (object(),)),
    *(np.complex128(5 + 6j), Amount("0.7")),
]


@pytest.fixture
def space() -> Iterator[PersistedObjectSpace]:
    with PersistedObjectSpace.open(":memory:", cache_slots=20) as space:
        dictionary = space.create_dictionary("dictionary")
        dictionary.update({number: number for number in range(60)})
        dictionary.update({"a": "a", 1.5: 1.5, (1, "b"): "tuple"})
        dictionary.update({3 + 4j: "complex", Decimal("0.1"): "decimal", frozenset({7}): "frozenset"})
        space.create_set("set").update(dictionary)
        space.create_sorted_dictionary("sorted").update({number: number for number in range(60)})
        queue, stack = space.create_queue("queue"), space.create_stack("stack")
        for number in range(60):
            queue.enqueue(number)
            stack.push(number)
        space.checkpoint()
        yield space


@pytest.fixture(params=["whole", "paged"])
def stored(request: pytest.FixtureRequest, space: PersistedObjectSpace, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The space with its objects read whole, or slot by slot."""
    monkeypatch.setattr(limits, "WHOLE_SLOTS", 1000 if request.param == "whole" else 0)
    space.rollback()
    return space


@pytest.mark.parametrize("key", EQUAL, ids=repr)
def test_a_key_is_found_by_what_is_equal_to_it(stored: PersistedObjectSpace, key: Any) -> None:
    dictionary = stored.get_dictionary("dictionary")
    plain = dictionary.copy()
    assert key in dictionary
    assert key in stored.get_set("set")
    assert dictionary[key] == plain[key]
    assert dictionary.pop(key) == plain.pop(key)
    stored.checkpoint()
    stored.rollback()
    assert stored.get_dictionary("dictionary").copy() == plain


STAND_INS = [
    (Decimal("0.1"), Decimal("0.2"), Fraction(1, 10)),
    (b"a", b"b", memoryview(b"a")),
    (time(9), time(10), time(9, tzinfo=ZoneInfo("Europe/Berlin"))),
    (0, 1, Decimal("0E+9999")),
    ((Decimal("0.1"), b"a"), (Decimal("0.2"), b"a"), (Fraction(1, 10), b"a")),
]
"""A key, one that stays, and a key that is equal to the first, and that no object stored or could store as it is."""

TAKES = [
    *(("dictionary", "pop"), ("dictionary", "discard_many"), ("set", "discard"), ("sorted_set", "remove")),
    *(("sorted_dictionary", "__delitem__"), ("sorted_dictionary", "discard_many")),
]


@pytest.mark.parametrize("keys", STAND_INS, ids=lambda keys: f"{type(keys[2]).__name__} for {keys[0]}")
@pytest.mark.parametrize(("kind", "take"), TAKES)
def test_a_key_is_removed_by_an_equal_one_that_cannot_be_stored(
    stored: PersistedObjectSpace, kind: str, take: str, keys: tuple[Any, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PROMOTE_SHARE", 0)
    key, other, asked = keys
    target = getattr(stored, f"create_{kind}")("target")
    target.update({key: 1, other: 2})
    stored.checkpoint()
    stored.rollback()
    assert asked in target
    target.update({other: 3})
    assert list(target) == [key, other]
    getattr(target, take)([asked] if take == "discard_many" else asked)
    stored.checkpoint()
    stored.rollback()
    assert list(target) == [other]
    stored._check()


class Alias:
    """Equal to a key, and unlike whatever can be stored."""

    def __eq__(self, other: object) -> bool:
        return other == "a"

    def __hash__(self) -> int:
        return hash("a")


def test_a_key_in_memory_is_removed_by_whatever_is_equal_to_it(space: PersistedObjectSpace) -> None:
    some: list[Any] = [space.create_dictionary("d"), space.create_set("s"), space.create_sorted_set("in order")]
    for one in some:
        one.update({"a": 1, "b": 2})
        space.checkpoint()
        (one.pop if one is some[0] else one.remove)(Alias())
        space.checkpoint()
    space.rollback()
    assert list(map(list, some)) == [["b"]] * 3


@pytest.mark.parametrize("key", [np.datetime64("2020-01-01"), pd.NA], ids=repr)
def test_a_key_that_was_refused_can_be_removed(space: PersistedObjectSpace, key: Any) -> None:
    dictionary, elements = space.create_dictionary("d"), space.create_set("s")
    space.checkpoint()
    dictionary[key] = 1
    elements.add(key)
    with pytest.raises(UnencodableValueError):
        space.checkpoint()
    del dictionary[key]
    elements.remove(key)
    assert space.checkpoint().slots == 0


def test_what_has_no_order_with_bytes_bounds_no_range_of_them(stored: PersistedObjectSpace) -> None:
    stored.create_sorted_set("target").update([b"a", b"c"])
    stored.checkpoint()
    stored.rollback()
    with pytest.raises(TypeError):
        list(stored.get("target").irange(memoryview(b"d")))


@pytest.mark.parametrize("key", UNKNOWN, ids=lambda key: type(key).__name__)
def test_what_cannot_be_stored_is_not_there(stored: PersistedObjectSpace, key: Any) -> None:
    dictionary = stored.get_dictionary("dictionary")
    assert key not in dictionary
    assert key not in stored.get_set("set")
    assert dictionary.get(key, 5) == dictionary.pop(key, 5) == 5
    stored.checkpoint()


MOMENTS = [datetime(2020, 1, 2, 3), datetime(2020, 1, 2, 3, tzinfo=ZoneInfo("Europe/Berlin")), timedelta(1, 2, 3)]


@pytest.mark.parametrize("moment", MOMENTS, ids=repr)
def test_a_moment_of_pandas_is_found_and_bounds_a_range(stored: PersistedObjectSpace, moment: Any) -> None:
    later = moment + timedelta(1)
    stored.create_dictionary("moments").update({moment: 1, later: 2})
    stored.create_sorted_set("in order").update([moment, later])
    stored.checkpoint()
    stored.rollback()
    key = (pd.Timestamp if isinstance(moment, datetime) else pd.Timedelta)(later)
    assert stored.get("moments")[key] == 2
    assert list(stored.get("in order").irange(key)) == [later]
    with pytest.raises(UnencodableValueError):
        stored.get("moments")[key + timedelta(1)] = 3
        stored.checkpoint()


def test_an_equal_key_is_set_under_the_one_that_is_there(stored: PersistedObjectSpace) -> None:
    dictionary = stored.get_dictionary("dictionary")
    dictionary[np.int64(2)] = "new"
    stored.checkpoint()
    stored.rollback()
    found = [(key, value) for key, value in stored.get_dictionary("dictionary").items() if key == 2]
    assert found == [(2, "new")]
    assert type(found[0][0]) is int


def test_a_new_key_that_cannot_be_stored_is_refused_at_once_where_slots_are_read_one_by_one(
    space: PersistedObjectSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WHOLE_SLOTS", 0)
    space.rollback()
    with pytest.raises(UnencodableValueError, match=r"np\.int64"):
        space.get_dictionary("dictionary")[np.int64(77)] = 1
    space.checkpoint()


def test_a_sorted_object_does_not_hold_what_has_no_order_with_its_keys(stored: PersistedObjectSpace) -> None:
    keys = stored.get_sorted_dictionary("sorted")
    assert np.int64(3) in keys
    assert "a" not in keys
    assert object() not in keys


def test_to_ask_a_sorted_dictionary_for_none_is_an_error_except_among_many(stored: PersistedObjectSpace) -> None:
    ordered: Any = stored.get_sorted_dictionary("sorted")
    for ask in (ordered.get, ordered.pop, ordered.__contains__, ordered.__delitem__, ordered.keys().__contains__):
        with pytest.raises(TypeError, match="the key is None, which has no order"):
            ask(None)
    assert ordered.get_many([None, 1]) == [None, 1]
    ordered.discard_many([None])
    assert list(ordered) == list(range(60))


BOUNDS = [
    np.int64(7),
    np.float64(6.5),
    np.float32(6.5),
    Level.LOW,
    Fraction(13, 2),
    Fraction(22, 3),
    Fraction(2**80, 3),
    Decimal("1E+7000"),
]


@pytest.mark.parametrize("bound", BOUNDS, ids=repr)
def test_a_range_is_bounded_by_what_compares_with_the_keys(stored: PersistedObjectSpace, bound: Any) -> None:
    keys, plain = stored.get_sorted_dictionary("sorted"), range(60)
    assert list(keys.irange(bound)) == [key for key in plain if key >= bound]
    assert list(keys.irange(None, bound, (True, False))) == [key for key in plain if key < bound]
    assert keys.ceiling(bound) == min((key for key in plain if key >= bound), default=None)
    assert keys.floor(bound) == max(key for key in plain if key <= bound)
    with pytest.raises(TypeError):
        list(keys.irange(Word("a")))


def test_a_range_is_bounded_by_text_and_tuples_and_times_of_other_types(stored: PersistedObjectSpace) -> None:
    some: list[tuple[str, list[Any], Any]] = [
        ("texts", ["a", "b"], Word("aa")),
        ("pairs", [(1, "a"), (2, "b")], (np.int64(2),)),
        ("times", [time(8), time(10)], time(9, tzinfo=ZoneInfo("Europe/Berlin"))),
    ]
    for name, found, bound in some:
        stored.create_sorted_set(name).update(found)
        stored.checkpoint()
        stored.rollback()
        assert list(stored.get(name).irange(bound)) == found[1:]


@pytest.mark.parametrize("view", ["items", "values", "keys"])
def test_views_live_on_when_the_dictionary_comes_into_memory(stored: PersistedObjectSpace, view: str) -> None:
    dictionary = stored.get_dictionary("dictionary")
    shown = getattr(dictionary, view)()
    for key in range(60):
        assert dictionary[key] == key
    plain = dictionary.copy()
    assert list(shown) == list(getattr(plain, view)())
    assert list(reversed(shown)) == list(reversed(getattr(plain, view)()))


def test_items_hold_nothing_but_pairs(stored: PersistedObjectSpace) -> None:
    items = stored.get_dictionary("dictionary").items()
    assert (1, 1) in items
    assert 1 not in items
    assert [1, 1] not in items
    assert (1, 2) not in items


@pytest.mark.parametrize("kind", ["queue", "stack"])
def test_the_first_element_is_there_while_clean_ones_are_dropped_from_memory(
    space: PersistedObjectSpace, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WHOLE_SLOTS", 0)
    space.rollback()
    target, written = space.get(kind), space.create_list("written")
    expected, failures, is_over = target.peek(), [], threading.Event()

    def _read() -> None:
        try:
            while not is_over.is_set():
                assert target.peek() == expected
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=_read) for _ in range(2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for number in range(100):
            written.append(number)
            space.checkpoint()
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert failures == []


@pytest.mark.parametrize("create", [lambda s: s.create_queue("q"), lambda s: s.create_stack("s")])
def test_peeking_into_nothing_is_refused(space: PersistedObjectSpace, create: Callable[[Any], Any]) -> None:
    with pytest.raises(EmptyError, match="peek"):
        create(space).peek()


@pytest.mark.parametrize("key", [10**5000, (1, 10**5000)], ids=["int", "tuple"])
def test_a_key_that_python_does_not_write_has_an_object(space: PersistedObjectSpace, key: Any) -> None:
    groups = space.create_dictionary("d", of=list)
    groups.setdefault(key).append(1)
    space.checkpoint()
    groups[key].append(2)
    space.rename("d", "e")
    assert groups[key].name in ("e[an int of 16610 bits]", "e[a tuple]")
    space.rollback()
    assert PersistedObjectSpace(space.store).get("d").copy() == groups.copy() == {key: [1]}


def test_a_key_that_cannot_be_shown_leaves_the_dictionary_whole(
    space: PersistedObjectSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = space.create_dictionary("d", of=list)
    groups.setdefault("a").append(1)
    monkeypatch.setattr(groups, "_name_of", Mock(side_effect=RuntimeError("no repr")))
    with pytest.raises(RuntimeError, match="no repr"):
        groups.setdefault("b")
    space.checkpoint()
    assert PersistedObjectSpace(space.store).get("d").copy() == {"a": [1]}


@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize(
    "change", [lambda target, value: target.append(value), lambda target, value: target.__setitem__(0, 9)]
)
def test_a_list_that_its_sort_key_changes_is_as_it_was(
    space: PersistedObjectSpace, change: Callable[[Any, Any], None], is_stored: bool
) -> None:
    target = space.create_list("list")
    target.extend([3, 1, 2])
    if is_stored:
        space.checkpoint()
    with pytest.raises(ValueError, match="list modified during sort"):
        target.sort(key=lambda value: change(target, value) or value)
    assert list(target) == [3, 1, 2]
    space.checkpoint()
    target._check()


@pytest.mark.parametrize("bound", [float("nan"), np.float64("nan"), Decimal("nan"), (1, float("nan"))], ids=repr)
def test_a_bound_that_is_nan_is_refused_wherever_the_keys_are(stored: PersistedObjectSpace, bound: Any) -> None:
    keys = stored.get_sorted_dictionary("sorted")
    uses = [
        lambda: list(keys.irange(bound)),
        lambda: list(keys.irange(None, bound, reverse=True)),
        lambda: list(keys.items_between(bound, 3)),
        lambda: list(keys.pages_between(bound, 3)),
        lambda: keys.floor(bound),
        lambda: keys.ceiling(bound),
        lambda: list(stored.create_sorted_set("empty").irange(bound)),
        lambda: stored.get("empty").view_between(bound, bound),
    ]
    for use in uses:
        with pytest.raises(TypeError, match="nan has no place"):
            use()


def test_no_epoch_is_no_moment_to_look_at(space: PersistedObjectSpace) -> None:
    with pytest.raises(TypeError, match="epoch is None: expected an int"):
        space.at(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("of", [None, list])
def test_a_key_may_be_named_self(stored: PersistedObjectSpace, of: Any) -> None:
    for contents in ([1], [2]):
        stored.get_or_create_dictionary("named", of).update(self=contents, other=[3])
        stored.checkpoint()
        stored.rollback()
        assert stored.get("named").copy() == {"self": contents, "other": [3]}


def test_what_holds_itself_is_shown(space: PersistedObjectSpace) -> None:
    for name, held in (("list", "[...]"), ("dictionary", "{...}"), ("sorted_dictionary", "{...}")):
        found = getattr(space, f"create_{name}")(f"a {name}")
        found.insert(0, found) if name == "list" else found.update(key=found)
        assert held in repr(found)


@pytest.mark.parametrize("epoch", [True, "1", 1.0])
def test_what_is_no_epoch_drops_no_history(space: PersistedObjectSpace, epoch: Any) -> None:
    space.checkpoint()
    for use in (space.rollback, space.at, lambda one: space.store.fork("nowhere", epoch=one)):
        with pytest.raises(TypeError, match=r"epoch is .*: expected an int"):
            use(epoch)
    assert len(space.store.checkpoints()) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.update([7, "z"]),
        lambda s: s.symmetric_difference_update([1, 7, "z"]),
        lambda s: s.view_between(0, 4).update([4, 50]),
        lambda s: s.view_between(0, 4).symmetric_difference_update([1, 50]),
    ],
)
def test_a_bulk_change_that_is_refused_changes_nothing(
    space: PersistedObjectSpace, change: Callable[[Any], Any]
) -> None:
    target = space.create_sorted_set("sorted_set")
    target |= {1, 2, 3}
    space.checkpoint()
    with pytest.raises((TypeError, ValueError)):
        change(target)
    assert list(target) == [1, 2, 3]
    assert space.checkpoint().slots == 0


def test_a_view_does_not_hold_what_has_no_order_with_it(space: PersistedObjectSpace) -> None:
    view = space.create_sorted_set("sorted_set").view_between(0, 4)
    view.discard("a")
    assert "a" not in view


def test_a_dictionary_is_compared_by_what_knows_how(stored: PersistedObjectSpace) -> None:
    numbers = stored.create_dictionary("numbers")
    numbers.update(stored.get("sorted"))
    stored.checkpoint()
    stored.rollback()
    numbers, ordered = stored.get("numbers"), stored.get("sorted")
    assert [numbers == ordered, ordered == numbers, numbers != ordered] == [True, True, False]
    assert [numbers == ANY, numbers == 5, numbers != 5] == [True, False, True]


@pytest.mark.parametrize("key", [7, 100])
@pytest.mark.parametrize("is_saved", [False, True])
def test_a_removed_key_is_put_back_without_reading(
    stored: PersistedObjectSpace, key: int, is_saved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dictionary = stored.get_sorted_dictionary("sorted")
    dictionary[key] = "new"
    if is_saved:
        stored.checkpoint()
    del dictionary[key]
    with monkeypatch.context() as patch:
        patch.setattr(stored, "reader", None)
        dictionary.put_removed(key, "back")
        dictionary.put_removed(key, "again")
    expected = sorted({*range(60), key})
    assert (dictionary[key], list(dictionary), len(dictionary)) == ("again", expected, len(expected))
    stored.checkpoint()
    stored.rollback()
    assert (dictionary[key], list(dictionary)) == ("again", expected)
    stored._check()


def test_a_raw_dictionary_puts_back_what_it_can_store(space: PersistedObjectSpace) -> None:
    raw: Any = space.create_sorted_dictionary("raw", raw=True)
    raw.put_removed(b"k", "v")
    refused = (
        ("k", "v", TypeError, "a key is bytes"),
        (b"k", 1, UnencodableValueError, "a value is text or bytes"),
        (b"k", "\ud800", UnencodableValueError, "a value is text valid in UTF-8, without lone surrogates"),
    )
    for key, value, error, said in refused:
        with pytest.raises(error, match=f"is raw: {said}"):
            raw.put_removed(key, value)
    assert raw.copy() == {b"k": "v"}


@pytest.mark.parametrize("kind", ["dictionary", "sorted_dictionary"])
def test_what_is_discarded_together_is_gone_alone(space: PersistedObjectSpace, kind: str) -> None:
    dictionary: Any = getattr(space, f"create_{kind}")("numbers_by_key")
    dictionary.update({key: str(key) for key in range(2000)})
    space.checkpoint()
    space.rollback()
    dictionary.update({5: "new", 2001: "new"})
    dictionary.discard_many(number for number in [5, 7, 7, 2001, 9999, 7.0])
    dictionary[7] = "back"
    assert space.checkpoint().slots == 2
    space.rollback()
    expected = {key: str(key) for key in range(2000) if key != 5} | {7: "back"}
    assert (dictionary.copy(), len(dictionary)) == (expected, len(expected))
    with pytest.raises(TypeError, match="unhashable"):
        dictionary.discard_many([8, []])
    assert dictionary[8] == "8"


def test_the_order_of_keys_outlives_what_is_discarded(space: PersistedObjectSpace) -> None:
    dictionary, model = space.create_sorted_dictionary("by_key"), SortedDict()
    chance = random.Random(3)
    for number in range(80):
        some = [chance.randrange(300) for _ in range(chance.randrange(60))]
        if chance.random() < 0.5:
            dictionary.update(dict.fromkeys(some, number))
            model.update(dict.fromkeys(some, number))
        else:
            dictionary.discard_many(some)
            for key in some:
                model.pop(key, None)
        if number % 5 == 0:
            assert list(dictionary.items()) == list(model.items())
        if number % 7 == 0:
            space.checkpoint()
            dictionary._check()


@pytest.mark.parametrize("kind", ["sorted_set", "sorted_dictionary"])
def test_an_element_in_the_middle_is_popped_without_a_walk(space: PersistedObjectSpace, kind: str) -> None:
    target, calls = getattr(space, f"create_{kind}")("numbers"), []
    target.update(dict.fromkeys(range(10_000)))
    pop = target.pop if kind == "sorted_set" else target.popitem
    sys.setprofile(lambda _, event, __: calls.append(event) if event == "call" else None)
    try:
        found = pop(4_000)
    finally:
        sys.setprofile(None)
    assert found in (4_000, (4_000, None))
    assert len(calls) < 100


def test_the_last_item_of_a_dictionary_is_taken_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    space = PersistedObjectSpace.open(":memory:")
    dictionary, searches = space.create_dictionary("numbers"), Mock(side_effect=dict.__reversed__)
    dictionary.update({number: [number] for number in range(500)})
    monkeypatch.setattr(Dictionary, "__reversed__", lambda self: searches(self), raising=False)
    for number in reversed(range(500)):
        assert dictionary.popitem() == (number, [number])
        if number == 250:
            space.checkpoint()
    assert searches.call_count == 0


SLICES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "a slice is read": (lambda array: array[500:4500:2], [*range(500, 4000, 2), *([[]] * 250)]),
    "all are read": (list, [*range(4000), *([[]] * 1000)]),
    "a slice is set": (lambda array: array.__setitem__(slice(500, 4500, 2), [*range(2000)]), None),
}
"""What is done with an array of 5,000 elements, of which the first 4,000 are set, and what it gives."""


@pytest.mark.parametrize("case", SLICES)
def test_many_elements_of_an_array_take_few_searches(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WHOLE_SLOTS", 0)
    monkeypatch.setattr(limits, "PROMOTE_SHARE", 0)
    space = PersistedObjectSpace.open(":memory:")
    space.create_array("a", 5000, default=[])[:4000] = range(4000)
    space.checkpoint()
    array = PersistedObjectSpace(space.store).get("a")
    searches: list[str] = []
    work, expected = SLICES[case]
    space.store.session.connection.set_trace_callback(searches.append)
    found = work(array)
    space.store.session.connection.set_trace_callback(None)
    assert found == expected
    assert 0 < len(searches) < 100
    assert array[4998] is not array[4999], "each has a default of its own"
    assert array[499:503] == ([499, 0, 501, 1] if expected is None else [499, 500, 501, 502])


def test_the_first_elements_of_a_set_are_taken_with_few_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    space = PersistedObjectSpace.open(":memory:")
    elements, search = space.create_set("numbers"), Mock(side_effect=Set._look_up_first)
    elements.update(range(3_000))
    space.checkpoint()
    monkeypatch.setattr(Set, "_look_up_first", lambda self: search(self))
    for number in range(3_000):
        assert elements.pop() == number
        elements.add(-1 - number)
    assert search.call_count < 20


@pytest.mark.parametrize("kind", ["dictionary", "set", "lists"])
def test_what_is_taken_from_an_end_is_what_a_dict_has_there(stored: PersistedObjectSpace, kind: str) -> None:
    target: Any = stored.create_set("t") if kind == "set" else stored.create_dictionary("t", of=list)
    target = stored.get("dictionary") if kind == "dictionary" else target
    target.clear()
    numbers, model = random.Random(kind), dict[int, Any]()
    for _ in range(3_000):
        number = numbers.randrange(90)
        match numbers.randrange(40):
            case 0:
                stored.checkpoint()
            case 1:
                writer = stored.store.writer()
                stored.save(writer)
                writer.rollback()
            case 2:
                stored.checkpoint()
                stored.rollback()
            case 3 | 4 | 5 | 6:
                model.pop(number, None)
                target.discard(number) if kind == "set" else target.pop(number, None)
            case place if place < 24:
                model.setdefault(number, [number])
                target.add(number) if kind == "set" else target.setdefault(number, [number])
            case _ if model:
                expected = next(iter(model)) if kind == "set" else next(reversed(model))
                value = model.pop(expected)
                assert (target.pop() if kind == "set" else target.popitem()) == (
                    expected if kind == "set" else (expected, value)
                )
        assert len(target) == len(model)
    assert list(target) == list(model)
    stored._check()


SET_OPERATORS = [or_, and_, sub, xor, ior, iand, isub, ixor]


@pytest.fixture(params=["set", "ordered", "view"])
def numbers(request: pytest.FixtureRequest, stored: PersistedObjectSpace) -> Any:
    """The numbers below 60 in a set of each kind."""
    for create in (stored.create_set, stored.create_sorted_set):
        create(create.__name__).update(range(60))
    stored.checkpoint()
    stored.rollback()
    ordered = stored.get_sorted_set("create_sorted_set")
    return {"set": stored.get("create_set"), "ordered": ordered, "view": ordered.view_between(0, 60)}[request.param]


@pytest.mark.parametrize("other", [{1, 60}, frozenset({2}), {3: 0}.keys(), set()], ids=repr)
def test_operators_of_sets_give_what_those_of_plain_sets_give(numbers: Any, other: Any) -> None:
    for operate in SET_OPERATORS:
        plain = set(numbers)
        assert operate(set(other), numbers) == operate(set(other), plain)
        assert operate(other, numbers) == operate(set(other), plain)
        assert type(operate(other, numbers)) is type(operate(other, plain))
        assert operate(numbers, other) == operate(plain, set(other))
        assert numbers == plain


@pytest.mark.parametrize("other", [[3], (3,), "ab", {1: 2}, range(3), None], ids=repr)
def test_operators_of_sets_take_sets_only(numbers: Any, other: Any) -> None:
    for operate in SET_OPERATORS:
        for one, two in ((numbers, other), (other, numbers)):
            with pytest.raises(TypeError):
                operate(one, two)
    assert numbers == set(range(60))


@pytest.mark.parametrize("number", [complex(3), np.complex128(3)], ids=repr)
def test_a_key_in_order_is_removed_by_a_complex_number_that_is_equal_to_it(
    stored: PersistedObjectSpace, number: Any
) -> None:
    ordered, numbers = stored.get_sorted_dictionary("sorted"), stored.create_sorted_set("numbers")
    numbers.update(range(60))
    assert ordered.pop(number) == 3
    numbers -= {number}
    numbers.discard(number)
    stored._check()
    assert list(ordered) == list(numbers) == [key for key in range(60) if key != 3]
    stored.checkpoint()
    stored.rollback()
    assert list(stored.get("sorted")) == list(stored.get("numbers")) == [key for key in range(60) if key != 3]


def test_a_set_looks_for_the_frozenset_where_it_is_asked_for_a_set(stored: PersistedObjectSpace) -> None:
    sets = stored.get_set("set")
    assert {7} in sets
    assert {8} not in sets
    assert {7} not in stored.create_sorted_set("numbers")
    for find in (stored.get("numbers").discard, sets.discard, sets.discard):
        find({7})
    assert frozenset({7}) not in sets
    with pytest.raises(KeyError):
        sets.remove({7})
    for unhashable in (sets.discard, sets.__contains__, stored.get("numbers").__contains__):
        with pytest.raises(TypeError, match="unhashable"):
            unhashable([7])


PLACES = [(), (4,), (4, 5), (-1,), (0, -1), (5, 4), (4, 10**30), (Level.LOW, np.int64(6))]


@pytest.mark.parametrize("value", [3, 5.0, "nosuch"])
def test_an_array_finds_what_a_list_finds(stored: PersistedObjectSpace, value: Any) -> None:
    stored.create_array("array", 8)[:] = [3, 1, 4, 1, 3, 5, 9, 3]
    stored.checkpoint()
    stored.rollback()
    array = stored.get_array("array")

    def found_in(one: Any, places: Any) -> Any:
        try:
            return one.index(value, *places)
        except ValueError:
            return "nowhere"

    assert [found_in(array, places) for places in PLACES] == [found_in(list(array), places) for places in PLACES]
    for places in ((1.0,), (0, 2.0), (0, None)):
        with pytest.raises(TypeError):
            array.index(3, *places)


@pytest.mark.parametrize("kind", ["queue", "stack"])
def test_both_ends_are_where_a_walk_may_begin(stored: PersistedObjectSpace, kind: str) -> None:
    target = stored.get(kind)
    take, put = (target.dequeue, target.enqueue) if kind == "queue" else (target.pop, target.push)
    for change in (lambda: None, take, lambda: put("new"), stored.checkpoint, lambda: put("newer"), target.clear):
        change()
        assert list(reversed(target)) == list(target)[::-1]


@pytest.mark.parametrize("kind", ["queue", "stack"])
@pytest.mark.parametrize("is_saved", [False, True])
def test_a_walk_from_the_other_end_notes_a_change(stored: PersistedObjectSpace, kind: str, is_saved: bool) -> None:
    target = stored.get(kind)
    walk = reversed(target)
    next(walk)
    for _ in range(40):
        (target.dequeue if kind == "queue" else target.pop)()
    if is_saved:
        stored.checkpoint()
    with pytest.raises(RuntimeError, match="changed during iteration"):
        list(walk)


@pytest.mark.parametrize(("kind", "add"), [("list", "append"), ("queue", "enqueue"), ("stack", "push"), ("set", "add")])
def test_what_is_added_has_no_name_in_any_state(space: PersistedObjectSpace, kind: str, add: str) -> None:
    target = getattr(space, f"get_or_create_{kind}")(kind)
    for reach_state in (lambda: None, lambda: getattr(target, add)("new"), space.checkpoint, space.rollback):
        reach_state()
        with pytest.raises(TypeError, match="keyword"):
            getattr(target, add)(value=1)


def test_a_reader_finds_objects_by_the_names_that_they_have_now(space: PersistedObjectSpace) -> None:
    for name in ("a", "b", "c", "d"):
        space.create_list(name).append(name)
    space.checkpoint()
    space.rename("a", "new")
    space.rename("b", "a")
    space.delete("c")
    space.checkpoint()
    rows = {row[1]: row for row in space.reader().index()}
    assert space.reader().named(["a", "b", "c", "new", "none"]) == {name: rows[name] for name in ("a", "new")}
