"""A history of edits, barriers, crashes and rollbacks that an operator goes through, beside the rows that are there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.operators import Operator
from objectspace.relational import Chunk, InconsistentOperationError, TableSchema
from tests.operators.spellings import Spelling

Row = tuple[Any, ...]

ids = st.integers(0, 7)


def edits(rows: st.SearchStrategy[Row]) -> st.SearchStrategy[list[Any]]:
    """Return what happens: (side, [(id, row or None)]) is a chunk, a text is a barrier or a crash."""
    chunk = st.tuples(st.sampled_from(["left", "right"]), st.lists(st.tuples(ids, st.none() | rows), max_size=5))
    return st.lists(st.one_of(chunk, chunk, chunk, st.sampled_from(["barrier", "crash", "rollback"])), max_size=14)


def timely_edits(rows: st.SearchStrategy[Row], greatest: int) -> st.SearchStrategy[list[Any]]:
    """Return what happens with watermarks in between: ("watermark", side, time)."""
    watermark = st.tuples(st.just("watermark"), st.sampled_from(["left", "right"]), st.integers(0, greatest))
    return st.lists(st.one_of(watermark, edits(rows)), max_size=6).map(
        lambda parts: [event for part in parts for event in (part if isinstance(part, list) else [part])]
    )


class History:
    """An operator under a history of edits, and the rows that are there.

    Args:
        make: makes the operator.
        schemas: the schema of each input; rows end with the number that is their stream key.
        times: where each input has its times; rows below a watermark are neither brought nor taken back.
        spelling: what spells the numbers of some columns; the rows that are there, and what came out, are numbers.
    """

    def __init__(
        self,
        make: Callable[[], Operator],
        schemas: dict[str, TableSchema],
        times: dict[str, int] | None = None,
        spelling: Spelling | None = None,
    ) -> None:
        self.make, self.schemas, self.times = make, schemas, times or {}
        self.spelling = spelling or Spelling("int64", "")
        self.log: list[Any] = []
        self.watermarks: dict[str, int] = {}
        self.store = CheckpointStore(":memory:")
        self.live: dict[str, dict[int, Row]] = {side: {} for side in schemas}
        self.output: Counter[Row] = Counter()
        self.epoch = 0
        self.keep()
        self.open()

    def open(self) -> None:
        self.space = PersistedObjectSpace(self.store)
        self.operator = self.make()
        self.operator.open(self.space, "operator")

    def keep(self) -> None:
        live = {side: dict(rows) for side, rows in self.live.items()}
        self.kept = (live, Counter(self.output), dict(self.watermarks))

    def restore(self) -> None:
        live, output, watermarks = self.kept
        self.live, self.output = {side: dict(rows) for side, rows in live.items()}, Counter(output)
        self.watermarks = dict(watermarks)

    def take(self, chunks: list[Chunk]) -> None:
        for schema, op, row in [(chunk.schema, *change) for chunk in chunks for change in chunk.rows()]:
            row = self.spelling.told(schema, row)
            self.log.append((op, row))
            self.output[row] += 1 if op in ("+", "U+") else -1
            assert self.output[row] >= 0, f"{row} goes, and was not there"
        self.output = +self.output

    def change(self, side: str, changes: list[tuple[int, Row | None]]) -> None:
        rows = self.live[side]
        log: list[Any] = []
        for number, values in changes:
            old = rows.get(number)
            new = None if values is None else (*values, number)
            if self.is_late(side, old) or self.is_late(side, new):
                continue
            rows.pop(number, None)
            if old is not None and new is not None:
                log += [("U-", old), ("U+", new)]
            elif old is not None or new is not None:
                log.append(("-", old) if new is None else ("+", new))
            if new is not None:
                rows[number] = new
        self.give(side, log)

    def give(self, side: str, log: list[Any]) -> None:
        schema = self.schemas[side]
        # In one chunk, a row that goes is spelled as it came; what an earlier one brought may be spelled otherwise.
        spelled = {row: self.spelling.spelled(schema, row) for row in {row: None for _, row in log}}
        chunk = Chunk.from_rows(schema, [(op, spelled[row]) for op, row in log])
        self.take(self.operator.process(chunk, side=side))

    def refuse(self, side: str) -> None:
        """Have the barrier refused, for more rows go than are there, and take that back."""
        surplus = [(*[0] * (len(self.schemas[side].columns) - 1), 1000 + n) for n in range(len(self.live[side]) + 1)]
        self.give(side, [("-", row) for row in surplus])
        with pytest.raises(InconsistentOperationError):
            self.operator.barrier(self.epoch + 1)
        self.give(side, [("+", row) for row in surplus])

    def is_late(self, side: str, row: Row | None) -> bool:
        time = None if row is None or side not in self.times else row[self.times[side]]
        return time is not None and bool(time < self.watermarks.get(side, 0))

    def watermark(self, side: str, time: int) -> None:
        self.watermarks[side] = max(time, self.watermarks.get(side, 0))
        self.operator.watermark(self.schemas[side].names[self.times[side]], time, side=side)

    def run(self, history: list[Any]) -> None:
        for event in history:
            if event == "barrier":
                self.epoch += 1
                self.take(self.operator.barrier(self.epoch))
                self.space.checkpoint(epoch=self.epoch)
                self.keep()
            elif event == "rollback":
                self.space.rollback()
                self.restore()
                # Tables that were never committed are gone with the rollback: the operator is opened again.
                if not self.epoch:
                    self.operator.open(self.space, "operator")
            elif event == "crash":
                self.space.close()
                self.open()
                self.restore()
            elif event == "refuse":
                self.refuse("input")
            elif event[0] == "watermark":
                self.watermark(*event[1:])
            else:
                self.change(*event)
