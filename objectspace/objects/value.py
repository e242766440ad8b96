"""The persisted value: one slot."""

from __future__ import annotations

import copy
from typing import Any, Generic, TypeVar

from objectspace.objects.base import ABSENT
from objectspace.objects.keyed import KeyedObject
from objectspace.objects.torn import undivided

T = TypeVar("T")

_SLOT = "value"


class Value(KeyedObject, Generic[T]):
    """One named value.

    Changing it in place is not an edit: assign it again. ``space.check_mutations()`` finds such values.

    >>> from objectspace import VolatileObjectSpace
    >>> v = VolatileObjectSpace().create_value("v", 1)
    >>> v.value += 1
    >>> v
    Value('v', 2)
    """

    kind = "Value"
    _counts_slots = False

    def _configure(self, options: dict[str, Any]) -> None:
        if self._fresh:
            self._table.live[_SLOT] = options.pop("initial", None)

    @property
    def value(self) -> T:
        """The value. Setting it dirties one item.

        Time: O(1).
        """
        value = self._table.live.get(_SLOT, ABSENT)
        if value is ABSENT and (value := self._table.read(_SLOT)) is ABSENT:
            self._damaged(_SLOT, None, "it is missing")
        return value  # type: ignore[no-any-return]

    @value.setter
    @undivided
    def value(self, value: T) -> None:
        table = self._table
        if _SLOT in table.edits:
            table.live[_SLOT] = value
        else:
            table.write(_SLOT, value)

    def copy(self) -> T:
        """Return a copy of the value."""
        return copy.deepcopy(self.value)

    def __repr__(self) -> str:
        return f"Value({self._name!r}, {self.value!r})"

    def _extent(self) -> tuple[int, int]:
        return 1, 1

    def _metadata(self) -> dict[str, Any]:
        return {}
