"""Filling a new object of a store with rows: a list, a dictionary, or a relational table."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from typing import Any

from checkpoint.errors import CheckpointError
from checkpoint.tool.source import remove_unused

_SAMPLE = 1000
"""How many rows decide which types the columns of a table have."""


def fill(path: str, name: str, rows: Iterator[Any], key: str | None, primary_key: str | None) -> Any:
    """Make an object from rows, and return the receipt of the checkpoint.

    Args:
        path: the store, created if it does not exist.
        name: the new object.
        rows: what it holds.
        key: the column of the keys of a dictionary.
        primary_key: the columns of the key of a table, separated by commas.

    Raises:
        CheckpointError: there is such an object, or a row does not fit; nothing is written then.
    """
    # The layer above: only this command writes objects, so it is loaded for it alone.
    space_module = importlib.import_module("objectspace")
    if name.startswith("$"):
        raise CheckpointError(f"{name!r}: names that begin with a dollar are those of the library: choose another name")
    first = list(islice(rows, 1))  # a file that cannot be read leaves no new store
    rows = map(_restored_row, chain(first, rows))
    is_new = not Path(path).exists()
    try:
        with space_module.PersistedObjectSpace.open(path) as space:
            if name in space:
                raise CheckpointError(f"{path} has an object {name!r} already: choose another name")
            if primary_key is not None:
                _fill_table(space, name, rows, primary_key)
            elif key is not None:
                _fill_dictionary(space.create_dictionary(name), rows, key)
            else:
                space.create_list(name).extend(rows)
            return space.checkpoint()
    except BaseException as error:
        if is_new:
            remove_unused(path)
        if isinstance(error, (TypeError, ValueError)) and not isinstance(error, CheckpointError):
            raise CheckpointError(str(error)) from None
        raise


def _restored_row(row: Any) -> Any:
    """Return a row with the values that JSON does not have as what they are; a column may have the name of a mark."""
    try:
        return {column: _restored(cell) for column, cell in row.items()} if isinstance(row, dict) else _restored(row)
    except RecursionError:
        return row  # The codec refuses it.


def _restored(value: Any) -> Any:
    """Return a value in which everything that JSON does not have, such as ``{"$date": ...}``, is what it is."""
    if not isinstance(value, (dict, list)):
        return value
    codec = importlib.import_module("objectspace.codec")
    try:
        return codec.restore(value)
    except codec.Unregistered as error:
        if isinstance(value, dict) and len(value) == 1 and next(iter(value)).startswith("$"):
            return codec.Kept(value, error)
    except _NOT_OURS:
        pass
    # What is in it may be ours nevertheless.
    if isinstance(value, dict):
        return {key: _restored(item) for key, item in value.items()}
    return [_restored(item) for item in value]


_NOT_OURS = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, OSError)
"""What the codec raises for a mark that is none: a file from elsewhere may mean something else by a dollar."""


def _fill_dictionary(target: Any, rows: Iterable[Any], key: str) -> None:
    kept = importlib.import_module("objectspace.codec").Kept
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or key not in row:
            what = f"it has {', '.join(map(str, row))}" if isinstance(row, dict) else "it is no object"
            raise CheckpointError(f"row {number} has no column {key!r}: {what}")
        if isinstance(row[key], kept):
            raise CheckpointError(f"row {number}: {key!r} cannot be a key without its class: {row[key].reason}")
        if isinstance(row[key], (dict, list)):
            raise CheckpointError(f"row {number}: {key!r} holds a {type(row[key]).__name__}, which is no key")
        if row[key] in target:
            raise CheckpointError(f"row {number}: {key!r} is {row[key]!r} as in an earlier row: keys must be unique")
        rest = {column: value for column, value in row.items() if column != key}
        target[row[key]] = rest["value"] if rest.keys() == {"value"} else rest


def _fill_table(space: Any, name: str, rows: Iterator[Any], primary_key: str) -> None:
    relational = importlib.import_module("objectspace.relational")
    sample = list(islice(rows, _SAMPLE))
    if not sample or not all(isinstance(row, dict) for row in sample):
        raise CheckpointError("a table takes at least one row with named columns")
    keys = [column.strip() for column in primary_key.split(",")]
    kinds, required = _guessed(sample, keys)
    columns = [relational.Column(column, kind, nullable=column not in required) for column, kind in kinds.items()]
    # Strict: it refuses a second row with the same key.
    table = relational.StateTable(space, name, relational.TableSchema(columns, keys), "strict")
    for number, row in enumerate(chain(sample, rows), start=1):
        if not isinstance(row, dict):
            raise CheckpointError(f"row {number} is {row!r:.80}: a table takes rows with named columns")
        if unknown := [column for column in row if column not in kinds]:
            raise CheckpointError(
                f"row {number} has a column {unknown[0]!r} that none of the first {_SAMPLE:,} has: give it to one of"
                " these, even as null"
            )
        if missing := [column for column in required if row.get(column) is None]:
            raise CheckpointError(
                f"row {number} has no value of the key column {missing[0]!r}, which each of the first {_SAMPLE:,} has:"
                " move the row among these, or fill it in"
            )
        try:
            table.insert_row(tuple(_fitting(row.get(column), kind) for column, kind in kinds.items()))
        except relational.InconsistentOperationError:
            shown = ", ".join(f"{column!r} is {row.get(column)!r}" for column in keys)
            raise CheckpointError(f"row {number}: {shown} as in an earlier row: not a primary key") from None


def _guessed(sample: list[dict[str, Any]], keys: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the types of the columns that some rows have, and which of the key columns take no NULL."""
    names = list(dict.fromkeys(column for row in sample for column in row))
    for column in keys:
        if column not in names:
            raise CheckpointError(f"there is no column {column!r}: the file has {', '.join(names)}")
    # A table that was exported may have a key column that takes NULL: then it has some, or needs none.
    required = [column for column in keys if all(row.get(column) is not None for row in sample)]
    return {column: _type_of([row.get(column) for row in sample]) for column in names}, required


def _type_of(values: list[Any]) -> str:
    """Return the type of a column: the one that all values have, else text."""
    present = [value for value in values if value is not None]
    kinds = {type(value) for value in present}
    for known, name in _TYPES:
        if kinds and kinds <= known:
            return name
    if kinds == {datetime}:
        return "timestamptz" if all(value.tzinfo for value in present) else "timestamp"
    if kinds == {list}:
        elements = [item for value in present for item in value]
        element = _type_of(elements)
        # What is not a list of one type is kept as text: a column of anything else is text, but an element is not.
        is_alike = not element.startswith("list") and (element != "string" or all(map(_is_text, elements)))
        return f"list<{element}>" if is_alike else "string"
    return "string"


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _fitting(value: Any, kind: str) -> Any:
    """Return a cell as its column takes it: in a column of mixed values, what is not text becomes text."""
    if kind == "string" and not _is_text(value):
        return importlib.import_module("objectspace.codec").encode(value)
    return value


_TYPES: tuple[tuple[set[type], str], ...] = (
    ({bool}, "bool"),
    ({int}, "int64"),
    ({int, float}, "float64"),
    ({bytes}, "binary"),
    ({Decimal}, "decimal"),
    ({date}, "date"),
    ({time}, "time"),
)
