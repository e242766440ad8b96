"""The tables of a store, the views that show the newest state, and the version of the format.

Every table leads its primary key with the number of the checkpoint, so that one checkpoint is one contiguous range
of the B-tree: writing it is an append, dropping it is a range delete, shipping it is a range read.

``checkpoint.slots``, ``bytes`` and ``digest`` say what the checkpoint wrote when it was committed; ``run_slots`` and
``run_digest`` say what is stored under its number now: more after older runs were merged into it, and NULL after it was
merged into a newer one.
"""

from __future__ import annotations

import sqlite3

APPLICATION_ID = 0x4F534350
"""The four bytes "OSCP" in the header of the file, by which a store is told from any other SQLite database."""

FORMAT_VERSION = 1
"""The newest format that this version reads and the one that it writes, kept as ``PRAGMA user_version``."""

TABLES = """
CREATE TABLE setting (
    key TEXT PRIMARY KEY,
    value
) WITHOUT ROWID;

CREATE TABLE checkpoint (
    number INTEGER PRIMARY KEY CHECK (number > 0),
    epoch INTEGER NOT NULL UNIQUE,
    kind TEXT NOT NULL CHECK (kind IN ('full', 'differential')),
    parent INTEGER,
    slots INTEGER NOT NULL CHECK (slots >= 0),
    bytes INTEGER NOT NULL CHECK (bytes >= 0),
    digest TEXT NOT NULL,
    time TEXT NOT NULL,
    format INTEGER NOT NULL,
    run_slots INTEGER,
    run_digest TEXT
);

CREATE TABLE state_index (
    checkpoint INTEGER NOT NULL,
    object INTEGER NOT NULL,
    name TEXT NOT NULL,
    kind TEXT,
    codec TEXT,
    PRIMARY KEY (checkpoint, object)
) WITHOUT ROWID;

CREATE TABLE state_metadata (
    checkpoint INTEGER NOT NULL,
    object INTEGER NOT NULL,
    key TEXT NOT NULL,
    value TEXT,
    PRIMARY KEY (checkpoint, object, key)
) WITHOUT ROWID;

CREATE TABLE state_item (
    checkpoint INTEGER NOT NULL,
    object INTEGER NOT NULL,
    slot NOT NULL,
    value,
    rank INTEGER,
    PRIMARY KEY (checkpoint, object, slot)
) WITHOUT ROWID;
"""

VIEWS = """
CREATE VIEW live_checkpoint AS
    SELECT number FROM checkpoint
    WHERE run_slots IS NOT NULL
    AND number >= coalesce((SELECT max(number) FROM checkpoint WHERE kind = 'full'), 0);

CREATE VIEW current_index AS
    SELECT name, json_object('kind', kind) AS value, object, kind, codec FROM (
        SELECT object, name, kind, codec, max(checkpoint) FROM state_index
        WHERE checkpoint IN live_checkpoint GROUP BY object
    ) WHERE kind IS NOT NULL ORDER BY name;

CREATE VIEW current_metadata AS
    SELECT i.name, m.key, m.value, m.object FROM (
        SELECT object, key, value, max(checkpoint) FROM state_metadata
        WHERE checkpoint IN live_checkpoint GROUP BY object, key
    ) AS m JOIN current_index AS i ON i.object = m.object
    WHERE m.value IS NOT NULL ORDER BY i.name, m.key;

CREATE VIEW current_item AS
    SELECT i.name, s.slot, s.value, s.object FROM (
        SELECT object, slot, value, rank, max(checkpoint) FROM state_item
        WHERE checkpoint IN live_checkpoint GROUP BY object, slot
    ) AS s JOIN current_index AS i ON i.object = s.object
    WHERE s.value IS NOT NULL ORDER BY i.name, s.rank, s.slot;
"""


def create(connection: sqlite3.Connection) -> None:
    """Create the tables and views of an empty store in one transaction.

    Dirties: the file of ``connection``, which holds nothing yet.
    """
    marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT_VERSION};"
    connection.executescript(f"BEGIN; {TABLES} {VIEWS} {marks} COMMIT;")
