"""A keyed running aggregate, kept in a dictionary of the shard's space."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError


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
            return new if old is None else old
        return _FUNCTIONS[self.function].merge(old, new)

    @property
    def aggregation(self) -> tuple[Any, ...]:
        """The aggregation as ``pyarrow.TableGroupBy.aggregate`` takes it."""
        function = _FUNCTIONS[self.function]
        return (self.column or [], function.arrow, function.options)


@dataclass(frozen=True)
class _Function:
    arrow: str
    merge: Callable[[Any, Any], Any]
    options: Any = None


def _add(old: int, new: int) -> int:
    return old + new


_FUNCTIONS = {
    "rows": _Function("count_all", _add),
    "nulls": _Function("count", _add, pc.CountOptions(mode="only_null")),
    "count": _Function("count", _add, pc.CountOptions(mode="only_valid")),
    "sum": _Function("sum", _add),
    "min": _Function("min", min),
    "max": _Function("max", max),
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

    def __call__(self, batches: Iterator[pa.RecordBatch], space: PersistedObjectSpace) -> None:
        """Fold the rows of one epoch in.

        Args:
            batches: the rows, in any order.
            space: the space of the shard.

        Raises:
            ObjectSpaceError: a column to be summed does not hold whole numbers.
        Time: O(rows + keys of the epoch). Dirties: one slot for each key that comes.
        """
        state = space.get_or_create_dictionary(self.dictionary)
        for key, figures in sorted(self._figures(batches).items(), key=_null_first):
            old = state.get(key)
            state[key] = figures if old is None else self._merged(old, figures)

    def _figures(self, batches: Iterator[pa.RecordBatch]) -> dict[Any, dict[str, Any]]:
        total: dict[Any, dict[str, Any]] = {}
        for batch in batches:
            for key, figures in self._group(pa.Table.from_batches([batch])):
                total[key] = self._merged(total[key], figures) if key in total else figures
        return total

    def _group(self, rows: pa.Table) -> Iterator[tuple[Any, dict[str, Any]]]:
        self._require_whole_sums(rows.schema)
        grouped = rows.group_by(list(self.key)).aggregate([measure.aggregation for measure in self.measures])
        names = [measure.name for measure in self.measures]
        # The key comes first; the figures follow in the order in which they were asked for.
        width = len(self.key)
        for row in zip(*(column.to_pylist() for column in grouped.columns), strict=True):
            key = row[:width] if width > 1 else row[0]
            yield key, dict(zip(names, row[width:], strict=True))

    def _merged(self, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        return {measure.name: measure.merge(old[measure.name], new[measure.name]) for measure in self.measures}

    def _require_whole_sums(self, schema: pa.Schema) -> None:
        for measure in self.measures:
            if measure.function == "sum" and not pa.types.is_integer(schema.field(measure.column).type):
                raise ObjectSpaceError(
                    f"measure {measure.name}: expected whole numbers in column {measure.column}, found"
                    f" {schema.field(measure.column).type}: cast it, or sums would depend on the order of the rows"
                )


def _null_first(item: tuple[Any, Any]) -> list[tuple[bool, Any]]:
    key = item[0] if isinstance(item[0], tuple) else (item[0],)
    return [(part is not None, part) for part in key]
