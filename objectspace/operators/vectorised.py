"""Folding: the rows of many chunks added up by group with Arrow, if the calls allow it.

Counts, sums of integers, and minima and maxima of rows that are never retracted are the same in any order and however
they are computed, so a large part of an epoch is added up at once. Everything else is added row by row. This module
needs pyarrow; without it, or with an old one, nothing is folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from checkpoint.extras import lack_of
from objectspace.operators.accumulators import Accumulator
from objectspace.relational import Column, TableSchema
from objectspace.relational.types import INTEGERS

FOLDED = frozenset(["int16", "int32", "int64", "string", "bool", "date"])
"""Types of group columns and extremes whose values come back from Arrow unchanged."""

FEWEST = 2_000
"""Fewer rows than this are added one by one."""

Folded = dict[Any, Sequence[Any]]
"""By group: its cells."""


def can_fold(schema: TableSchema, keys: Sequence[int], accumulators: Sequence[Accumulator]) -> bool:
    """Return whether rows can be folded for some group columns and accumulators."""
    kinds = {schema.columns[place].type.kind for place in keys}
    if not keys or not kinds <= FOLDED or any(map(lack_of, ("pyarrow", "numpy"))):
        return False
    return all(map(_is_foldable, accumulators))


def _is_foldable(kept: Accumulator) -> bool:
    if kept.filter >= 0 or kept.distinct:
        return False
    return (
        kept.role == "count"
        or (kept.role == "sum" and kept.type.kind in INTEGERS)
        or (kept.role in ("min", "max") and kept.type.kind in FOLDED - {"bool"})
    )


class Folder:
    """Adds up rows by group.

    Args:
        schema: the schema of the input.
        keys: the positions of the group columns.
        accumulators: what to add up.
    """

    def __init__(self, schema: TableSchema, keys: Sequence[int], accumulators: Sequence[Accumulator]) -> None:
        self._keys = [schema.columns[place] for place in keys]
        self._key_places, self._accumulators = list(keys), list(accumulators)
        places = {kept.place for kept in accumulators if kept.place >= 0}
        self._columns: dict[int, Column] = {place: schema.columns[place] for place in sorted(places)}
        self._counted = places - {kept.place for kept in accumulators if kept.role != "count"}

    def fold(self, ops: Sequence[str], rows: Sequence[Any]) -> Folded | None:
        """Return the cells of each group; ``None`` if a sum may not fit 64 bits, or Arrow is lacking. Time: O(rows)."""
        if (pa := _arrow()) is None:
            return None

        columns = list(zip(*rows, strict=True))
        arrays = {
            place: _presence(columns[place]) if place in self._counted else _array(columns[place], column)
            for place, column in self._columns.items()
        }
        sums = {kept.place for kept in self._accumulators if kept.role == "sum"}
        if any(not _is_small(arrays[place], len(rows)) for place in sums):
            return None
        signs = _signs(ops)
        data = {f"k{number}": _array(columns[place], column) for number, (place, column) in enumerate(self._keyed())}
        for number, kept in enumerate(self._accumulators):
            data[f"c{number}"] = _terms(kept, arrays.get(kept.place), signs, len(rows))
        names = [name for name in data if name.startswith("k")]
        steps = [(f"c{number}", _STEPS.get(kept.role, "sum")) for number, kept in enumerate(self._accumulators)]
        found = pa.table(data).group_by(names).aggregate(steps)
        return self._folded(found, [f"{name}_{step}" for name, step in steps], names)

    def _keyed(self) -> list[tuple[int, Column]]:
        return list(zip(self._key_places, self._keys, strict=True))

    def _folded(self, found: Any, cells: list[str], names: list[str]) -> Folded:
        columns = [_values(found.column(name)) for name in cells]
        for number, kept in enumerate(self._accumulators):
            if kept.role == "sum" and found.column(cells[number]).null_count:
                columns[number] = [value or 0 for value in columns[number]]
        keys = [_values(found.column(name)) for name in names]
        return dict(zip(keys[0] if len(keys) == 1 else zip(*keys), zip(*columns)))


_STEPS = {"min": "min", "max": "max"}


@cache
def _arrow() -> Any:
    """Return pyarrow; ``None`` if it does not load, as a new one does beside an old numpy, which pip lets stand."""
    try:
        import pyarrow
    except ImportError:
        return None
    return pyarrow


def _values(column: Any) -> list[Any]:
    """Return the values of a column as Python values; whole numbers take a tenth of the time of others."""
    import pyarrow as pa

    if column.null_count or not pa.types.is_integer(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    return column.to_numpy().tolist()  # type: ignore[no-any-return]


def _array(values: Sequence[Any], column: Column) -> Any:
    import pyarrow as pa

    from objectspace.relational.arrow import arrow_type

    return pa.array(values, arrow_type(column.type))


def _presence(values: Sequence[Any]) -> Any:
    """Return an array in which only the NULLs matter: Arrow does not accept all values that are only counted."""
    import pyarrow as pa

    return pa.array([None if value is None else True for value in values], pa.bool_())


def _is_small(values: Any, rows: int) -> bool:
    """Return whether every sum of that many of the values fits 64 bits."""
    import pyarrow.compute as pc

    found = pc.min_max(values).as_py()
    return found["min"] is None or max(-found["min"], found["max"]) * rows < 2**63


def _signs(ops: Sequence[str]) -> Any:
    """Return +1 for a row that came and -1 for one that went, or ``None`` if all came."""
    import pyarrow as pa

    if set(ops) <= {"+"}:
        return None
    return pa.array([1 if op == "+" or op == "U+" else -1 for op in ops], pa.int64())


def _terms(kept: Accumulator, values: Any, signs: Any, rows: int) -> Any:
    """Return what each row adds to an accumulator."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ones = pa.repeat(pa.scalar(1, pa.int64()), rows) if signs is None else signs
    if kept.role == "count":
        return ones if values is None else pc.if_else(pc.is_valid(values), ones, 0)
    if kept.role != "sum":
        return values
    wide = values.cast(pa.int64())
    return wide if signs is None else pc.multiply(wide, signs)
