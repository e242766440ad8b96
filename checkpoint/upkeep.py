"""What a store does alongside its checkpoints: merging runs, and deleting the rows of those that nobody reads any more.

All of this is cut into slices. A checkpoint pays for some of them, in proportion to what it wrote, in a transaction
after its commit. So no checkpoint stalls, and an interruption anywhere loses only the last few slices.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from math import inf
from typing import Any

from checkpoint.catalogue import Catalogue, note_dropped, note_gone, note_merging
from checkpoint.deserted import Deserted
from checkpoint.errors import CorruptStoreError
from checkpoint.growth import Growth
from checkpoint.merging import Merge, delete_rows
from checkpoint.pages import BYTES_A_ROW
from checkpoint.recent import RecentRuns, Rows, is_worth_keeping
from checkpoint.session import Session
from checkpoint.tiers import RunNumber, Waste

LEAST_ROWS = 256
"""The least number of rows that a checkpoint copies if there is something to merge."""

_PACE, _LIVE_RUNS = 2, 16
"""A checkpoint copies this many rows for each that it wrote, or one for every so many live runs if that is more."""

_MOST_LIVE_RUNS = 96
"""With more live runs than that a checkpoint ends a merge, whatever it takes: what small checkpoints pay may be less
than large ones, which others have made, have left to do."""

_BASE_COST = 3
"""A row of the base counts for so many: copying it speeds up no reads, and frees space only at the end; it can wait."""

_SWEEP_EVERY = 16
"""After how many checkpoints the store looks for runs that nobody needs."""

_DELETED_AT_ONCE = 64
"""The rows of so many runs are deleted together: for small runs the statements cost more than the rows."""


def allowance(slots: int, live: int) -> int:
    """Return how many rows a checkpoint may copy.

    Runs that are added faster than they are merged raise it, so that their number settles.

    Args:
        slots: the item rows that the checkpoint wrote.
        live: the runs that a read searches.

    >>> allowance(1, live=9), allowance(2000, live=9), allowance(2000, live=80)
    (256, 4000, 10000)
    """
    return max(LEAST_ROWS, slots * max(_PACE, live // _LIVE_RUNS))


class Upkeep:
    """The merges and deletions under way in a store.

    Methods that take a connection run inside a transaction of the caller. What they did appears in the map of runs
    after :meth:`settle`, which is to be called after the commit; after a rollback the object is of no further use.

    Args:
        session: the connection.
        catalogue: what the file says of its runs.
    """

    def __init__(self, session: Session, catalogue: Catalogue) -> None:
        self.damage: list[CorruptStoreError] = []
        self._session, self._runs = session, catalogue.runs
        self._growth = Growth(session, lambda run: self._runs[run].slots)
        self._deserted = Deserted(session)
        self._waste = Waste(self._growth.replaced, self._deserted.rows)
        self._recent = RecentRuns()
        self._merges = [self._merge(run, parts) for run, parts in catalogue.merging.items()]
        self._dropped = list(catalogue.dropped)
        self._suspect: set[RunNumber] = set()
        self._next_sweep = 0
        self._deleting: Iterator[int] = iter(())
        self._finished: list[Merge] = []
        self._unneeded: tuple[RunNumber, ...] = ()
        self._due = 0
        self._asked: tuple[Any, ...] = ()
        self._group: tuple[RunNumber, ...] = ()

    def forget(self) -> None:
        """Forget the rows in memory and what was under way: the store is closed."""
        self._recent = RecentRuns()
        self._merges.clear()
        self._finished.clear()

    @property
    def merging(self) -> Merge | None:
        """The merge to continue next."""
        return min(self._merges, key=lambda merge: self._runs.rows(merge.parts), default=None)

    def has_work(self, number: int, young: int, *, is_full: bool) -> bool:
        """Return whether there is anything to do after checkpoint ``number``."""
        is_time = self.is_time(number, is_full=is_full)
        return bool(is_time or self._merges or self._dropped or self._next(young))

    def note_written(self, run: RunNumber, rows: Rows, size: int) -> None:
        """Keep the rows of a run that a checkpoint has written, and their bytes, for merging it."""
        self._deserted.note(run, rows[0])
        if self._is_worth_keeping(self._runs.rows([run])):
            self._recent.add(run, rows, size)

    def owe(self, slots: int, size: int) -> bool:
        """Add what a checkpoint of some slots and bytes owes, and return whether earlier ones have not paid it."""
        self._due = min(self._due, 0) + allowance(slots + size // BYTES_A_ROW, self._runs.in_the_way)
        return self._due > 0 or self._is_crowded()

    def is_time(self, number: int, *, is_full: bool) -> bool:
        """Return whether to look for what nobody needs after checkpoint ``number``."""
        return is_full or number >= self._next_sweep

    def begin(self, connection: sqlite3.Connection, young: int) -> None:
        """Begin every merge that is due, and give up those that a full checkpoint has made useless."""
        base = self._runs.live[0] if self._runs.live else 0
        self.give_up(connection, [merge for merge in self._merges if merge.run < base])
        while group := self._next(young):
            self.begin_merge(connection, group)

    def begin_merge(self, connection: sqlite3.Connection, parts: Sequence[RunNumber]) -> None:
        """Begin to merge some runs into the newest state that they hold.

        Dirties: one row.
        """
        # Including those that the catalogue ignores because they are damaged.
        last = int(parts[-1])
        taken = [row[0] for row in connection.execute("SELECT run FROM run WHERE run > ?", (last,))]
        run = self._runs.number_for(last, taken)
        note_merging(connection, run, [self._runs[part] for part in parts])
        self._merges.append(self._merge(run, parts))

    def give_up(self, connection: sqlite3.Connection, merges: Collection[Merge] | None = None) -> None:
        """Give some merges up, or all.

        Dirties: one row each; what they have copied is deleted later.
        """
        gone = [merge.run for merge in (self._merges if merges is None else merges)]
        self._merges = [merge for merge in self._merges if merge.run not in gone]
        self._drop(connection, gone)

    def sweep(
        self,
        connection: sqlite3.Connection,
        first: int,
        pins: Collection[int],
        held: Callable[[], Collection[RunNumber]],
    ) -> None:
        """Drop every run that nobody needs.

        Args:
            connection: inside a transaction.
            first: the oldest checkpoint to keep.
            pins: older ones to keep.
            held: returns the runs that somebody is reading.

        Dirties: a row or two for each run.
        """
        self._unneeded = self._runs.unneeded(first, pins, lambda: [*held(), *self._parts()])
        self._drop(connection, self._unneeded)
        self._next_sweep = int(self._runs.live[-1]) + _SWEEP_EVERY if self._runs.live else 0

    def is_merging(self, parts: Sequence[RunNumber]) -> bool:
        """Return whether exactly these runs are being merged, and no others."""
        return [merge.parts for merge in self._merges] == [tuple(parts)]

    def work(self, connection: sqlite3.Connection, rows: int) -> int:
        """Do as much work as copying ``rows`` rows, and return how much it was: more, as it comes in slices, or less.

        Dirties: about as many rows.
        """
        done = 0
        while done < rows and (cost := self._delete_some(connection) or self._merge_some(connection)):
            done += cost
        return done

    def pay(self, connection: sqlite3.Connection) -> None:
        """Do the work that is owed; what is done beyond that benefits later checkpoints.

        Dirties: about as many rows.
        """
        self._due -= self.work(connection, self._due)
        while self._is_crowded() and not self._finished and (cost := self._merge_some(connection)):
            self._due -= cost

    def settle(self) -> float:
        """Update the map of runs with what was committed.

        Returns:
            the first checkpoint that may be read through a run that was merged meanwhile; infinite if none was.
        """
        finished, self._finished = self._finished, []
        for merge in finished:
            assert merge.result is not None
            self._runs.published(merge.result)
            if merge.merged is not None:
                self._recent.add(merge.run, merge.merged.tables, merge.merged.size)
        unneeded, self._unneeded = self._unneeded, ()
        if unneeded:
            self._runs.dropped(unneeded)
            self._growth.keep(self._runs)
            self._deserted.keep(self._runs)
        if finished or unneeded:
            self._recent.keep(self._runs.live)
        return min((run.last for merge in finished if (run := merge.result)), default=inf)

    def _merge(self, run: RunNumber, parts: Sequence[RunNumber]) -> Merge:
        is_base = parts[0] in self._runs.at(int(run))[:1]
        rows, kept = self._runs.rows(parts), self._recent.of(parts)
        keeps = self._is_worth_keeping(rows)
        stored = [self._runs[part] for part in parts]
        return Merge(self._session, run, stored, is_base=is_base, rows=rows, kept=kept, keeps=keeps)

    def _is_worth_keeping(self, rows: int) -> bool:
        return is_worth_keeping(rows, self._runs.rows(self._runs.live[:1]))

    def _next(self, young: int) -> tuple[RunNumber, ...]:
        """Return the runs to merge next; called before the transaction that begins to merge them, and inside it."""
        asked = self._runs.live, young, self._busy()
        if self._asked != asked:
            self._group = self._runs.due(young, asked[-1], self._waste)
            self._asked = asked
        return self._group

    def _is_crowded(self) -> bool:
        return self._runs.in_the_way > _MOST_LIVE_RUNS

    def _parts(self) -> set[RunNumber]:
        return {part for merge in self._merges for part in merge.parts}

    def _busy(self) -> set[RunNumber]:
        return self._parts() | self._suspect

    def _drop(self, connection: sqlite3.Connection, runs: Sequence[RunNumber]) -> None:
        note_dropped(connection, runs)
        self._dropped += runs

    def _delete_some(self, connection: sqlite3.Connection) -> int:
        cost = next(self._deleting, 0)
        if not cost and self._dropped:
            self._deleting = self._delete_all(connection)
            cost = next(self._deleting, 0)
        return cost

    def _delete_all(self, connection: sqlite3.Connection) -> Iterator[int]:
        while self._dropped:
            runs = sorted(self._dropped[:_DELETED_AT_ONCE])
            yield from delete_rows(connection, runs, partial(self._holders, runs[-1]))
            note_gone(connection, runs)
            del self._dropped[: len(runs)]
            yield 1

    def _holders(self, newest: RunNumber) -> Iterator[RunNumber]:
        """Yield the runs that may refer to the bodies of runs up to a given one: all that begin before its end."""
        yield from (run.run for run in self._runs if run.first <= newest)
        yield from (merge.run for merge in self._merges if self._runs[merge.parts[0]].first <= newest)

    def _weight(self, merge: Merge) -> float:
        """Return what a row of a merge counts for, on average."""
        base = self._runs.rows(merge.parts[:1]) if merge.is_base else 0
        return 1 + (_BASE_COST - 1) * base / max(1, self._runs.rows(merge.parts))

    def _merge_some(self, connection: sqlite3.Connection) -> int:
        merge = self.merging
        if merge is None:
            return 0
        try:
            cost = next(merge.slices, 1)
        except CorruptStoreError as error:
            # If SQLite found the damage, the file is damaged; otherwise only the digest of a part is wrong.
            self._session.require_settled()
            self.damage.append(error)
            self._suspect.add(merge.checking)
            self.give_up(connection, [merge])
            return 1
        if merge.result is not None:
            self._finished.append(merge)
            self._merges.remove(merge)
            if merge.is_base:
                self._next_sweep = 0  # What it was made of is as large as the state, and no longer of use.
        return round(cost * self._weight(merge))
