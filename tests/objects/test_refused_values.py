"""Values and keys that cannot be stored are refused by their place, and the space goes on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from objectspace import (
    PersistedObjectSpace,
    UnencodableValueError,
    register_dataclass,
)
from objectspace.objects import limits
from tests.objects.kinds import PUTS, create, every_kind


@every_kind
def test_what_cannot_be_stored_is_refused_and_the_space_goes_on(space: PersistedObjectSpace, kind: str) -> None:
    if kind == "tensor":
        with pytest.raises((TypeError, ValueError)):
            PUTS[kind](create(space, kind, "t"), object())
        return
    other = space.create_list("other")
    handle = create(space, kind, "t")
    space.checkpoint()
    other.append(1)
    thing = complex if kind in ("set", "dictionary") else object()
    if kind in ("sorted_set",):
        with pytest.raises(TypeError):
            handle.add(thing)
        return
    PUTS[kind](handle, thing)
    with pytest.raises(UnencodableValueError, match=rf"'t'.*{'type' if thing is complex else 'object'}"):
        space.checkpoint()
    other.append(2)
    space._check()
    space.rollback()
    assert list(space.get("other")) == []
    PUTS[kind](space.get("t"), 5)
    space.get("other").append(3)
    assert space.checkpoint().slots == 2
    assert repr(PersistedObjectSpace(space.store).get("t")) == repr(space.get("t"))


IN_ORDER = [
    (1, Decimal("1E+7000")),
    ((1,), (Decimal("-1E-7000"),)),
    (time(9), time(10, tzinfo=ZoneInfo("Europe/Berlin"))),
    (datetime(2020, 1, 1, tzinfo=UTC), datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo.no_cache("Europe/Berlin"))),
    ((datetime(2020, 1, 1, tzinfo=UTC),), (datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo.no_cache("Europe/Berlin")),)),
]
"""A key, and one that Python orders with it and that has no slot."""


@pytest.mark.parametrize("whole", [0, 1000])
@pytest.mark.parametrize("kind", ["sorted_set", "sorted_dictionary"])
@pytest.mark.parametrize(("key", "refused"), IN_ORDER, ids=str)
def test_a_key_in_order_that_cannot_be_stored_is_refused_at_once_and_other_edits_are_saved(
    space: PersistedObjectSpace, kind: str, key: Any, refused: Any, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WHOLE_SLOTS", whole)
    other, target = space.create_list("other"), create(space, kind, "t")
    target.update({key: 1})
    space.checkpoint()
    space.rollback()
    other.append(1)
    with pytest.raises(TypeError, match="has no place in a sorted object"):
        target.add(refused) if kind == "sorted_set" else target.setdefault(refused, 1)
    assert space.checkpoint().slots == 1
    assert list(target) == [key]


@pytest.mark.parametrize("wrap", [lambda moment: moment, lambda moment: (moment,)])
@pytest.mark.parametrize("whole", [0, 1000])
def test_a_time_in_order_that_cannot_be_stored_bounds_a_range(
    space: PersistedObjectSpace, wrap: Any, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WHOLE_SLOTS", whole)
    (first, twice), later = IN_ORDER[3], datetime(2025, 1, 1, tzinfo=UTC)
    target = space.create_sorted_set("t")
    target.update([wrap(first), wrap(later)])
    space.checkpoint()
    space.rollback()
    assert list(target.irange(None, wrap(twice))) == [wrap(first)]
    assert list(target.irange(wrap(twice))) == [wrap(later)]


def test_a_refused_value_can_be_replaced(space: PersistedObjectSpace) -> None:
    items = space.create_dictionary("d")
    items.update({"good": 1, "bad": object()})
    for _ in range(2):
        with pytest.raises(UnencodableValueError, match=r"Dictionary 'd'.*'bad'.*object"):
            space.checkpoint()
    items["bad"] = 2
    assert space.checkpoint().slots == 2


def test_a_refusal_shows_only_the_beginning_of_a_large_key(space: PersistedObjectSpace) -> None:
    items = space.create_dictionary("d")
    items["k" * 10**6] = object()
    with pytest.raises(
        UnencodableValueError, match=r"Dictionary 'd', slot 'kkkk.*: object has no stored form"
    ) as caught:
        space.checkpoint()
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("wrap", [lambda inner: (inner,), lambda inner: frozenset({inner})], ids=["tuple", "frozenset"])
@pytest.mark.parametrize("depth", [200, 500, 2000])
def test_what_is_nested_too_deep_is_refused_by_its_place(space: PersistedObjectSpace, wrap: Any, depth: int) -> None:
    deep: Any = None
    for _ in range(depth):
        deep = wrap(deep)
    for key, value in ((deep, 1), ("k", deep)):
        items = space.get_or_create_dictionary("d")
        items[key] = value
        with pytest.raises(UnencodableValueError, match=r"Dictionary 'd'.*nested too deep: at most 254 lists"):
            space.checkpoint()
        del items[key]
        space.checkpoint()


@pytest.mark.parametrize("depth", [126, 127, 2000])
def test_a_key_nested_too_deep_is_refused_before_it_has_an_object(space: PersistedObjectSpace, depth: int) -> None:
    deep: Any = 1
    for _ in range(depth):
        deep = (deep,)
    groups = space.create_dictionary("groups", of=list)
    if depth == 126:
        groups.setdefault(deep).append(1)
    else:
        for put in (groups.setdefault, lambda key: groups.update({"k": [1], key: [2]})):
            with pytest.raises(UnencodableValueError, match=r"^Dictionary 'groups', key .*nested too deep"):
                put(deep)
    space.checkpoint()
    assert len(PersistedObjectSpace(space.store).get("groups")) == len(groups) == (depth == 126)


@pytest.mark.parametrize("depth", [253, 254, 100_000])
def test_a_default_nested_too_deep_is_refused_at_once(space: PersistedObjectSpace, depth: int) -> None:
    deep: Any = 1
    for _ in range(depth):
        deep = [deep]
    for make in (partial(space.get_or_create_array, "a", 3), partial(space.create_sparse_array, "s")):
        if depth == 253:
            make(default=deep)
        else:
            with pytest.raises(UnencodableValueError, match=r"default of a new object: .*nested too deep"):
                make(default=deep)
    space.checkpoint()
    assert list(PersistedObjectSpace(space.store)) == list(space) == (["a", "s"] if depth == 253 else [])


@register_dataclass
@dataclass(frozen=True, order=True)
class Price:
    cents: int


@pytest.mark.parametrize("key", [Price(5), (1, Price(5))], ids=str)
def test_a_dataclass_is_no_key_in_order_and_its_fields_are(space: PersistedObjectSpace, key: Any) -> None:
    with pytest.raises(TypeError, match=r"keys of type Price have no total order .*: use a tuple of its fields$"):
        space.create_sorted_set("t").add(key)
    assert len(space.get_sorted_set("t")) == 0
