"""The tables of a store, the views that show the newest state, and the version of the format.

Every table leads its primary key with the number of the checkpoint, so that one checkpoint is one contiguous range
of the B-tree: writing it is an append, dropping it is a range delete, shipping it is a range read.

``checkpoint.slots``, ``bytes`` and ``digest`` say what the checkpoint wrote when it was committed; ``run_slots`` and
``run_digest`` say what is stored under its number now, and are NULL once the checkpoint has been dropped. ``run_first``
is NULL except in a store created with format 1, in which older runs were merged into newer ones. ``seal`` is a checksum
of the rest of the record.

``run`` lists the merged runs, those that are being made, and those whose rows are being deleted. ``portion`` has the
digests of their rows, some rows at a time, so that a merge can be given up and resumed anywhere. ``seal`` is as above.

``filter`` tells which slots larger runs do not have; runs from a store of format 2 have none. ``span`` tells the range
of slots in which they have rows of each object; runs from a store of format 3 have none.

``state_large`` has the bodies of values of more than some hundred bytes, each with the checkpoint that it came with and
a hash of the object and the slot. The row of such a value has the number of the body. ``stored_item`` shows the rows of
items with the values that they stand for. Rows from a store of format 5 contain all their values.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import cache
from typing import Any

from checkpoint import seals
from checkpoint.errors import RESTORE

APPLICATION_ID = 0x4F534350
"""The four bytes "OSCP" in the header of the file, which distinguish a store from any other SQLite database."""

FORMAT_VERSION = 6
"""The newest format that this version reads, and the one that it writes, kept as ``PRAGMA user_version``."""

MERGED_RUNS = """
CREATE TABLE run (
    run PRIMARY KEY,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('merging', 'merged', 'dropped')),
    slots INTEGER,
    parts TEXT,
    seal INTEGER
) WITHOUT ROWID;

CREATE TABLE portion (
    run NOT NULL,
    number INTEGER NOT NULL,
    source TEXT NOT NULL,
    rows INTEGER NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (run, number)
) WITHOUT ROWID;
"""

FILTERS = """
CREATE TABLE filter (
    run PRIMARY KEY,
    flags BLOB NOT NULL,
    checksum INTEGER NOT NULL
);
"""

SPANS = """
CREATE TABLE span (
    run NOT NULL,
    object INTEGER NOT NULL,
    low NOT NULL,
    high NOT NULL,
    deletes INTEGER NOT NULL,
    objects INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (run, object)
) WITHOUT ROWID;
"""

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
    run_digest TEXT,
    run_first INTEGER,
    seal INTEGER
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

LARGE = """
CREATE TABLE state_large (
    id INTEGER PRIMARY KEY,
    checkpoint INTEGER NOT NULL,
    hash INTEGER NOT NULL,
    body NOT NULL
);

CREATE INDEX state_large_checkpoint ON state_large (checkpoint);
"""

VALUE = "iif(typeof(value) = 'integer', coalesce((SELECT body FROM state_large WHERE id = value), value), value)"
"""What the value of an item row stands for; a number whose body is lost stands for itself, which is not a value."""

_AS_STORED = f"stored_item AS SELECT checkpoint, object, slot, {VALUE} AS value, rank FROM state_item;"

STORED, _STORED_HERE = f"CREATE VIEW {_AS_STORED}", f"CREATE TEMP VIEW {_AS_STORED}"

LIVE = """
CREATE VIEW live_checkpoint AS
    WITH available AS (
        SELECT number, coalesce(run_first, number) AS first, number AS last FROM checkpoint WHERE run_slots IS NOT NULL
        UNION ALL SELECT run, first, last FROM run WHERE state = 'merged'
    )
    SELECT number FROM available AS one
    WHERE last >= coalesce((SELECT max(number) FROM checkpoint WHERE kind = 'full'), 0)
    AND NOT EXISTS (
        SELECT 1 FROM available AS other WHERE other.first <= one.first AND other.last >= one.last
        AND other.last - other.first > one.last - one.first
    );
"""
"""The runs that make up the newest state: those that no other one contains."""

# Bytes are shown as SQL literals: not every tool can show a view that has bytes (Datasette fails).
VIEWS = """
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
"""

CURRENT_ITEM = f"""
CREATE VIEW current_item AS
    SELECT i.name, iif(typeof(s.slot) = 'blob', quote(s.slot), s.slot) AS slot,
        iif(typeof(s.value) = 'blob', quote(s.value), s.value) AS value, s.object FROM (
        SELECT object, slot, {VALUE} AS value, rank FROM (
            SELECT object, slot, value, rank, max(checkpoint) FROM state_item
            WHERE checkpoint IN live_checkpoint GROUP BY object, slot
        )
    ) AS s JOIN current_index AS i ON i.object = s.object
    WHERE s.value IS NOT NULL ORDER BY i.name, s.rank, s.slot;
"""


def create(connection: sqlite3.Connection) -> None:
    """Create the tables and views of an empty store in one transaction.

    Dirties: the file of ``connection``, which holds nothing yet.
    """
    marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT_VERSION};"
    tables = f"{TABLES} {MERGED_RUNS} {FILTERS} {SPANS} {LARGE}"
    _execute(connection, f"BEGIN; {tables} {LIVE} {VIEWS} {STORED} {CURRENT_ITEM} {marks} COMMIT;")


FIRST_IN_FORMAT_1 = """
CASE kind WHEN 'full' THEN number ELSE 1 + coalesce((
    SELECT max(number) FROM checkpoint AS older WHERE older.number < checkpoint.number AND older.run_slots IS NOT NULL
), 0) END
"""
"""Where the run of a checkpoint begins in a store of format 1: after the run before it."""


_FILTERS_BY_ROW = f"""
ALTER TABLE filter RENAME TO older_filter;
{FILTERS}
INSERT INTO filter SELECT * FROM older_filter;
DROP TABLE older_filter;
"""
"""Filters in a table with row numbers: they are large, so a search for one should not read those beside it."""


def upgrade(connection: sqlite3.Connection) -> None:
    """Turn a store of an older format into one of this format in one transaction; no row of a run is touched.

    Time: O(checkpoints). Dirties: the rows of ``checkpoint`` and ``run``.
    """
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    merging = (
        "ALTER TABLE checkpoint ADD COLUMN run_first INTEGER;"
        f"UPDATE checkpoint SET run_first = {FIRST_IN_FORMAT_1} WHERE run_slots IS NOT NULL;"
        f"DROP VIEW live_checkpoint; {MERGED_RUNS} {LIVE}"
    )
    new = [merging] if version < 2 else ["ALTER TABLE run ADD COLUMN seal INTEGER;"] * (version < seals.FORMAT)
    new += [FILTERS if version < 3 else _FILTERS_BY_ROW] + [SPANS] * (version < 4)
    new += ["ALTER TABLE checkpoint ADD COLUMN seal INTEGER;"] * (version < seals.FORMAT)
    new += [LARGE, STORED, "DROP VIEW current_item;", CURRENT_ITEM]
    _execute(connection, f"BEGIN; {' '.join(new)} PRAGMA user_version = {FORMAT_VERSION};")
    if version < seals.FORMAT:
        seals.add(connection)
    connection.execute("COMMIT")


def prepare_older(connection: sqlite3.Connection) -> None:
    """Make a read-only store of an older format readable as one of this format; nothing is written to it."""
    _execute(connection, f"CREATE TEMP TABLE state_large (id INTEGER PRIMARY KEY, body); {_STORED_HERE}")


Query = Callable[[str], Iterable[Any]]
"""Returns the rows that a statement yields."""


def find_unmendable(query: Query) -> Iterator[str]:
    """Yield in words what no repair can make as a store of this format has it, each with what to do about it.

    That is a table, and a view or an index whose name a table has: what that one holds may be somebody's, so only its
    owner may drop it. So is a trigger on a table, which may change or undo whatever is written: the store makes none. A
    store of an older format is only read, as it is.
    """
    if not _is_of_this_format(query):
        return
    found = _definitions(query)
    for name, (kind, _) in _whole()[0].items():
        instead = found[name][0] if name in found else ""
        if kind != "table":
            if instead == "table":
                yield f"a table has the name of the {kind} {name}: {_DROP}, then call repair() on the store"
        elif instead == "table":
            yield from _unlike(name, _columns(query, name))
        else:
            what = f" ({'a' if instead == 'view' else 'an'} {instead} has its name)" if instead else ""
            yield f"the table {name} is missing{what}: {RESTORE}"
    for trigger, name in query("SELECT name, lower(tbl_name) FROM sqlite_schema WHERE type = 'trigger' ORDER BY name"):
        if name in _whole()[1]:
            yield f"the table {name} has a trigger that the store has not created, {trigger}: drop it"


Columns = dict[str, tuple[int, str, str]]
"""The columns of a table, each with its place in the primary key or 0, its type, and how it is ordered there."""


def _unlike(table: str, found: Columns) -> Iterator[str]:
    """Yield in words how the columns of a table are not those that the store has created."""
    expected = _whole()[1][table]
    if lost := sorted(expected.keys() - found.keys()):
        yield f"the table {table} lacks its column {', '.join(lost)}: {RESTORE}"
    elif more := sorted(found.keys() - expected.keys()):
        yield f"the table {table} has a column that the store has not created ({', '.join(more)}): {_DROP}"
    elif wrong := [name for name, (place, *_) in expected.items() if place != found[name][0]]:
        yield f"the table {table} has another primary key than the store has created ({', '.join(wrong)}): {RESTORE}"
    elif other := [f"{name} {' '.join(found[name][1:])}" for name in expected if expected[name] != found[name]]:
        yield f"the table {table} has a column of another type or order ({', '.join(other)}): {RESTORE}"


_DROP = "copy what you need of it and drop it"


def find_derived(query: Query) -> Iterator[tuple[str, str]]:
    """Yield each view and index, with its kind, that a store of this format lacks or has in another form.

    They hold no data: :func:`create_derived` creates them again. A store of an older format is only read, as it is.
    """
    if not _is_of_this_format(query):
        return
    found = _definitions(query)
    for name, (kind, statement) in _whole()[0].items():
        if kind != "table" and found.get(name) != (kind, statement):
            yield kind, name


def create_derived(connection: sqlite3.Connection, name: str) -> None:
    """Create a view or an index again, inside a transaction of the caller, instead of any that has its name.

    Time: O(1); O(n log n) for an index. Dirties: the schema, and an index.
    """
    instead = _definitions(connection.execute).get(name)
    if instead is not None:
        connection.execute(f"DROP {instead[0]} {name}")
    connection.execute(_whole()[0][name][1])


def is_table(name: str) -> bool:
    """Return whether a store has a table of this name, in this or an older format."""
    return name.lower() in _whole()[1]


@cache
def _whole() -> tuple[dict[str, tuple[str, str]], dict[str, Columns]]:
    """Return kind and statement of all that a store has in its schema, and the columns of its tables."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        create(connection)
        found = _definitions(connection.execute)
        tables = [name for name, (kind, _) in found.items() if kind == "table"]
        return found, {name: _columns(connection.execute, name) for name in tables}


def _is_of_this_format(query: Query) -> bool:
    [(version,)] = query("PRAGMA user_version")
    return bool(version == FORMAT_VERSION)


def _definitions(query: Query) -> dict[str, tuple[str, str]]:
    """Return kind and statement of each table, view and index by its name, of which SQLite ignores the case."""
    kinds = "type IN ('table', 'view', 'index')"  # A trigger may have the name of any of them.
    rows = query(f"SELECT lower(name), type, sql FROM sqlite_schema WHERE sql IS NOT NULL AND {kinds}")
    return {name: (kind, statement) for name, kind, statement in rows}


def _columns(query: Query, table: str) -> Columns:
    """Return the columns of a table."""
    keys = f"pragma_index_list('{table}') AS one JOIN pragma_index_xinfo(one.name) AS part"
    order = f"SELECT part.coll FROM {keys} WHERE one.origin = 'pk' AND part.cid = found.cid"
    rows = query(
        f"SELECT lower(name), pk, upper(type), coalesce(({order}), '') FROM pragma_table_xinfo('{table}') AS found"
    )
    return {name: (place, kind, collation) for name, place, kind, collation in rows}


def _execute(connection: sqlite3.Connection, script: str) -> None:
    """Execute statements one by one, so that each of them can fail alone."""
    statement = ""
    for part in script.split(";"):
        statement += part + ";"
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""
