"""A state table beside an ordered model, over epochs, crashes and rollbacks, with sqlite3 for what ranges hold."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from checkpoint import CheckpointKind, CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.relational import (
    Column,
    InconsistentOperationError,
    StateTable,
    StorageTable,
    TableSchema,
    seal_tables,
)

SCHEMA = TableSchema(
    [Column("a", "int16", nullable=True), Column("b", "string"), Column("v", "int64", nullable=True)],
    primary_key=["a", "b desc"],
)

KEYS = st.tuples(st.none() | st.integers(-2, 2), st.sampled_from(["", "a", "a\x00", "b"]))
CELLS = st.none() | st.integers(-3, 3)
BOUNDS = st.none() | KEYS | st.tuples(st.none() | st.integers(-3, 3))

Key = tuple[Any, str]


def place(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what sorts keys, or leading parts of them: ascending with nulls first, then descending."""
    first = (0, 0) if key[0] is None else (1, key[0])
    return (first, *((*(255 - byte for byte in text.encode()), 256) for text in key[1:]))


class TableMachine(RuleBasedStateMachine):
    @initialize(strict=st.booleans())
    def start(self, strict: bool) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.level = "strict" if strict else "blind"
        self.model: dict[Key, tuple[Any, ...]] = {}
        self.durable: dict[Key, tuple[Any, ...]] = {}
        self.history: dict[int, dict[Key, tuple[Any, ...]]] = {}
        self.open()

    def open(self) -> None:
        self.store = CheckpointStore(self.folder / "state.db", history=100, durability="normal")
        self.space = PersistedObjectSpace(self.store, cache_slots=3)
        self.table = StateTable(self.space, "t", SCHEMA, self.level)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)

    @rule(key=KEYS, cell=CELLS)
    def insert(self, key: Key, cell: Any) -> None:
        self.attempt(key not in self.model, self.table.insert_row, (*key, cell))
        self.model.setdefault(key, (*key, cell))
        if self.level == "blind":
            self.model[key] = (*key, cell)

    @rule(key=KEYS, cell=CELLS)
    def delete(self, key: Key, cell: Any) -> None:
        old = self.model.get(key, (*key, cell))
        self.attempt(key in self.model, self.table.delete_row, old)
        self.model.pop(key, None)

    @rule(key=KEYS, wrong=CELLS, cell=CELLS)
    def update(self, key: Key, wrong: Any, cell: Any) -> None:
        old, new = (*key, wrong), (*key, cell)
        fits = self.model.get(key) == old
        self.attempt(fits, self.table.update_row, old, new)
        if fits or self.level == "blind":
            self.model[key] = new

    def attempt(self, fits: bool, action: Any, *rows: Any) -> None:
        """A strict table refuses what does not fit, and nothing changes; a blind one takes everything."""
        try:
            action(*rows)
        except InconsistentOperationError:
            assert not fits
            assert self.level == "strict"
        else:
            assert fits or self.level == "blind"

    @rule(keys=st.lists(KEYS, max_size=4, unique=True), cell=CELLS)
    def chunk(self, keys: list[Key], cell: Any) -> None:
        changes: list[Any] = []
        for key in keys:
            if key in self.model:
                changes.append(("U-" if cell is not None else "-", self.model.pop(key)))
            if cell is not None:
                changes.append(("U+" if changes and changes[-1][0] == "U-" else "+", (*key, cell)))
                self.model[key] = (*key, cell)
        self.table.write_chunk(changes)

    @rule(key=KEYS)
    def broken_chunk(self, key: Key) -> None:
        before = list(self.table.scan())
        try:
            self.table.write_chunk([("-", self.model.get(key, (*key, 0))), ("+", (*key, "no number"))])
        except ValueError:
            assert list(self.table.scan()) == before
            return
        raise AssertionError("a bad row was taken")

    @rule(kind=st.sampled_from(CheckpointKind))
    def checkpoint(self, kind: CheckpointKind) -> None:
        epoch = self.table.epoch + 1
        seal_tables(self.space, epoch)
        self.space.checkpoint(epoch=epoch, kind=kind)
        self.durable = self.history[epoch] = dict(self.model)

    @rule()
    def compact(self) -> None:
        self.store.compact()
        newest = max(self.history, default=0)
        self.history = {epoch: rows for epoch, rows in self.history.items() if epoch == newest}

    @rule()
    def crash(self) -> None:
        self.store.close()
        self.open()
        self.model = dict(self.durable)

    @rule()
    def crash_after_sealing(self) -> None:
        self.table.commit(self.table.epoch + 1)
        self.crash()

    @rule()
    def roll_back(self) -> None:
        self.space.rollback()
        self.table.forget()
        self.table = StateTable(self.space, "t", SCHEMA, self.level)
        self.model = dict(self.durable)

    @precondition(lambda self: hasattr(self, "table"))
    @invariant()
    def scans_agree(self) -> None:
        expected = [self.model[key] for key in sorted(self.model, key=place)]
        assert list(self.table.scan()) == expected
        assert list(self.table.scan(reverse=True)) == expected[::-1]

    @rule(key=KEYS)
    def gets_agree(self, key: Key) -> None:
        assert self.table.get_row(key) == self.model.get(key)
        assert self.table.exists(key) == (key in self.model)

    @rule(lower=BOUNDS, upper=BOUNDS, inclusive=st.tuples(st.booleans(), st.booleans()), reverse=st.booleans())
    def ranges_agree(self, lower: Any, upper: Any, inclusive: tuple[bool, bool], reverse: bool) -> None:
        expected = [
            self.model[key]
            for key in sorted(self.model, key=place, reverse=reverse)
            if (lower is None or is_within(place(key)[: len(lower)], place(lower), 1, inclusive[0]))
            and (upper is None or is_within(place(key)[: len(upper)], place(upper), -1, inclusive[1]))
        ]
        assert list(self.table.scan(lower=lower, upper=upper, inclusive=inclusive, reverse=reverse)) == expected

    @precondition(lambda self: self.history)
    @rule(data=st.data(), reverse=st.booleans())
    def storage_agrees(self, data: st.DataObject, reverse: bool) -> None:
        epoch = data.draw(st.sampled_from(sorted(self.history)))
        rows = self.history[epoch]
        table = StorageTable(self.store, "t", epoch=epoch)
        assert list(table.scan(reverse=reverse)) == [rows[key] for key in sorted(rows, key=place, reverse=reverse)]
        lower, upper = (data.draw(st.none() | st.integers(-3, 3)) for _ in range(2))
        bounds = {"lower": None if lower is None else (lower,), "upper": None if upper is None else (upper,)}
        found = table.scan(**bounds, inclusive=(True, False))
        assert sorted(found, key=repr) == sorted(sql(rows, lower, upper), key=repr)

    @precondition(lambda self: len(self.history) > 1)
    @rule(data=st.data())
    def changes_agree(self, data: st.DataObject) -> None:
        epochs = st.lists(st.sampled_from(sorted(self.history)), min_size=2, max_size=2, unique=True)
        first, last = sorted(data.draw(epochs))
        replayed = dict(self.history[first])
        for _, old, new in StorageTable(self.store, "t").changes(first + 1, last):
            key = (old or new)[:2]
            assert replayed.pop(key, None) == old
            if new is not None:
                replayed[key] = new
        assert replayed == self.history[last]


def is_within(key: Any, bound: Any, sign: int, inclusive: bool) -> bool:
    return inclusive if key == bound else (key > bound) == (sign > 0)


def sql(rows: dict[Key, tuple[Any, ...]], lower: Any, upper: Any) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a, b, v)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows.values())
    conditions = [f"a >= {lower}"] * (lower is not None) + [f"a < {upper}"] * (upper is not None)
    return connection.execute(f"SELECT * FROM t {'WHERE ' * bool(conditions)}{' AND '.join(conditions)}").fetchall()


TestTable = TableMachine.TestCase
TestTable.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
