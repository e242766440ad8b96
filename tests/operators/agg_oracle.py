"""What the tests of aggregations share: a log of changes, a materialised result, and recovery."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.operators import Operator
from objectspace.relational import Chunk, InconsistentOperationError, RowError, TableSchema

Change = tuple[str, tuple[Any, ...]]


class Running:
    """An operator that runs on a store, epoch after epoch, beside the result that its output adds up to.

    Args:
        make: makes the operator.
        name: the name of its state.
        elides: whether it gives no pair that changes nothing.
    """

    def __init__(self, make: Callable[[], Operator], name: str = "op", *, elides: bool = True) -> None:
        self.make, self.name, self.epoch, self.elides = make, name, 0, elides
        self.store = CheckpointStore(":memory:", history=50)
        self.result: dict[bytes, tuple[Any, ...]] = {}
        self.recover()

    def recover(self) -> None:
        """Lose what no checkpoint made durable, and open the operator again."""
        self.space = PersistedObjectSpace(self.store)
        self.operator = self.make()
        self.operator.open(self.space, self.name)

    def roll_back(self) -> None:
        """Drop what no checkpoint made durable; before the first one that is the state itself."""
        self.space.rollback()
        if not self.epoch:
            self.operator.open(self.space, self.name)

    def run(self, changes: Iterable[Any], chunk_size: int = 1000, side: str = "input") -> list[Change]:
        """Run one epoch and return its output."""
        self.feed(changes, chunk_size, side)
        return self.barrier()

    def feed(self, changes: Iterable[Any], chunk_size: int = 1000, side: str = "input") -> None:
        rows, schema = list(changes), self.input
        for start in range(0, len(rows), chunk_size):
            assert self.operator.process(Chunk.from_rows(schema, rows[start : start + chunk_size]), side) == []

    def refuse(self, wrong: Sequence[Change]) -> None:
        """Have the barrier refused because of some changes, and take these back."""
        self.feed(wrong)
        with pytest.raises((InconsistentOperationError, RowError)):
            self.operator.barrier(self.epoch + 1)
        self.feed([("-" if op == "+" else "+", row) for op, row in wrong])

    def barrier(self) -> list[Change]:
        self.epoch += 1
        found = [change for chunk in self.operator.barrier(self.epoch) for change in chunk.rows()]
        self.space.checkpoint(epoch=self.epoch)
        materialize(self.operator.schema, self.result, found, elides=self.elides)
        return found

    @property
    def input(self) -> TableSchema:
        return self.operator.input  # type: ignore[attr-defined, no-any-return]

    def rows(self) -> list[tuple[Any, ...]]:
        return list(self.result.values())

    def stored(self) -> dict[str, list[Any]]:
        """Return everything that is stored, by object: keys and texts."""
        return {
            name: [(bytes(slot), text) for slot, text in self.space.get_sorted_dictionary(name).items()]
            for name in self.space
            if name.startswith(f"{self.name}/")
        }


def materialize(
    schema: TableSchema, result: dict[bytes, tuple[Any, ...]], changes: Iterable[Change], *, elides: bool = True
) -> None:
    """Apply a log to a result, and check that it is a log: pairs are whole, and each operation fits what is there."""
    waiting: Any = None
    for op, row in changes:
        key = schema.key_encoder.encode(schema.key_of(row))
        assert (op == "U+") == (waiting is not None), "half a pair"
        if op in ("-", "U-"):
            assert equal(result.pop(key), row), "the old row is not the one that was given"
        else:
            assert key not in result, "the key is there already"
            result[key] = row
        if op == "U+":
            assert waiting[0] == key, "the halves of a pair have different keys"
            assert not elides or repr(waiting[1]) != repr(row), "a pair that changes nothing"
        waiting = (key, row) if op == "U-" else None
    assert waiting is None, "half a pair"


def equal(one: Any, other: Any) -> bool:
    """Compare rows as SQL does: 0.0 is -0.0, and NaN is NaN."""
    return bool(one == other) or repr(one) == repr(other)


class Log:
    """A random table that changes: rows by key, and the change log of each epoch.

    Args:
        make_row: makes a row of a key from a source of random numbers.
        randomness: the source.
    """

    def __init__(self, make_row: Callable[[int, random.Random], tuple[Any, ...]], randomness: random.Random) -> None:
        self.make_row, self.randomness = make_row, randomness
        self.rows: dict[int, tuple[Any, ...]] = {}

    def epoch(self, size: int, keys: int = 30, *, append_only: bool = False) -> list[Change]:
        """Change the table and return the log."""
        found: list[Change] = []
        for _ in range(size):
            key = len(self.rows) if append_only else self.randomness.randrange(keys)
            old, new = self.rows.get(key), self.make_row(key, self.randomness)
            if old is None:
                found.append(("+", new))
            elif self.randomness.random() < 0.5:
                found += [("U-", old), ("U+", new)]
            else:
                found.append(("-", old))
                del self.rows[key]
                continue
            self.rows[key] = new
        return found


def permuted(changes: Sequence[Change], randomness: random.Random) -> list[Change]:
    """Return the rows of an epoch in another order, as plain inserts and deletes."""
    plain = [("+" if op in ("+", "U+") else "-", row) for op, row in changes]
    randomness.shuffle(plain)
    return plain
