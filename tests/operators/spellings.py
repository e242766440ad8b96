"""Whole numbers in other spellings: what is true of operators over numbers is true over what stands for them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from objectspace.relational import Column, Order, TableSchema
from objectspace.relational.keys import column_encoder
from objectspace.relational.types import parse_type

NAN = float("nan")

SPELLINGS: dict[str, list[list[Any]]] = {
    "int64": [[0], [1], [2], [3]],
    "float64": [[0.0, -0.0], [1.5], [float("inf")], [NAN, -NAN]],
    "float32": [[0.0, -0.0], [0.1, 0.10000000149011612], [1e38], [NAN, -NAN]],
    "decimal": [
        [Decimal(0), Decimal("-0.00")],
        [Decimal(1), Decimal("1.00")],
        [Decimal("1E+2"), Decimal(100)],
        [Decimal("NaN"), Decimal("-NaN")],
    ],
    "list<float64>": [[[]], [[0.0, 1.0], [-0.0, 1.0]], [[1.5, None]], [[NAN], [-NAN]]],
    "struct<a: float64, b: decimal>": [
        [{"a": 0.0, "b": Decimal("1.0")}, {"a": -0.0, "b": Decimal(1)}],
        [{"a": 0.0, "b": Decimal(2)}],
        [{"a": 1.5, "b": None}],
        [{"a": NAN, "b": Decimal("NaN")}, {"a": NAN, "b": Decimal("NaN")}],
    ],
}
"""For each type what stands for 0, 1, 2 and 3, in this order; where there are several, they are equal in SQL."""


class Spelling:
    """Spells the numbers of some columns, each time in another way.

    Args:
        kind: the type that numbers are spelled in.
        columns: the names of the columns, also with ``_right`` behind them.
    """

    def __init__(self, kind: str, columns: str) -> None:
        self.kind, self.columns, self.turn = kind, columns.split(), 0
        encode = column_encoder(parse_type(kind), Order())
        self._encode = encode
        self._numbers = {encode(value): number for number, all_ in enumerate(SPELLINGS[kind]) for value in all_}

    def schema(self, schema: TableSchema) -> TableSchema:
        """Return a schema over numbers as one over what stands for them."""
        columns = [
            Column(one.name, self.kind if self._is_spelled(one.name) else one.type, one.nullable)
            for one in schema.columns
        ]
        return TableSchema(columns, list(schema.primary_key))

    def spelled(self, schema: TableSchema, row: Any) -> tuple[Any, ...]:
        """Return a row of numbers in the next spelling."""
        self.turn += 1
        return tuple(
            [self._spelled(value) if self._is_spelled(name) else value for name, value in zip(schema.names, row)]
        )

    def told(self, schema: TableSchema, row: Any) -> tuple[Any, ...]:
        """Return the numbers that a row stands for."""
        return tuple(
            [
                self._numbers[self._encode(value)] if self._is_spelled(name) and value is not None else value
                for name, value in zip(schema.names, row)
            ]
        )

    def _is_spelled(self, name: str) -> bool:
        return name.removesuffix("_right") in self.columns

    def _spelled(self, number: int | None) -> Any:
        found = [None] if number is None else SPELLINGS[self.kind][number]
        return found[self.turn % len(found)]
