"""The oracle of joins and top-n: DuckDB runs the same query over the rows that are there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import duckdb

from objectspace.relational import TableSchema

Row = tuple[Any, ...]

TYPES = {"int64": "BIGINT", "float64": "DOUBLE", "string": "VARCHAR"}

JOINS = {
    "inner": "JOIN",
    "left_outer": "LEFT JOIN",
    "right_outer": "RIGHT JOIN",
    "full_outer": "FULL JOIN",
}

CONNECTION = duckdb.connect()


def rows_of(query: str, **tables: tuple[TableSchema, Iterable[Row]]) -> Counter[Row]:
    """Return the rows of a query over tables, with how often each is there."""
    named = ", ".join(f"{name} AS ({_select(schema, rows)})" for name, (schema, rows) in tables.items())
    return Counter(CONNECTION.execute(f"WITH {named} {query}").fetchall())


def join_query(kind: str, on: str) -> str:
    """Return the query of a join of ``l`` and ``r``."""
    if kind in JOINS:
        return f"SELECT * FROM l {JOINS[kind]} r ON {on}"
    main, other = ("l", "r") if kind.startswith("left") else ("r", "l")
    negation = "NOT" if kind.endswith("anti") else ""
    return f"SELECT * FROM {main} WHERE {negation} EXISTS (SELECT 1 FROM {other} WHERE {on})"


def top_query(group: str, order: str, limit: int, offset: int, with_ties: bool) -> str:
    """Return the query of the first rows of ``t`` in each group."""
    within = f"PARTITION BY {group} ORDER BY {order}"
    rank = f"rank() OVER ({within})" if with_ties else f"row_number() OVER ({within}, id)"
    return f"SELECT * FROM t QUALIFY {rank} > {offset} AND {rank} <= {offset + limit}"


def _select(schema: TableSchema, rows: Iterable[Row]) -> str:
    """Return a query that gives these rows; the first one, which it passes over, tells the types."""
    types = [f"CAST(NULL AS {TYPES[str(column.type)]}) AS {column.name}" for column in schema.columns]
    cells = [", ".join(map(_literal, row)) for row in rows]
    parts = [f"SELECT {', '.join(types)} WHERE false", *(f"SELECT {row}" for row in cells)]
    return " UNION ALL ".join(parts)


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"CAST('{value}' AS DOUBLE)" if isinstance(value, float) else repr(value)
