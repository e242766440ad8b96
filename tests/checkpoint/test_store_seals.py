"""Records that are not as they were written are found, do no harm until they are, and are put right."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpoint import CheckpointError, CheckpointStore, CorruptStoreError, UnknownCheckpointError, seals
from objectspace import PersistedObjectSpace
from tests.checkpoint.store_helpers import FULL, image_of, images, quick_store, run_of, values_in
from tests.golden import format_1, format_2, format_3, format_4
from tests.tally import TALLY

EPOCHS, FULL_AT = 60, 4

CELLS = 30
"""About so many cells of a table are wrong in turn, unless all are asked for."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with records whose runs are gone, merged runs, one that is being made, and a full checkpoint."""
    path = tmp_path_factory.mktemp("sealed") / "state.db"
    with quick_store(path, history=8) as store:
        for number in range(1, EPOCHS + 1):
            changes = {number % 9: number, 100 + number: None if number % 3 else "x", 100 + number - 40: None}
            store.append(run_of(changes, FULL if number == FULL_AT else "differential"), epoch=10 * number)
    return path


def contents(path: Path) -> dict[int, Any]:
    with quick_store(path, read_only=True) as store:
        return images(store)


def others(name: str, cell: Any) -> Iterator[Any]:
    """Yield what a cell could say instead of what it says: the fault may be one bit, a word or a number nearby."""
    if name in ("kind", "state"):
        yield from {"full", "differential"} - {cell} if name == "kind" else {"merging", "merged", "dropped"} - {cell}
    if isinstance(cell, str):
        yield chr(ord(cell[0]) ^ 1) + cell[1:]
        yield bytes([ord(cell[0]) ^ 0x80]) + cell[1:].encode()
    elif isinstance(cell, int):
        yield from (cell ^ 1, cell ^ 2**40, cell + 7, cell - 3)


def faults(path: Path, sealed: seals.Sealed) -> Iterator[tuple[str, Any, Any]]:
    """Yield a column, the key of a row, and what the cell says wrongly."""
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    rows = connection.execute(f"SELECT * FROM {sealed.table} ORDER BY {sealed.key}").fetchall()
    connection.close()
    for row in [rows[0], rows[FULL_AT - 1 if len(rows) > FULL_AT else -1], rows[-1]]:
        for name in sealed.columns[1:]:
            for other in others(name, row[name]):
                yield name, row[sealed.key], other


def damaged(sound: Path, copy: Path, sealed: seals.Sealed, fault: tuple[str, Any, Any]) -> bool:
    """Make a copy with a fault; tell whether SQLite takes it."""
    name, key, other = fault
    shutil.copy(sound, copy)
    connection = sqlite3.connect(copy)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    try:
        with connection:
            cell = "CAST(? AS TEXT)" if isinstance(other, bytes) else "?"  # Text that is no UTF-8.
            connection.execute(f"UPDATE {sealed.table} SET {name} = {cell} WHERE {sealed.key} = ?", (other, key))
    except sqlite3.IntegrityError:
        return False
    finally:
        connection.close()
    return True


def edit(path: Path, statement: str) -> None:
    """Change a store behind its back."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("sealed", seals.TABLES, ids=lambda sealed: sealed.table)
def test_every_wrong_cell_of_a_record_is_found_does_no_harm_and_is_put_right(
    sound: Path, tmp_path: Path, sealed: seals.Sealed, at_scale: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not at_scale:  # Before the first epoch and after the last one repair looks through very many.
        monkeypatch.setattr(seals, "_MOST_EPOCHS", 20 * EPOCHS)
    expected, copy, tried = contents(sound), tmp_path / "copy.db", 0
    wrong = list(faults(sound, sealed))
    for fault in wrong[:: 1 if at_scale else max(1, len(wrong) // CELLS)]:
        if not damaged(sound, copy, sealed, fault):
            continue
        with quick_store(copy) as store:
            assert image_of(store.reader()) == expected[EPOCHS], fault
            with pytest.raises(CorruptStoreError, match=f"not as it was written: its {fault[0]} is .* and was"):
                store.verify()
            report = store.repair()
            assert (report.lost, len(report.damage)) == ((), 1), fault
            assert images(store) == expected, fault
            assert store.verify() == len(expected)
        tried += 1
        TALLY["cells and rows changed"] += 1
    assert tried > 20


def test_a_false_full_checkpoint_lets_nothing_be_deleted(sound: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    expected = contents(sound)
    assert damaged(sound, copy, seals.CHECKPOINT, ("kind", EPOCHS, "full"))
    with quick_store(copy, history=8) as store:
        for number in range(EPOCHS + 1, EPOCHS + 40):
            store.append(run_of({1_000: number}))
        rows = {row[:2]: row for row in expected[EPOCHS][2]} | {(1, 1_000): (1, 1_000, str(EPOCHS + 39), None)}
        assert image_of(store.reader())[2] == sorted(rows.values())


@pytest.mark.parametrize("damage", ["first = 1", "last = last + 4", "parts = replace(parts, '[2,', '[3,')"])
def test_a_merge_publishes_what_it_was_begun_with_whatever_is_said_of_it_by_then(damage: str, tmp_path: Path) -> None:
    path, state = tmp_path / "state.db", dict.fromkeys(range(4_000), 0)
    number = 0
    with quick_store(path, history=8) as store:
        store.append(run_of(state, FULL))
        while not store.database.execute("SELECT 1 FROM portion").fetchall():
            number += 1
            state |= (edits := dict.fromkeys(range(number, 4_000, 20), number))
            store.append(run_of(edits))
        (run,) = store.database.execute("SELECT run FROM run WHERE state = 'merging'").fetchone()
    edit(path, f"UPDATE run SET {damage} WHERE run = {run}")
    for _ in range(3):
        with quick_store(path, history=8) as store:
            number += 1
            state |= (edits := dict.fromkeys(range(number, 4_000, 20), number))
            store.append(run_of(edits))
            assert values_in(store.reader()) == state
    with quick_store(path, history=8) as store:
        while store._upkeep.merging:
            store._work()
        assert values_in(store.reader()) == state
        assert store.verify()


def test_a_full_checkpoint_that_says_to_be_none_stays_where_a_lineage_begins(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with quick_store(path) as store:
        for number in range(1, 41):
            store.append(run_of({number % 7: number}, FULL if number == 3 else "differential"))
        store.prune(keep=8)
        expected = image_of(store.reader())
    edit(path, "UPDATE checkpoint SET kind = 'differential' WHERE number = 3")
    with quick_store(path) as store:
        store.prune(keep=4)
    with quick_store(path) as store:
        assert image_of(store.reader()) == expected
        assert store.repair().lost == ()
        assert store.verify() == 4


def test_what_may_falsely_hide_what_is_older_is_not_read(sound: Path, tmp_path: Path) -> None:
    copy, expected = Path(shutil.copy(sound, tmp_path / "copy.db")), contents(sound)
    edit(copy, f"UPDATE checkpoint SET kind = 'full', time = 'long ago' WHERE number = {EPOCHS}")
    with quick_store(copy) as store:
        with pytest.raises(CorruptStoreError, match="call repair"):
            store.append(run_of({1: "lost"}))
        assert store.repair().lost == (EPOCHS,)
        assert image_of(store.reader()) == expected[EPOCHS - 1]
        assert store.verify() == len(expected) - 1


@pytest.mark.parametrize("damage", ["run_digest = digest || 'x'", "run_slots = run_slots + 1", "slots = slots + 1000"])
def test_what_is_recorded_twice_is_taken_from_where_it_is_right(damage: str, sound: Path, tmp_path: Path) -> None:
    copy, expected = Path(shutil.copy(sound, tmp_path / "copy.db")), contents(sound)
    edit(copy, f"UPDATE checkpoint SET {damage} WHERE number = {EPOCHS - 2}")
    with quick_store(copy) as store:
        with pytest.raises(CorruptStoreError):
            store.verify()
        report = store.repair()
        assert (report.lost, len(report.damage)) == ((), 1)
        assert images(store) == expected
        assert store.verify() == len(expected)


@pytest.mark.parametrize("wrong", ["'x'", "610", "90000"])
def test_the_epoch_that_was_written_counts(wrong: str, sound: Path, tmp_path: Path) -> None:
    copy, expected = Path(shutil.copy(sound, tmp_path / "copy.db")), contents(sound)
    edit(copy, f"UPDATE checkpoint SET epoch = {wrong} WHERE number = {EPOCHS - 1}")
    with quick_store(copy) as store:
        assert store.next_epoch() == 10 * EPOCHS + 1
        if wrong == "610":
            assert image_of(store.reader(epoch=590)) == expected[EPOCHS - 1]
            with pytest.raises(UnknownCheckpointError):
                store.reader(epoch=610)
        assert store.repair().lost == ()
        assert image_of(store.reader(epoch=590)) == expected[EPOCHS - 1]
        assert store.verify() == len(expected)


@pytest.mark.parametrize("named", [{"number": EPOCHS - 1}, {"epoch": 10 * (EPOCHS - 1)}, {"epoch": 7}], ids=str)
def test_a_damaged_record_is_not_reported_as_a_checkpoint_that_is_not_there(
    named: dict[str, int], sound: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copy(sound, tmp_path / "copy.db"))
    edit(copy, f"UPDATE checkpoint SET epoch = 'x', time = 'long ago' WHERE number = {EPOCHS - 1}")
    with quick_store(copy) as store:
        with pytest.raises(CorruptStoreError, match="the table of checkpoints is damaged"):
            store.reader(**named)
        assert store.reader(epoch=10 * (EPOCHS - 2)).newest == EPOCHS - 2


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE run SET first = 5000, last = 0 WHERE state = 'merged'",
        "DELETE FROM run WHERE state = 'merged'",
        f"UPDATE checkpoint SET run_slots = NULL, run_digest = NULL WHERE number = {EPOCHS}",
    ],
)
def test_a_store_whose_newest_state_is_not_whole_is_not_taken_for_an_older_or_an_empty_one(
    sound: Path, tmp_path: Path, damage: str
) -> None:
    copy = Path(shutil.copy(sound, tmp_path / "copy.db"))
    connection = sqlite3.connect(copy)
    with connection:
        connection.execute(damage)
    connection.close()
    with pytest.raises(CorruptStoreError, match=rf"checkpoint {EPOCHS} \(epoch 600\), the newest, has no run"):
        PersistedObjectSpace.open(copy)
    with quick_store(copy) as store:  # it was closed
        with pytest.raises(CorruptStoreError, match="call repair"):
            store.append(run_of({1: "lost"}))
        with pytest.raises(CheckpointError):
            store.verify()


def test_a_record_of_which_it_cannot_be_told_what_is_wrong_stays(sound: Path, tmp_path: Path) -> None:
    copy, expected = Path(shutil.copy(sound, tmp_path / "copy.db")), contents(sound)
    with sqlite3.connect(copy) as connection:
        connection.execute(f"UPDATE checkpoint SET bytes = 0, time = 'long ago' WHERE number = {EPOCHS}")
    connection.close()
    with quick_store(copy) as store:
        with pytest.raises(CorruptStoreError, match=r"it cannot be told which of .*'long ago'.* is wrong"):
            store.verify()
        assert len(store.repair().damage) == 1
        assert images(store) == expected
        assert store.verify() == len(expected)


@pytest.mark.parametrize("golden", [format_1, format_2, format_3, format_4])
def test_stores_of_older_formats_are_sealed_when_they_are_upgraded_or_forked(golden: Any, tmp_path: Path) -> None:
    path = Path(shutil.copy(golden.PATH, tmp_path / "state.db"))
    with CheckpointStore(path, read_only=True) as store:
        store.fork(tmp_path / "fork.db")
    for each in (path, tmp_path / "fork.db"):
        with CheckpointStore(each) as store:
            assert store.verify()
            rows = [row for sealed in seals.TABLES for row in store.database.execute(sealed.select())]
            assert rows
            assert all(map(seals.is_right, rows))
