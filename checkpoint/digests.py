"""Checking the rows of a run against the digests that were recorded when it was written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from checkpoint.errors import REPAIR, CorruptStoreError
from checkpoint.pages import TABLES, merged_pages
from checkpoint.run import RunDigest, digest_of
from checkpoint.session import Session
from checkpoint.tiers import RunNumber, is_own


def check_run(session: Session, run: RunNumber) -> Iterator[int]:
    """Check a run page by page; yield how many rows of it were read.

    Raises:
        CorruptStoreError: it is not as it was written.

    Time: O(rows). The rows are streamed.
    """
    check = check_of(session, run)
    for table in TABLES:
        for _, rows in merged_pages(session, table, (run,)):
            check.take(rows)
            yield len(rows)
        check.end_table()
    check.finish()


def check_of(session: Session, run: RunNumber) -> Check:
    """Return the check of a run, for callers that read its rows anyway.

    Raises:
        CorruptStoreError: what was recorded of it is damaged.
    """
    return OwnCheck(session, run) if is_own(run) else MergedCheck(session, run)


class Check(ABC):
    """Takes the rows of a run, table by table and in order of their keys, and compares them with what was recorded."""

    def __init__(self, session: Session, run: RunNumber) -> None:
        self.run = run
        self._session = session

    @abstractmethod
    def take(self, rows: list[Any]) -> None:
        """Take the next rows."""

    @abstractmethod
    def end_table(self) -> None:
        """Move on to the next table."""

    @abstractmethod
    def finish(self) -> None:
        """Note that all rows have been taken."""


class OwnCheck(Check):
    """The check of the run that one checkpoint wrote: it has one digest."""

    def __init__(self, session: Session, run: RunNumber) -> None:
        super().__init__(session, run)
        self._found = RunDigest()

    def take(self, rows: list[Any]) -> None:
        """Take the next rows."""
        self._found.update(rows)

    def end_table(self) -> None:
        """Move on to the next table."""
        self._found.end_table()

    def finish(self) -> None:
        """Compare the digest.

        Raises:
            CorruptStoreError: it differs.
        """
        found = self._found.slots, self._found.hexdigest()
        wanted = self._session.row("SELECT run_slots, run_digest FROM checkpoint WHERE number = ?", (self.run,))
        if wanted != found:
            what = f"do not have the digest {wanted[1] if wanted else None} that was recorded"
            raise _damaged(self._session, self.run, what)


class MergedCheck(Check):
    """The check of a merged run: it has a digest for each portion of its rows."""

    def __init__(self, session: Session, run: RunNumber) -> None:
        super().__init__(session, run)
        self._portions = session.rows("SELECT source, rows, digest FROM portion WHERE run = ? ORDER BY number", (run,))
        if any(source not in _NAMES or type(count) is not int or count < 1 for source, count, _ in self._portions):
            raise _damaged(session, run, "cannot be told apart: the table of portions is damaged")
        self._tables = iter(TABLES)
        self._rows: list[Any] = []
        self._begin_table()

    def take(self, rows: list[Any]) -> None:
        """Take the next rows, and compare the digests of the portions that are complete.

        Raises:
            CorruptStoreError: one of them differs.
        """
        self._rows += rows
        while self._due and len(self._rows) >= self._due[-1][1]:
            self._compare(*self._due.pop()[1:])

    def end_table(self) -> None:
        """Move on to the next table.

        Raises:
            CorruptStoreError: there are more or fewer rows than were recorded.
        """
        while self._due:
            self._compare(*self._due.pop()[1:])
        if self._rows:
            raise _damaged(self._session, self.run, f"of {self._table} are more than those that were recorded")
        self._begin_table()

    def finish(self) -> None:
        """Compare the number of slots.

        Raises:
            CorruptStoreError: it differs.
        """
        slots, state = self._session.row("SELECT slots, state FROM run WHERE run = ?", (self.run,))
        if state == "merged" and slots != sum(count for source, count, _ in self._portions if source == _SLOTS):
            raise _damaged(self._session, self.run, "are not as many as were recorded")

    def _begin_table(self) -> None:
        self._table = next((table.name for table in self._tables), "")
        self._due = [portion for portion in reversed(self._portions) if portion[0] == self._table]

    def _compare(self, count: int, digest: str) -> None:
        taken, self._rows = self._rows[:count], self._rows[count:]
        if (len(taken), digest_of(taken)) != (count, digest):
            what = f"of {self._table} are not the {count} with the digest {digest} that were recorded"
            raise _damaged(self._session, self.run, what)


def _damaged(session: Session, run: RunNumber, what: str) -> CorruptStoreError:
    if is_own(run):
        epoch = session.row("SELECT epoch FROM checkpoint WHERE number = ?", (run,))[0]
        name = f"checkpoint {run} (epoch {epoch})"
    else:
        first, last = session.row("SELECT first, last FROM run WHERE run = ?", (run,))
        name = f"the merged run {run} (checkpoints {first} to {last})"
    return CorruptStoreError(f"{session.path}: the rows of {name} {what}: {REPAIR}")


_NAMES = {table.name for table in TABLES}
_SLOTS = TABLES[-1].name
