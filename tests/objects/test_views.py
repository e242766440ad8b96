"""Views, reversed iteration and ranges: the same in memory, and where only the slots in use are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace, VolatileObjectSpace

PAIRS = {3: "c", 1: "a", 2: "b"}


@pytest.fixture(params=["in memory", "paged"])
def space(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[PersistedObjectSpace]:
    store = CheckpointStore(":memory:")
    first = PersistedObjectSpace(store)
    for create in (first.create_dictionary, first.create_sorted_dictionary):
        create(create.__name__.removeprefix("create_")).update(PAIRS)
    first.create_sorted_set("sorted_set").update(PAIRS)
    first.create_dictionary("groups", of=list).update({"a": [1]})
    first.checkpoint()
    if request.param == "in memory":
        yield first
        return
    first.close()
    monkeypatch.setattr("objectspace.objects.limits.WHOLE_SLOTS", 0)
    yield PersistedObjectSpace(store)


@pytest.mark.parametrize("kind", ["dictionary", "sorted_dictionary"])
def test_views_run_in_both_directions_and_know_their_mapping(space: PersistedObjectSpace, kind: str) -> None:
    found: Any = space.get(kind)
    expected = dict(sorted(PAIRS.items())) if kind == "sorted_dictionary" else PAIRS
    for view in ("keys", "values", "items"):
        ours, theirs = getattr(found, view)(), getattr(expected, view)()
        assert list(ours) == list(theirs)
        assert list(reversed(ours)) == list(reversed(theirs))
        assert dict(ours.mapping) == expected


def test_a_view_of_a_range_takes_bounds_of_its_own(space: PersistedObjectSpace) -> None:
    view = space.get_sorted_set("sorted_set").view_between(1, 2)
    assert list(view.irange(0, 9, (False, False), reverse=True)) == [2, 1]
    assert list(view.irange(1, 2, (False, True))) == [2]
    assert list(view.irange(1, 2, (True, False))) == [1]
    assert list(view.irange(1, 2, (False, False))) == []
    assert list(view.irange(5)) == []


def test_a_view_of_a_set_needs_both_bounds(space: PersistedObjectSpace) -> None:
    with pytest.raises(TypeError, match=r"found 1 and None; irange\(\) has open sides"):
        space.create_sorted_set("s").view_between(1, None)  # type: ignore[arg-type]


def test_a_bound_that_has_no_place_among_the_keys_is_refused(space: PersistedObjectSpace) -> None:
    with pytest.raises(TypeError):
        list(space.get_sorted_dictionary("sorted_dictionary").irange("x"))


@pytest.mark.parametrize("kind", ["sorted_set", "sorted_dictionary"])
def test_sorted_keys_that_go_while_they_are_iterated_are_noticed(kind: str) -> None:
    found: Any = getattr(PersistedObjectSpace(CheckpointStore(":memory:")), f"create_{kind}")("s")
    found |= PAIRS if kind == "sorted_dictionary" else set(PAIRS)
    with pytest.raises(RuntimeError, match="'s' changed size during iteration"):
        for key in found:
            found.pop(key if kind == "sorted_dictionary" else 0)


def sorted_of(kind: str, **options: Any) -> tuple[Any, list[Any], Any]:
    """Return a sorted object of six keys, those keys, and one that it does not have."""
    keys: list[Any] = [bytes([number]) for number in range(1, 7)] if options else list(range(1, 7))
    found = getattr(VolatileObjectSpace(), f"create_{kind}")("s", **options)
    found.update(keys if kind == "sorted_set" else dict.fromkeys(keys, "old"))
    return found, keys, b"\xff" if options else -99


@pytest.mark.parametrize("swap", [False, True], ids=["one more", "as many"])
@pytest.mark.parametrize("walk", [iter, reversed, lambda found: iter(getattr(found, "items", found.irange)())])
@pytest.mark.parametrize(
    ("kind", "options", "put"),
    [
        ("sorted_set", {}, lambda found, key: found.add(key)),
        ("sorted_set", {}, lambda found, key: found.update([key])),
        *(
            ("sorted_dictionary", options, put)
            for options in ({}, {"raw": True})
            for put in (lambda found, key: found.__setitem__(key, ""), lambda found, key: found.update({key: ""}))
        ),
    ],
)
def test_sorted_keys_that_come_or_go_are_noticed_at_the_next_step(
    kind: str, options: dict[str, Any], put: Any, walk: Any, swap: bool
) -> None:
    found, keys, new = sorted_of(kind, **options)
    iterator = walk(found)
    next(iterator)
    if swap:
        found.pop(*() if kind == "sorted_set" else (keys[-1],))
    put(found, new)
    with pytest.raises(RuntimeError, match="'s' changed size during iteration"):
        next(iterator)


@pytest.mark.parametrize("options", [{}, {"raw": True}], ids=["plain", "raw"])
def test_the_values_of_sorted_keys_may_be_set_while_they_are_iterated(options: dict[str, Any]) -> None:
    found, keys, _ = sorted_of("sorted_dictionary", **options)
    for key in found:
        found[key] = "new"
    for key, _ in found.items():
        found.update({key: "newer"})
    assert found.copy() == dict.fromkeys(keys, "newer")


@pytest.mark.parametrize("whole", [0, 1024])
def test_a_sparse_array_that_shrinks_while_it_is_iterated_says_so(
    space: PersistedObjectSpace, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    space.create_sparse_array("a")[0:40] = range(40)
    space.checkpoint()
    monkeypatch.setattr("objectspace.objects.limits.WHOLE_SLOTS", whole)
    found = PersistedObjectSpace(space.store).get("a")
    with pytest.raises(RuntimeError, match="'a' changed"):
        for index in found:
            del found[39 - index]


def test_the_bounds_of_a_range_may_be_given_by_name(space: PersistedObjectSpace) -> None:
    found, items = space.get_sorted_set("sorted_set"), space.get_sorted_dictionary("sorted_dictionary")
    assert list(found.irange(lo=2)) == list(items.irange(lo=2)) == [2, 3]
    assert list(found.view_between(lo=1, hi=2).irange(hi=1, inclusive=(True, True), reverse=True)) == [1]
    assert (
        list(items.items_between(hi=1)) == [pair for page in items.pages_between(hi=1) for pair in page] == [(1, "a")]
    )


def test_what_is_no_pair_does_not_say_which_bounds_belong(space: PersistedObjectSpace) -> None:
    found, items = space.get_sorted_set("sorted_set"), space.get_sorted_dictionary("sorted_dictionary")
    ways = (found.irange, found.view_between(1, 3).irange, items.irange, items.items_between, items.pages_between)
    for reads in ways:
        for wrong in ((True,), True):
            with pytest.raises(TypeError, match=r"inclusive is a pair, .*: found "):
                reads(1, 3, wrong)  # type: ignore[arg-type]


def test_nothing_is_before_or_after_none(space: PersistedObjectSpace) -> None:
    items: Any = space.get_sorted_dictionary("sorted_dictionary")
    for read in (items.floor, items.ceiling):
        with pytest.raises(TypeError, match="the key is None, which has no order"):
            read(None)


def test_a_view_of_a_range_pops_as_its_set_does() -> None:
    found = VolatileObjectSpace().create_sorted_set("s")
    found.update(range(1, 9))
    view = found.view_between(3, 6)
    assert [view.pop(), view.pop(0), view.pop(-2)] == [6, 3, 4]
    with pytest.raises(IndexError, match="has 1 elements in this view, none at 1"):
        view.pop(1)
    assert (set(view), set(found)) == ({5}, {1, 2, 5, 7, 8})


def test_a_dictionary_of_objects_joins_like_a_dict(space: PersistedObjectSpace) -> None:
    groups = space.get_dictionary("groups")
    assert groups | {"b": [2]} == {"a": [1], "b": [2]}
    assert {"a": 0} | groups == {"a": [1]}
    groups |= {"b": [2]}
    assert groups.copy() == {"a": [1], "b": [2]}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("inclusive", [(True, True), (False, True), (True, False), (False, False)])
def test_pages_have_no_more_than_their_bounds_say(
    space: PersistedObjectSpace, inclusive: tuple[bool, bool], reverse: bool
) -> None:
    found = space.get_sorted_dictionary("sorted_dictionary")
    for lower in (None, 0, 1, 1.5, 2, 3, 4):
        for upper in (None, 0, 1, 2, 2.5, 3, 4):
            expected = list(found.items_between(lower, upper, inclusive, reverse))
            keys = [
                key
                for key in sorted(PAIRS, reverse=reverse)
                if (lower is None or (lower <= key if inclusive[0] else lower < key))
                and (upper is None or (key <= upper if inclusive[1] else key < upper))
            ]
            assert expected == [(key, PAIRS[key]) for key in keys]
            pages = list(found.pages_between(lower, upper, inclusive, reverse))
            assert [pair for page in pages for pair in page] == expected
            assert all(pages), "no page is empty"


def test_a_page_shows_what_was_set_since_the_page_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("objectspace.objects.limits.WHOLE_SLOTS", 0)
    store = CheckpointStore(":memory:")
    first = PersistedObjectSpace(store)
    first.create_sorted_dictionary("d").update({key: key for key in range(60)})
    first.checkpoint()
    found = PersistedObjectSpace(store).get_sorted_dictionary("d")
    pages = found.pages_between()
    assert dict(next(pages)) == {key: key for key in range(16)}
    found[3], found[20] = "late", "new"
    assert dict(next(pages)) == {key: "new" if key == 20 else key for key in range(16, 60)}
    assert list(pages) == []


def test_a_view_is_emptied_and_divided_within_its_bounds(space: PersistedObjectSpace) -> None:
    numbers = space.get_sorted_set("sorted_set")
    view = numbers.view_between(2, 3)
    for lower, upper in ((1, 2), (2, 4), (1, 4)):
        with pytest.raises(ValueError, match="is outside this view, 2 to 3"):
            view.view_between(lower, upper)
    assert list(view.view_between(3, 3)) == [3]
    view.clear()
    assert (list(view), list(numbers)) == ([], [1])


def test_pages_end_with_an_error_once_keys_came_or_went() -> None:
    found = VolatileObjectSpace().create_sorted_dictionary("d")
    found.update({key: key for key in range(200)})
    pages = found.pages_between()
    assert len(next(pages)) == 16
    found[0] = "only its value"
    assert len(next(pages)) == 128
    del found[7]
    with pytest.raises(RuntimeError, match="'d' changed size during iteration"):
        next(pages)


def test_a_key_that_was_removed_is_put_back_whether_or_not_it_was_set_since() -> None:
    found = VolatileObjectSpace().create_sorted_dictionary("d")
    found.update(PAIRS)
    for key, is_set in ((1, False), (2, True)):
        del found[key]
        if is_set:
            found[key] = "since"
        assert found.was_set(key) == is_set
        found.put_removed(key, "back")
    assert list(found.items()) == [(1, "back"), (2, "back"), (3, "c")]
    found._check()
