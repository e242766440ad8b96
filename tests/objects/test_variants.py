"""The classes that guard a handle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from objectspace import PersistedObjectSpace, SortedDictionary
from objectspace.objects.variants import variant


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
