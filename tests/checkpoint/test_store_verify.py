"""Damage is found: by verify() in every row, and in the bytes of the file without a wrong value ever being returned."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections import deque
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from checkpoint import CheckpointError, CheckpointStore, CorruptStoreError, Run
from checkpoint.consistency import DENSE_LENGTH
from checkpoint.lookup import in_order
from checkpoint.pages import ITEMS, TABLES, merged_pages
from checkpoint.run import Payload
from checkpoint.session import Session
from objectspace import PersistedObjectSpace
from tests.checkpoint.store_helpers import DIFFERENTIAL, FULL, image_of, quick_store, run_of
from tests.tally import TALLY

GOLDEN = Path(__file__).parents[1] / "golden"
STORED = ("state_index", "state_metadata", "state_item", "state_large")
OTHER = {int: 77, float: 0.25, str: "other", bytes: b"other", type(None): "other"}


def fill(store: CheckpointStore) -> None:
    items = [(1, slot, "0", rank) for rank, slot in enumerate([0, 3, 1.5, "text", b"bytes"])]
    metadata = [(1, "length", "[5,10]"), (1, "more", "1")]
    store.append(Run(DIFFERENTIAL, [(1, "a", "Dictionary", "{}")], metadata, items))
    changes = [(1, 3, None, None), (1, 4, b"raw" * 200, 9), (2, 0, '"x"', None)]
    store.append(Run(DIFFERENTIAL, [(2, "b", "Array", "{}")], [(1, "more", None), (2, "length", "1")], changes))
    store.append(run_of({1: "z"}, FULL, object_id=3))


def damages(store: CheckpointStore) -> list[tuple[str, tuple[Any, ...]]]:
    """Return a statement for every cell that can be changed and every row that can be taken away or added."""
    found: list[tuple[str, tuple[Any, ...]]] = []
    for table in STORED:
        keys = [column.name for column in store.database[table].columns if column.is_pk]
        where = " AND ".join(f"{key} IS ?" for key in keys)
        for row in list(store.database[table].rows):
            key = tuple(row[name] for name in keys)
            for name, value in row.items():
                found.append((f"UPDATE {table} SET {name} = ? WHERE {where}", (OTHER[type(value)], *key)))
                found.append((f"UPDATE {table} SET {name} = NULL WHERE {where} AND {name} IS NOT NULL", key))
            found.append((f"DELETE FROM {table} WHERE {where}", key))
    found += [("INSERT INTO state_item VALUES (?, 9, 9, '9', NULL)", (number,)) for number in (0, 1, 2, 3, 4)]
    found += [
        ("INSERT INTO state_large (checkpoint, hash, body) VALUES (?, 0, '9')", (number,)) for number in (0, 2, 4)
    ]
    return found


def test_a_full_checkpoint_takes_no_damaged_row_over() -> None:
    store = quick_store(":memory:")
    store.append(run_of({1: "a", 2: "b"}, FULL))
    store.append(run_of({3: "c"}))
    store.database.conn.execute("UPDATE state_item SET value = 'x' WHERE slot = 2")
    with pytest.raises(CorruptStoreError, match=r"the rows of checkpoint 1 .* repair\(\)"):
        store.append(run_of({4: "d"}, FULL))
    assert store.next_number() == 3
    store.append(run_of({4: "d"}))
    store.database.conn.execute("UPDATE state_item SET value = '\"b\"' WHERE slot = 2")
    store.append(run_of({5: "e"}, FULL))
    assert store.verify() == 4


def test_verify_finds_every_changed_cell_and_every_row_too_many_or_too_few() -> None:
    store = quick_store(":memory:")
    fill(store)
    assert store.verify() == 3
    connection, tried = store.database.conn, 0
    for statement, parameters in damages(store):
        connection.execute("BEGIN")
        try:
            changed = connection.execute(statement, parameters).rowcount
        except sqlite3.IntegrityError:
            changed = 0
        if changed:
            with pytest.raises(CorruptStoreError, match="restore"):
                store.verify()
            tried += 1
            TALLY["cells and rows changed"] += 1
        connection.execute("ROLLBACK")
    assert tried > 100
    assert store.verify() == 3


def test_verify_names_the_damaged_checkpoint() -> None:
    store = quick_store(":memory:")
    fill(store)
    store.database.conn.execute("UPDATE state_item SET value = '1' WHERE checkpoint = 2 AND object = 2")
    with pytest.raises(CorruptStoreError, match=r"checkpoint 2 \(epoch 2\)"):
        store.verify()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE checkpoint SET kind = 'other', time = 'long ago' WHERE number = 2",
        "UPDATE checkpoint SET run_slots = 'many' WHERE number = 2",
        "UPDATE checkpoint SET epoch = 'last' WHERE number = 3",
        "UPDATE setting SET value = 'x'",
    ],
)
def test_a_damaged_table_of_checkpoints_is_refused(stored: Path, damage: str) -> None:
    with sqlite3.connect(stored) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(damage)
    connection.close()
    with pytest.raises(CorruptStoreError, match="table of checkpoints is damaged"), quick_store(stored) as store:
        store.checkpoints()


def outcome(path: Path) -> Any:
    """Return the state in a file, or None where the store says that it is damaged or no store."""
    try:
        with quick_store(path) as store:
            store.verify()
            return image_of(store.reader())
    except CheckpointError:
        return None


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "state.db"
    with quick_store(path) as store:
        fill(store)
    return path


def test_flipped_bytes_never_give_a_wrong_value(stored: Path, at_scale: bool) -> None:
    expected, data = outcome(stored), stored.read_bytes()
    rng = random.Random(3)
    # Most bytes of a small file are unused: those that are not zero hold something.
    used = [place for place, byte in enumerate(data) if byte]
    places = rng.sample(used, len(used) if at_scale else 300)
    found = 0
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= 1 << rng.randrange(8)
        copy = stored.with_name("copy.db")
        copy.write_bytes(damaged)
        after = outcome(copy)
        assert after in (None, expected), place
        found += after is None
        TALLY["bytes flipped"] += 1
    assert found > 50


def test_a_cut_file_is_found(stored: Path) -> None:
    expected, data = outcome(stored), stored.read_bytes()
    cuts = [1, 16, 99, 100, 600, *range(4096, len(data), 4096), *range(6000, len(data), 4096)]
    for cut in cuts:
        copy = stored.with_name("copy.db")
        copy.write_bytes(data[:cut])
        with pytest.raises(CheckpointError), quick_store(copy) as store:
            store.verify()
            assert image_of(store.reader()) != expected
        assert copy.read_bytes() == data[:cut]
        TALLY["files cut"] += 1


def test_what_is_in_the_log_survives_the_process(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with quick_store(path) as store:
        fill(store)
        image = image_of(store.reader())
        copy = tmp_path / "copy"
        copy.mkdir()
        for name in ("state.db", "state.db-wal"):
            shutil.copy(tmp_path / name, copy / name)
    assert outcome(copy / "state.db") == image == outcome(path)


def test_a_store_without_one_of_its_tables_is_damaged(stored: Path) -> None:
    with sqlite3.connect(stored) as connection:
        connection.execute("DROP TABLE state_metadata")
    connection.close()
    with quick_store(stored) as store, pytest.raises(CorruptStoreError, match="damaged"):
        store.reader().metadata(1)


@pytest.mark.parametrize("salvage", [False, True])
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("DROP TABLE state_metadata", "the table state_metadata is missing: restore it"),
        ("ALTER TABLE state_item DROP COLUMN rank", "the table state_item lacks its column rank: restore it"),
        (
            "ALTER TABLE state_item ADD COLUMN mine",
            r"the table state_item has a column that .* \(mine\): copy what you",
        ),
        (
            "ALTER TABLE span RENAME TO mine; CREATE VIEW span AS SELECT * FROM mine",
            r"the table span is missing \(a view has its name\): restore it",
        ),
        (
            "DROP TABLE filter; CREATE TABLE filter (run, flags, checksum)",
            r"the table filter has another primary key .* \(run\): restore it",
        ),
        ("CREATE TABLE current_item (mine)", "a table has the name of the view current_item: copy what you need"),
        (
            "PRAGMA writable_schema = ON;"
            " UPDATE sqlite_schema SET sql = replace(sql, 'slot NOT', 'slot COLLATE NOCASE NOT')"
            " WHERE name = 'state_item';"
            " PRAGMA writable_schema = RESET",
            r"the table state_item has a column of another type or order \(slot *NOCASE\): restore it",
        ),
        (
            "ALTER TABLE filter ADD COLUMN mine GENERATED ALWAYS AS (run + 1)",
            r"the table filter has a column that the store has not created \(mine\)",
        ),
        (
            "CREATE TRIGGER t BEFORE INSERT ON State_Item BEGIN SELECT RAISE(IGNORE); END",
            "the table state_item has a trigger that the store has not created, t: drop it",
        ),
        (
            "DROP INDEX state_large_checkpoint; CREATE TABLE state_large_checkpoint (mine)",
            "a table has the name of the index state_large_checkpoint: copy what you need",
        ),
    ],
)
def test_a_table_that_is_not_as_it_was_stops_both_repairs(
    tmp_path: Path, damage: str, said: str, salvage: bool
) -> None:
    with quick_store(tmp_path / "state.db") as store:
        fill(store)
        for name in ("current_metadata", "current_item", "stored_item"):
            store.database.conn.execute(f"DROP VIEW {name}")
        store.database.conn.executescript(damage)
        before = list(store.database.conn.iterdump())
        for work in (store.verify, lambda: store.repair(salvage=salvage)):
            with pytest.raises(CorruptStoreError, match=said):
                work()
        assert list(store.database.conn.iterdump()) == before


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("older", ["", "format_5.db"])
@pytest.mark.parametrize("table", ["checkpoint", "run", "setting"])
def test_a_store_that_cannot_be_opened_says_that_a_table_is_missing(
    stored: Path, table: str, older: str, read_only: bool
) -> None:
    if older:
        shutil.copy(GOLDEN / older, stored)
    with closing(sqlite3.connect(stored)) as connection:
        connection.execute(f"DROP TABLE {table}")
    with pytest.raises(CorruptStoreError, match=rf"is damaged: .*restore it from a backup \(.*: (main\.)?{table}\)"):
        CheckpointStore(stored, read_only=read_only)


def test_what_a_table_of_other_columns_refuses_is_told_as_damage(tmp_path: Path) -> None:
    with quick_store(tmp_path / "state.db") as store:
        fill(store)
        store.database.conn.execute("ALTER TABLE state_item ADD COLUMN mine")
        with pytest.raises(CorruptStoreError, match="the table state_item has a column that the store has not created"):
            store.append(run_of({1: "new"}))


def test_the_names_of_tables_may_be_in_capitals(tmp_path: Path) -> None:
    with quick_store(tmp_path / "state.db") as store:
        fill(store)
        store.compact()
        for table in ("portion", "filter", "span"):
            store.database.conn.executescript(
                f"ALTER TABLE {table} RENAME TO mine; ALTER TABLE mine RENAME TO {table.upper()}"
            )
    with quick_store(tmp_path / "state.db") as store:
        store.fork(tmp_path / "fork.db")
        with quick_store(tmp_path / "fork.db") as fork:
            assert (store.verify(), fork.verify()) == (1, 1)


def test_a_table_in_place_of_a_view_is_its_owners_to_drop(tmp_path: Path) -> None:
    with quick_store(tmp_path / "state.db") as store:
        fill(store)
        store.database.conn.executescript("DROP VIEW live_checkpoint; CREATE TABLE live_checkpoint (mine)")
        with pytest.raises(CorruptStoreError, match=r"drop it, then call repair\(\) on the store$"):
            store.verify()
        store.database.conn.execute("DROP TABLE live_checkpoint")
        assert len(store.repair().damage) == 1
        assert store.verify() == 3


@pytest.mark.parametrize("salvage", [False, True])
@pytest.mark.parametrize(
    ("kind", "name", "instead"),
    [
        ("view", "stored_item", ""),
        ("view", "stored_item", "CREATE VIEW stored_item AS SELECT 1 AS value, 2 AS slot"),
        ("view", "current_item", ""),
        ("view", "live_checkpoint", "CREATE VIEW live_checkpoint AS SELECT 1 AS number"),
        ("view", "current_item", "CREATE INDEX current_item ON state_item (rank)"),
        ("view", "current_item", "CREATE VIEW Current_Item AS SELECT 1 AS value"),
        ("view", "current_item", "CREATE TABLE m (n); CREATE TRIGGER current_item DELETE ON m BEGIN SELECT 1; END"),
        ("index", "state_large_checkpoint", ""),
        ("index", "state_large_checkpoint", "CREATE VIEW state_large_checkpoint AS SELECT 1 AS value"),
    ],
)
def test_a_view_or_index_that_is_missing_or_another_one_is_made_again(
    tmp_path: Path, kind: str, name: str, instead: str, salvage: bool
) -> None:
    with quick_store(tmp_path / "state.db") as store:
        fill(store)
        image = image_of(store.reader())
        store.database.conn.executescript(f"DROP {kind} {name}; {instead}")
        for work in (store.verify, lambda: store.fork(tmp_path / "fork.db")):
            with pytest.raises(CorruptStoreError, match=rf"the {kind} {name} is missing.*: call repair\(\)"):
                work()
        repaired = store.repair(salvage=salvage)
        assert (len(repaired.damage), repaired.lost) == (1, ())
        assert (store.verify(), image_of(store.reader())) == (3, image)


COUNTED = ["Array", "Dictionary", "LinkedList", "List", "Set", "SortedDictionary", "SortedSet", "SparseArray", "Tensor"]
OF_LISTS = '{"of":"List"}'


@pytest.mark.parametrize(
    ("kind", "codec", "metadata", "slots", "said"),
    [
        ("Array", "{}", {"length": "2"}, {0: "1", 2: "1"}, "has a slot 2 that cannot be one of its own"),
        ("Array", "{}", {"length": "1024"}, {0: "1", 1023: "1"}, "has 2 slots where its metadata says 1024"),
        ("Queue", "{}", {"head": "1", "tail": "3"}, {1: "1"}, "has 1 slots where its metadata says 2"),
        ("Stack", "{}", {"count": "1"}, {1: "1"}, "has a slot 1 that cannot be one of its own"),
        ("Value", "{}", {}, {"other": "1"}, "has a slot 'other' that cannot be one of its own"),
        ("Set", "{}", {"length": "[2,5]"}, {"a": "null"}, "has 1 slots where its metadata says 2"),
        ("List", "{}", {"length": '"two"'}, {1: "1"}, "has 1 slots where its metadata says two"),
        *(
            (kind, "{}", {"length": "2"}, {1: "1", slot: "1"}, "has a slot .* that cannot be one of its own")
            for kinds, slots in [
                (["List", "LinkedList"], ["x", b"x", float("inf"), float("-inf")]),
                (["SparseArray", "Tensor"], ["x", b"x", 1.5]),
            ]
            for kind in kinds
            for slot in slots
        ),
        ("Stack", "{}", {"counted": "1"}, {0: "1"}, "has no 'count' in its metadata"),
        ("Queue", "{}", {"head": "0"}, {0: "1"}, "has no 'tail' in its metadata"),
        ("Tensor", "{}", {"length": "2"}, {0: b"1"}, "has 1 slots where its metadata says 2"),
        (
            "SortedSet",
            "{}",
            {"length": "1"},
            {b"\x11\xc4": "1"},
            "has a slot .* that sorts unlike its key, and no",
        ),
        *((kind, "{}", {}, {}, "has no 'length' in its metadata") for kind in COUNTED),
        ("Dictionary", OF_LISTS, {"length": "1"}, {"k": '"plain"'}, "has a slot 'k' that says no object"),
        (
            "Dictionary",
            OF_LISTS,
            {"length": "2"},
            {"j": '{"$object":2}', "k": '{"$object":2}'},
            "has a slot 'k' that says object 2, as",
        ),
    ],
)
def test_verify_finds_an_object_whose_slots_are_not_those_that_it_says(
    kind: str, codec: str, metadata: dict[str, str], slots: dict[Any, Payload], said: str
) -> None:
    store = quick_store(":memory:")
    rows = [(1, key, value) for key, value in metadata.items()]
    store.append(Run(FULL, [(1, "a", kind, codec)], rows, [(1, slot, value, None) for slot, value in slots.items()]))
    with pytest.raises(CorruptStoreError, match=f"the {kind} 'a' {said}.*roll it back to one that is sound"):
        store.verify()


@pytest.mark.parametrize("kind", ["Dictionary", "Set"])
@pytest.mark.parametrize(("length", "is_sound"), [("2", False), ("[2,5]", False), ("[2,6]", True)])
def test_verify_finds_a_rank_that_would_be_given_again(kind: str, length: str, is_sound: bool) -> None:
    store = quick_store(":memory:")
    items: list[Any] = [(1, slot, "null", rank) for slot, rank in (("a", 5), ("b", 0), ("c", 9))]
    store.append(Run(FULL, [(1, "a", kind, "{}")], [(1, "length", "[3,10]")], items))
    store.append(Run(DIFFERENTIAL, [], [(1, "length", length)], [(1, "c", None, None)]))
    if is_sound:
        assert store.verify() == 2
    else:
        with pytest.raises(
            CorruptStoreError, match=f"the {kind} 'a' has a slot of rank 5 .* that [25] is the next one"
        ):
            store.verify()


def test_a_long_array_may_lack_slots_and_a_short_one_may_not() -> None:
    store = quick_store(":memory:")
    space = PersistedObjectSpace(store)
    for length in (DENSE_LENGTH, DENSE_LENGTH + 1):
        space.create_array(f"of {length}", length, default=0)[7] = 1
    space.checkpoint()
    reader = store.reader()
    assert [reader.count(row[0]) for row in reader.index()] == [DENSE_LENGTH, 1]
    assert store.verify() == 1


def test_verify_finds_no_fault_with_objects_that_keep_their_keys_as_they_are() -> None:
    store = quick_store(":memory:")
    space = PersistedObjectSpace(store)
    space.create_sorted_dictionary("raw", raw=True)[b"\x11"] = b"1"
    space.create_sorted_dictionary("other")[2**64] = 1
    space.checkpoint()
    assert store.verify() == 1


OWNER = '{"of":"Sample"}'


def test_a_slot_that_should_say_an_object_and_cannot_be_read_stops_no_checkpoint() -> None:
    store = quick_store(":memory:", history=1)
    store.append(Run(FULL, [(1, "owner", "Samples", OWNER)], [], [(1, 0, '{"$object":2}', None), (2, 0, "5", None)]))
    store.database.conn.execute("UPDATE state_item SET value = '{\"$object\":' WHERE object = 1")
    runs = [Run(DIFFERENTIAL, [(3, "o3", "Sample", "{}")], [], [(3, 0, f"{number}", None)]) for number in range(100)]
    with pytest.warns(
        RuntimeWarning, match="a slot that says which object it owns is damaged.* it is not merged meanwhile"
    ):
        deque(map(store.append, runs), 0)
    for work in (store.compact, lambda: store.prune(keep=1), lambda: list(store.reader().reachable())):
        with pytest.raises(CorruptStoreError):
            work()
    assert store.reader().item(2, 0) is not None
    assert store.reader().item(3, 0).value == "99"  # type: ignore[union-attr]


def test_rows_whose_keys_are_none_are_damage() -> None:
    with pytest.raises(CorruptStoreError, match="a row has no slot"):
        in_order([1, None, 2])  # type: ignore[list-item]
    store = quick_store(":memory:")
    store.append(run_of({1: 1}))
    store.append(run_of({1: 2}))
    rows = [(1, 1, "1", None), (None, 1, "1", None), (1, 2, "2", None)]
    with pytest.raises(CorruptStoreError, match="state_item has a row with an invalid key"):
        list(merged_pages(_Given(store.session, rows), TABLES[ITEMS], (1, 2)))  # type: ignore[arg-type]


class _Given:
    """A session that finds some rows, in two runs."""

    def __init__(self, session: Session, rows: list[Any]) -> None:
        self.path, self.row = session.path, session.row
        self._rows = [(*row, 1 + place % 2) for place, row in enumerate(rows)]

    def rows(self, statement: str, parameters: Any) -> list[Any]:
        return self._rows
