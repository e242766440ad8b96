"""Checking the rows of a run against the digests that were recorded when it was written."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from checkpoint.errors import CorruptStoreError
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
    yield from _check_own(session, run) if is_own(run) else _check_merged(session, run)


def _check_own(session: Session, run: RunNumber) -> Iterator[int]:
    found = RunDigest()
    for table in TABLES:
        for _, rows in merged_pages(session, table, (run,)):
            found.update(rows)
            yield len(rows)
        found.end_table()
    wanted = session.row("SELECT run_slots, run_digest FROM checkpoint WHERE number = ?", (run,))
    if wanted != (found.slots, found.hexdigest()):
        raise _damaged(session, run, f"do not have the digest {wanted[1] if wanted else None} that was recorded")


def _check_merged(session: Session, run: RunNumber) -> Iterator[int]:
    portions = session.rows("SELECT source, rows, digest FROM portion WHERE run = ? ORDER BY number", (run,))
    if any(source not in _NAMES or type(count) is not int or count < 1 for source, count, _ in portions):
        raise _damaged(session, run, "cannot be told apart: the table of portions is damaged")
    for table in TABLES:
        rows = chain.from_iterable(page for _, page in merged_pages(session, table, (run,)))
        for count, digest in (portion[1:] for portion in portions if portion[0] == table.name):
            taken = list(islice(rows, count))
            if digest_of(taken) != digest:
                raise _damaged(session, run, f"of {table.name} do not have the digest {digest} that was recorded")
            yield count
        if next(rows, None) is not None:
            raise _damaged(session, run, f"of {table.name} are more than those that were recorded")
    slots, found = session.row("SELECT slots, state FROM run WHERE run = ?", (run,))
    if found == "merged" and slots != sum(count for source, count, _ in portions if source == TABLES[-1].name):
        raise _damaged(session, run, "are not as many as were recorded")


def _damaged(session: Session, run: RunNumber, what: str) -> CorruptStoreError:
    if is_own(run):
        epoch = session.row("SELECT epoch FROM checkpoint WHERE number = ?", (run,))[0]
        name = f"checkpoint {run} (epoch {epoch})"
    else:
        first, last = session.row("SELECT first, last FROM run WHERE run = ?", (run,))
        name = f"the merged run {run} (checkpoints {first} to {last})"
    return CorruptStoreError(
        f"{session.path}: the rows of {name} {what}: call repair() on the store, or restore the file from a copy"
    )


_NAMES = {table.name for table in TABLES}
