"""What the calls of an aggregation need: cells, ordered tables, columns of distinct values, and a table of groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from objectspace.operators.accumulators import Accumulator, Add, Result, result_of, roles_of
from objectspace.operators.agg_call import ORDERED, AggCall, output_schema, sum_bounds
from objectspace.operators.base import Operator, check_number, column_names
from objectspace.operators.canonical import identity, is_plain, picker
from objectspace.operators.distinct import DistinctColumn, unused
from objectspace.operators.extremes import OrderedCall
from objectspace.operators.groups import Touched, distinct_note, ordered_note, same
from objectspace.operators.predicates import numbered
from objectspace.operators.sketches import require_sketches
from objectspace.relational import Column, DataType, SchemaError, TableSchema
from objectspace.relational.equality import equality
from objectspace.relational.types import INTEGERS

ROWS = DataType("int64")

CACHE_GROUPS = 200_000
"""How many groups stay in memory between epochs."""

CACHE_ROWS = 10
"""How many of the first rows of a group an ordered call keeps in memory."""


class PlannedCalls(Operator):
    """The calls of an aggregation, and the cells and tables that they need.

    Args:
        schema: the schema of the input; its primary key is the stream key.
        group_key: the names of the group columns.
        calls: the calls.
        append_only: whether the input has no retractions: extremes and sketches then need one value per group.
        cache_rows: how many rows of a group each ordered call keeps in memory.
        cache_groups: how many groups stay in memory between epochs.
    """

    _role = "Agg"

    def __init__(
        self,
        schema: TableSchema,
        group_key: Sequence[str],
        calls: Sequence[AggCall],
        *,
        append_only: bool = False,
        cache_rows: int = CACHE_ROWS,
        cache_groups: int = CACHE_GROUPS,
    ) -> None:
        super().__init__()
        check_number("cache_rows", cache_rows, 1)
        check_number("cache_groups", cache_groups, 0)
        self.input, self.calls, self.append_only = schema, tuple(calls), append_only
        self.group_key = tuple(column_names(group_key))
        self.late_rows = 0
        self._next_watermark: Any = None
        self._closed: Any = None
        self._window = schema.watermark_column if schema.watermark_column in self.group_key else None
        self._keys = sorted(self.group_key, key=lambda name: name != self._window)
        self._cache_rows, self._cache_groups = cache_rows, cache_groups
        for call in self.calls:
            if not isinstance(call, AggCall):
                raise SchemaError(f"a call is an AggCall such as AggCall('count'): found {call!r:.80}")
            call.check(schema)
        self._filters, self._filter_of = numbered(schema, [call.filter for call in self.calls])
        self._plan_calls()
        self._output = output_schema(schema, self.group_key, self.calls, self._window)
        self._state = self._state_schema()
        self._plan_groups()
        self._forget()

    @property
    def schema(self) -> TableSchema:
        """The schema of the output: the group columns, then the calls; its key is the group key."""
        return self._output

    def state(self) -> list[tuple[str, TableSchema]]:
        """Return the tables: one per ordered call, that of the groups, and one per distinct column."""
        calls = [(ordered.role, ordered.schema) for ordered in self._ordered.values()]
        distinct = [(column.role, column.schema) for column in self._distinct.values()]
        return [*calls, (f"{self._role}State", self._state), *distinct]

    def _plan_calls(self) -> None:
        """Find the accumulators, the ordered tables and the distinct columns that the calls need."""
        self._accumulators = [Accumulator("count", -1, ROWS)]
        self._ordered: dict[int, OrderedCall] = {}
        self._results: list[Result | None] = []
        self._counted: dict[int, set[int]] = {}
        for number, call in enumerate(self.calls):
            self._results.append(None if self._is_ordered(call) else self._plan_value(number, call))
            if self._is_ordered(call):
                self._ordered[number] = OrderedCall(number, call, self.input, self._keys, self._role, self._cache_rows)
                if call.is_distinct:
                    self._counted.setdefault(self._ordered[number].argument, set()).add(self._filter_of[number])
        self._distinct = {
            place: DistinctColumn(place, sorted(filters), self.input, self._keys, self._role)
            for place, filters in sorted(self._counted.items())
        }
        self._bind()

    def _is_ordered(self, call: AggCall) -> bool:
        return call.kind in ORDERED or (call.kind in ("min", "max") and not self.append_only)

    def _plan_value(self, number: int, call: AggCall) -> Result:
        """Find the accumulators of a call that keeps values, and return a function that makes its result from them."""
        place = self.input.place_of(call.columns[0]) if call.columns else -1
        kind, is_distinct = call.kind, call.is_distinct
        if kind == "approx_count_distinct":
            kind, is_distinct = (kind, False) if self.append_only else ("count", True)
            if self.append_only:
                require_sketches()
        if is_distinct:
            self._counted.setdefault(place, set()).add(self._filter_of[number])
        column = ROWS if place < 0 else self.input.columns[place].type
        at = {role: self._place(role, place, self._filter_of[number], is_distinct) for role in roles_of(kind)}
        return result_of(kind, column, at)

    def _place(self, role: str, place: int, number: int, is_distinct: bool) -> int:
        """Return the position of the cell of an accumulator; calls that need the same one share it."""
        if role == "count" and not is_distinct and place >= 0 and not self.input.columns[place].nullable:
            place = -1
        kept = Accumulator(role, place, ROWS if place < 0 else self.input.columns[place].type, number, is_distinct)
        if kept not in self._accumulators:
            self._accumulators.append(kept)
        return self._accumulators.index(kept)

    def _bind(self) -> None:
        """Sort the functions that add and note rows by the filter and the DISTINCT before them."""
        self._adds: list[list[Add]] = [[] for _ in range(len(self._filters) + 1)]
        self._notes: list[list[Callable[[Touched, Any, int], None]]] = [[] for _ in range(len(self._filters) + 1)]
        self._noted: list[list[int]] = [[] for _ in range(len(self._filters) + 1)]
        self._distinct_adds: dict[tuple[int, int], list[Add]] = {}
        self._distinct_notes: dict[tuple[int, int], list[Callable[[Touched, Any, int], None]]] = {}
        for at, kept in enumerate(self._accumulators):
            if kept.distinct:
                self._distinct_adds.setdefault((kept.place, kept.filter), []).append(kept.adder(at))
            elif at:
                self._adds[kept.filter + 1].append(kept.adder(at))
        for number, ordered in self._ordered.items():
            if ordered.call.is_distinct:
                note = ordered_note(ordered, number)
                key = ordered.argument, self._filter_of[number]
                self._distinct_notes.setdefault(key, []).append(note)
            else:
                self._noted[self._filter_of[number] + 1].append(number)
        for place, column in self._distinct.items():
            for number, kept_filter in enumerate(column.filters):
                self._notes[kept_filter + 1].append(distinct_note(column, place, number))

    def _plan_groups(self) -> None:
        """Prepare what is done for each group."""
        places = [self.input.place_of(name) for name in self._keys]
        self._key_places = places
        kinds = [self.input.columns[place].type for place in places]
        self._is_plain, self._key_of = all(map(is_plain, kinds)), identity(kinds, places)
        self._group_of = picker(self.input, places)
        order = [self._keys.index(name) for name in self.group_key]
        self._shown_group: Callable[[tuple[Any, ...]], tuple[Any, ...]] = (
            same if order == sorted(order) else lambda group: tuple([group[place] for place in order])
        )
        self._zero = [kept.zero for kept in self._accumulators]
        self._merges = [kept.merger() for kept in self._accumulators]
        self._loads = [kept.loader() for kept in self._accumulators]
        self._dumps = [kept.dumper() for kept in self._accumulators]
        self._has_dumps = any(self._dumps)
        self._totals = [
            (at, self.input.names[kept.place])
            for at, kept in enumerate(self._accumulators)
            if kept.role == "sum" and kept.type.kind in INTEGERS
        ]
        self._are_equal = equality([column.type for column in self._output.columns[len(self.group_key) :]])
        self._bounds = [sum_bounds(call.output_type(self.input)) if call.kind == "sum" else None for call in self.calls]

    def _state_schema(self) -> TableSchema:
        """Return the columns of the state: the group, the cells, and results that cannot be made from the cells."""
        columns = [self.input.column(name) for name in self._keys]
        columns = [Column(column.name, column.type, column.nullable) for column in columns]
        for place, kept in enumerate(self._accumulators):
            column = "" if kept.place < 0 else f"_{self.input.names[kept.place]}"
            name = f"{kept.role}{column}" if kept.filter < 0 and not kept.distinct else f"{kept.role}{column}_{place}"
            is_nullable = kept.role in ("min", "max", "sketch")
            columns.append(Column(_free(name, columns), kept.cell_type, is_nullable))
        self._kept_results = [number for number, call in self._ordered.items() if not call.is_listed]
        for number in self._kept_results:
            call = self.calls[number]
            name = f"{call.name}_{number}"
            columns.append(Column(_free(name, columns), call.output_type(self.input), True))
        return TableSchema(columns, self._keys, watermark_column=self._window)


def _free(name: str, columns: Sequence[Column]) -> str:
    return unused(name, [column.name for column in columns])
