"""A keyed running aggregate, kept in a dictionary of the shard's space."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.operators.division.keyed import KeyedBy
from objectspace.relational.values_arrow import listed
from objectspace.spark.instants import in_utc

Columns = Sequence[pa.ChunkedArray]

Call = tuple[str, Any]
"""A function of Arrow that computes a figure, and its options."""


@dataclass(frozen=True)
class Measure:
    """One figure that is kept for each key.

    Args:
        name: what the figure is called.
        function: ``rows`` (how many), ``nulls``, ``count`` (of values that are not null), ``sum``, ``min`` or ``max``.
        column: the column it is taken from; not for ``rows``. Sums are of whole numbers, so no order of the rows can
            change them, and exact, however large they become. NaN counts as the greatest float.

    Raises:
        ObjectSpaceError: the function is none of these, or lacks its column.
    """

    name: str
    function: str
    column: str | None = None

    def __post_init__(self) -> None:
        if self.function not in _FUNCTIONS:
            raise ObjectSpaceError(
                f"measure {self.name}: expected a function of {', '.join(_FUNCTIONS)}, found {self.function}"
            )
        if (self.column is None) != (self.function == "rows"):
            raise ObjectSpaceError(f"measure {self.name}: expected a column for each function but rows: name it")


@dataclass(frozen=True)
class _Function:
    """How a figure is computed from rows, from two figures, and from a column of figures.

    NaN counts as the greatest float, and zero is 0.0, so that neither shows the order of the rows.
    """

    arrow: str
    merge: Callable[[Any, Any], Any]
    again: str
    options: Any = None


def _lesser(old: Any, new: Any) -> Any:
    return new if new < old or old != old else old


def _greater(old: Any, new: Any) -> Any:
    return new if new > old or new != new else old


_FUNCTIONS = {
    "rows": _Function("count_all", operator.add, "sum"),
    "nulls": _Function("count", operator.add, "sum", pc.CountOptions(mode="only_null")),
    "count": _Function("count", operator.add, "sum", pc.CountOptions(mode="only_valid")),
    "sum": _Function("sum", operator.add, "sum"),
    "min": _Function("min", _lesser, "min"),
    "max": _Function("max", _greater, "max"),
}


@dataclass(frozen=True)
class RunningAggregate:
    """Figures kept for each key over all rows that ever came: the ``process`` of an operator.

    The state is one dictionary: the value of the key column, or a tuple of several -> the figures by name.

    Args:
        dictionary: the name of the dictionary in the space.
        key: the names of the key columns, whose values are equal in Arrow exactly when they are in Python: text, bytes,
            whole numbers, booleans, decimals, dates, times, timestamps and durations of microseconds or coarser. One
            shard must get all rows of a key.
        measures: the figures.
    """

    dictionary: str
    key: tuple[str, ...]
    measures: tuple[Measure, ...]

    def __post_init__(self) -> None:
        if not self.key or not self.measures:
            raise ObjectSpaceError(
                f"aggregate {self.dictionary}: expected key columns and measures, found {self.key!r} and"
                f" {self.measures!r}: give one of each at least"
            )

    @property
    def columns(self) -> list[str]:
        """The columns of the input that are used."""
        return list(dict.fromkeys([*self.key, *(measure.column for measure in self.measures if measure.column)]))

    def keyed_by(self, columns: Sequence[str]) -> dict[str, KeyedBy]:
        """Return where the keys of the dictionary hold some columns, by its name; nothing if they lack one.

        Args:
            columns: the columns that rows are routed by.
        """
        if not set(columns) <= set(self.key):
            return {}
        return {self.dictionary: KeyedBy(len(self.key), tuple(map(self.key.index, columns)))}

    def __call__(self, batches: Iterator[pa.RecordBatch], space: PersistedObjectSpace) -> None:
        """Fold the rows of one epoch in.

        Args:
            batches: the rows, in any order.
            space: the space of the shard.

        Raises:
            ObjectSpaceError: a key column is of a type that cannot be a key, or a column to be summed does not hold
                whole numbers, or a key or figure is a time that Python cannot represent.

        Time: O(rows + keys of the epoch). Dirties: one slot for each key that comes.
        """
        grouped = self._grouped(batches)
        if grouped is None:
            return
        state = space.get_or_create_dictionary(self.dictionary)
        width, names = len(self.key), [measure.name for measure in self.measures]
        called = [f"aggregate {self.dictionary}: key column {name!r}" for name in self.key]
        columns = [listed(*pair) for pair in zip(grouped.columns, called, strict=False)]
        keys = columns[0] if width == 1 else list(zip(*columns, strict=True))
        olds = state.get_many(keys)
        news = [_values(*pair) for pair in zip(grouped.columns[width:], self.measures, strict=True)]
        figures = [self._merged(*pair, olds) for pair in zip(self.measures, news, strict=True)]
        rows = map(dict, map(zip, repeat(names), zip(*figures, strict=True)))
        state.update(dict(zip(keys, rows, strict=True)))

    def _merged(self, measure: Measure, news: list[Any], olds: list[dict[str, Any] | None]) -> list[Any]:
        """Return a figure of many keys, some of which had one before."""
        before = [None if old is None else old[measure.name] for old in olds]
        merge = _FUNCTIONS[measure.function].merge
        if None not in before and None not in news:
            return list(map(merge, before, news))
        return [
            _present(old, new) if old is None or new is None else merge(old, new)
            for old, new in zip(before, news, strict=True)
        ]

    def _grouped(self, batches: Iterator[pa.RecordBatch]) -> pa.Table | None:
        """Return the figures of the epoch by key, in the order of the keys: the order of the rows does not show.

        Rows are grouped as they come in, so that at most a few batches and the groups are in memory.
        """
        parts: list[pa.Table] = []
        waiting, groups = 0, 0
        for batch in batches:
            parts.append(self._group(pa.Table.from_batches([batch])))
            waiting += parts[-1].num_rows
            if waiting > max(_MANY_GROUPS, 2 * groups):
                parts = [self._regroup(parts)]
                waiting = groups = parts[0].num_rows
        if not waiting:
            return None
        order = [(name, "ascending") for name in _places(len(self.key))]
        return self._regroup(parts).sort_by(order)

    def _group(self, rows: pa.Table) -> pa.Table:
        if missing := [name for name in self.columns if name not in rows.column_names]:
            raise ObjectSpaceError(
                f"aggregate {self.dictionary}: the rows have no column {missing[0]!r}: they have"
                f" {', '.join(rows.column_names)}"
            )
        self._require_keys(rows.schema)
        self._require_whole_sums(rows.schema)
        rows = in_utc(rows.select(self.columns))
        used = [_FUNCTIONS[measure.function] for measure in self.measures]
        figures = [rows[measure.column] if measure.column else None for measure in self.measures]
        return _aggregated([rows[name] for name in self.key], figures, [(one.arrow, one.options) for one in used])

    def _regroup(self, parts: list[pa.Table]) -> pa.Table:
        """Return the groups of several tables as one."""
        if len(parts) == 1:
            return parts[0]
        columns = [_joined(each) for each in zip(*(part.columns for part in parts), strict=True)]
        width = len(self.key)
        again = [(_FUNCTIONS[measure.function].again, None) for measure in self.measures]
        return _aggregated(columns[:width], columns[width:], again)

    def _require_keys(self, schema: pa.Schema) -> None:
        for name in self.key:
            if not _is_key(schema.field(name).type):
                raise ObjectSpaceError(
                    f"aggregate {self.dictionary}: expected text, bytes, whole numbers, booleans, decimals, dates or"
                    f" times of microseconds in key column {name}, found {schema.field(name).type}: cast it to"
                    " one of these, or rows of one key would be lost"
                )

    def _require_whole_sums(self, schema: pa.Schema) -> None:
        for measure in self.measures:
            if measure.function == "sum" and not pa.types.is_integer(schema.field(measure.column).type):
                raise ObjectSpaceError(
                    f"measure {measure.name}: expected whole numbers in column {measure.column}, found"
                    f" {schema.field(measure.column).type}: cast it, or sums would depend on the order of the rows"
                )


def _is_key(kind: pa.DataType) -> bool:
    """Return whether Arrow finds values of a type equal exactly when Python does: floats have two zeros, for one."""
    if any(of(kind) for of in _KEYS):
        return True
    # Python's have microseconds.
    return any(of(kind) for of in _TIMES) and kind.unit != "ns"


def _present(old: Any, new: Any) -> Any:
    """Return the one of two figures that stands for a value, None if neither does."""
    return new if old is None else old


def _aggregated(keys: Columns, figures: Sequence[pa.ChunkedArray | None], functions: Sequence[Call]) -> pa.Table:
    """Return the keys and, for each, the figures of its rows: exact sums, and NaN as the greatest of floats.

    Args:
        keys: the columns of the key.
        figures: what each figure is taken from; None for the number of rows.
        functions: the functions of Arrow that compute them.
    """
    arrays, calls = list(keys), []
    for values, (function, options) in zip(figures, functions, strict=True):
        calls.append((f"c{len(arrays)}" if values is not None else [], function, options))
        arrays += [] if values is None else [_prepared(values, function)]
    names, width = _places(len(arrays)), len(keys)
    found = pa.table(arrays, names).group_by(names[:width], use_threads=False).aggregate(calls)
    # The key comes first; the figures follow in the order in which they were asked for.
    columns = found.columns
    for place, (values, (function, _)) in enumerate(zip(figures, functions, strict=True), width):
        if function in ("min", "max") and _has_nan(values):
            columns[place] = _with_nan(keys, values, columns[place], function)
    return pa.table(columns, _places(len(columns)))


def _with_nan(keys: Columns, values: pa.ChunkedArray, found: pa.ChunkedArray, function: str) -> pa.ChunkedArray:
    """Return extremes by key that are NaN where all values are, or any for ``max``: Arrow has others, or infinity."""
    # As numbers, because pyarrow 18 finds a wrong "any" of booleans that lie in a part of a column.
    is_nan = _aggregated(keys, [pc.is_nan(values).cast(pa.int8())], [(function, None)]).columns[-1]
    return pc.if_else(pc.equal(is_nan, 1), pa.scalar(math.nan, found.type), found)


def _prepared(values: pa.ChunkedArray, function: str) -> pa.ChunkedArray:
    """Return a column in a form that Arrow can aggregate: what may add up to more than 64 bits is widened."""
    if function == "sum" and pa.types.is_integer(values.type):
        bounds = pc.min_max(values).as_py().values()
        most = max((abs(bound) for bound in bounds if bound is not None), default=0)
        return values if most * len(values) < 2**63 else values.cast(_WIDE)
    if function in ("min", "max") and pa.types.is_floating(values.type):
        return pc.add(values, pa.scalar(0.0, values.type))  # -0.0 becomes 0.0
    return values


def _has_nan(values: pa.ChunkedArray) -> bool:
    return pa.types.is_floating(values.type) and bool(pc.any(pc.is_nan(values)).as_py())


def _joined(columns: Columns) -> pa.ChunkedArray:
    """Return columns of the same kind as one; the sums in some may have been widened."""
    kind = columns[0].type if len({column.type for column in columns}) == 1 else _WIDE
    alike = [column if column.type == kind else column.cast(kind) for column in columns]
    return pa.chunked_array([chunk for column in alike for chunk in column.chunks], kind)


def _values(column: pa.ChunkedArray, measure: Measure) -> list[Any]:
    """Return the values of a column of figures; sums are ints, however large."""
    values = listed(column, f"measure {measure.name}: column {measure.column!r}")
    if measure.function != "sum" or column.type != _WIDE:
        return values
    return [None if value is None else int(value) for value in values]


def _places(count: int) -> list[str]:
    """Return names for so many columns: those of the input may be equal to each other."""
    return [f"c{place}" for place in range(count)]


_KEYS = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_decimal128,
    pa.types.is_decimal256,
    pa.types.is_date32,
)
"""Types of keys: what Arrow groups and sorts, what has a stored form, and whose equal values are one."""

_TIMES = (pa.types.is_time, pa.types.is_timestamp, pa.types.is_duration)
"""Types of keys that have a unit."""

_WIDE = pa.decimal128(38, 0)
"""Whole numbers in Arrow that are larger than 64 bits."""

_MANY_GROUPS = 65_536
"""How many rows of groups wait before they are grouped again."""
