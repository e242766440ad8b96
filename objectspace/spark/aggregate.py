"""A keyed running aggregate, kept in a dictionary of the shard's space."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.spark.routes import KeyedBy


@dataclass(frozen=True)
class Measure:
    """One figure that is kept for each key.

    Args:
        name: what the figure is called.
        function: ``rows`` (how many), ``nulls``, ``count`` (of values that are not null), ``sum``, ``min`` or ``max``.
        column: the column it is taken from; not for ``rows``. Sums are of whole numbers, so that no order of the rows
            can change them.

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

    def merge(self, old: Any, new: Any) -> Any:
        """Return the figure of the rows that two figures stand for; None stands for no value."""
        if old is None or new is None:
            return _present(old, new)
        return _FUNCTIONS[self.function].merge(old, new)

    @property
    def aggregation(self) -> tuple[Any, ...]:
        """The aggregation as ``pyarrow.TableGroupBy.aggregate`` takes it."""
        function = _FUNCTIONS[self.function]
        return (self.column or [], function.arrow, function.options)


@dataclass(frozen=True)
class _Function:
    """How a figure is taken from rows, from two figures, and from a column of figures."""

    arrow: str
    merge: Callable[[Any, Any], Any]
    again: str
    options: Any = None


_FUNCTIONS = {
    "rows": _Function("count_all", operator.add, "sum"),
    "nulls": _Function("count", operator.add, "sum", pc.CountOptions(mode="only_null")),
    "count": _Function("count", operator.add, "sum", pc.CountOptions(mode="only_valid")),
    "sum": _Function("sum", operator.add, "sum"),
    "min": _Function("min", min, "min"),
    "max": _Function("max", max, "max"),
}


@dataclass(frozen=True)
class RunningAggregate:
    """Keeps some figures for each key over all the rows that ever came: the ``process`` of an operator.

    The state is one dictionary: the value of the key column, or a tuple of several -> the figures by name.

    Args:
        dictionary: the name of the dictionary in the space.
        key: the names of the key columns, text or whole numbers; rows of one shard must hold all rows of a key.
        measures: the figures.
    """

    dictionary: str
    key: tuple[str, ...]
    measures: tuple[Measure, ...]

    @property
    def columns(self) -> list[str]:
        """The columns of the input that are used."""
        return list(dict.fromkeys([*self.key, *(measure.column for measure in self.measures if measure.column)]))

    def keyed_by(self, columns: Sequence[str]) -> dict[str, KeyedBy]:
        """Return where the keys of the dictionary hold some columns, by its name; nothing where they lack one.

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
            ObjectSpaceError: a column to be summed does not hold whole numbers.
        Time: O(rows + keys of the epoch). Dirties: one slot for each key that comes.
        """
        grouped = self._grouped(batches)
        if grouped is None:
            return
        state = space.get_or_create_dictionary(self.dictionary)
        width, names = len(self.key), [measure.name for measure in self.measures]
        columns = [column.to_pylist() for column in grouped.columns]
        keys = columns[0] if width == 1 else list(zip(*columns[:width], strict=True))
        olds = state.get_many(keys)
        figures = [self._merged(*pair, olds) for pair in zip(self.measures, columns[width:], strict=True)]
        rows = map(dict, map(zip, repeat(names), zip(*figures, strict=True)))
        state.update(dict(zip(keys, rows, strict=True)))

    def _merged(self, measure: Measure, news: list[Any], olds: list[dict[str, Any] | None]) -> list[Any]:
        """Return a figure of many keys, of which some had one before."""
        before = [None if old is None else old[measure.name] for old in olds]
        if None in before or None in news:
            return list(map(measure.merge, before, news))
        return list(map(_FUNCTIONS[measure.function].merge, before, news))

    def _grouped(self, batches: Iterator[pa.RecordBatch]) -> pa.Table | None:
        """Return the figures of the epoch by key, in the order of the keys, so that no order of the rows shows.

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
        self._require_whole_sums(rows.schema)
        grouped = rows.group_by(list(self.key), use_threads=False)
        found = grouped.aggregate([measure.aggregation for measure in self.measures])
        # The key comes first; the figures follow in the order in which they were asked for.
        return found.rename_columns(_places(found.num_columns))

    def _regroup(self, parts: list[pa.Table]) -> pa.Table:
        """Return the groups of several tables as one."""
        if len(parts) == 1:
            return parts[0]
        places = _places(parts[0].num_columns)
        width = len(self.key)
        again = [_FUNCTIONS[measure.function].again for measure in self.measures]
        grouped = pa.concat_tables(parts).group_by(places[:width], use_threads=False)
        return grouped.aggregate(list(zip(places[width:], again, strict=True))).rename_columns(places)

    def _require_whole_sums(self, schema: pa.Schema) -> None:
        for measure in self.measures:
            if measure.function == "sum" and not pa.types.is_integer(schema.field(measure.column).type):
                raise ObjectSpaceError(
                    f"measure {measure.name}: expected whole numbers in column {measure.column}, found"
                    f" {schema.field(measure.column).type}: cast it, or sums would depend on the order of the rows"
                )


def _present(old: Any, new: Any) -> Any:
    """Return the figure of two that stands for a value, None where neither does."""
    return new if old is None else old


def _places(count: int) -> list[str]:
    """Return names for so many columns: those of the input may be equal to each other."""
    return [f"c{place}" for place in range(count)]


_MANY_GROUPS = 65_536
"""How many rows of groups wait before they are grouped again."""
