"""Accumulators: what a call keeps for a group if one value is enough.

Every accumulator is a sum of some kind: what the rows of an epoch add is collected separately, in any order, and
combined with what is stored when the epoch ends. Several calls share one: ``avg(v)`` and ``sum(v)`` keep one total and
one count.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

from objectspace.operators import exact
from objectspace.operators.canonical import EXACT, canonical, is_plain, rank
from objectspace.operators.sketches import estimate, joined_sketch
from objectspace.relational import DataType
from objectspace.relational.keys import Order, column_encoder
from objectspace.relational.types import FLOATS, INTEGERS
from objectspace.relational.values import nearest_float32

Add = Callable[[list[Any], Any, int], None]
"""Adds a row to the cells of a group, with the sign +1 or -1."""

Merge = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Accumulator:
    """What is kept for one column of a group.

    Args:
        role: ``"count"``, ``"true"``, ``"sum"``, ``"squares"``, ``"min"``, ``"max"`` or ``"sketch"``.
        place: the position of the column; -1 to count all rows.
        type: its type.
        filter: the number of the filter that rows must pass; -1 for all rows.
        distinct: whether equal values count once.
    """

    role: str
    place: int
    type: DataType
    filter: int = -1
    distinct: bool = False

    @property
    def cell_type(self) -> str | DataType:
        """The type of its column in the table of the state."""
        if self.role in ("count", "true"):
            return "int64"
        if self.role in ("min", "max"):
            return self.type
        if self.role == "sketch":
            return "binary"
        if self.type.kind in INTEGERS:
            return "int64" if self.role == "sum" else "decimal"
        return "string"

    @property
    def zero(self) -> Any:
        """What it holds before the first row."""
        if self.role in ("min", "max", "sketch"):
            return None
        return Decimal(0) if self.role in ("sum", "squares") and self.type.kind == "decimal" else 0

    def adder(self, at: int) -> Add:
        """Return a function that adds a row to the cell at a position."""
        return _ADDERS[self.role](self, at)

    def merger(self) -> Merge:
        """Return a function that combines what is stored with what an epoch added."""
        if self.role in ("min", "max"):
            return _extreme_merger(self)
        if self.role == "sketch":
            return joined_sketch
        if self.role in ("count", "true") or self.type.kind in INTEGERS:
            return operator.add
        return partial(_added, exact.add_decimals if self.type.kind == "decimal" else operator.add)

    def dumper(self) -> Callable[[Any], Any] | None:
        """Return a function that turns the cell into the stored value, or ``None`` if they are the same."""
        if self.role not in ("sum", "squares") or self.type.kind in INTEGERS:
            return None
        return exact.decimal_text if self.type.kind == "decimal" else partial(exact.binary_text, unit=self._unit)

    def loader(self) -> Callable[[Any], Any] | None:
        """Return a function that turns the stored value into the cell, or ``None`` if they are the same."""
        if self.role not in ("sum", "squares"):
            return None
        if self.type.kind in INTEGERS:
            return int if self.role == "squares" else None
        if self.type.kind == "decimal":
            return exact.from_decimal_text
        return partial(exact.from_binary_text, unit=self._unit)

    @property
    def _unit(self) -> int:
        return exact.SQUARE if self.role == "squares" else exact.UNIT


def _counter(kept: Accumulator, at: int) -> Add:
    place = kept.place

    def _add_row(cells: list[Any], row: Any, sign: int) -> None:
        cells[at] += sign

    def _add(cells: list[Any], row: Any, sign: int) -> None:
        if row[place] is not None:
            cells[at] += sign

    return _add_row if place < 0 else _add


def _truth_counter(kept: Accumulator, at: int) -> Add:
    place = kept.place

    def _add(cells: list[Any], row: Any, sign: int) -> None:
        if row[place]:
            cells[at] += sign

    return _add


def _summer(kept: Accumulator, at: int) -> Add:
    place, merge, amount = kept.place, kept.merger(), _amount_of(kept)

    def _add_integer(cells: list[Any], row: Any, sign: int) -> None:
        value = row[place]
        if value is not None:
            cells[at] += sign * value

    def _add(cells: list[Any], row: Any, sign: int) -> None:
        value = row[place]
        if value is not None:
            given = amount(value)
            cells[at] = merge(cells[at], given if sign > 0 else exact.negated(given))

    return _add_integer if kept.role == "sum" and kept.type.kind in INTEGERS else _add


def _amount_of(kept: Accumulator) -> Callable[[Any], Any]:
    """Return a function that gives what a value adds to a total."""
    is_square = kept.role == "squares"
    if kept.type.kind in INTEGERS:
        return lambda value: value * value
    if kept.type.kind == "decimal":
        return partial(_decimal_amount, is_square=is_square)
    return partial(_float_amount, is_square=is_square, is_single=kept.type.kind == "float32")


def _decimal_amount(value: Decimal, *, is_square: bool) -> Any:
    if not value.is_finite():
        return exact.odd(value, Decimal(0))
    return EXACT.multiply(value, value) if is_square else value


def _float_amount(value: float, *, is_square: bool, is_single: bool) -> Any:
    if value - value != 0:
        return exact.odd(value, 0)
    units = exact.units_of(nearest_float32(value) if is_single else value)
    return units * units if is_square else units


def _added(add: Merge, one: Any, other: Any) -> Any:
    if isinstance(one, exact.Odd):
        return one.added(other, add)
    if isinstance(other, exact.Odd):
        return other.added(one, add)
    return add(one, other)


def _extreme_adder(kept: Accumulator, at: int) -> Add:
    """Return a function that keeps the least or the greatest value; its rows are never retracted."""
    place, form, merge = kept.place, canonical(kept.type), kept.merger()

    def _add(cells: list[Any], row: Any, sign: int) -> None:
        value = row[place]
        if value is not None:
            cells[at] = merge(cells[at], value if form is None else form(value))

    return _add


def _extreme_merger(kept: Accumulator) -> Merge:
    order, wants_less = rank(kept.type), kept.role == "min"
    if is_plain(kept.type):
        return _least if wants_less else _greatest

    def _merge(one: Any, other: Any) -> Any:
        if one is None or other is None:
            return other if one is None else one
        return other if (order(other) < order(one)) == wants_less and order(other) != order(one) else one

    return _merge


def _least(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return other if other < one else one


def _greatest(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return other if other > one else one


def _sketcher(kept: Accumulator, at: int) -> Add:
    place, encode = kept.place, column_encoder(kept.type, Order())

    def _add(cells: list[Any], row: Any, sign: int) -> None:
        value = row[place]
        if value is not None:
            if cells[at] is None:
                cells[at] = set()
            cells[at].add(encode(value).hex())

    return _add


_ADDERS: dict[str, Callable[[Accumulator, int], Add]] = {
    "count": _counter,
    "true": _truth_counter,
    "sum": _summer,
    "squares": _summer,
    "min": _extreme_adder,
    "max": _extreme_adder,
    "sketch": _sketcher,
}


# Results --------------------------------------------------------------------------------------------------------------


Result = Callable[[Any], Any]
"""Returns the result of a call from the cells of a group."""


def result_of(kind: str, column: DataType, at: dict[str, int]) -> Result:
    """Return a function that makes the result of a call.

    Args:
        kind: the kind of the call.
        column: the type of its argument.
        at: the positions of the cells of its accumulators, by role.
    """
    if kind in ("count", "min", "max"):
        found: Result = operator.itemgetter(at[kind])
        return found
    if kind == "approx_count_distinct":
        return lambda cells: estimate(cells[at["sketch"]])
    if kind in ("bool_and", "bool_or"):
        wanted, true = (operator.eq if kind == "bool_and" else _is_any), at["true"]
        return lambda cells: wanted(cells[true], cells[at["count"]]) if cells[at["count"]] else None
    if kind == "sum" and column.kind in INTEGERS:
        rows, total = at["count"], at["sum"]
        return lambda cells: cells[total] if cells[rows] else None
    show = _SHOWN[kind.partition("_")[0]](column, kind)
    needed = [at[role] for role in ("count", "sum", "squares") if role in at]
    return lambda cells: show(*[cells[place] for place in needed]) if cells[needed[0]] else None


def _is_any(true: int, rows: int) -> bool:
    return true > 0


def _shown_sum(column: DataType, kind: str) -> Callable[..., Any]:
    return partial(_shown_mean, column, is_mean=False)


def _shown_mean(column: DataType, rows: int, total: Any, *, is_mean: bool = True) -> Any:
    parts = rows if is_mean else 1
    if isinstance(total, exact.Odd):
        return Decimal(str(total.value())) if column.kind == "decimal" else total.value()
    if column.kind == "decimal":
        return exact.quotient(total, parts)
    return exact.rounded(total, parts << (exact.UNIT if column.kind in FLOATS else 0))


def _shown_spread(column: DataType, kind: str) -> Callable[..., Any]:
    name, _, population = kind.partition("_")
    unit = exact.UNIT if column.kind in FLOATS else 0

    def _show(rows: int, total: Any, squares: Any) -> float | None:
        found = exact.variance(total, squares, rows, unit, sample=not population)
        return found if found is None or name == "variance" else math.sqrt(found)

    return _show


_SHOWN: dict[str, Callable[[DataType, str], Callable[..., Any]]] = {
    "sum": _shown_sum,
    "avg": lambda column, kind: partial(_shown_mean, column),
    "stddev": _shown_spread,
    "variance": _shown_spread,
}


def roles_of(kind: str) -> tuple[str, ...]:
    """Return the accumulators that a call needs."""
    if kind in ("count", "min", "max"):
        return (kind,)
    if kind == "approx_count_distinct":
        return ("sketch",)
    if kind in ("bool_and", "bool_or"):
        return ("count", "true")
    return ("count", "sum") if kind in ("sum", "avg") else ("count", "sum", "squares")
