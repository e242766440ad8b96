"""Joins of streams: names that both sides have, columns that must be equal, and the columns of the output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from objectspace.operators.base import Operator
from objectspace.operators.computed import Select
from objectspace.operators.distinct import unused
from objectspace.operators.dynamic_filter import DynamicFilter
from objectspace.operators.expressions import Expression, coalesce, col, condition, expression, shown
from objectspace.operators.hash_join import HashJoin, JoinKind
from objectspace.operators.interval_join import IntervalJoin, check_reach
from objectspace.operators.plan import Node
from objectspace.operators.rules import made_by_rules
from objectspace.operators.temporal_join import TemporalJoin, TemporalKind
from objectspace.relational import Column, SchemaError, TableSchema

if TYPE_CHECKING:
    from objectspace.operators.builder import Stream

JOINS: dict[str, JoinKind] = {
    "inner": "inner",
    "left": "left_outer",
    "right": "right_outer",
    "full": "full_outer",
    "outer": "full_outer",
    "semi": "left_semi",
    "anti": "left_anti",
}
"""The names of joins with the operator's kinds; the kinds themselves are accepted too."""

JoinName = Literal["left", "right", "full", "outer", "semi", "anti"] | JoinKind

On = Sequence[str | tuple[str, str]] | str


@dataclass(frozen=True)
class Extras:
    """What a join of streams may take besides the columns that must be equal: see :meth:`Stream.join`."""

    where: Any = None
    null_safe: bool | Sequence[bool] = False
    suffix: str = "_right"
    within: Sequence[Any] | None = None
    as_of: tuple[str, str] | None = None


def joined(left: Stream, right: Stream, on: On, how: JoinName, extras: Extras) -> Stream:
    """Return the join of two streams: see :meth:`Stream.join`."""
    if not isinstance(on, str | Iterable):
        raise SchemaError(f"on= takes names, or pairs of names: found {on!r}")
    if how not in {*JOINS, *JOINS.values(), "right_semi", "right_anti"}:
        raise SchemaError(f"there is no join of kind {how!r}: expected one of {', '.join(JOINS)}")
    pairs = [(one, one) if isinstance(one, str) else one for one in ([on] if isinstance(on, str) else on)]
    if not pairs:
        raise SchemaError(
            "join() takes at least one column in on=: rows meet by equal values; with a column of one value on both"
            " sides, as of with_columns(one=lit(1)), all meet"
        )
    for pair in pairs:
        if len(pair) != 2 or not all(isinstance(name, str) for name in pair):
            raise SchemaError(
                f"on= takes names, or pairs of a name of the left side and one of the right: found {pair!r}"
            )
    _check(extras, left, right)
    for name, two in pairs:
        _require_one_type("on=", left.schema, name, right.schema, two)
    if extras.as_of is not None:
        _require_one_type("as_of=", left.schema, extras.as_of[0], right.schema, extras.as_of[1])
    shared = [name for name, other in pairs if name == other]
    kind = JOINS.get(how, how)
    renamed = _names_of_right(left, right, shared, extras.suffix)
    other = right.relabelled(renamed) if renamed else right
    matches = zip(pairs, _null_safe(extras.null_safe, len(pairs)), strict=True)
    equal = [_Equal(name, renamed.get(two, two), safe) for (name, two), safe in matches]
    made = _Made(left, other, equal, kind, extras, renamed)
    found = made.stream()
    if "semi" in kind or "anti" in kind:
        return found if kind.startswith("left") else found.relabelled({new: old for old, new in renamed.items()})
    columns = _output(left, other, kind, shared, renamed)
    output = found.schema
    key = [name for name, _ in output.primary_key]
    if kind in ("inner", "left_outer"):
        # Columns that the left side also has add nothing: one of its rows has one value there, or none.
        key = [name for name in key if name not in {renamed[name] for name in shared}]
    # A column of on= is that of either side, and both sides keep its watermark. Each side alone may be NULL.
    watermarks = {name: name for name in shared if kind == "full_outer"}
    structure = ", ".join(shown(name, one) for name, one in columns.items())
    return found.then("Select", structure, lambda: Select(output, columns, key, watermarks), visible=tuple(columns))


def compared(left: Stream, column: str, comparison: str, right: Stream) -> Stream:
    """Return the rows that satisfy a comparison with the one value of a stream: see :meth:`Stream.filter_by`."""
    if right.schema.primary_key or len(right.schema.columns) != 1:
        raise SchemaError(
            f"filter_by() compares with a stream of one row and one column, such as agg(most=max_({column!r})): found"
            f" {right.schema}"
        )
    schemas = left.schema, right.schema

    def _make() -> DynamicFilter:
        return DynamicFilter(*schemas, column, comparison)

    operator = _make()
    structure = f"{column} {comparison} {right.schema.names[0]}"
    nodes = (left.node, right.node)
    node = Node(
        "DynamicFilter", structure, operator.schema, nodes, operator.sides, _make, ((), ()), operator.state(), False
    )
    return left.pipeline.stream_of(node, left.columns)


class _Equal(NamedTuple):
    """Two columns that must be equal."""

    left: str
    right: str
    null_safe: bool
    """Whether NULL is equal to NULL."""


@dataclass(frozen=True)
class _Made:
    """A join of streams whose columns have different names.

    Args:
        left: the left side.
        right: the right side, with the names that its columns have in the output.
        pairs: the columns that must be equal.
        kind: the kind of the operator.
        extras: what else is requested.
        renamed: the names of columns of the right side that were changed.
    """

    left: Stream
    right: Stream
    pairs: Sequence[_Equal]
    kind: str
    extras: Extras
    renamed: Mapping[str, str]

    def stream(self) -> Stream:
        """Return the rows of the join with all columns of both sides."""
        left, right, extras = self.left, self.right, self.extras
        watermark = next((pair for pair in self.pairs if pair[:2] == _watermarks(left, right)), None)
        cleans = watermark is not None and extras.within is None and extras.as_of is None
        # State is cleaned by ranges of keys, so the watermark columns come first.
        pairs = sorted(self.pairs, key=lambda pair: not cleans or pair != watermark)
        keys = [pair.left for pair in pairs], [pair.right for pair in pairs]
        label, make = self._maker(keys, [pair.null_safe for pair in pairs], cleans)
        new = made_by_rules(make)
        operator = new.made
        structure = f"{self.kind} on {', '.join(f'{one} = {two}' for one, two, _ in pairs)}{self._described()}"
        appends = self.kind == "inner" and left.node.append_only and right.node.append_only
        if extras.as_of is not None:
            appends = left.node.append_only
        node = Node(
            label,
            structure + (f", watermark of {keys[0][0]}" if cleans else ""),
            operator.schema,
            (left.node, right.node),
            operator.sides,
            make,
            (tuple(keys[0]), tuple(keys[1])),
            operator.state(),
            appends,
            has_watermark=self._keeps_watermark(),
            rules=new.rules,
            calls=new.calls,
            more_watermark_columns=operator.watermark_columns
            if isinstance(operator, HashJoin) and self._has_both_watermarks()
            else (),
        )
        return left.pipeline.stream_of(
            node, [name for name in (*left.columns, *right.columns) if name in operator.schema.names]
        )

    def _maker(
        self, keys: tuple[list[str], list[str]], null_safe: list[bool], cleans: bool
    ) -> tuple[str, Callable[[], Operator]]:
        """Return the label of the operator, and a function that makes it."""
        schemas, extras, kind = (self.left.schema, self.right.schema), self.extras, cast(JoinKind, self.kind)
        if extras.as_of is not None:
            at, since = extras.as_of[0], self._new(extras.as_of[1])
            of_time = cast(TemporalKind, kind)
            return "TemporalJoin", lambda: TemporalJoin(*schemas, *keys, at, since, of_time)
        options: dict[str, Any] = {"kind": kind, "null_safe": null_safe}
        if kind == "full_outer" and _may_be_null(schemas[0]) and _may_be_null(schemas[1]):
            options["in_left"] = unused("_in_left", (*schemas[0].names, *schemas[1].names))
        # The condition is made where the operator is: what is made from one may not travel to another process.
        where = extras.where
        if extras.within is not None:
            left_time, right_time, lower, upper = self._interval()
            times = (left_time, self._new(right_time), lower, upper)
            return "IntervalJoin", lambda: IntervalJoin(
                *schemas, *keys, *times, condition=_condition(*schemas, where), **options
            )
        options["watermarks"] = cleans
        return "HashJoin", lambda: HashJoin(*schemas, *keys, condition=_condition(*schemas, where), **options)

    def _keeps_watermark(self) -> bool:
        """Return whether those of the watermark columns of both sides are the ones that the join waits for."""
        if self.extras.as_of is not None:
            return True  # It is refused without them.
        found = self.left.node.watermark_column, self.right.node.watermark_column
        if self.extras.within is None:
            return None not in found
        left_time, right_time, *_ = self._interval()
        return found == (left_time, self._new(right_time))

    def _has_both_watermarks(self) -> bool:
        """Return whether both sides have the watermarks that the operator waits for, of whichever columns."""
        if self.extras.within is None:
            return self._keeps_watermark()
        left_time, right_time, *_ = self._interval()
        return (
            left_time in self.left.node.watermark_columns and self._new(right_time) in self.right.node.watermark_columns
        )

    def _described(self) -> str:
        """Describe what else is requested."""
        extras = self.extras
        safe = [pair.left for pair in self.pairs if pair.null_safe]
        parts = " null-safe" if safe else ""
        if 0 < len(safe) < len(self.pairs):
            parts += f" on {', '.join(safe)}"
        if extras.within is not None:
            left_time, right_time, lower, upper = self._interval()
            parts += f" within {left_time} - {self._new(right_time)} from {lower} to {upper}"
        if extras.as_of is not None:
            parts += f" as of {extras.as_of[0]} since {self._new(extras.as_of[1])}"
        return parts + ("" if extras.where is None else f" where {expression(extras.where)}")

    def _interval(self) -> tuple[str, str, Any, Any]:
        """Return the time columns, and the least and the greatest difference."""
        left_time, right_time, *bounds = cast(Sequence[Any], self.extras.within)
        lower, upper = (-bounds[0], bounds[0]) if len(bounds) == 1 else bounds
        return left_time, right_time, lower, upper

    def _new(self, name: str) -> str:
        """Return the name that a column of the right side has now."""
        return self.renamed.get(name, name)


def _check(extras: Extras, left: Stream, right: Stream) -> None:
    """Refuse options that do not go together.

    Raises:
        SchemaError: they do not.
    """
    if extras.within is not None and not _is_interval(extras.within):
        raise SchemaError(
            "within= takes (left time, right time, how far apart), or (left time, right time, least, greatest) of left"
            f" time less right time: found {extras.within!r}"
        )
    for by in extras.within[2:] if extras.within is not None else ():
        check_reach("within=", by)
    if extras.as_of is None:
        return
    if not _is_pair(extras.as_of):
        raise SchemaError(f"as_of= takes (left time, right time): found {extras.as_of!r}")
    if extras.within is not None or extras.where is not None or extras.null_safe not in (False, None):
        raise SchemaError("as_of= goes without within=, where= and null_safe=: filter what comes out of the join")
    for stream, side, name in zip((left, right), ("left", "right"), extras.as_of, strict=True):
        if name not in stream.node.watermark_columns:
            raise SchemaError(
                f"as_of= waits for watermarks: the {side} side has none on {name!r}: use .watermark({name!r}, delay) on"
                " it"
            )
    if not right.node.append_only and extras.as_of[1] not in [name for name, _ in right.schema.primary_key]:
        raise SchemaError(
            f"as_of= takes a history: the key of the right side must hold its time {extras.as_of[1]!r}, so that a new"
            " version is another row"
        )


def _require_one_type(of: str, left: TableSchema, name: str, right: TableSchema, other: str) -> None:
    """Refuse columns that cannot be equal, while both have the names that the caller knows."""
    types = left.column(name).type, right.column(other).type
    if types[0] != types[1]:
        raise SchemaError(
            f"{of} has {name!r} of the left side, {types[0]}, and {other!r} of the right side, {types[1]}: expected one"
            " type: give one of them the type of the other before, with with_columns(): numbers, text, dates and"
            f" timestamps can be cast, as col({other!r}).cast({str(types[0])!r}), and call() takes a function"
        )


def _null_safe(given: Any, pairs: int) -> Sequence[bool]:
    """Return for each pair of columns whether NULL is equal to NULL."""
    if given is None or isinstance(given, bool):
        return [bool(given)] * pairs
    if not isinstance(given, list | tuple) or len(given) != pairs or not all(isinstance(one, bool) for one in given):
        raise SchemaError(f"null_safe= is True or False, or a list of one for each column of on=: found {given!r:.80}")
    return given


def _is_pair(given: Any) -> bool:
    return isinstance(given, Sequence) and len(given) == 2 and all(isinstance(name, str) for name in given)


def _is_interval(within: Any) -> bool:
    if not isinstance(within, Sequence) or len(within) not in (3, 4):
        return False
    return len(within) == 4 or isinstance(within[2], int | timedelta)


def _watermarks(left: Stream, right: Stream) -> tuple[str | None, str | None]:
    return left.schema.watermark_column, right.schema.watermark_column


def _may_be_null(schema: TableSchema) -> bool:
    """Return whether all columns of the stream key may be NULL in one row; true also if there are none."""
    return all(schema.columns[place].nullable for place in schema.key_places)


def _names_of_right(left: Stream, right: Stream, shared: Sequence[str], suffix: str) -> dict[str, str]:
    """Return new names for the columns of the right side that the left side has too."""
    taken = {*left.schema.names, *right.schema.names}
    found: dict[str, str] = {}
    for name in right.schema.names:
        if name in left.schema.names:
            hidden = name in shared or name not in right.columns
            new = f"_right_{name.lstrip('_')}" if hidden else f"{name}{suffix}"
            while hidden and new in taken:
                new = f"_{new}"
            if new in taken:
                raise SchemaError(f"both sides have a column {name!r}, and {new!r} is taken: pass another suffix=")
            found[name] = new
            taken.add(new)
    return found


def _condition(left: TableSchema, right: TableSchema, where: Any) -> Any:
    """Return a further condition as a function of a joined row."""
    if where is None:
        return None
    both = TableSchema([Column(one.name, one.type, one.nullable) for one in (*left.columns, *right.columns)])
    return condition(where).bind(both).value


def _output(
    left: Stream, right: Stream, kind: str, shared: Sequence[str], renamed: Mapping[str, str]
) -> dict[str, Expression]:
    """Return the columns of the output: those of ``on`` once, from the side that has them."""
    found = {}
    for name in left.columns:
        found[name] = col(name)
        if name in shared and kind == "right_outer":
            found[name] = col(renamed[name])
        elif name in shared and kind == "full_outer":
            found[name] = coalesce(name, renamed[name])
    hidden = {renamed[name] for name in shared}
    return found | {name: col(name) for name in right.columns if name not in hidden}
