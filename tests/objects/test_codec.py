"""Values and keys as they are stored: what goes in comes out, and keys sort as slots do."""

from __future__ import annotations

import math
import sqlite3
from abc import ABC, abstractmethod
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Context, Decimal, localcontext
from enum import IntEnum
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint.run import slot_order
from objectspace import (
    ObjectSpaceError,
    PersistedObjectSpace,
    UnencodableValueError,
    VolatileObjectSpace,
    codec,
    keys,
    register_dataclass,
)
from tests.objects.samples import KEYS, NUMBERS, TEXTS, TUPLES, VALUES, shape

texts = st.text(st.characters(exclude_categories=[]), max_size=5)
zones = st.sampled_from([None, UTC, timezone(timedelta(hours=-3, seconds=7)), ZoneInfo("Europe/Berlin")])
decimals = st.decimals().filter(lambda number: not number.is_snan())
atoms = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), texts, st.binary(max_size=5), st.dates(), st.timedeltas(),
    st.times(), st.datetimes(timezones=zones), st.uuids(), decimals, st.complex_numbers(),
)  # fmt: skip
hashables = st.recursive(atoms, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=2), max_leaves=4)
anything = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(hashables, inner, max_size=3), st.tuples(inner),
        st.dictionaries(texts | st.just("$int"), inner, max_size=3), st.sets(hashables, max_size=3),
    ),
    max_leaves=8,
)  # fmt: skip


@given(anything)
@settings(max_examples=200)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert shape(codec.decode(codec.encode(value))) == shape(value)


@pytest.mark.parametrize("value", [*VALUES, *KEYS, 10**5000, -(10**5000), {"a": {"$set": [1]}}, [{"$x": 1}]], ids=shape)
def test_a_sample_comes_back_as_it_was(value: Any) -> None:
    assert shape(codec.decode(codec.encode(value))) == shape(value)


def test_time_keeps_its_fold_and_zone() -> None:
    twice = datetime(2013, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
    found = codec.decode(codec.encode([twice, time(2, 30, fold=1)]))
    assert [found[0].fold, found[0].tzinfo, found[1].fold] == [1, twice.tzinfo, 1]


class Colour(IntEnum):
    RED = 1


Pair = namedtuple("Pair", "a b")


@dataclass
class Unregistered:
    a: int


@register_dataclass
@dataclass(frozen=True)
class Registered:
    a: Any
    note: str = field(default="", compare=False)


@register_dataclass
@dataclass(eq=False)
class ByIdentity:
    x: int


@register_dataclass
@dataclass(frozen=True)
class Caseless:
    word: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Caseless) and self.word.lower() == other.word.lower()

    def __hash__(self) -> int:
        return hash(self.word.lower())


@register_dataclass
@dataclass(eq=False, frozen=True)
class Wider(Registered):
    more: int = 0


@register_dataclass
class Renamed(Registered):
    pass


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    "value",
    [object(), Colour.RED, Pair(1, 2), OrderedDict(), Unregistered(1), LOOP, lambda: 1, [object()]],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_stored_form_is_refused(value: Any) -> None:
    with pytest.raises(codec.Unencodable):
        codec.encode(value)


def test_deep_nesting_is_refused_or_comes_back() -> None:
    for depth in (50, 100, 200, 300, 2000):
        value: Any = 1
        for _ in range(depth):
            value = (value,)
        try:
            text = codec.encode(value)
        except codec.Unencodable:
            assert depth > 50
        else:
            assert codec.decode(text) == value


def test_a_field_that_was_added_to_a_dataclass_has_its_default() -> None:
    @register_dataclass
    @dataclass(slots=True)
    class Evolved:
        old: int
        new: int = 7
        names: list[str] = field(default_factory=list)

    first, second = (codec.decode('{"$dataclass":["Evolved",{"old":1}]}') for _ in range(2))
    first.names.append("a")
    assert [first, second] == [Evolved(1, 7, ["a"]), Evolved(1)]
    assert codec.decode(codec.encode(first)) == first


def test_registered_dataclasses_come_back() -> None:
    value = Registered([1, (2,)], "note")
    found = codec.decode(codec.encode(value))
    assert (found, found.note) == (value, "note")
    assert keys.to_slot(Registered(1, "a")) == keys.to_slot(Registered(1, "b")) != keys.to_slot(Registered(2, "a"))


def test_only_dataclasses_are_registered() -> None:
    with pytest.raises(TypeError, match=r"'int'> is no dataclass"):
        register_dataclass(int)
    with pytest.raises(
        TypeError, match=r"Registered\(.*\) is an instance: .* its class, register_dataclass\(Registered"
    ):
        register_dataclass(Registered([], ""))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["1E+30", "0.10", "-0E-7", "NaN", "sNaN12", "-Infinity", "1" * 60])
def test_decimals_are_stored_the_same_whatever_a_program_sets(text: str) -> None:
    stored = codec.encode(Decimal(text))
    with localcontext(Context(prec=3, capitals=0, Emax=5, Emin=-5, traps=[])):
        assert codec.encode(Decimal(text)) == stored == f'{{"$decimal":"{text}"}}'
        assert codec.DECIMAL_TEXT.compare_total(codec.decode(stored), Decimal(text)) == 0
        with pytest.raises(ArithmeticError):
            codec.decode('{"$decimal":"12,50"}')


class Abstract(ABC):
    """What dataclasses may derive from."""

    @abstractmethod
    def work(self) -> None: ...


@pytest.mark.parametrize("base", [Exception, dict, list, float, date])
def test_a_dataclass_that_holds_more_than_its_fields_is_not_registered(base: type) -> None:
    cls = make_dataclass("Derived", [("code", int)], bases=(base,))
    with pytest.raises(TypeError, match=r"^Derived derives from a built-in type, and what that holds is in no field"):
        register_dataclass(cls)
    assert not codec.is_registered(cls)


def test_an_abstract_dataclass_may_be_registered() -> None:
    cls = make_dataclass("Unfinished", [("code", int)], bases=(Abstract,))
    assert register_dataclass(cls) is cls


@given(hashables, hashables)
@settings(max_examples=300)
def test_equal_keys_have_equal_slots(one: Any, other: Any) -> None:
    check_pair(one, other)
    check_pair(one, one)


def test_equal_sample_keys_have_equal_slots() -> None:
    samples = [*KEYS, *NUMBERS, *TEXTS, *TUPLES]
    for one in samples:
        for other in samples:
            check_pair(one, other)
    assert len(samples) > 50


def check_pair(one: Any, other: Any) -> None:
    try:
        slots = keys.to_slot(one), keys.to_slot(other)
    except codec.Unencodable:
        assert "nan" in repr((one, other)).lower() or has_refused_part(one) or has_refused_part(other)
        return
    assert (slots[0] == slots[1] and type(slots[0]) is type(slots[1])) == (one == other)


def has_refused_part(key: Any) -> bool:
    """Tell whether a key holds a decimal beyond the exponents that keys may have."""
    if isinstance(key, tuple | frozenset):
        return any(map(has_refused_part, key))
    if not isinstance(key, Decimal) or not key.is_finite() or key == 0:
        return False
    return abs(key.adjusted()) > keys.DECIMAL_EXPONENT_MAX


numbers = st.one_of(
    st.integers(),
    st.floats(allow_nan=False),
    st.booleans(),
    st.decimals(allow_nan=False, min_value=-(10**30), max_value=10**30),
    st.sampled_from(NUMBERS),
)
sortables = [
    numbers, st.text(max_size=4), st.binary(max_size=4), st.dates(), st.timedeltas(), st.times(), st.uuids(),
    st.datetimes(timezones=st.just(UTC)), st.datetimes(), st.tuples(numbers, st.text(max_size=2)),
    st.lists(numbers, max_size=3).map(tuple),
]  # fmt: skip


@given(st.one_of([st.tuples(family, family) for family in sortables]))
@settings(max_examples=300)
def test_slots_sort_as_keys_do(pair: tuple[Any, Any]) -> None:
    one, other = pair
    assert (keys.comparable(one) < keys.comparable(other)) == (one < other)
    if keys.keeps_order(one) and keys.keeps_order(other):
        places = [slot_order(keys.to_slot(key)) for key in pair]
        assert (places[0] < places[1]) == (one < other)


@pytest.mark.parametrize("family", sortables)
def test_sqlite_sorts_slots_as_python_sorts_keys(family: Any) -> None:
    connection = sqlite3.connect(":memory:")

    @given(st.lists(family, max_size=12))
    @settings(max_examples=40)
    def check(found: list[Any]) -> None:
        wanted = sorted(key for key in dict.fromkeys(found) if keys.keeps_order(key))
        connection.execute("CREATE TEMP TABLE t (slot PRIMARY KEY) WITHOUT ROWID")
        connection.executemany("INSERT INTO t VALUES (?)", [(keys.to_slot(key),) for key in reversed(wanted)])
        slots = [row[0] for row in connection.execute("SELECT slot FROM t ORDER BY slot")]
        connection.execute("DROP TABLE t")
        assert slots == [keys.to_slot(key) for key in wanted]

    check()
    connection.close()
    assert family is not None


@pytest.mark.parametrize(
    "key",
    [math.nan, Decimal("nan"), Decimal("sNaN"), (1, math.nan), [], object(), Decimal("1E9999")],
    ids=lambda key: type(key).__name__,
)
def test_keys_without_a_slot_are_refused(key: Any) -> None:
    with pytest.raises(codec.Unencodable):
        keys.to_slot(key)


@pytest.mark.parametrize("key", [ByIdentity(1), Caseless("a"), Wider(1, "", 2)], ids=lambda key: type(key).__name__)
def test_a_dataclass_that_is_not_compared_by_its_fields_is_a_value_and_no_key(key: Any) -> None:
    space = PersistedObjectSpace.open(":memory:")
    space.create_value("value", key)
    for kind in ("dictionary", "set"):
        getattr(space, f"create_{kind}")(kind)
    space.checkpoint()
    for wanted in (key, (1, key), frozenset([key])):
        space.get("dictionary")[wanted] = 1
        with pytest.raises(
            UnencodableValueError, match=rf"Dictionary 'dictionary', key .*{type(key).__name__}.*__eq__"
        ):
            space.checkpoint()
        space.rollback()
    space.get("set").add(key)
    with pytest.raises(UnencodableValueError, match=r"Set 'set', key .*field by field"):
        space.checkpoint()


def test_a_dataclass_that_inherits_the_comparison_of_all_its_fields_is_a_key() -> None:
    assert keys.to_slot(Renamed(1)) == keys.to_slot(Renamed(1.0, "a")) != keys.to_slot(Registered(1))


def test_extreme_moments_have_slots() -> None:
    early = datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))
    late = datetime.max.replace(tzinfo=timezone(timedelta(hours=-14)))
    assert keys.to_slot(early) < keys.to_slot(datetime(2000, 1, 1, tzinfo=UTC)) < keys.to_slot(late)
    assert keys.to_slot(date.min) < keys.to_slot(date.max)


def test_a_dataclass_that_this_process_has_not_registered_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    @register_dataclass
    @dataclass
    class Lately:
        x: int

    space = VolatileObjectSpace()
    text = codec.encode(Lately(1))
    monkeypatch.delitem(codec._registered, "Lately")
    with pytest.raises(ObjectSpaceError, match=r"call objectspace.register_dataclass\(Lately\).*; nothing is lost"):
        space.create_value("v")._decode(text, "value")


@pytest.mark.parametrize(
    ("wrap", "limit"),
    [
        (lambda inner: [inner], 254),
        (lambda inner: {"k": inner}, 254),
        (lambda inner: (inner,), 127),
        (lambda inner: frozenset([inner]), 127),
        (lambda inner: {1: inner}, 84),
    ],
)
def test_values_are_nested_as_deep_as_the_page_says(wrap: Any, limit: int) -> None:
    value: Any = 1
    for _ in range(limit):
        value = wrap(value)
    assert codec.decode(codec.encode(value)) == value
    with pytest.raises(codec.Unencodable, match="nested too deep: at most 254 lists or dictionaries"):
        codec.encode(wrap(value))


def nearly_full(call: Any) -> Any:
    """Return what a call returns or raises as deep in other calls as Python lets it."""
    try:
        return nearly_full(call)
    except RecursionError:
        return call()


def test_what_finds_no_room_for_calls_is_not_only_told_to_be_too_deep() -> None:
    items = VolatileObjectSpace().create_dictionary("d")
    for call in (lambda: codec.encode([[[1]]]), lambda: items._slot((((1,),),))):
        with pytest.raises(TypeError, match=r"nested too deep: .* near Python's recursion limit$"):
            nearly_full(call)
