"""The bytes that rows of several lengths add to the log, by page size: ``python -m benchmarks.pages``."""

from __future__ import annotations

import itertools
import random
import sqlite3
import statistics
from pathlib import Path

from benchmarks.timing import folder, table
from checkpoint.pages import ITEMS, TABLES
from checkpoint.run_rows import insert_rows
from checkpoint.schema import LARGE
from checkpoint.schema import TABLES as SCHEMA

PAGE_BYTES = (2048, 4096, 8192)
VALUE_DIGITS = (47, 300, 700, 1100, 2000)
ROWS = 2_000
RUNS = 7


def bytes_a_row(place: Path, page_bytes: int, digits: int) -> float:
    """Return the median of the bytes a row that runs of 2,000 random slots add to the write-ahead log."""
    path = place / f"{page_bytes}-{digits}.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA page_size = {page_bytes}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.executescript(SCHEMA + LARGE)
    log, chance, sizes = Path(f"{path}-wal"), random.Random(1), [0]
    sizes[0] = log.stat().st_size
    for number in range(1, RUNS + 1):
        slots = sorted(chance.sample(range(300_000), ROWS))
        rows = [(1, slot, f'"{chance.getrandbits(100):0{digits}d}"', slot) for slot in slots]
        connection.execute("BEGIN")
        insert_rows(connection, TABLES[ITEMS], number, rows)
        connection.execute("COMMIT")
        sizes.append(log.stat().st_size)
    connection.close()
    return statistics.median((after - before) / ROWS for before, after in itertools.pairwise(sizes[1:]))


def main() -> None:
    """Print the table."""
    with folder() as place:
        rows = [
            (f"{digits + 2:,} bytes", *(f"{bytes_a_row(place, page, digits):,.0f}" for page in PAGE_BYTES))
            for digits in VALUE_DIGITS
        ]
    print(table("Bytes in the log for a row", ("value", *(f"pages of {page:,}" for page in PAGE_BYTES)), rows))


if __name__ == "__main__":
    main()
