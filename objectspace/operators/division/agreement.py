"""What shards have noted must agree where they come together: which object has which schema, keys and watermarks.

Each shard numbers the columns and layouts of its tables itself, and a stored row says only numbers. So the rows of two
shards can be in one table where both have evolved it by the same steps; anything else would be a guess.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from objectspace.errors import ObjectSpaceError
from objectspace.relational import Column
from objectspace.relational.catalogue import TableRecord
from objectspace.relational.evolution import difference
from objectspace.space import TABLES, WATERMARKS

Notes = Mapping[str, Mapping[Any, Any]]
"""What a shard has noted, by the names of the objects that hold it."""

_ADVICE = (
    "shards agree if the table was evolved by the same steps in the same order: let each shard take a row with each"
    " version of the operator before the next one is deployed, and one that lags behind with those it lacks; if they"
    " have evolved apart for good, keep the number of shards or read the table with spark.read and feed a new one"
)


def copy_notes(place: str, known: Mapping[Any, Any], target: Any) -> None:
    """Copy what is known of objects, which must be the same in all shards that come together.

    Args:
        place: how an error calls the notes.
        known: the notes.
        target: a mapping that takes them.

    Raises:
        ObjectSpaceError: they say something else than those that are there.
    """
    for name, value in known.items():
        if _compared(target.setdefault(name, value)) != _compared(value):
            raise ObjectSpaceError(
                f"{place}: {name!r} is {value!r} here and {target[name]!r} in another shard: let the query run one more"
                " epoch, so that they agree"
            )


def require_same_tables(operator: str, notes: Sequence[Notes]) -> None:
    """Make sure that each table has one schema and the same layouts in all shards that have it.

    Args:
        operator: the name of the operator, for errors.
        notes: what each shard has noted.

    Raises:
        ObjectSpaceError: two shards have evolved a table in other ways.
    """
    first: dict[str, tuple[int, Any]] = {}
    for shard, noted in enumerate(notes):
        for name, record in noted.get(TABLES, {}).items():
            other, known = first.setdefault(name, (shard, record))
            if _compared(known) != _compared(record):
                said = (f"shard {other}", f"shard {shard}")
                raise ObjectSpaceError(
                    f"operator {operator}: {said[0]} and {said[1]} have evolved table {name!r} apart:"
                    f" {_difference(known, record, said)}: {_ADVICE}"
                )


def require_same_watermarks(operator: str, notes: Mapping[int, Notes], filled: Sequence[Container[str]]) -> None:
    """Make sure that shards that come together have the same watermark of each table of which they have rows.

    Args:
        operator: the name of the operator, for errors.
        notes: what each of these shards has noted, by its number.
        filled: the names of the tables of which a shard has rows, by the number of the shard.

    Raises:
        ObjectSpaceError: the watermark of one shard would hide rows of another one, or not hide those that it hid.
    """
    marks = {shard: noted.get(WATERMARKS, {}) for shard, noted in notes.items()}
    for shard, own in marks.items():
        for name, mark in own.items():
            for other, known in marks.items():
                if known.get(name, mark) != mark or (name not in known and name in filled[other]):
                    raise ObjectSpaceError(
                        f"operator {operator}, {WATERMARKS!r}: the watermark of table {name!r} is {mark!r} in shard"
                        f" {shard} and {known.get(name)!r} in shard {other}, which has rows: expected the same,"
                        " since it hides rows of both when they come together: let the operator raise both to one value"
                        " and the query run one more epoch, or keep the number of shards"
                    )


def _compared(note: Any) -> Any:
    """Return what must agree of a note: of a table all but its number, which tells when a shard has made it."""
    is_table = isinstance(note, dict) and "layouts" in note
    return {key: value for key, value in note.items() if key != "id"} if is_table else note


def _difference(one: Any, other: Any, said: tuple[str, str]) -> str:
    """Return in what two records of a table differ."""
    records = [TableRecord.from_json("", record) for record in (one, other)]
    shapes = [", ".join(map(_shape, record.schema.columns)) for record in records]
    layouts = [" or ".join(str([*layout]) for layout in record.layouts) for record in records]
    found = []
    if shapes[0] != shapes[1]:
        found += [f"{place} has the columns {shape}" for place, shape in zip(said, shapes, strict=True)]
    if layouts[0] != layouts[1]:
        pairs = zip(said, layouts, strict=True)
        found += [f"rows of {place} were written with the columns numbered {numbers}" for place, numbers in pairs]
    return "; ".join(found) or difference(records[0].schema, records[1].schema, said)


def _shape(column: Column) -> str:
    default = "" if column.default is None else f" default {column.default!r}"
    return f"{column}{default} (number {column.id})"
