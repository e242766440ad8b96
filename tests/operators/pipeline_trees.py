"""Random trees of operators, each with the SQL that says what it must give.

Every tree gives the columns ``k`` (text or NULL), ``v`` and ``w`` (whole numbers or NULL), so any fits on any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from objectspace.operators import AggCall, Stream, avg, col, count, lit, max_, min_, sum_, when

Streams = Mapping[str, Stream]

SCHEMA = {"id": "int64", "k": "string?", "v": "int64?", "w": "int64?"}


KVW = ("k", "v", "w")


@dataclass(frozen=True)
class Tree:
    """A query: how it is built, and how it is said in SQL."""

    build: Callable[[Streams], Stream]
    sql: str

    def __repr__(self) -> str:
        return f"Tree({self.sql})"


Step = tuple[Callable[[Stream], Stream], str]
"""An operator with one input: what it builds, and its SQL over ``{x}``."""

FILTERS: list[Step] = [
    (lambda s: s.filter(col("v") > 0), "SELECT k, v, w FROM {x} WHERE v > 0"),
    (
        lambda s: s.filter((col("w") <= col("v")) | col("k").is_null()),
        "SELECT k, v, w FROM {x} WHERE w <= v OR k IS NULL",
    ),
    (lambda s: s.filter(~(col("k") == "a")), "SELECT k, v, w FROM {x} WHERE NOT k = 'a'"),
    (
        lambda s: s.filter(lambda row: row.v is None or row["v"] % 2 == 0),
        "SELECT k, v, w FROM {x} WHERE v IS NULL OR v % 2 = 0",
    ),
]

PROJECTIONS: list[Step] = [
    (lambda s: s.select("k", v="w", w=col("v") + 1), "SELECT k, w AS v, v + 1 AS w FROM {x}"),
    (lambda s: s.select("k", "w", v=col("v") % 3).select(*KVW), "SELECT k, v % 3 AS v, w FROM {x}"),
    (
        lambda s: s.select(k=when(col("v") > 1, lit("b"), col("k")), v="v", w=(lambda row: row.v, "int64")),
        "SELECT CASE WHEN v > 1 THEN 'b' ELSE k END AS k, v, v AS w FROM {x}",
    ),
]

AGGREGATES: list[Step] = [
    (
        lambda s: s.group_by("k").agg(v=sum_("v"), w=count("w")),
        "SELECT k, sum(v) AS v, count(w) AS w FROM {x} GROUP BY k",
    ),
    (lambda s: s.group_by("k").agg(v=min_("v"), w=max_("w")), "SELECT k, min(v) AS v, max(w) AS w FROM {x} GROUP BY k"),
    (
        lambda s: s.group_by("k", "w").agg(v=count("v", distinct=True)).select(*KVW),
        "SELECT k, count(DISTINCT v) AS v, w FROM {x} GROUP BY k, w",
    ),
    (
        lambda s: (
            s.group_by(g=col("v") % 2)
            .agg(v=count(filter=col("w") > 0), w=max_("v"))
            .select("v", "w", k=lit("g"))
            .select(*KVW)
        ),
        "SELECT 'g' AS k, count(*) FILTER (w > 0) AS v, max(v) AS w FROM {x} GROUP BY v % 2",
    ),
    (
        lambda s: (
            s.group_by("k").agg(m=avg("v"), w=count()).select("k", "w", v=(col("m") * 4).cast("int64")).select(*KVW)
        ),
        "SELECT k, trunc(avg(v) * 4)::BIGINT AS v, count(*) AS w FROM {x} GROUP BY k",
    ),
    (
        lambda s: s.agg(v=sum_("v"), w=count()).select("v", "w", k=lit("all")).select(*KVW),
        "SELECT 'all' AS k, sum(v) AS v, count(*) AS w FROM {x}",
    ),
    (
        lambda s: s.group_by("k").agg(v=AggCall("first_value", "v", order_by=["v desc", "w"]), w=min_("v")),
        "SELECT k, first(v ORDER BY v DESC NULLS LAST) AS v, min(v) AS w FROM {x} GROUP BY k",
    ),
    (lambda s: s.distinct(), "SELECT DISTINCT k, v, w FROM {x}"),
]

_ORDER = "v DESC NULLS LAST, k ASC NULLS FIRST, w ASC NULLS FIRST"
_RANKED = (
    "SELECT k, v, w FROM (SELECT *, {f} OVER (PARTITION BY {g} ORDER BY {o}) AS place FROM {{x}}) WHERE place <= {n}"
)

TOPS: list[Step] = [
    (lambda s: s.top_n(2, ["v desc", "k", "w"]), f"SELECT k, v, w FROM {{x}} ORDER BY {_ORDER} LIMIT 2"),
    (
        lambda s: s.top_n(2, ["v desc", "k", "w"], offset=1),
        f"SELECT k, v, w FROM {{x}} ORDER BY {_ORDER} LIMIT 2 OFFSET 1",
    ),
    (
        lambda s: s.group_by("k").top_n(1, ["v desc", "k", "w"]),
        _RANKED.format(f="row_number()", g="k", o=_ORDER, n=1),
    ),
    (
        lambda s: s.group_by("k").top_n(2, ["w desc nulls first"], with_ties=True),
        _RANKED.format(f="rank()", g="k", o="w DESC NULLS FIRST", n=2),
    ),
]

_SESSIONS = """
    SELECT *, min(v) OVER (PARTITION BY k, number) AS start
    FROM (
        SELECT *, sum(begins) OVER (PARTITION BY k ORDER BY v) AS number
        FROM (
            SELECT *, CASE WHEN v - lag(v) OVER (PARTITION BY k ORDER BY v) < 2 THEN 0 ELSE 1 END AS begins
            FROM {x} WHERE v IS NOT NULL
        )
    )
"""

_HOPS = """
    SELECT k, v - ((v % 2) + 2) % 2 - back AS v, count(*) AS w
    FROM {x}, (VALUES (0), (2)) AS b(back) WHERE v IS NOT NULL GROUP BY ALL
"""


def _longest(stream: Stream) -> Stream:
    """Return of each session when it begins and how many rows it has."""
    sessions = stream.sessions("v", 2, by=["k"]).group_by("k", "session_start").agg(w=count())
    return sessions.select("k", "w", v="session_start").select(*KVW)


WINDOWS: list[Step] = [
    (
        lambda s: s.sessions("v", 2, by="k").select("k", "w", v="session_start").select(*KVW),
        f"SELECT k, start AS v, w FROM ({_SESSIONS})",
    ),
    (_longest, f"SELECT k, start AS v, count(*) AS w FROM ({_SESSIONS}) GROUP BY k, start"),
    (
        lambda s: (
            s.window("v", 4, hop=2)
            .group_by("k", "window_start")
            .agg(w=count())
            .select("k", "w", v="window_start")
            .select(*KVW)
        ),
        f"SELECT k, v, w FROM ({_HOPS})",
    ),
]

UNARY = [*FILTERS, *PROJECTIONS, *AGGREGATES, *TOPS, *WINDOWS]

Pair = tuple[Callable[[Stream, Stream], Stream], str]
"""An operator with two inputs: what it builds, and its SQL over ``{x}`` and ``{y}``."""


def _join(how: str, word: str) -> Pair:
    return (
        lambda x, y: x.join(y, on="k", how=how).select("k", "v", w="v_right"),
        f"SELECT k, x.v AS v, y.v AS w FROM {{x}} AS x {word} JOIN {{y}} AS y USING (k)",
    )


def _near(how: str, word: str) -> Pair:
    return (
        lambda x, y: x.join(y, on="k", how=how, within=("v", "w", -1, 2)).select("k", "v", w="w_right"),
        f"SELECT coalesce(x.k, y.k) AS k, x.v AS v, y.w AS w FROM {{x}} AS x {word} JOIN {{y}} AS y"
        " ON x.k = y.k AND x.v - y.w BETWEEN -1 AND 2",
    )


BINARY: list[Pair] = [
    *(_join(how, how.upper()) for how in ("inner", "left", "right", "full")),
    (
        lambda x, y: x.join(y, on=["k", ("v", "w")], how="left", where=col("w") != col("v_right")).select(
            "k", "v", w="v_right"
        ),
        "SELECT x.k, x.v, y.v AS w FROM {x} AS x LEFT JOIN {y} AS y ON x.k = y.k AND x.v = y.w AND x.w <> y.v",
    ),
    (
        lambda x, y: x.join(y, on=["k"], null_safe=True).select("k", "w", v="v_right").select(*KVW),
        "SELECT x.k, y.v, x.w FROM {x} AS x JOIN {y} AS y ON x.k IS NOT DISTINCT FROM y.k",
    ),
    (
        lambda x, y: x.join(y, on=["k", "v"], how="semi"),
        "SELECT * FROM {x} AS x WHERE EXISTS (SELECT 1 FROM {y} AS y WHERE x.k = y.k AND x.v = y.v)",
    ),
    (
        lambda x, y: x.join(y, on="v", how="anti"),
        "SELECT * FROM {x} AS x WHERE NOT EXISTS (SELECT 1 FROM {y} AS y WHERE x.v = y.v)",
    ),
    (
        lambda x, y: x.filter_by("v", ">", y.agg(least=min_("w"))),
        "SELECT * FROM {x} AS x WHERE x.v > (SELECT min(w) FROM {y})",
    ),
    (
        lambda x, y: x.filter_by("w", "<=", y.agg(n=count("v"))),
        "SELECT * FROM {x} AS x WHERE x.w <= (SELECT count(v) FROM {y})",
    ),
    *(_near(how, word) for how, word in (("inner", ""), ("full", "FULL"))),
    (lambda x, y: x.union(y), "SELECT * FROM {x} UNION ALL SELECT * FROM {y}"),
]

LEAVES = [
    Tree(lambda streams, name=name: streams[name].select(*KVW), f"SELECT k, v, w FROM {name}")  # type: ignore[misc]
    for name in ("a", "b")
]


def on(step: Step, tree: Tree) -> Tree:
    """Put an operator on a tree."""
    return Tree(lambda streams: step[0](tree.build(streams)), step[1].format(x=f"({tree.sql})"))


def over(pair: Pair, left: Tree, right: Tree) -> Tree:
    """Put an operator with two inputs on two trees."""
    sql = pair[1].format(x=f"({left.sql})", y=f"({right.sql})")
    return Tree(lambda streams: pair[0](left.build(streams), right.build(streams)), sql)


def _twice(pair: Pair, tree: Tree) -> Tree:
    """Use one stream on both sides: a diamond."""

    def _build(streams: Streams) -> Stream:
        stream = tree.build(streams)
        return pair[0](stream, stream)

    return Tree(_build, pair[1].format(x=f"({tree.sql})", y=f"({tree.sql})"))


def trees(depth: int) -> st.SearchStrategy[Tree]:
    """Return trees of this many operators on each path at most."""
    if depth == 0:
        return st.sampled_from(LEAVES)
    below = trees(depth - 1)
    return st.one_of(
        st.builds(on, st.sampled_from(UNARY), below),
        st.builds(over, st.sampled_from(BINARY), below, below),
        st.builds(_twice, st.sampled_from(BINARY), below),
    )


Changes = list[tuple[str, tuple[Any, ...]]]


class World:
    """What two sources hold, and how it changes."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[int, tuple[Any, ...]]] = {"a": {}, "b": {}}

    def change(self, edits: list[tuple[str, int, tuple[Any, ...] | None]]) -> dict[str, Changes]:
        """Set or delete rows, and return the changes of each source."""
        found: dict[str, Changes] = {"a": [], "b": []}
        for name, key, values in edits:
            old, new = self.rows[name].pop(key, None), None if values is None else (key, *values)
            if new is not None:
                self.rows[name][key] = new
            if old is not None and new is not None:
                found[name] += [("U-", old), ("U+", new)]
            elif old is not None or new is not None:
                found[name].append(("-", old) if new is None else ("+", new))  # type: ignore[arg-type]
        return found

    def add(self, edits: list[tuple[str, int, tuple[Any, ...] | None]]) -> dict[str, Changes]:
        """Add the rows of edits that set one, each under a new key."""
        found: dict[str, Changes] = {"a": [], "b": []}
        for name, _, values in edits:
            if values is not None:
                number = len(self.rows[name])
                self.rows[name][number] = (number, *values)
                found[name].append(("+", (number, *values)))
        return found


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.integers(0, 5),
        st.none()
        | st.tuples(st.sampled_from(["a", "b", None]), st.none() | st.integers(-2, 4), st.none() | st.integers(-1, 3)),
    ),
    max_size=8,
)
