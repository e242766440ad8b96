"""The readers of a store that are in use: what they read stays, and whoever reads what is gone is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from weakref import WeakKeyDictionary

from checkpoint import finding
from checkpoint.lookup import RunSpans
from checkpoint.reader import Reader
from checkpoint.record import CheckpointRecord
from checkpoint.session import Session
from checkpoint.tiers import RunMap, RunNumber


class Readers:
    """Gives out readers, and knows of each what it reads for as long as something refers to it.

    Args:
        session: the connection.
        runs: returns the runs of the store as they are now. Every reader refers to this function, so what it is bound
            to, such as the store with its lock, lives as long as a reader does.
    """

    def __init__(self, session: Session, runs: Callable[[], RunMap]) -> None:
        self._session, self._runs = session, runs
        self._run_spans = RunSpans(session, self._rows_of)
        self._known: WeakKeyDictionary[Reader, CheckpointRecord | None] = WeakKeyDictionary()
        self._are_behind = False

    def of(self, runs: Sequence[RunNumber], *, is_partial: bool = False) -> Reader:
        """Return a reader whose runs stay for as long as something refers to it."""
        reader = Reader(self._session, runs, self._between, self._run_spans, is_partial=is_partial)
        is_snapshot = self._session.read_only and runs
        self._known[reader] = finding.record_of(self._session, reader.newest) if is_snapshot else None
        return reader

    @property
    def pins(self) -> set[int]:
        """The checkpoints that are read."""
        return {reader.newest for reader in self._known}

    def held(self) -> set[RunNumber]:
        """Return the runs that are read.

        Time: O(readers · runs of each).
        """
        return set[RunNumber]().union(*(reader.runs for reader in self._known))

    def forget(self) -> None:
        """Forget what is known of the rows of the runs: they may be others now, or nobody needs them any more."""
        self._run_spans.clear()
        self._are_behind = True  # Some runs may have been merged that no reader was told of.

    def settle(self, merged: float) -> None:
        """Forget what is known of runs that are gone; if some were merged, let the readers read the merged ones.

        Args:
            merged: the first checkpoint that may be read through one of these; infinite if there are none.

        Time: O(readers), and O(runs of each) from that checkpoint on.
        """
        runs = self._runs()
        self._run_spans.keep(runs)
        if merged < inf:
            since, self._are_behind = 0 if self._are_behind else merged, False
            # What they show stays the same, and the runs that they have read so far may be removed.
            for reader in self._known:
                if reader.newest >= since and not reader.is_partial and (found := runs.at(reader.newest)):
                    reader.read_from(found)

    def retire(self, reason: str) -> None:
        """End the readers whose checkpoint can no longer be read."""
        known = self._runs()
        for reader, record in list(self._known.items()):
            is_there = self._is_still_there(reader.newest, record)
            if is_there and all(run in known for run in reader.runs):
                reader.read_from(reader.runs)  # What was known of the runs may no longer be true.
                continue
            runs = known.at(reader.newest) if is_there else ()
            if runs and not reader.is_partial:
                reader.read_from(runs)
            else:
                reader.retire(
                    f"{self._session.path}: checkpoint {reader.newest} {reason}; ask the store for another reader"
                )
                del self._known[reader]

    def _between(self, older: int, newer: int) -> Reader | None:
        """Return a reader of what came after one checkpoint, up to another."""
        with self._session.mutex:
            runs = self._runs().between(older, newer) if older < newer else ()
            return self.of(runs, is_partial=True) if runs or older == newer else None

    def _rows_of(self, run: RunNumber) -> float:
        """Return how many item rows a run has; for one that is gone, more than anybody reads."""
        runs = self._runs()
        return runs[run].slots if run in runs else inf

    def _is_still_there(self, number: int, known: CheckpointRecord | None) -> bool:
        if number and number not in self._runs():
            return False
        if known is None:
            return True
        now = finding.record_of(self._session, number)
        return (now.epoch, now.time, now.digest) == (known.epoch, known.time, known.digest)
