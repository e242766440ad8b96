"""The keys at an end of a slot table that is not in memory, from where they are taken one by one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from objectspace.objects import limits, scans
from objectspace.objects.base import ABSENT

if TYPE_CHECKING:
    from objectspace.objects.table import SlotTable


class LastKeys:
    """Some of the keys that were inserted last: for each of them alone, the store would have to sort all.

    Ranks only grow, so what is inserted comes after these keys, whatever is removed. They must be forgotten after a
    rollback, when ranks are given again, and told if a save finds that nothing has the newest ones.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Have the keys looked up again."""
        self._keys: list[Any] = []
        """The very last key last. Some may be gone, but nothing else has come after the first of them."""
        self._next_rank = -1
        """The rank that the next key would have got when they were looked at, -1 if they were not."""

    def newest(self, table: SlotTable) -> Any:
        """Return the last key of a table, :data:`ABSENT` if it is empty.

        Time: O(n) for some hundred keys, then O(1) for each of them, or one lookup in the store; at most O(slots
        changed since the save) where keys were inserted meanwhile.
        """
        with table.owner._home.mutex:
            if table.complete:
                return next(scans.keys_of(table, reverse=True), ABSENT)
            self._add_inserted(table)
            if (key := self._known(table)) is not ABSENT:
                return key
            self._keys = taken(scans.keys_of(table, reverse=True), table.fetched_at_once())[::-1]
            return self._known(table)

    def page_turns(self, table: SlotTable) -> None:
        """Add what was inserted since the last save: then nothing tells it from the rest any more."""
        if self._next_rank >= 0:
            self._add_inserted(table)

    def ranks_are_free(self, rank: int) -> None:
        """Note that nothing has a rank from this one on, so that these ranks are given again."""
        self._next_rank = min(self._next_rank, rank)

    def _add_inserted(self, table: SlotTable) -> None:
        """Add the keys that were inserted since the last time."""
        if self._next_rank == table.next_rank:
            return
        if self._next_rank < table.rank_base:
            self._keys = []  # Between them and what was inserted since the last save there may be others.
        first, ranks = max(self._next_rank, table.rank_base), table.ranks
        assert ranks is not None
        new: dict[Any, int] = {}
        for key in reversed(table.edits):
            if (rank := ranks.get(key, -1)) >= first:
                new[key] = rank
                if len(new) == table.next_rank - first:
                    break  # There are no more ranks than that.
        self._keys += sorted(new, key=new.__getitem__)
        self._next_rank = table.next_rank

    def _known(self, table: SlotTable) -> Any:
        """Return the last of the keys that is still there."""
        while self._keys:
            key = self._keys[-1]
            if table.read(key) is not ABSENT:
                return key
            self._keys.pop()
        return ABSENT


def taken(keys: Iterable[Any], slots: int) -> list[Any]:
    """Return the first of some keys: as many as slots may be in memory for them, of which a long key takes several."""
    found: list[Any] = []
    for key in keys:
        found.append(key)
        slots -= 1 + (len(key) // limits.SLOT_BYTES if isinstance(key, str | bytes) else 0)
        if slots <= 0:
            break
    return found
