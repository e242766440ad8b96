"""The classes that guard a handle."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pytest

from objectspace import PersistedObjectSpace, SortedDictionary
from objectspace.objects.variants import BY_NAME, variant


class Unreadable:
    """What zope.interface puts on the abstract collections: it is there, and the class does not give it."""

    def __get__(self, instance: object, owner: type) -> Any:
        raise AttributeError("__provides__")


def refuse(handle: object) -> None:
    raise RuntimeError("refused")


def test_a_name_that_another_library_has_put_on_the_abstract_collections_does_no_harm(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(Mapping, "__provides__", Unreadable(), raising=False)
    assert "__provides__" in dir(SortedDictionary)
    guarded = variant(SortedDictionary, "beside zope", refuse)
    with PersistedObjectSpace.open(tmp_path / "state.db") as space:
        handle = space.create_sorted_dictionary("d")
        handle.__class__ = guarded
        with pytest.raises(RuntimeError, match="refused"):
            len(handle)
        handle.__class__ = SortedDictionary
        assert len(handle) == 0


def count_in(holders: list[Any]) -> int:
    """Return what is counted of an object that a local name and some lists refer to."""
    held = object()
    for holder in holders:
        holder.append(held)
    return sys.getrefcount(held)


def test_references_are_counted_as_this_python_counts_them() -> None:
    assert [count_in([]), count_in([[]]), count_in([[], []])] == [BY_NAME, BY_NAME + 1, BY_NAME + 2]


def test_what_only_its_space_knows_is_not_taken_for_lent() -> None:
    space = PersistedObjectSpace.open(":memory:")
    space.create_dictionary("groups", of=list).update({"a": [1], "b": [1]})
    kept, lent = space.get("groups")["a"], space.create_set("lent")
    lent.add(0)
    add = lent.add
    space.create_set("owned").add(1)
    space.checkpoint()
    for key in ("a", "b"):
        space.get("groups")[key].append(2)
    space.checkpoint()
    space.checkpoint()
    assert [handle for handle in space._lent.values() if handle._owner is not None] == [kept]
    assert [space.get(name)._is_lent for name in ("lent", "owned")] == [True, False]
    lent._shrink(gently=False)
    add(1)
    space.checkpoint()
    space.rollback()
    assert set(lent) == {0, 1}
