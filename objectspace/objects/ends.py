"""The keys at the end of a slot table that is not in memory, from where they are taken one by one."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from objectspace.objects import scans
from objectspace.objects.base import ABSENT

if TYPE_CHECKING:
    from objectspace.objects.table import SlotTable


class LastKeys:
    """Some of the keys that were inserted last: for each of them alone, the store would have to sort all.

    Ranks only grow, so these keys are the last ones until another one is inserted, whatever is removed. They must be
    forgotten when ranks are given again: after a rollback, or if a save finds that nothing has the newest ones.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Have the keys looked up again."""
        self._keys: list[Any] = []
        """The very last key last."""
        self._next_rank = -1
        """The rank that the next key would have got when they were looked up."""

    def newest(self, table: SlotTable) -> Any:
        """Return the last key of a table, :data:`ABSENT` if it is empty.

        Time: O(n) for some hundred keys, then O(1) for each of them, or one lookup in the store.
        """
        with table.owner._home.mutex:
            if table.complete:
                return next(scans.keys_of(table, reverse=True), ABSENT)
            if self._next_rank == table.next_rank and (key := self._known(table)) is not ABSENT:
                return key
            self._keys = list(islice(scans.keys_of(table, reverse=True), table.fetched_at_once()))[::-1]
            self._next_rank = table.next_rank
            return self._known(table)

    def _known(self, table: SlotTable) -> Any:
        """Return the last of the keys that is still there."""
        while self._keys:
            key = self._keys[-1]
            if table.read(key) is not ABSENT:
                return key
            self._keys.pop()
        return ABSENT
