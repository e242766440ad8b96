"""Which tables an operator keeps its state in: columns, keys and values, derived from what the operator does.

These are the layouts that RisingWave gives them. What an operator of this library keeps, often the same keys under
other roles and columns, is told by its ``state()``, and for a whole pipeline by ``Pipeline.explain()``.

One rule holds for all of them: what an operator looks for is a prefix of the key, and the row that it wants first comes
first. So the table of ``max`` sorts its argument descending, that of ``min`` ascending, and one read of the group gives
the answer after any retraction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SortKey = tuple[int, str]
"""The position of a column and its direction, with ``nulls first`` or ``nulls last`` if it is not the default."""

ORDERED_CALLS = frozenset(
    ["first_value", "last_value", "string_agg", "array_agg", "jsonb_agg", "jsonb_object_agg", "percentile", "mode"]
)
"""Calls that need their whole input in order."""

EXTREME_CALLS = frozenset({"min", "max"})
"""Calls that need their whole input only if it can be retracted."""


@dataclass(frozen=True)
class AggregateCall:
    """A call of an aggregation.

    Args:
        kind: ``"count"``, ``"sum"``, ``"min"`` and so on.
        args: the positions of its arguments in the input.
        distinct: whether equal arguments count once.
        order_by: the order of its input, if it matters.
    """

    kind: str
    args: tuple[int, ...] = ()
    distinct: bool = False
    order_by: tuple[SortKey, ...] = ()

    def is_materialized(self, append_only: bool) -> bool:
        """Return whether the call keeps its input in an ordered table, rather than one value."""
        return self.kind in ORDERED_CALLS or (self.kind in EXTREME_CALLS and not append_only)

    def sort_key(self) -> tuple[SortKey, ...]:
        """Return the order in which the answer comes first."""
        if self.kind in EXTREME_CALLS:
            return ((self.args[0], "asc" if self.kind == "min" else "desc"),)
        return (
            tuple((place, _reversed(order)) for place, order in self.order_by)
            if self.kind == "last_value"
            else self.order_by
        )


@dataclass(frozen=True)
class TableLayout:
    """The layout of one state table.

    Args:
        role: what the operator uses it for; part of its stored name.
        columns: the names of its columns; a column may occur twice.
        primary_key: the positions of the key columns with their orders.
        value_places: the positions of the columns that the operator reads back.
        prefix_length: the number of leading key columns that every read fixes.
    """

    role: str
    columns: tuple[str, ...]
    primary_key: tuple[SortKey, ...]
    value_places: tuple[int, ...]
    prefix_length: int


def aggregation_tables(
    columns: Sequence[str],
    stream_key: Sequence[int],
    group_key: Sequence[int],
    calls: Sequence[AggregateCall],
    *,
    append_only: bool = False,
    call_names: Sequence[str] | None = None,
) -> list[TableLayout]:
    """Return the tables of an aggregation: one per call that keeps its input, the state, one per distinct column.

    Args:
        columns: the names of the input columns.
        stream_key: the positions of the stream key.
        group_key: the positions of the group key; empty for a global aggregation.
        calls: the calls.
        append_only: whether the input has no retractions: extremes then need only one value.
        call_names: the names of the calls; their kinds by default.

    >>> calls = [AggregateCall("max", (1,)), AggregateCall("count")]
    >>> for table in aggregation_tables(["k", "v", "id"], [2], [0], calls):
    ...     print(table.role, table.columns, table.primary_key)
    HashAggCall0 ('k', 'v', 'id') ((0, 'asc'), (1, 'desc'), (2, 'asc'))
    HashAggState ('k', 'max', 'count') ((0, 'asc'),)
    """
    role = "HashAgg" if group_key else "SimpleAgg"
    found = [
        _input_table(f"{role}Call{number}", columns, stream_key, group_key, call)
        for number, call in enumerate(calls)
        if call.is_materialized(append_only)
    ]
    found.append(_result_table(f"{role}State", columns, group_key, call_names or [call.kind for call in calls]))
    distinct: dict[int, list[int]] = {}
    for number, call in enumerate(calls):
        if call.distinct:
            distinct.setdefault(call.args[0], []).append(number)
    found += [
        _result_table(
            f"{role}DedupForCol{place}", columns, [*group_key, place], [f"count_for_agg_call_{call}" for call in users]
        )
        for place, users in sorted(distinct.items())
    ]
    return found


def join_tables(
    left: tuple[Sequence[str], Sequence[int], Sequence[int]], right: tuple[Sequence[str], Sequence[int], Sequence[int]]
) -> list[TableLayout]:
    """Return the tables of a join: the rows and the degrees of each side.

    A side that never outputs rows without a match needs no degrees; its operator then does not create that table.

    Args:
        left: the column names of the left side, the positions of its stream key, and those of its join key.
        right: the same of the right side.
    """
    found = []
    for side, (columns, stream_key, join_key) in (("Left", left), ("Right", right)):
        key = [*join_key, *(place for place in stream_key if place not in join_key)]
        everything = tuple(range(len(columns)))
        rows = TableLayout(f"HashJoin{side}", tuple(columns), _ascending(key), everything, len(join_key))
        names = (*_numbered([columns[place] for place in key]), "_degree")
        degrees = TableLayout(f"HashJoinDegree{side}", names, _ascending(range(len(key))), (len(key),), len(join_key))
        found += [rows, degrees]
    return found


def top_n_tables(
    columns: Sequence[str],
    stream_key: Sequence[int],
    order_by: Sequence[SortKey],
    group_key: Sequence[int] = (),
    *,
    append_only: bool = False,
) -> list[TableLayout]:
    """Return the table of a TopN: the group, the order, and the rest of the stream key.

    Args:
        columns: the names of the input columns.
        stream_key: the positions of the stream key.
        order_by: the order.
        group_key: the positions of the group key; empty for one TopN over all rows.
        append_only: whether the input has no retractions.
    """
    role = f"{'AppendOnly' if append_only else ''}{'Group' if group_key else ''}TopN"
    key = _extended(_extended(_ascending(group_key), order_by), _ascending(stream_key))
    return [TableLayout(role, tuple(columns), key, tuple(range(len(columns))), len(group_key))]


def deduplication_tables(columns: Sequence[str], key: Sequence[int]) -> list[TableLayout]:
    """Return the table of a deduplication: the whole first row, keyed by the columns that make rows the same."""
    return [TableLayout("AppendOnlyDedup", tuple(columns), _ascending(key), tuple(range(len(columns))), len(key))]


def _input_table(
    role: str, columns: Sequence[str], stream_key: Sequence[int], group_key: Sequence[int], call: AggregateCall
) -> TableLayout:
    unique = (call.args[0],) if call.distinct else tuple(stream_key)
    key = _extended(_extended(_ascending(group_key), call.sort_key()), _ascending(unique))
    places = [place for place, _ in key]
    places += [place for place in dict.fromkeys(call.args) if place not in places]
    values = [n for n, place in enumerate(places) if place not in group_key or place in stream_key]
    orders = tuple((number, order) for number, (_, order) in enumerate(key))
    return TableLayout(role, tuple(columns[place] for place in places), orders, tuple(values), len(group_key))


def _result_table(role: str, columns: Sequence[str], key: Sequence[int], values: Sequence[str]) -> TableLayout:
    names = (*(columns[place] for place in key), *values)
    return TableLayout(role, names, _ascending(range(len(key))), tuple(range(len(key), len(names))), len(key))


def _ascending(places: Iterable[int]) -> tuple[SortKey, ...]:
    return tuple((place, "asc") for place in places)


def _extended(key: Iterable[SortKey], more: Iterable[SortKey]) -> tuple[SortKey, ...]:
    """Return a key extended by more columns, except those that it already has."""
    found = list(key)
    for place, order in more:
        if place not in [known for known, _ in found]:
            found.append((place, order))
    return tuple(found)


def _numbered(names: Sequence[str]) -> list[str]:
    """Return names that tell columns of one name apart: the second ``k`` is ``k_0``."""
    found: list[str] = []
    for name in names:
        times = sum(
            known == name or (known.startswith(f"{name}_") and known[len(name) + 1 :].isdigit()) for known in found
        )
        found.append(name if name not in found else f"{name}_{times - 1}")
    return found


def _reversed(order: str) -> str:
    direction, *nulls = order.split()
    turned = {"asc": "desc", "desc": "asc", "first": "last", "last": "first"}
    return " ".join([turned[direction], *(["nulls", turned[nulls[-1]]] if nulls else [])])
