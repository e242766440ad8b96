"""Instants in UTC, whatever the time zone of a Spark session: it is not part of the state, and may change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import pyarrow as pa
import pyarrow.types as pt

from objectspace import PersistedObjectSpace
from objectspace.spark.executor import Process

_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)


def in_utc(rows: _Rows) -> _Rows:
    """Return rows with their instants in UTC, also those in lists, structs and maps.

    Spark hands them over in the zone of the session, in which Python finds two equal that differ only in their offset.

    Time: O(columns): no value is touched.
    """
    schema = pa.schema([field.with_type(_in_utc(field.type)) for field in rows.schema])
    return rows if schema == rows.schema else rows.cast(schema)


def _in_utc(kind: pa.DataType) -> pa.DataType:
    if pt.is_timestamp(kind):
        return pa.timestamp(kind.unit, kind.tz and "UTC")
    if pt.is_struct(kind):
        return pa.struct([field.with_type(_in_utc(field.type)) for field in kind])
    if pt.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_utc(kind.value_type)))
    if pt.is_map(kind):
        items = (field.with_type(_in_utc(field.type)) for field in (kind.key_field, kind.item_field))
        return pa.map_(*items, keys_sorted=kind.keys_sorted)
    return kind


class InUtc:
    """The ``Process`` that gives another one its rows with their instants in UTC.

    Args:
        process: the other one.
    """

    def __init__(self, process: Process) -> None:
        self._process = process

    def __call__(self, batches: Iterator[pa.RecordBatch], space: PersistedObjectSpace) -> None:
        """Process the rows of one shard in one epoch."""
        self._process(map(in_utc, batches), space)
