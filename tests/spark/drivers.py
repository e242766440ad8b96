"""Drivers on the stand-in for Spark: the real code of pipelines, whose tasks run in this process."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from objectspace.operators import Stream
from objectspace.relational import TableSchema
from objectspace.spark import Pipeline
from objectspace.spark.epochs import Epochs
from objectspace.spark.inputs import Declared
from objectspace.spark.tasks import TAG
from tests.operators.pipeline_trees import SCHEMA
from tests.spark.frames import Frame, Frames

ROW = pa.struct([("op", pa.string()), ("id", pa.int64()), ("k", pa.string()), ("v", pa.int64()), ("w", pa.int64())])
FRAME = SimpleNamespace(schema=StructType())


class Driver(Pipeline):
    """A pipeline whose sources are said by a schema, and whose micro-batches come from nowhere."""

    def declare(self, name: str, key: list[str]) -> Stream:
        """Declare a source with a column of operations, or one without a key."""
        schema = TableSchema.from_arrow(pa.schema([field for field in ROW if field.name != "op"]))
        stream = super().source(name, TableSchema(schema.columns, key), append_only=not key)
        self._declared[name] = Declared(name, FRAME, "op", stream.node, not key)  # type: ignore[arg-type]
        return stream

    def epochs(self) -> Epochs:
        """Return what makes the epochs."""
        return self._built()


def driver_of(root: Path, shards: int) -> tuple[Driver, dict[str, Stream]]:
    driver = Driver(root / "space", shards, cache=root / "cache")
    return driver, {name: driver.declare(name, ["id"]) for name in ("a", "b")}


def micro_batch(frames: Frames, changes: dict[str, list[tuple[str, tuple[Any, ...]]]]) -> Frame:
    """Return changes as the wide rows of a micro-batch."""
    names = [name for name, rows in changes.items() for _ in rows]
    columns: dict[str, list[Any]] = {name: [] for name in changes}
    for name, rows in changes.items():
        for op, row in rows:
            for other, cells in columns.items():
                cells.append({"op": op, **dict(zip(SCHEMA, row, strict=True))} if other == name else None)
    arrays = {name: pa.array(cells, ROW) for name, cells in columns.items()}
    return frames.of(pa.record_batch({TAG: pa.array(names, pa.string()), **arrays}))
