"""The keys of an object that is not in memory are those of its items, types included, and cost no reading of values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from checkpoint import CheckpointStore, Reader
from objectspace import PersistedObjectSpace
from objectspace.objects import limits

KEYS: dict[str, list[Any]] = {
    "numbers": [3, -1, 2**40, 0.5],
    "numbers of all types": [True, 2.0, 2**70, Decimal("0.1"), 7],
    "text": ["b", "", "a\0", '{"$key":1}', "true"],
    "bytes": [b"", b"\x13", b"a"],
    "dates": [date(2020, 1, 1), date(1999, 12, 31)],
    "times": [datetime(2020, 1, 1), datetime(1999, 12, 31, 23, 59)],
    "tuples": [(1, "a"), (1, "b"), (2, "a"), (2, "")],
    "nested tuples": [((1, 2), b"x"), ((1, 3), b"")],
}
VALUES = [1, None, "text", '{"$key":1}', {"$key": 1}, {"key": [1]}, b"bytes", (1, 2)]

KINDS = ["dictionary", "set", "sorted_dictionary", "sorted_set"]


@pytest.fixture
def space(monkeypatch: pytest.MonkeyPatch) -> Iterator[PersistedObjectSpace]:
    """Give a space that reads nothing whole and keeps hardly anything in memory."""
    monkeypatch.setattr(limits, "WHOLE_SLOTS", 0)
    with PersistedObjectSpace(CheckpointStore(":memory:"), cache_slots=2) as space:
        yield space


def unloaded(space: PersistedObjectSpace, kind: str, keys: list[Any], **options: Any) -> Any:
    """Return an object that came with several checkpoints and is not in memory; one more key has come and gone."""
    target = getattr(space, f"create_{kind}")("t", **options)
    space.create_dictionary("other").update(dict.fromkeys(range(50), 0))
    for place, key in enumerate([keys[0], *keys[:0:-1], 99 if type(keys[0]) is int else keys[0]]):
        _put(target, key, VALUES[place % len(VALUES)])
        space.checkpoint()
    if 99 not in keys and 99 in target:
        target.remove(99) if "set" in kind else target.pop(99)
    space.checkpoint()
    space.rollback()
    assert not target._table.complete
    return target


def _put(target: Any, key: Any, value: Any) -> None:
    if hasattr(target, "add"):
        target.add(key)
    else:
        target[key] = value


def typed(found: Any) -> list[tuple[type, Any]]:
    return [(type(key), key) for key in found]


@pytest.mark.parametrize("keys", KEYS.values(), ids=list(KEYS))
@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_are_not_in_memory_come_back_with_their_types(
    space: PersistedObjectSpace, kind: str, keys: list[Any]
) -> None:
    target = unloaded(space, kind, keys)
    expected = sorted(keys) if "sorted" in kind else [keys[0], *keys[:0:-1]]
    assert typed(target) == typed(expected)
    if "sorted" in kind:
        assert typed(reversed(target)) == typed(expected[::-1])
        assert typed(target.irange(expected[0], expected[-1], (False, False))) == typed(expected[1:-1])
    if "dictionary" in kind:
        assert typed(key for key, _ in target.items()) == typed(expected)


def test_keys_of_a_raw_dictionary_are_its_slots_whatever_its_values_say(space: PersistedObjectSpace) -> None:
    target = space.create_sorted_dictionary("t", raw=True)
    target.update({b"a": '{"$key":1}', b"b": b"\0", b"c": ""})
    space.create_dictionary("other").update(dict.fromkeys(range(50), 0))
    space.checkpoint()
    space.rollback()
    assert list(target) == [b"a", b"b", b"c"]
    assert list(target.irange(b"a", b"c", (False, True))) == [b"b", b"c"]


@pytest.mark.parametrize("kind", ["dictionary", "sorted_dictionary"])
def test_no_value_is_read_for_the_keys(space: PersistedObjectSpace, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = unloaded(space, kind, KEYS["text"])
    given: list[object] = []

    def watched(give: Callable[..., Iterator[list[Any]]]) -> Callable[..., Iterator[list[Any]]]:
        def _pages(*args: Any, **options: Any) -> Iterator[list[Any]]:
            for page in give(*args, **options):
                given.extend(row[1] for row in page)
                yield page

        return _pages

    for name in ("item_pages", "pages_by_rank"):
        monkeypatch.setattr(Reader, name, watched(getattr(Reader, name)))
    assert sorted(target) == sorted(KEYS["text"])
    assert given == [""] * len(KEYS["text"])


@pytest.mark.parametrize("kind", KINDS)
def test_an_iteration_over_keys_that_are_not_in_memory_goes_on_over_values_and_stops_at_new_keys(
    space: PersistedObjectSpace, kind: str
) -> None:
    target = unloaded(space, kind, KEYS["text"])
    rest = iter(target)
    first = next(rest)
    if "dictionary" in kind:
        target[first] = "set meanwhile"
    assert next(rest) != first
    _put(target, "new", 1)
    with pytest.raises(RuntimeError, match="changed"):
        list(rest)
