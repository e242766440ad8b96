"""Expressions beside DuckDB's, over values that are NULL, negative, zero, infinite and no number."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import reduce
from itertools import product
from operator import add, and_, floordiv, mod, mul, or_, sub, truediv
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from objectspace.operators import Expression, ExpressionError, call, coalesce, col, count, lit, when
from objectspace.operators.computed import Select, Where
from objectspace.operators.expressions import expression
from objectspace.operators.predicates import COMPARISONS, predicate_of
from objectspace.relational import Chunk, Column, RowError, SchemaError, TableSchema
from objectspace.relational.values import nearest_float32

SCHEMA = TableSchema(
    [
        Column("id", "int64"),
        Column("i", "int64", nullable=True),
        Column("j", "int32", nullable=True),
        Column("f", "float64", nullable=True),
        Column("d", "decimal(10,2)", nullable=True),
        Column("s", "string", nullable=True),
        Column("t", "timestamp", nullable=True),
        Column("b", "bool", nullable=True),
    ],
    ["id"],
)

NOON = datetime(2026, 1, 2, 12, 30, 15)

ROWS: list[tuple[Any, ...]] = [
    (1, 7, 2, 1.5, Decimal("1.50"), "Ab/c", NOON, True),
    (2, -7, 2, -0.0, Decimal("-2.25"), "", NOON - timedelta(days=400), False),
    (3, None, None, None, None, None, None, None),
    (4, 7, 0, math.inf, Decimal("0.00"), "c", NOON, None),
    (5, -7, -2, math.nan, Decimal("1.50"), "A", NOON, True),
    (6, 0, -3, -1.5, Decimal("99.99"), "é/x/y", NOON, False),
]

CASES: list[tuple[Expression, str]] = [
    (col("i") + col("j"), "i + j"),
    (col("i") - 3 * col("j"), "i - 3 * j"),
    (col("i") / col("j"), "i / nullif(j, 0)"),
    (col("i") // col("j"), "i // nullif(j, 0)"),
    (col("i") % col("j"), "i % nullif(j, 0)"),
    (20 // col("j"), "20 // nullif(j, 0)"),
    (20 % col("j"), "20 % nullif(j, 0)"),
    (col("i") // -1, "i // -1"),
    (-1 // col("id"), "-1 // id"),
    (-col("f"), "-f"),
    (col("f") * 2, "f * 2"),
    (col("d") + 1, "d + 1"),
    (col("d") * Decimal("0.5"), "d * 0.5"),
    (10 - col("d"), "10 - d"),
    (col("i") > col("j"), "i > j"),
    (col("i") <= 0, "i <= 0"),
    (col("f") == col("f"), "f = f"),
    (col("f") > 1.0, "f > 1.0"),
    (col("f") != 0, "f <> 0"),
    (col("f") < math.inf, "f < 'inf'::DOUBLE"),
    (col("f") < 10**400, "f < 'inf'::DOUBLE"),
    (col("f") > -(10**400), "f > '-inf'::DOUBLE"),
    (col("d") >= Decimal("1.5"), "d >= 1.5"),
    (col("s") == "A", "s = 'A'"),
    (col("t") >= NOON, "t >= TIMESTAMP '2026-01-02 12:30:15'"),
    (col("t") + timedelta(hours=1) > NOON, "t + INTERVAL 1 HOUR > TIMESTAMP '2026-01-02 12:30:15'"),
    (col("t") + (lit(timedelta(hours=1)) + timedelta(hours=2)), "t + INTERVAL 3 HOUR"),
    (col("b") & (col("i") > 0), "b AND i > 0"),
    (col("b") | (col("i") > 0), "b OR i > 0"),
    ((col("i") > 0) & col("b") | col("s").is_null(), "i > 0 AND b OR s IS NULL"),
    ((col("i") > 0) & (col("b") | (col("j") > 0)), "i > 0 AND (b OR j > 0)"),
    (~col("b"), "NOT b"),
    (~((col("i") > 0) & col("b")), "NOT (i > 0 AND b)"),
    (col("i").is_null(), "i IS NULL"),
    (col("i").is_not_null() & (col("j") != 2), "i IS NOT NULL AND j <> 2"),
    (col("i").is_in([7, 0]), "i IN (7, 0)"),
    (when(col("i") > 0, col("i"), col("f")), "CASE WHEN i > 0 THEN i ELSE f END"),
    (when(col("b"), "s", None), "CASE WHEN b THEN 's' END"),
    (coalesce("i", "j", 9), "coalesce(i, j, 9)"),
    (coalesce("s", lit("none")), "coalesce(s, 'none')"),
    (coalesce("d", "f") == 99.99, "coalesce(d, f) = 99.99::DOUBLE"),
    (coalesce("d", "f").cast("string"), "coalesce(d, f)::VARCHAR"),
    (when(col("b"), col("f"), col("d")).is_in([99.99]), "CASE WHEN b THEN f ELSE d END IN (99.99::DOUBLE)"),
    (when(col("i") > 0, col("i"), col("f")).cast("string"), "(CASE WHEN i > 0 THEN i ELSE f END)::VARCHAR"),
    (call(lambda d: d, "float64", "d").cast("string"), "d::DOUBLE::VARCHAR"),
    (col("s").upper(), "upper(s)"),
    (col("s").lower(), "lower(s)"),
    (col("s").length(), "length(s)"),
    (col("s").contains("c"), "contains(s, 'c')"),
    (col("s").starts_with("A"), "starts_with(s, 'A')"),
    (col("s").split_part("/", 0), "split_part(s, '/', 1)"),
    (col("s").split_part("/", 1), "string_split(s, '/')[2]"),
    (col("t").strftime("%Y-%m"), "strftime(t, '%Y-%m')"),
    (col("t").strftime("%%s%Ss"), "strftime(t, '%%s%Ss')"),
    (col("t").hour(), "hour(t)"),
    (col("t").cast("date"), "t::DATE"),
    (col("t").cast("date") - timedelta(days=2), "(t::DATE - INTERVAL 2 DAY)::DATE"),
    (col("t").cast("date").cast("timestamp") + timedelta(hours=36), "t::DATE + INTERVAL 36 HOUR"),
    (col("t").cast("timestamp"), "t"),
    (col("i").cast("string"), "i::VARCHAR"),
    (col("i").cast("float64") / 2, "i::DOUBLE / 2"),
    (col("b").cast("string"), "b::VARCHAR"),
    (col("b").cast("int64") + 1, "b::BIGINT + 1"),
    (col("t").cast("string"), "t::VARCHAR"),
    (col("t").strftime(" %Y-%m-%d").cast("date") > date(2025, 6, 1), "t::DATE > '2025-06-01'"),
    (call(lambda i, j: None if i is None else i * (j or 0), "int64", "i", "j"), "i * coalesce(j, 0)"),
    (call(lambda row: row.s is None or row["b"], "bool"), "s IS NULL OR b"),
]


@pytest.fixture(scope="module")
def oracle() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    data = Chunk(SCHEMA, ["+"] * len(ROWS), ROWS).to_arrow(op_column="$op")
    connection.register("t_rows", data)
    return connection


NESTED: dict[str, list[Any]] = {
    "list<float64>": [[], [0.0], [-0.0], [1.0], [1.0, 2.0], [math.nan], [None], [1.0, None], None],
    "struct<a:int64,b:string>": [{"a": a, "b": b} for a in (1, 2, None) for b in ("", "x", None)],
    "list<struct<d:decimal(5,2)>>": [[{"d": d}] for d in (Decimal(1), Decimal("1.00"), Decimal(-2), None)],
}


@pytest.mark.parametrize("sign", COMPARISONS)
@pytest.mark.parametrize("kind", NESTED)
def test_lists_and_structs_compare_as_in_duckdb(kind: str, sign: str) -> None:
    schema = TableSchema([Column("id", "int64"), Column("a", kind, True), Column("b", kind, True)], ["id"])
    pairs = [(one, other) for one in NESTED[kind] for other in NESTED[kind]]
    rows = [schema.check_row((number, *pair)) for number, pair in enumerate(pairs)]
    connection = duckdb.connect()
    connection.register("pairs", Chunk(schema, ["+"] * len(rows), rows).to_arrow(op_column="$op"))
    expected = connection.execute(f"SELECT a {sign} b FROM pairs ORDER BY id").fetchall()
    made = COMPARISONS[sign](col("a"), col("b")).bind(schema)
    assert [made.value(row) for row in rows] == [value for (value,) in expected]


def test_what_a_function_returns_in_the_place_of_a_list_is_refused() -> None:
    same = (call(lambda i: ["x"], "list<int64>", "i") == call(lambda i: [i], "list<int64>", "i")).bind(SCHEMA)
    with pytest.raises(RowError, match=r"\['x'\] cannot be compared as list<int64>: element 0: expected int64"):
        same.value(ROWS[0])
    with pytest.raises(SchemaError, match=r"the condition \('l', '=', 'x'\): 'x' cannot be compared as list<int64>"):
        predicate_of(TableSchema([Column("l", "list<int64>")]), ("l", "=", "x"))


def plain(value: Any) -> Any:
    """Return a value as something that compares: NaN is itself."""
    return "nan" if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.parametrize(("made", "sql"), CASES, ids=[sql for _, sql in CASES])
def test_an_expression_gives_what_duckdb_gives(made: Expression, sql: str, oracle: Any) -> None:
    select = Select(SCHEMA, {"x": made, "id": col("id")})
    (chunk,) = select.process(Chunk(SCHEMA, ["+"] * len(ROWS), ROWS))
    expected = oracle.execute(f"SELECT {sql} AS x, id FROM t_rows ORDER BY id").fetchall()
    assert [tuple(map(plain, row)) for _, row in chunk.rows()] == [tuple(map(plain, row)) for row in expected]


@pytest.mark.parametrize(
    "condition",
    [pc.field("i") > 0, col("i") > 0, lambda row: (row.i or 0) > 0],
    ids=["pyarrow", "expression", "callable"],
)
def test_a_filter_takes_three_kinds_of_conditions(condition: Any) -> None:
    where = Where(SCHEMA, expression(condition))
    (chunk,) = where.process(Chunk(SCHEMA, ["+"] * len(ROWS), ROWS))
    assert [row[0] for _, row in chunk.rows()] == [1, 4]
    assert where.process(Chunk(SCHEMA, ["+"], ROWS[1:2])) == []


def test_an_expression_of_pyarrow_has_the_type_that_arrow_gives_it() -> None:
    bound = expression(pc.multiply(pc.field("f"), pc.scalar(2))).bind(SCHEMA)
    assert str(bound.type) == "float64"
    assert bound.values(ROWS[:1]) == [3.0] == [bound.value(ROWS[0])]


def test_the_text_of_an_expression_is_its_identity() -> None:
    assert ((col("i") + 1) > 2).is_same((col("i") + 1) > 2)
    assert not (col("i") > 2).is_same(col("i") >= 2)
    first, same, other = (call(function, "int64", "i") for function in (lambda i: i + 1, lambda i: i + 1, lambda i: i))
    assert first.is_same(same)
    assert not first.is_same(other)
    assert not lit("1").is_same(lit(1))
    for value in (True, False, None, math.nan, math.inf, Decimal("NaN"), Decimal("Infinity")):
        assert not lit(value).is_same(col(str(lit(value))))
    assert not col("s").is_in(["a", "b"]).is_same(col("s").is_in(["a', 'b"]))
    bounds = [call(lambda i, limit=limit: i > limit, "bool", "i") for limit in (1, 2)]  # type: ignore[misc]
    assert not bounds[0].is_same(bounds[1])


ALIKE: list[tuple[Any, Any]] = [
    (col("length(s)") > 1, col("s").length() > 1),
    (col("i and j") & col("b"), col("i") & col("j and b")),
    (call(max, "int64", "i, j"), call(max, "int64", "i", "j")),
    (col("b'q'"), lit(b"q")),
    (col("decimal '1'"), lit(Decimal(1))),
    (lit(0.1), lit(Decimal("0.1"))),
    (lit(1), lit(Decimal(1))),
    (lit(1), col("1")),
    (col("f").is_in([2.0]), col("f").is_in([Decimal("2.0")])),
    (pc.divide(pc.field("i"), 2), pc.divide(pc.field("i"), 2.0)),
    (pc.field("i") * 2 + 2.0, pc.field("i") * 2.0 + 2),
]
"""Pairs of expressions that do something else."""


@pytest.mark.parametrize(("one", "other"), ALIKE, ids=str)
def test_what_does_something_else_has_another_text(one: Any, other: Any) -> None:
    assert not expression(one).is_same(expression(other))


def test_what_is_like_nothing_else_keeps_its_text() -> None:
    names = ["origin", "order date", "a.b", "a-b", "_x", "$op", "é", "x#1"]
    assert [str(col(name)) for name in names] == names
    literals = {0.5: "0.5", 7: "7", True: "True", "it's": "'it''s'", date(2026, 1, 2): "'2026-01-02'"}
    assert [str(lit(value)) for value in literals] == list(literals.values())
    assert [str(expression(one)) for one in (pc.divide(pc.field("i"), 2), pc.field("f") > 1.5)] == [
        "arrow(divide(i, 2))",
        "arrow((f > 1.5))",
    ]


STORED_TEXTS = {
    "((-7 // i) != (i % 'x'))": -7 // col("i") != col("i") % "x",
    "((0 - i) in (10, 9))": (-col("i")).is_in({9, 10}),
    "((b or (i >= 1)) and (not (s is null)))": (col("b") | (col("i") >= 1)) & ~col("s").is_null(),
    "(when b then 1 else 'x')": when("b", 1, "x"),
    "coalesce(i, 'x', null)": coalesce("i", lit("x"), None),
    "cast(lower(s) as decimal(5,2))": col("s").lower().cast("numeric(5,2)"),
    "split_part(upper(s), '/', 1)": col("s").upper().split_part("/", 1),
    "contains(strftime(t, '%Y'), '0')": col("t").strftime("%Y").contains("0"),
    "(starts_with(s, 'a') = (hour(t) is not null))": col("s").starts_with("a") == col("t").hour().is_not_null(),
    "builtins.max(length(s), 2)": call(max, "int64", col("s").length(), 2),
}


@pytest.mark.parametrize(("text", "made"), STORED_TEXTS.items(), ids=list(STORED_TEXTS))
def test_a_text_stays_as_it_is_in_stored_pipelines(text: str, made: Expression) -> None:
    assert str(made) == text


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (col("x") > 1, "there is no column 'x'"),
        (col("s") + 1, "takes numbers, or a time and a span of time: found string; call"),
        (col("s") > 1, "> takes values of one type: found string and int64"),
        (when(col("b"), col("s"), col("i")), "when takes values of one type"),
        (coalesce("s", "i"), "coalesce takes values of one type"),
        (call(lambda row: row.nothing, "int64"), "there is no column 'nothing'"),
        (col("t") + 1, "takes numbers, or a time and a span of time: found timestamp"),
        (lit(timedelta(1)) * 2, "takes numbers: found a span of time"),
        (col("t") * timedelta(1), "takes numbers: found timestamp"),
        (lit(timedelta(1)), "a span of time"),
        (timedelta(1) - col("t"), "no timestamp is taken from a span of time: write the timestamp first"),
        (lit(None), "NULL of no type"),
    ],
    ids=lambda given: str(given)[:30],
)
def test_what_has_no_meaning_is_refused_with_its_name(made: Expression, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        Select(SCHEMA, {"x": made}).process(Chunk(SCHEMA, ["+"], ROWS[:1]))


def test_a_time_that_arrow_has_made_and_python_has_not_is_refused() -> None:
    schema = TableSchema([Column("at", "timestamp")])
    later = expression(pc.add(pc.field("at"), pa.scalar(timedelta(days=1))))
    with pytest.raises(RowError, match=r"arrow\(.*\): 10000-01-01 00:00:00.000000 is out of range"):
        Select(schema, {"x": later}).process(Chunk(schema, ["+"], [(datetime(9999, 12, 31),)]))


INSTANT = TableSchema([Column("at", "timestamptz")])
MORNING = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=5)))


@pytest.mark.parametrize(
    "made",
    [
        col("at"),
        lit(MORNING),
        call(lambda at: at.astimezone(MORNING.tzinfo), "timestamptz", "at"),
        call(lambda row: MORNING, "timestamptz"),
        when(col("at").is_null(), col("at"), MORNING),
        coalesce(lit(None), MORNING) - timedelta(0),
        expression(pc.field("at").cast(pa.timestamp("us", "+05:00"))),
    ],
    ids=str,
)
def test_an_instant_has_its_hour_its_date_and_its_text_in_utc(made: Expression) -> None:
    row = INSTANT.check_row((MORNING,))
    shown = [made.hour(), made.cast("date"), made.cast("string"), made.strftime("%d")]
    found = [one.bind(INSTANT).value(row) for one in shown]
    assert found == [21, date(2025, 12, 31), "2025-12-31 21:00:00+00:00", "31"]


def test_what_is_no_instant_is_refused() -> None:
    with pytest.raises(RowError, match=r"lambda#\w+\(\): expected timestamptz, found str 'now'"):
        call(lambda row: "now", "timestamptz").hour().bind(INSTANT).value((MORNING,))
    with pytest.raises(RowError, match=r"lit.*: datetime.* is out of range in UTC"):
        lit(datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))))


def test_what_python_reads_as_truth_is_refused() -> None:
    with pytest.raises(TypeError, match="has no truth before it has a row"):
        bool(col("i") > 1)
    with pytest.raises(TypeError, match=r"c has no values before it has a row: write c\.contains\(\.\.\.\) for a part"):
        "a" in col("c")  # noqa: B015
    with pytest.raises(SchemaError, match="no column type has such values"):
        lit({1, 2})
    for make in (lambda value: col("f") < value, lambda value: predicate_of(SCHEMA, ("f", "in", [value]))):
        with pytest.raises(SchemaError, match=r"Decimal\('sNaN'\) has no order and no double: write Decimal\('NaN'\)"):
            make(Decimal("sNaN"))
    with pytest.raises(SchemaError, match=r"coalesce\(\) takes at least one expression"):
        coalesce()
    with pytest.raises(SchemaError, match="cannot be cast to binary"):
        col("i").cast("binary")


def test_a_result_that_does_not_fit_its_type_is_refused() -> None:
    select = Select(SCHEMA, {"x": col("i") * 2**62})
    with pytest.raises(RowError, match="column 'x'"):
        select.process(Chunk(SCHEMA, ["+"], ROWS[:1]))
    for made, said in ((col("t") + timedelta(days=1), "beyond what a timestamp holds"), (col("i") + 1, "out of range")):
        row = (1, 2**63 - 1, None, None, None, None, datetime.max, None)
        with pytest.raises(RowError, match=said):
            Select(SCHEMA, {"x": made}).process(Chunk(SCHEMA, ["+"], [row]))


@pytest.mark.parametrize(
    ("sign", "half"), [(1, timedelta(hours=36)), (-1, timedelta(hours=-36)), (1, timedelta(microseconds=1))]
)
def test_a_date_takes_whole_days_alone(sign: int, half: timedelta) -> None:
    day = col("t").cast("date")
    said = r"is not whole days, and a date has no hours: make a timestamp of the date with cast\('timestamp'\) first"
    for made in (day + half, day - half, half + day):
        with pytest.raises(SchemaError, match=said):
            made.bind(SCHEMA)
    bound = (day + when(col("b"), timedelta(days=sign), half)).bind(SCHEMA)
    assert bound.value(ROWS[0]) == date(2026, 1, 2 + sign)
    assert bound.value(ROWS[2]) is None
    with pytest.raises(RowError, match=rf"\(cast\(t as date\) \+ \(when .*\)\): {re.escape(repr(half))} {said}"):
        bound.value(ROWS[1])


def test_types_and_nulls_are_known_before_there_are_rows() -> None:
    made = {
        "a": col("id") + 1,
        "b": col("j") / 2,
        "c": col("t").cast("date"),
        "d": lit(date(2026, 1, 1)),
        "e": lit("x"),
        "f": when(col("b"), None, 1),
        "g": coalesce("i", "d", 1),
        "h": coalesce("j", 1),
    }
    shown = {name: str(one.bind(SCHEMA).column(name)) for name, one in made.items()}
    assert shown == {
        "a": "a int64 not null",
        "b": "b float64",
        "c": "c date",
        "d": "d date not null",
        "e": "e string not null",
        "f": "f int64",
        "g": "g decimal not null",
        "h": "h int64 not null",
    }


KINDS = {"i": "int64", "s": "string", "t": "timestamp", "b": "bool"}
HALF = TableSchema([Column(f"{no}{name}", kind, bool(no)) for no in ("", "no_") for name, kind in KINDS.items()])
HALF_ROW = (0, "a", NOON, True, None, None, None, None)
"""A row of that schema: each kind once with a value, in a column without NULL, and once as NULL."""

ARITHMETIC = [add, sub, mul, truediv, floordiv, mod]


def nulls() -> Iterator[Any]:
    """Yield expressions that are NULL for the row: one of each kind for each operand that may make it so."""
    i, s, b, no_i, no_s, no_t, no_b = map(col, ["i", "s", "b", "no_i", "no_s", "no_t", "no_b"])
    yield from (no_i, lit(None), i < lit(None), pc.field("no_i") + 1, lambda row: row.no_b)
    yield from (
        apply(*pair) for apply in (*ARITHMETIC, *COMPARISONS.values()) for pair in ((i + 1, no_i), (no_i, i + 1))
    )
    yield from (i / i, i // i, i % i, -no_i, no_t + timedelta(1), no_t.cast("date") - timedelta(1))
    yield from (no_b & b, b & no_b, no_b | ~b, ~b | no_b, ~no_b, b & b & no_b, lit(None) & b)
    yield from (no_i.is_in([1]), no_i.cast("string"), no_t.strftime("%Y"), no_t.hour())
    yield from (no_s.lower(), no_s.upper(), no_s.length(), no_s.contains("a"), no_s.starts_with("a"))
    yield from (no_s.split_part("-", 0), s.split_part("-", 1), lit(None).lower(), lit(None).cast("string"))
    yield from (when(b, no_i, 1), when(~b, 1, no_i), when(no_b, 1, no_i), when(~b, 1), coalesce("no_i", no_i, None))
    yield from (call(lambda i: None, "int64", "i"), call(lambda row: None, "int64"))


@pytest.mark.parametrize("made", list(map(expression, nulls())), ids=str)
def test_what_may_be_null_says_so(made: Expression) -> None:
    bound = made.bind(HALF)
    assert (bound.value(HALF_ROW), bound.nullable) == (None, True)


def never_null() -> Iterator[Expression]:
    i, s, b, no_i, no_b = map(col, ["i", "s", "b", "no_i", "no_b"])
    yield from (lit(1), i + 1, -i, i < 1, b & ~b, b | b | b, s.lower(), s.is_in(["b"]), i.cast("string"))
    yield from (no_i.is_null(), no_i.is_not_null(), when(no_b, 1, 2), coalesce("no_i", 1))
    yield call(lambda no_i: 1, "int64", "no_i", nullable=False)


@pytest.mark.parametrize("made", list(never_null()), ids=str)
def test_what_is_never_null_says_so(made: Expression) -> None:
    bound = made.bind(HALF)
    assert (bound.value(HALF_ROW) is None, bound.nullable) == (False, False)


def test_a_column_may_be_called_as_an_expression_is_written() -> None:
    schema = TableSchema([Column("1", "int64"), Column("lower(s)", "string"), Column("s", "string")], ["s"])
    select = Select(schema, {"s": col("s"), "one": lit(1), "low": col("s").lower(), "there": col("1")})
    (made,) = select.process(Chunk(schema, ["+"], [(7, "other", "S")]))
    assert made.values == [("S", 1, "s", 7)]
    (made,) = Select(schema, {"s": col("s"), "one": lit(1)}).process(Chunk(schema, ["+"], [(7, "other", "S")]))
    assert made.values == [("S", 1)]


NUMBERS = TableSchema(
    [Column("id", "int64"), Column("x", "float64"), Column("d", "decimal"), Column("s", "string")], ["id"]
)


def kept(condition: Any, *rows: tuple[Any, ...]) -> list[int]:
    """Return the ids of the rows that a condition lets through."""
    where = Where(NUMBERS, expression(condition))
    return [
        row[0]
        for chunk in where.process(Chunk.from_rows(NUMBERS, [("+", row) for row in rows]))
        for row in chunk.values
    ]


ONE, TWO = (1, 1.0, Decimal("0.10"), ""), (2, math.nan, Decimal("0.2"), "x")


def test_what_a_function_returns_for_a_bool_has_a_truth() -> None:
    big = call(lambda x: np.float64(x) > 0.5, "bool", "x")
    begins = call(lambda s: s and s.startswith("x"), "bool", "s")
    assert kept(big, ONE, TWO) == kept(big & (col("id") > 0), ONE, TWO) == kept(big | (col("id") > 5), ONE, TWO) == [1]
    assert kept(~big, ONE, TWO) == [2]
    assert kept(begins & (col("id") > 0), ONE, TWO) == [2]


@pytest.mark.parametrize(
    "condition",
    [col("id"), col("id") & (col("x") > 0), ~col("id"), when(col("s"), 1, 2) > 1, (col("x") > 0) | col("s")],
    ids=str,
)
def test_a_condition_that_is_no_bool_is_refused_when_it_is_bound(condition: Expression) -> None:
    with pytest.raises(SchemaError, match="a condition is of type bool"):
        Where(NUMBERS, condition)


def test_a_condition_may_have_any_number_of_terms() -> None:
    found, other = col("id") == 0, col("id") == 0
    for number in range(1, 2_000):
        found, other = found | (col("id") == number), (col("id") == number) | other
    rows = [(number, 1.0, Decimal(1), "") for number in (0, 1_999, 2_000)]
    for made in (found, other, ~(~found & ~other & ~(col("id") == 5))):
        assert kept(made, *rows) == [0, 1_999]
    total = col("id")
    for _ in range(2_000):
        total += 1
    with pytest.raises(SchemaError, match=r"\+ 1\) \+ 1\) is nested too deeply: split it with with_columns\(\), or"):
        total.bind(NUMBERS)


@pytest.mark.parametrize("word", ["and", "or"])
def test_a_condition_of_three_terms_knows_what_null_leaves_open(word: str, oracle: Any) -> None:
    kinds = {True: "true", False: "false", None: "NULL::BOOL"}
    for values in product(kinds, repeat=3):
        first, *rest = (when(lit(True), lit(one), lit(False)) for one in values)
        made = reduce(and_ if word == "and" else or_, rest, first)
        sql = f" {word} ".join(kinds[one] for one in values)
        assert [(made.bind(NUMBERS).value(()),)] == oracle.execute(f"SELECT {sql}").fetchall()


def test_is_in_compares_as_equality_does() -> None:
    assert kept(col("x").is_in([float("nan"), 7]), ONE, TWO) == [2]
    assert kept(~col("x").is_in([float("nan")]), ONE, TWO) == [1]
    assert kept(col("d").is_in([0.1]), ONE, TWO) == kept(col("d") == 0.1, ONE, TWO) == [1]
    assert kept(col("d") == col("x"), (1, 0.1, Decimal("0.1"), ""), TWO) == [1]
    for values, message in (([None], "found None"), ([col("x")], "found x"), (["1"], "values of one type")):
        with pytest.raises(SchemaError, match=message):
            col("x").is_in(values).bind(NUMBERS)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: col("x").lower(), r"lower\(x\) takes string: x is float64"),
        (lambda: col("id").hour(), r"hour\(id\) takes time or timestamp"),
        (lambda: col("s").strftime("%Y"), "takes date or timestamp"),
        (lambda: col("s").contains(None), "expected a text"),
        (lambda: col("s").strftime(5), "expected a text, found 5"),
        (lambda: col("t").strftime("%Y %s"), "takes no %s, which depends on the time zone"),
        (lambda: col("t").strftime("%%%-5s"), "takes no %s, which depends on the time zone"),
        (lambda: col("s").is_in("abc"), r"is_in\(\) takes a list of values: found 'abc'"),
        (lambda: col("s").is_in(5), r"is_in\(\) takes a list of values: found 5"),
        (lambda: col("s").is_in(col("s")), r"is_in\(\) takes a list of values: found Expression\(s\)"),
        (lambda: col("s").split_part("", 0), "takes a separator"),
        (lambda: col("s").split_part(",", -1), "counts the parts from 0"),
        (lambda: col("s").split_part(",", 1.0), "counts the parts from 0: found 1.0"),
    ],
)
def test_a_method_of_another_type_is_refused_before_a_row_comes(make: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        make().bind(NUMBERS)


def test_what_is_infinite_or_no_number_divides_as_in_sql() -> None:
    divided = [(col("x") // 1).bind(NUMBERS), (col("x") % 1.0).bind(NUMBERS)]
    found = {x: [repr(one.value((1, x, None, ""))) for one in divided] for x in (math.inf, -math.inf, math.nan, -2.5)}
    assert list(found.values()) == [["inf", "nan"], ["-inf", "nan"], ["nan", "nan"], ["-2.0", "-0.5"]]


def test_a_cast_names_the_value_that_it_cannot_cast_and_rounds_to_a_scale() -> None:
    assert col("s").cast("decimal(5,2)").bind(NUMBERS).value((1, 0.0, None, "1.005")) == Decimal("1.01")
    for kind, column, row in (("int64", "x", TWO), ("int64", "s", TWO), ("decimal", "s", TWO)):
        with pytest.raises(RowError, match=rf"cast\({column} as {kind}\): .* is no {kind}"):
            col(column).cast(kind).bind(NUMBERS).value(row)


OUT_OF_RANGE = [
    *(("decimal(5,2)", text) for text in ("Infinity", "-Infinity", "NaN", "1E+80", "999.995", "one")),
    ("decimal", "1E+7000"),
    ("float32", "1e39"),
    ("int16", "32768"),
    ("int32", "-2147483649"),
    ("int64", "9223372036854775808"),
]


@pytest.mark.parametrize(("kind", "text"), OUT_OF_RANGE)
def test_what_a_type_does_not_hold_is_refused_within_an_expression_too(kind: str, text: str) -> None:
    made = col("s").cast(kind).is_not_null().bind(NUMBERS)
    with pytest.raises(RowError, match=rf"'{re.escape(text)}' is no {re.escape(kind)}: filter such rows out first"):
        made.value((1, 0.0, None, text))


@pytest.mark.parametrize("text", ["1_000", "\u0661\u0662", "0x10", "1e3", "1.0", "", "one"])
def test_text_is_a_whole_number_where_sql_says_so(text: str) -> None:
    assert col("s").cast("int64").bind(NUMBERS).value((1, 0.0, None, f" {-12} ")) == -12
    with pytest.raises(RowError, match=r"cast\(s as int64\): .* is no int64: filter such rows out first"):
        col("s").cast("int64").bind(NUMBERS).value((1, 0.0, None, text))
    if "_" in text or not text.isascii():
        for kind in ("float64", "decimal"):
            with pytest.raises(RowError, match=rf"is no {kind}"):
                col("s").cast(kind).bind(NUMBERS).value((1, 0.0, None, text))


@pytest.mark.parametrize("text", ["2026-02-30", "20260131", "2026-W01-1", "2026-1-31", "\u0662026-01-31", "today", ""])
def test_text_that_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(RowError, match=r"cast\(s as date\): .* is no date: filter such rows out first"):
        col("s").cast("date").bind(NUMBERS).value((1, 0.0, None, text))


@pytest.mark.parametrize(
    ("column", "kind"), [("i", "date"), ("b", "date"), ("t", "int64"), ("t", "decimal"), ("s", "timestamp")]
)
def test_a_type_that_cannot_be_cast_is_refused_before_there_are_rows(column: str, kind: str) -> None:
    with pytest.raises(SchemaError, match=rf"cast\({column} as {kind}\) takes .*: {column} is "):
        col(column).cast(kind).bind(SCHEMA)


def test_the_timestamp_of_an_instant_is_in_utc() -> None:
    assert col("at").cast("timestamp").bind(INSTANT).value(INSTANT.check_row((MORNING,))) == datetime(2025, 12, 31, 21)


def test_a_long_list_of_values_counts_with_all_of_them() -> None:
    texts = {str(expression(pc.field("id").isin(pa.array(range(number, number + 30))))) for number in (0, 0, 1)}
    lists = [[*range(30)], [*range(15), 99, *range(16, 30)]]
    assert len(texts) == len({str(expression(pc.field("id").isin(pa.array(values)))) for values in lists}) == 2


def test_a_call_with_an_expression_as_its_filter_can_be_printed() -> None:
    assert repr(count(filter=col("x") > 1)) == "AggCall('count', filter=Expression((x > 1)))"


def test_numbers_of_32_bits_and_doubles_are_compared_as_such() -> None:
    schema = TableSchema(
        [Column("x", "float32"), Column("y", "float32"), Column("i", "int64"), Column("f", "float64")], ["x"]
    )
    row = schema.check_row((0.1, 0.10000000149011612, 2**53 + 1, 2.0**53))
    for same in (col("x") == col("y"), col("i") == col("f"), col("i").is_in([2.0**53]), ~(col("i") > col("f"))):
        assert same.bind(schema).value(row) is True
    assert (col("i") == lit(2**53)).bind(schema).value(row) is False


SINGLE = TableSchema([Column("id", "int64"), Column("x", "float32", nullable=True), Column("g", "float64", True)])

SINGLES: list[tuple[Any, str]] = [
    (col("x") == 0.1, "x = 0.1::DOUBLE"),
    (col("x").cast("float64"), "x::DOUBLE"),
    (col("x").cast("string"), "x::VARCHAR"),
    (col("x") * 3, "x::DOUBLE * 3"),
    (coalesce("x", "g"), "coalesce(x, g)"),
    (when(col("g") > 0, col("x")).cast("string"), "(CASE WHEN g > 0 THEN x END)::VARCHAR"),
    (col("g").cast("float32").cast("float64"), "g::REAL::DOUBLE"),
    (col("g").cast("float32") == col("x"), "g::REAL = x"),
    (col("x").is_in([0.1, 1.5]), "x IN (0.1::DOUBLE, 1.5)"),
    (call(lambda x: x, "float64", "x"), "x::DOUBLE"),
    (call(lambda row: row.x, "float64"), "x::DOUBLE"),
    (call(lambda g: g, "float32", "g").cast("float64"), "g::REAL::DOUBLE"),
    (pc.field("x").cast(pa.float64()), "x::DOUBLE"),
]


@pytest.mark.parametrize(("made", "sql"), SINGLES, ids=[sql for _, sql in SINGLES])
def test_a_number_of_32_bits_is_read_as_such_however_it_was_spelled(made: Any, sql: str) -> None:
    numbers = [0.1, 1 / 3, 1.5, 16777217.0, 9.5249e12, 1e30, 3.4028235e38, 1.2e-38, 1e-40, 3e-45, -0.0]
    numbers += [math.nan, -math.inf, None]
    spelled = [SINGLE.check_row((place, number, number)) for place, number in enumerate(numbers)]
    data = Chunk(SINGLE, ["+"] * len(numbers), spelled).to_arrow(op_column="$op")
    connection = duckdb.connect()
    connection.register("singles", data)
    expected = [plain(value) for (value,) in connection.execute(f"SELECT {sql} FROM singles ORDER BY id").fetchall()]
    for rows in (spelled, Chunk.from_arrow(data, SINGLE, op_column="$op").values):
        assert [*map(plain, expression(made).bind(SINGLE).values(rows))] == expected


@pytest.mark.parametrize("spelled", [0.1, 0.10000000149011612, 0.5, math.nan])
@pytest.mark.parametrize("sign", COMPARISONS)
def test_conditions_of_all_kinds_agree_on_a_number_of_32_bits(sign: str, spelled: float) -> None:
    row, near = (SINGLE.check_row((1, value, 0.1)) for value in (spelled, nearest_float32(spelled)))
    compare = COMPARISONS[sign]
    expected = compare(col("x"), 0.1).bind(SINGLE).value(near)
    assert compare(col("x"), col("g")).bind(SINGLE).value(row) is expected
    assert predicate_of(SINGLE, ("x", sign, 0.1))(row) is expected
    if spelled == spelled:  # What a function does with NaN is its own.
        assert predicate_of(SINGLE, lambda x: compare(x, 0.1))(row) is expected


STORED = {"int16": 5, "int64": 2**53 + 1, "decimal": Decimal("0.1"), "float64": 0.1, "float32": 0.1}
BESIDE = [5, 2**53 + 1, 2.0**53, 0.1, Decimal("0.1"), math.nan, math.inf, 10**400, -(10**400)]


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("sign", COMPARISONS)
def test_a_condition_in_a_tuple_is_that_of_an_expression(sign: str, kind: str) -> None:
    schema = TableSchema([Column("v", kind)])
    row = schema.check_row((STORED[kind],))
    pairs = [((sign, literal), COMPARISONS[sign](col("v"), literal)) for literal in BESIDE]
    pairs += [(("in", among), col("v").is_in(among)) for among in (BESIDE[2:3], BESIDE[:2] + BESIDE[3:], [])]
    for pair, made in pairs:
        assert predicate_of(schema, ("v", *pair))(row) is made.bind(schema).value(row), pair


def test_a_column_that_only_moves_keeps_its_spelling() -> None:
    select = Select(SINGLE, {"x": col("x"), "double": col("x") * 2, "near": coalesce("x", "x")})
    (chunk,) = select.process(Chunk.from_rows(SINGLE, [("+", (1, 0.1, None))]))
    assert chunk.values == [(0.1, 0.20000000298023224, 0.10000000149011612)]


@pytest.mark.parametrize("made", [call(lambda row: row.i // 0, "int64"), call(lambda i: i // 0, "int64", "i")])
def test_a_function_that_fails_says_for_which_row(made: Expression) -> None:
    value = made.bind(TableSchema([Column("i", "int64")], ["i"])).value
    with pytest.raises(
        ExpressionError, match=r"lambda> failed for the row \(7,\): ZeroDivisionError: .*; values may be"
    ):
        value((7,))
