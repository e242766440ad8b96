"""Building a pipeline: its sources, what is computed from them, and which results are kept.

>>> from objectspace.operators import Pipeline, col, count, max_
>>> pipeline = Pipeline()
>>> flights = pipeline.source("flights", {"id": "int64", "carrier": "string", "delay": "int64"}, key=["id"])
>>> late = flights.filter(col("delay") > 15).group_by("carrier").agg(n=count(), worst=max_("delay"))
>>> _ = late.top_n(2, order_by=["worst desc"]).materialize("worst_carriers")
>>> run = pipeline.run_local([{"flights": [(1, "UA", 90), (2, "B6", 20)]}, {"flights": [("-", (1, "UA", 90))]}])
>>> run.rows("worst_carriers")
[('B6', 1, 20)]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from objectspace.operators.agg_call import AggCall, call_text
from objectspace.operators.base import Operator, order_parts
from objectspace.operators.computed import Relabel, Select, Where
from objectspace.operators.dedup import Dedup
from objectspace.operators.distinct import unused
from objectspace.operators.expressions import Expression, computed_column, condition, expression, shown
from objectspace.operators.fingerprints import describe
from objectspace.operators.hash_agg import HashAgg
from objectspace.operators.joining import Extras, JoinName, compared, joined
from objectspace.operators.keeping import kept
from objectspace.operators.materialize import Conflict
from objectspace.operators.own import applied, passed
from objectspace.operators.plan import Node, Plan
from objectspace.operators.prompt import ShownAtPrompt
from objectspace.operators.rules import made_by_rules
from objectspace.operators.sessions import SessionWindow
from objectspace.operators.simple_agg import SimpleAgg
from objectspace.operators.sources import ROW_ID, check_name, names_of, source_schema
from objectspace.operators.top_n import GroupTopN, TopN
from objectspace.operators.unions import united
from objectspace.operators.watermark_columns import columns_passed_on
from objectspace.operators.watermark_filter import WatermarkFilter
from objectspace.operators.windows import Hop, Tumble
from objectspace.relational import Chunk, Column, SchemaError, TableSchema
from objectspace.relational.chunk import OP_COLUMN
from objectspace.relational.schema import KeyPart

if TYPE_CHECKING:
    from objectspace.operators.apply import Processor
    from objectspace.operators.fused import PipelineOperator
    from objectspace.operators.run import LocalRun


class Pipeline(ShownAtPrompt):
    """Streams, and results that stay correct while their rows are added, changed and removed.

    Args:
        location: where an engine keeps the state. This class has none, and refuses one: the pipeline of Spark,
            :class:`objectspace.spark.Pipeline`, takes it, and :meth:`run_local` takes a store.
        shards: the number of parts into which an engine divides it.

    Raises:
        TypeError: there is a location or a number of shards, and no engine that would look at it.
    """

    def __init__(self, location: Any = None, shards: int = 1) -> None:
        if type(self) is Pipeline and (location is not None or shards != 1):
            raise TypeError(
                f"Pipeline({location!r}, shards={shards!r}): this one runs in one process, which keeps its state where"
                " run_local(batches, store) says, in one shard; objectspace.spark.Pipeline takes a location and shards"
            )
        self.location, self.shards = location, shards
        self.sources: dict[str, Node] = {}
        self.results: dict[str, Node] = {}
        self.columns: dict[str, tuple[str, ...]] = {}
        self.functions: dict[str, Callable[[int, Chunk], object]] = {}

    def source(self, name: str, schema: Any, key: Sequence[KeyPart] = (), *, append_only: bool = False) -> Stream:
        """Declare an input.

        Args:
            name: its name, under which epochs bring its rows.
            schema: a :class:`TableSchema`, columns, a mapping of names to types (``"int64?"`` takes NULL), an Arrow
                schema, a ``StructType``, or a data frame of Arrow, pandas or Spark that has one.
            key: the columns that tell its rows apart; the primary key of a ``TableSchema`` by default. Without a key
                every row is a row of its own, and can never be retracted.
            append_only: whether its rows are never changed or retracted: aggregates then keep less.

        Raises:
            SchemaError: the name is taken, or this is not a schema.
        """
        check_name(name)
        self.require_no_source(name)
        if name in self.results and self.results[name].is_stateful:
            raise SchemaError(f"the pipeline has a result {name!r}: choose another name for the source")
        try:
            found = source_schema(schema, key)
        except SchemaError as error:
            raise SchemaError(f"source {name!r}: {error}") from None
        visible = found.names
        if OP_COLUMN in visible:
            raise SchemaError(
                f"source {name!r}: a column {OP_COLUMN!r} is where changes say what they do: give it another name, or"
                " in a pipeline of Spark pass op_column="
            )
        is_numbered = not found.primary_key
        if is_numbered and ROW_ID in visible:
            raise SchemaError(
                f"source {name!r}: the hidden column {ROW_ID!r} numbers the rows of a source without a key: give yours"
                " another name, or name the columns that tell its rows apart with key="
            )
        if is_numbered:
            found = TableSchema([*found.columns, Column(ROW_ID, "int64")], [ROW_ID])
            append_only = True
        node = Node("Source", "", found, sides=(), keys=(), append_only=append_only, name=name, is_numbered=is_numbered)
        self.sources[name] = node
        return Stream(self, node, visible)

    def plan(self, stored: Mapping[str, Sequence[str]] | None = None) -> Plan:
        """Return the plan of the results.

        Args:
            stored: the names of operators that are already stored, by their identities.

        Raises:
            SchemaError: nothing is materialised or sunk, or two operators have the same name.
        """
        if not self.results:
            raise SchemaError("the pipeline has no result: end a stream with materialize(name) or sink(name)")
        return Plan(list(self.results.values()), stored)

    def explain(self) -> str:
        """Return the plan as text, with every state table: its number, name, schema and key."""
        return self.plan().explain()

    def run_local(
        self,
        batches: Iterable[Mapping[str, Any]],
        store: Any = None,
        *,
        drop_changed: bool = False,
        keep_changes: bool = True,
    ) -> LocalRun:
        """Run the pipeline in this process, one epoch per batch: see :func:`run_local`."""
        from objectspace.operators.run import run_local

        return run_local(self, batches, store, drop_changed=drop_changed, keep_changes=keep_changes)

    def as_operator(self) -> PipelineOperator:
        """Return the pipeline as one operator, for embedding and for tests: see :class:`PipelineOperator`."""
        from objectspace.operators.fused import PipelineOperator

        return PipelineOperator(self)

    def add_result(self, name: str, stream: Stream) -> None:
        """Add a result.

        Raises:
            SchemaError: the name is taken, or is not valid.
        """
        if name in self.results:
            raise SchemaError(f"the pipeline has a result {name!r}: choose another name")
        check_name(name)
        self.results[name], self.columns[name] = stream.node, stream.columns

    def require_no_source(self, name: str) -> None:
        """Refuse the name of a source to another source, and to an operator that keeps state, whose path it would be.

        Raises:
            SchemaError: a source has the name.
        """
        if name in self.sources:
            raise SchemaError(f"the pipeline has a source {name!r}: choose another name")

    def stream_of(self, node: Node, visible: Sequence[str]) -> Stream:
        """Return the output of an operator as a stream, with the columns that are visible."""
        return Stream(self, node, visible)

    def materialized(self, name: str) -> Node:
        """Return the node that is materialised under a name.

        Raises:
            SchemaError: there is none.
        """
        found = {one: node for one, node in self.results.items() if node.label == "Materialize"}
        if name not in found:
            none = "this pipeline has no such result: build it as it ran, with its sources and materialize(name)"
            there = f"there is {', '.join(found)}" if found else none
            raise SchemaError(f"nothing is materialised as {name!r}: {there}")
        return found[name]

    def _at_prompt(self) -> tuple[str, str]:
        parts = {"sources": self.sources, "results": self.results}
        return "; ".join(f"{what} {', '.join(names) or 'none'}" for what, names in parts.items()), ""


class Stream(ShownAtPrompt):
    """The changes of rows on their way through a pipeline; each method returns another stream.

    Columns whose names begin with ``_`` may be hidden columns, which keep the stream key if it was not asked for.
    """

    def __init__(self, pipeline: Pipeline, node: Node, visible: Sequence[str]) -> None:
        self.pipeline, self.node, self.columns = pipeline, node, tuple(visible)

    @property
    def schema(self) -> TableSchema:
        """The schema of its rows, including hidden columns; the primary key is the stream key."""
        return self.node.schema

    def filter(self, *conditions: Any) -> Stream:
        """Keep the rows for which every condition is true.

        Args:
            conditions: expressions, names of ``bool`` columns, callables over a row (``lambda row: row.delay > 3``), or
                expressions of pyarrow.
        """
        stream = self
        for given in map(expression, conditions):
            stream = stream.then("Where", str(given), partial(Where, stream.schema, given))
        return stream

    def filter_by(self, column: str, comparison: str, other: Stream) -> Stream:
        """Keep the rows whose column compares with the one value of another stream, which may change.

        Args:
            column: the column.
            comparison: ``<``, ``<=``, ``>`` or ``>=``.
            other: a stream of one row and one column, such as ``stream.agg(mean=avg("price"))``.

        Raises:
            SchemaError: the other stream is not such a stream, or its type differs.
        """
        self._require_same_pipeline(other)
        return compared(self, column, comparison, other)

    def select(self, *names: str | Sequence[str], **computed: Any) -> Stream:
        """Keep some columns, and compute others.

        Args:
            names: the columns that stay.
            computed: one column per keyword: the name of another column, an expression, or a pair of a callable over a
                row and the type of its results.

        Raises:
            SchemaError: there is no such column, or a callable comes without a type.
        """
        return self._selected({name: name for name in names_of(names)} | computed)

    def _selected(self, given: Mapping[str, Any]) -> Stream:
        columns = {name: computed_column(name, one) for name, one in given.items()}
        structure = ", ".join(shown(name, made) for name, made in columns.items())
        return self.then("Select", structure, partial(Select, self.schema, columns), visible=tuple(columns))

    def with_columns(self, **computed: Any) -> Stream:
        """Keep all columns, and compute others, which come last, or replace some, which stay in their places."""
        return self._selected({name: name for name in self.columns} | computed)

    def drop(self, *names: str | Sequence[str]) -> Stream:
        """Keep all columns except some."""
        gone = names_of(names)
        for name in gone:
            self.schema.place_of(name)
        return self.select(*(name for name in self.columns if name not in gone))

    def group_by(self, *names: str | Sequence[str], **computed: Any) -> Grouped:
        """Group the rows by columns, which may be computed."""
        # The place of a column makes no difference here; where it was before they kept theirs, state goes on.
        kept = (name for name in self.columns if name not in computed)
        stream = self.select(*kept, **computed) if computed else self
        return Grouped(stream, (*names_of(names), *computed))

    def agg(self, **calls: AggCall) -> Stream:
        """Aggregate all rows into one row, which exists from the first epoch on."""
        return Grouped(self, ()).agg(**calls)

    def distinct(self) -> Stream:
        """Keep one of each set of equal rows."""
        counter = unused("_rows", self.columns)
        counted = self.select(*self.columns).group_by(*self.columns).agg(**{counter: AggCall("count")})
        return counted.select(*self.columns)

    def dedup(self, *names: str | Sequence[str]) -> Stream:
        """Keep the first row of each key of an append-only stream: the earliest epoch, then the smallest stream key.

        Raises:
            SchemaError: the stream has retractions: use :meth:`distinct` or ``group_by(...).top_n(1, ...)``.
        """
        if not self.node.append_only:
            raise SchemaError("dedup() takes an append-only stream: use distinct() or group_by(...).top_n(1, order_by)")
        keys = names_of(names)
        make = partial(Dedup, self.schema, key=list(keys))
        return self.then("Dedup", ", ".join(keys), make, keys=keys, append_only=True)

    def top_n(
        self,
        limit: int,
        order_by: Sequence[KeyPart] | str,
        *,
        offset: int = 0,
        with_ties: bool = False,
    ) -> Stream:
        """Keep the first rows in an order; ties are broken by the stream key, ascending.

        Args:
            limit: how many rows.
            order_by: the order: ``["mean desc"]``, ``[("mean", "desc nulls last")]``.
            offset: how many of the first rows to leave out.
            with_ties: whether rows that are equal to the last one in the order are also kept.
        """
        return Grouped(self, ()).top_n(limit, order_by, offset=offset, with_ties=with_ties)

    def join(
        self,
        other: Stream,
        on: Sequence[str | tuple[str, str]] | str,
        how: JoinName = "inner",
        *,
        where: Any = None,
        null_safe: bool | Sequence[bool] = False,
        suffix: str = "_right",
        within: Sequence[Any] | None = None,
        as_of: tuple[str, str] | None = None,
    ) -> Stream:
        """Join with another stream, or with itself.

        If both sides have a :meth:`watermark` on a pair of ``on``, rows below the lesser one are forgotten, and it
        holds for the output. The same goes for the times of ``within``, if both sides have a watermark on theirs.
        ``as_of`` waits for the watermarks.

        Args:
            other: the right side.
            on: the columns that must be equal: names that both sides have, which appear once in the output, or pairs.
            how: ``inner``, ``left``, ``right``, ``full``, ``semi``, ``anti``, or a kind of the operator.
            where: a further condition for a match, over the columns of the output.
            null_safe: whether NULL is equal to NULL: one value, or one for each column of ``on``.
            suffix: what is appended to the name of a right column if the left side has a column of that name.
            within: the times of a match are near each other: (left time, right time, how far apart they may be), or
                (left time, right time, least, greatest), which bound left time minus right time, with ``None`` for no
                bound: see :class:`IntervalJoin`.
            as_of: each left row matches the last right row that is not later: (left time, right time): see
                :class:`TemporalJoin`; such a join is ``inner`` or ``left``. Both sides need a watermark on their times.

        Raises:
            SchemaError: the columns do not fit each other, or the options do not go together.
        """
        self._require_same_pipeline(other)
        return joined(self, other, on, how, Extras(where, null_safe, suffix, within, as_of))

    def window(self, column: str, size: timedelta | int, hop: timedelta | int | None = None) -> Stream:
        """Put each row into the time windows that it belongs to; adds ``window_start`` and ``window_end``.

        Args:
            column: the time column.
            size: the length of a window.
            hop: how far apart windows begin if they overlap; ``size`` by default, so they do not.

        Raises:
            SchemaError: this is not the name of a column, or not one of times.
        """
        (column,) = names_of([column])
        spans: dict[str, Any] = {"size": size} if hop is None else {"size": size, "slide": hop}
        structure = ", ".join([column, *(f"{name} {span}" for name, span in spans.items())])
        visible = (*self.columns, "window_start", "window_end")
        return self.then(
            "Tumble" if hop is None else "Hop",
            structure,
            partial(Tumble if hop is None else Hop, self.schema, column, **spans),
            visible=visible,
        )

    def sessions(self, column: str, gap: timedelta | int, by: Sequence[str] | str = ()) -> Stream:
        """Put rows that follow each other closely into one session; adds ``session_start``.

        With a :meth:`watermark` on the time column, sessions that have ended are forgotten, and the output has one on
        ``session_start``: that of the first session which is still open.

        Args:
            column: the time column.
            gap: how long a session stays open after its last row.
            by: the columns that say whose session it is.

        Raises:
            SchemaError: these are not names of columns, or the first is not one of times.
        """
        (column,) = names_of([column])
        names = names_of(by if isinstance(by, Iterable) and not isinstance(by, str) else [by])
        structure = f"{column}, gap {gap}" + (f" by {', '.join(names)}" if names else "")
        schema = self.schema
        if self.node.watermark_column is None:  # A source may name such a column, for which no watermark ever comes.
            schema = TableSchema(schema.columns, list(schema.primary_key))
        make = partial(SessionWindow, schema, column, gap, names)
        visible = (*self.columns, "session_start")
        return self.then("SessionWindow", structure, make, visible=visible, keys=names, append_only=False)

    def watermark(self, column: str, delay: timedelta | int) -> Stream:
        """Drop rows that come too late, and let operators downstream forget what nothing can change any more.

        A watermark is meant for streams that only grow. In others each half of an update is dropped on its own if it is
        too late, so operators downstream may keep an old row beside the one that has replaced it.

        Behind a join ``within=`` an interval, rows come later than on its sides, by up to the width of the interval.
        Windows over its times close without another watermark.

        Args:
            column: the time column.
            delay: how far below the greatest time so far the time of a row may be.

        Raises:
            SchemaError: this is not the name of a column, or not one of times.
        """
        (column,) = names_of([column])
        made = partial(WatermarkFilter, self.schema, column, delay)
        structure, appends = f"{column}, delay {delay}", self.node.append_only
        return self.then("WatermarkFilter", structure, made, keys=(), append_only=appends, has_watermark=True)

    def union(self, *others: Stream) -> Stream:
        """Combine streams with the same columns; equal rows of several streams stay separate rows.

        Give all streams in one call: where unions are put into unions, each makes the stream key longer.
        """
        self._require_same_pipeline(*others)
        return united([self, *others])

    def through(self, operator: Callable[[TableSchema], Operator], name: str, key: Sequence[str] | str = ()) -> Stream:
        """Pass the rows through an operator of your own.

        Args:
            operator: makes the operator for the schema of the stream: its class, or a function.
            name: the name that its state is kept under, which belongs to the operator altogether; give another name if
                the operator comes to do something else.
            key: the columns whose equal values must meet: an engine with shards divides the work by them, and every
                table of the operator has them. Without a key one operator sees all rows.

        Raises:
            SchemaError: the name or a key column is not valid, or what is made is not an operator with one input.
        """
        return passed(self, operator, name, key)

    def apply(
        self,
        processor: Processor,
        name: str,
        schema: Any,
        key: Sequence[str] | str = (),
        output_key: Sequence[str] | str = (),
    ) -> Stream:
        """Hand the rows of each epoch to an object of your own, and continue with the rows that it returns.

        With an ``output_key`` a returned row replaces the last one with its key, and a row with ``-`` in the column
        ``op`` takes that one back; for this the operator keeps a table of what was returned. Without an ``output_key``
        the rows are added.

        Args:
            processor: the object, with a method ``process(batch, space)``: see :class:`Processor`.
            name: the name that its state is kept under; give another name if the object comes to do something else.
            schema: the schema of the rows that it returns, in any form that :meth:`Pipeline.source` takes; they have
                the key columns.
            key: the columns whose equal values must meet: see :meth:`through`; the object returns only rows of keys
                that came.
            output_key: the columns that tell the returned rows apart, including those of ``key``.

        Raises:
            SchemaError: the object, a name or the schema is not valid, or they do not go together.
        """
        return applied(self, processor, name, schema, key, output_key)

    def materialize(
        self,
        name: str,
        key: Sequence[str] | None = None,
        *,
        conflict: Conflict | None = None,
        version: Sequence[str] | str | None = None,
    ) -> Stream:
        """Keep the rows as a table that can be read by its name, and pass their changes on.

        Args:
            name: its name.
            key: the columns that tell its rows apart; the stream key by default. Two rows with the same key are a
                conflict.
            conflict: what happens to a row whose key is already there: see :class:`Materialize`; it overwrites by
                default. If this is given, rows of one key that come from a source in one epoch count in the order in
                which they come; on Spark they have no order, and ``"update_if_newer"`` says which of them is newer.
            version: the columns that say which of two rows is newer, for ``"update_if_newer"``; with
                ``"update_if_not_null"`` a row that is older is passed over.

        Raises:
            SchemaError: the name is that of a source or another result, or is not valid; a column does not fit; or a
                version comes with another rule.
        """
        stream = kept(self, name, key, conflict, version)
        self.pipeline.add_result(name, stream)
        return stream

    def sink(self, name: str, function: Callable[[int, Chunk], object] | None = None) -> Stream:
        """Hand out the changes without keeping the rows.

        Args:
            name: the name under which a run gives them.
            function: called with the epoch and its changes before the epoch is durable, so after a crash it may be
                called again for the same epoch with the same changes, perhaps in another order. In one process it may
                write into the space, but may neither save it nor continue a run on it.

        Raises:
            SchemaError: the name is taken or not valid, or this is no function.
        """
        if function is not None and not callable(function):
            raise SchemaError(
                f"sink {name!r}: expected a function of the epoch and its changes, found {function!r:.80}"
            )
        structure = "" if function is None else describe(function)
        stream = self.then("Sink", structure, partial(Relabel, self.schema, {}), name=name)
        self.pipeline.add_result(name, stream)
        if function is not None:
            self.pipeline.functions[name] = function
        return stream

    def relabelled(self, names: Mapping[str, str]) -> Stream:
        """Rename columns."""
        visible = tuple(names.get(name, name) for name in self.columns)
        structure = ", ".join(f"{old} as {new}" for old, new in names.items())
        return self.then("Relabel", structure, partial(Relabel, self.schema, dict(names)), visible=visible)

    def then(
        self,
        label: str,
        structure: str,
        make: Callable[[], Operator],
        *,
        visible: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
        append_only: bool | None = None,
        name: str | None = None,
        takes_order: bool = False,
        has_watermark: bool | None = None,
    ) -> Stream:
        """Return the output of one more operator."""
        new = made_by_rules(make)
        operator = new.made
        node = Node(
            label,
            structure,
            operator.schema,
            (self.node,),
            operator.sides,
            make,
            (None if keys is None else tuple(keys),),
            operator.state(),
            self.node.append_only and not operator.state() if append_only is None else append_only,
            name,
            takes_order=takes_order,
            has_watermark=self.node.has_watermark if has_watermark is None else has_watermark,
            rules=new.rules,
            calls=new.calls,
            more_watermark_columns=columns_passed_on(operator, self.node.more_watermark_columns),
        )
        return Stream(self.pipeline, node, self.columns if visible is None else visible)

    def _require_same_pipeline(self, *others: Stream) -> None:
        """Refuse anything but streams, and streams whose sources are not fed along with those of this one."""
        for other in others:
            if not isinstance(other, Stream):
                raise SchemaError(f"expected a stream of the pipeline, found a {type(other).__name__}")
        if any(other.pipeline is not self.pipeline for other in others):
            raise SchemaError(
                "a stream of another pipeline: its sources get no rows here; begin both with one Pipeline"
            )

    def _at_prompt(self) -> tuple[str, str]:
        return (
            f"{self.node.label}{f' {self.node.name!r}' if self.node.name else ''}, columns {', '.join(self.columns)}",
            "",
        )


class Grouped(ShownAtPrompt):
    """A stream whose rows are grouped by columns; without columns, all rows are one group."""

    def __init__(self, stream: Stream, names: Sequence[str], *, on_close: bool = False) -> None:
        self.stream, self.names, self._on_close = stream, tuple(names), on_close
        for name in self.names:
            stream.schema.place_of(name)

    if not TYPE_CHECKING:  # A type checker knows the attributes; who has none asks here for those of other libraries.

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"grouped rows have no {name!r}: they are aggregated with agg(), as in agg(n=count(), total=sum_('x'));"
                " all else belongs before group_by or after agg"
            )

    def _at_prompt(self) -> tuple[str, str]:
        return f"by {', '.join(self.names) or 'nothing'}, columns {', '.join(self.stream.columns)}", ""

    def on_window_close(self) -> Grouped:
        """Give each group once, when a watermark says that nothing more will come for it.

        The stream needs a :meth:`Stream.watermark`, on a group column or on the column that its windows are made from;
        in that case ``window_start`` must be a group column, alone or with ``window_end``. A join or a union needs a
        watermark on each side.
        """
        return Grouped(self.stream, self.names, on_close=True)

    def agg(self, **calls: AggCall) -> Stream:
        """Aggregate each group into one row: the group columns, then one column per keyword.

        Raises:
            SchemaError: a call or a column does not fit, or no watermark closes the groups that wait for one.
        """
        for name in self.names:
            if name in calls:
                raise SchemaError(f"agg({name}=...): the rows are grouped by {name!r} already: choose another name")
        stream, named = _with_filters(self.stream, calls)
        closing = self._closing(stream) if self._on_close else None
        calls_text = (f"{call_text(call)} as {name}" for name, call in zip(calls, named, strict=True))
        structure = ", ".join([*self.names, *calls_text]) + (", on window close" if self._on_close else "")
        options: dict[str, Any] = {"calls": named, "append_only": stream.node.append_only}
        if self.names:
            options |= {"group_key": list(self.names), "emit_on_window_close": closing or False}
        return stream.then(
            "HashAgg" if self.names else "SimpleAgg",
            structure,
            partial(HashAgg if self.names else SimpleAgg, stream.schema, **options),
            visible=(*self.names, *calls),
            keys=self.names,
            append_only=self._on_close,
            has_watermark=self._on_close or None,
        )

    def _closing(self, stream: Stream) -> str:
        """Return the group column whose watermark closes the groups."""
        columns = stream.node.watermark_columns
        for name in columns:
            if name in self.names:
                return name
        shown = [name for name in columns if name in stream.columns]
        kept = "group by that" if shown else "keep that with select() and group by it"
        named = " and ".join(f"one on {name!r}" for name in shown or columns)
        raise SchemaError(
            f"on_window_close() takes a watermark on a group column ({', '.join(self.names)}): the stream has"
            f" {f'{named}; {kept} too, or' if columns else 'none;'} take it with watermark(column, delay) on what the"
            " windows are made of, on both sides of a join and all streams of a union"
        )

    def top_n(
        self,
        limit: int,
        order_by: Sequence[KeyPart] | str,
        *,
        offset: int = 0,
        with_ties: bool = False,
    ) -> Stream:
        """Keep the first rows of each group in an order: see :meth:`Stream.top_n`.

        Raises:
            SchemaError: an option does not fit, or the groups wait for a watermark, which only :meth:`agg` supports.
        """
        if self._on_close:
            raise SchemaError("top_n() does not wait for on_window_close(): leave that out, or aggregate with agg()")
        # Elsewhere None stands for no order; here it is refused like anything else that is no column.
        order = order_parts([None] if order_by is None else order_by)
        options: dict[str, Any] = {"order_by": order, "limit": limit, "offset": offset, "with_ties": with_ties}
        label = "GroupTopN" if self.names else "TopN"
        ordered = ", ".join(part if isinstance(part, str) else " ".join(map(str, part)) for part in order)
        structure = f"{limit} by {ordered}" + (f" of {', '.join(self.names)}" if self.names else "")
        structure += (f", offset {offset}" if offset else "") + (", with ties" if with_ties else "")
        if self.stream.node.append_only:
            options["append_only"], structure = True, f"{structure}, append-only"
        if self.names:
            options["group_key"] = list(self.names)
        make = partial(GroupTopN if self.names else TopN, self.stream.schema, **options)
        return self.stream.then(label, structure, make, keys=self.names, append_only=False)


def _with_filters(stream: Stream, calls: Mapping[str, AggCall]) -> tuple[Stream, list[AggCall]]:
    """Return the stream with a column for each filter that is an expression, and the calls with their names."""
    computed = {}
    named = []
    for name, call in calls.items():
        if not isinstance(call, AggCall):
            raise SchemaError(f"agg({name}=...) takes a call such as count() or sum_('v'): found {call!r:.80}")
        given: Any = call.filter
        if isinstance(given, Expression):
            column = f"_where_{name}"
            while column in stream.schema.names:
                column += "_"
            computed[column], given = condition(given), (column, "=", True)
        named.append(call.renamed(name, given))
    return (stream.with_columns(**computed) if computed else stream), named
