"""Reading ahead what a search will need, several places at once, if the disk is slow to answer.

A search for many slots that are not in memory waits for the disk once or twice for each of them. What one thread would
wait for one after the other, eight threads have brought in at once; then the search itself finds it in the memory of
the machine.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from itertools import takewhile
from pathlib import Path
from threading import Thread

from checkpoint import schema

Query = tuple[str, Sequence[object]]
"""A statement, and its parameters."""

LEAST_SLOTS = 128
"""For fewer slots it is not worth finding out whether the disk is slow."""

SLOW_SECONDS = 100e-6
"""A search in memory seldom takes this long, even in a store just opened; one that waits for a disk always does."""

_SECONDS_A_BYTE = 5e-9

PROBES = 5
"""So many slots show how long a search takes: the middle one counts."""

_MOST_THREADS, _LEAST_QUERIES = 8, 2
"""The number of threads, and the least number of queries for each: with fewer it costs more than it saves."""


def warm(path: str, queries: Sequence[Query]) -> None:
    """Run queries in parallel, each thread with a connection of its own; the results are discarded.

    What fails here is left to fail when the rows are actually read.

    Args:
        path: the file of the store.
        queries: the queries; neighbours share a thread, as their rows share pages.

    Time: O(queries). Dirties: nothing.
    """
    share = max(_LEAST_QUERIES, -(-len(queries) // _MOST_THREADS))
    parts = [queries[start : start + share] for start in range(0, len(queries), share)]
    threads = [Thread(target=_run, args=(path, part), name="objectspace-warming") for part in parts]
    started = list(takewhile(_has_started, threads))
    for thread in started:
        thread.join()


def is_slow(seconds: float, size: int) -> bool:
    """Return whether a search that has found so many bytes has waited for a disk.

    >>> is_slow(45e-6, 52), is_slow(190e-6, 52), is_slow(2e-3, 1_000_000)
    (False, True, False)
    """
    return seconds > SLOW_SECONDS + size * _SECONDS_A_BYTE


def _has_started(thread: Thread) -> bool:
    try:
        thread.start()
    except RuntimeError:  # The machine has no more threads, or the interpreter is about to exit.
        return False
    return True


def _run(path: str, queries: Sequence[Query]) -> None:
    address = f"{Path(path).as_uri()}?mode=ro"
    with suppress(sqlite3.Error, MemoryError), closing(sqlite3.connect(address, uri=True)) as connection:
        if connection.execute("PRAGMA user_version").fetchone()[0] < schema.FORMAT_VERSION:
            schema.prepare_older(connection)
        for statement, parameters in queries:
            connection.execute(statement, parameters).fetchall()
