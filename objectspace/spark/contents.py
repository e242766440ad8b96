"""What objects and key-value tables hold, as the rows of a read through Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, product
from typing import Any

import orjson
import pyarrow as pa

from objectspace import SparseArray, Tensor, codec

BATCH_ROWS = 8192

KEY_VALUE_ARROW = pa.schema(
    {
        "partition": pa.int32(),
        "family": pa.string(),
        "key": pa.binary(),
        "version": pa.int64(),
        "value": pa.binary(),
    }
)

OBJECT_ARROW = pa.schema([("shard", pa.int32()), ("key", pa.string()), ("value", pa.string())])


def batched(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows as batches of a schema."""
    remaining = iter(rows)
    while page := list(islice(remaining, BATCH_ROWS)):
        yield _batch(page, schema)


def _batch(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def pairs(target: Any) -> Iterator[tuple[str | None, str]]:
    """Yield the keys and values of an object as JSON."""
    for key, value in _contents(target):
        plain = value.copy() if hasattr(value, "_describe") else value
        yield None if key is _NO_KEY else key if isinstance(key, str) else _json(key), _json(plain)


_NO_KEY = object()
"""Stands for the key of a value that has none."""


def _contents(target: Any) -> Iterable[tuple[Any, Any]]:
    """Return the keys and values of an object: as keys, the places of what is ordered, and none for a single value."""
    if isinstance(target, Tensor):
        return _elements(target)
    if isinstance(target, SparseArray):
        return target.assigned()
    if hasattr(target, "items"):
        return target.items()  # type: ignore[no-any-return]
    return [(_NO_KEY, target.value)] if hasattr(target, "value") else enumerate(target)


def _elements(tensor: Tensor) -> Iterator[tuple[Any, Any]]:
    """Yield the places and the elements of a tensor, a row of chunks at a time."""
    if not tensor.shape:
        yield _NO_KEY, tensor[()].item()
        return
    step, inner = tensor.chunks[0], [range(length) for length in tensor.shape[1:]]
    for first in range(0, len(tensor), step):
        rows = tensor[first : first + step]
        places = product(range(first, first + len(rows)), *inner)
        yield from zip(places if inner else range(first, first + len(rows)), rows.ravel().tolist(), strict=True)


def _json(value: Any) -> str:
    return orjson.dumps(codec.plain(value)).decode()
