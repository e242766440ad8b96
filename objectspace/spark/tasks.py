"""The executors' side: fragments of a pipeline at work in the tasks of a Spark action."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructType

from checkpoint.chain import OperatorPlan
from checkpoint.process import collecting_seldom
from objectspace import VolatileObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.operators import Operator
from objectspace.operators.base import Watermark
from objectspace.operators.chunks import moved_apart
from objectspace.operators.returned import chunks_from
from objectspace.relational import Chunk, RowError, TableSchema
from objectspace.space import ObjectSpace
from objectspace.spark.executor import Shards, TaskShards, current_shard
from objectspace.spark.handover import (
    ExitWatermark,
    Outbox,
    Parcel,
    Report,
    from_bytes,
    read_parcel,
    settled_for,
    to_bytes,
    together,
    write_parcels,
)
from objectspace.spark.printable import printable_errors
from objectspace.spark.stages import Fragment, Stage

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

TAG = "$source"
"""The column that says which source a row comes from, if there are several; no source can have this name."""

ROUTED_SCHEMA = (
    StructType()
    .add("shard", IntegerType())
    .add("exit", IntegerType())
    .add("changes", BinaryType())
    .add("rows", LongType())
    .add("bytes", LongType())
)
"""What goes through the one shuffle, if there is one: changes as an Arrow file, and where they go.

Exit 0 is no exit: its row says how many rows of the sources were taken, and how many bytes they have in Arrow's form.
"""

SOURCES = "sources"
"""The name, in figures and errors, of the action that takes the rows of the sources."""

SOURCE_ROWS, SOURCE_BYTES = "source_rows", "source_bytes"
"""The figures of the task that takes rows of the sources: how many, and their bytes in Arrow's form."""

ROWS_A_PIECE = 32_768
"""After how many rows a piece goes into the shuffle."""

_PLACES, _PARTITIONS = 22, 12
"""The bits of the key of a row without one: its place in the partition, the partition, and above them the epoch."""


@dataclass(frozen=True)
class SourceInput:
    """What a task knows of a source.

    Args:
        name: its name, which is also the column of the micro-batch that holds its rows if there are several sources.
        schema: the schema of its changes.
        op_column: the column of operations, if it has one.
        is_numbered: whether its rows have no key, and so are numbered.
        is_append_only: whether no row is ever changed or taken back.
    """

    name: str
    schema: TableSchema
    op_column: str | None
    is_numbered: bool
    is_append_only: bool = False

    @cached_property
    def given(self) -> TableSchema:
        """The schema of the rows as they come."""
        return TableSchema(self.schema.columns[:-1]) if self.is_numbered else self.schema

    def chunk(self, batch: pa.RecordBatch, first: int) -> Chunk:
        """Return rows as changes.

        Args:
            batch: the rows.
            first: the number of the first one.

        Raises:
            RowError: a row does not fit.
        """
        try:
            chunk = Chunk.from_arrow(batch, self.given, op_column=self.op_column or "\0")
        except RowError as error:
            raise RowError(f"source {self.name!r}: {error}") from None
        if self.is_append_only:
            self._require_additions(chunk)
        if not self.is_numbered:
            return moved_apart(chunk)
        return Chunk(self.schema, chunk.ops, [(*row, number) for number, row in enumerate(chunk.values, first)])

    def _require_additions(self, chunk: Chunk) -> None:
        for op, row in chunk.rows() if self.op_column is not None else ():
            if op != "+":
                raise RowError(
                    f"source {self.name!r} was declared with append_only=True, but {op} {row!r:.200} is no added row:"
                    " declare it without"
                )


@dataclass
class Work:
    """What an operator with state has done, together with those without state that follow it.

    Args:
        rows_in: the changes that reached it.
        rows_out: those that left it for another operator with state, or left the fragment.
        seconds: how long it worked itself.
    """

    rows_in: int = 0
    rows_out: int = 0
    seconds: float = 0.0


class Running:
    """The operators of a fragment at work.

    Args:
        fragment: the fragment.
        space: where the operators keep their state, except for the guests.
        outbox: where the changes that leave it go.
        guests: where each guest keeps its own, by its name.
    """

    def __init__(
        self, fragment: Fragment, space: ObjectSpace, outbox: Outbox, guests: Mapping[str, ObjectSpace] | None = None
    ) -> None:
        self._fragment, self._outbox = fragment, outbox
        self._operators = [None if make is None else make() for make in fragment.makes]
        spaces = guests or {}
        for operator, name in zip(self._operators, fragment.names, strict=True):
            if operator is not None:
                operator.open(spaces.get(name, space), name)
        self._tell_inputs()
        self.work = {place: Work() for place, name in enumerate(fragment.names) if not place or name in spaces}
        self._exit_watermarks: dict[tuple[int, str], Any] = {}
        self._held: dict[int, list[Watermark]] = {}

    def _tell_inputs(self) -> None:
        """Tell the operators after the first one which of their inputs come from this fragment."""
        fed: dict[int, list[str]] = {}
        for reader, side in (link for links in self._fragment.links for link in links):
            fed.setdefault(reader, []).append(side)
        for reader, sides in fed.items():
            self._operator(reader).fed_by(sides)

    def take(self, chunk: Chunk, side: str) -> None:
        """Give changes, whatever the order in which they came, to the first operator."""
        for made in self._process(0, settled_for(self._operator(0), chunk), side):
            self.push(0, made)

    def push(self, place: int, chunk: Chunk, source: int = 0) -> None:
        """Pass the output of an operator on, all the way through, however long the way is.

        Args:
            place: the operator.
            chunk: what it gives.
            source: the operator with state that it comes from.
        """
        way = [iter([(place, chunk, source)])]
        while way:
            for giver, made, origin in way[-1]:
                if len(made):
                    way.append(self._passed_on(giver, made, origin))
                    break
            else:
                way.pop()

    def _passed_on(self, place: int, chunk: Chunk, source: int) -> Iterator[tuple[int, Chunk, int]]:
        """Give the output of an operator to the exits and to its readers, and yield what each of them makes of it."""
        for one in self._fragment.exits[place]:
            self._outbox.add(one.number, chunk)
            self.work[source].rows_out += len(chunk)
        for reader, side in self._fragment.links[place]:
            is_guest = reader in self.work
            self.work[source].rows_out += len(chunk) if is_guest else 0
            for made in self._process(reader, chunk, side):
                yield reader, made, reader if is_guest else source

    def watermark(self, column: str, value: Any, side: str) -> None:
        """Give a watermark to the first operator."""
        self._held.setdefault(0, []).extend(self._operator(0).watermark(column, value, side))

    def barrier(self, epoch: int) -> None:
        """End an epoch in all operators, in order."""
        for place, operator in enumerate(self._operators):
            if operator is not None:
                source = place if place in self.work else 0
                started = time.perf_counter()
                chunks = list(chunks_from(operator, operator.barrier(epoch)))
                self.work[source].seconds += time.perf_counter() - started
                for chunk in chunks:
                    self.push(place, chunk, source)
                # What an operator holds back until the barrier comes before its watermarks.
                for column, value in (*self._held.pop(place, ()), *operator.watermarks()):
                    self._pass_watermark_on(place, column, value)

    def work_by_name(self) -> dict[str, Work]:
        """Return what each operator with state has done."""
        return {self._fragment.names[place]: work for place, work in self.work.items()}

    def watermarks(self) -> tuple[ExitWatermark, ...]:
        """Return the watermarks at the exits."""
        return tuple((number, column, value) for (number, column), value in self._exit_watermarks.items())

    def _process(self, place: int, chunk: Chunk, side: str) -> list[Chunk]:
        """Let an operator process changes, and note the work if it keeps state."""
        started = time.perf_counter()
        operator = self._operator(place)
        made = list(chunks_from(operator, operator.process(chunk, side)))
        work = self.work.get(place)
        if work is not None:
            work.rows_in += len(chunk)
            work.seconds += time.perf_counter() - started
        return made

    def _pass_watermark_on(self, place: int, column: str, value: Any) -> None:
        for one in self._fragment.exits[place]:
            self._exit_watermarks[one.number, column] = value
        for reader, side in self._fragment.links[place]:
            self._held.setdefault(reader, []).extend(self._operator(reader).watermark(column, value, side))

    def _operator(self, place: int) -> Operator:
        found = self._operators[place]
        assert found is not None
        return found


@dataclass(frozen=True)
class Intake:
    """The first part of an epoch: rows of the sources become changes that know their shards.

    Args:
        inputs: the sources.
        fragments: what they feed, by their names.
        epoch: the epoch that is made.
    """

    inputs: tuple[SourceInput, ...]
    fragments: Mapping[str, Fragment]
    epoch: int

    def outbox(self) -> Outbox:
        """Return an outbox for everything that leaves; results are handed over by the partition of the rows."""
        return Outbox((one for fragment in self.fragments.values() for one in fragment.all_exits()), 0)

    def pushed(self, batches: Iterable[pa.RecordBatch], outbox: Outbox) -> Iterator[pa.RecordBatch]:
        """Take the rows of one partition, and yield each batch once it is done.

        What operators hold back comes out when all rows have been taken.
        """
        running = {
            one.name: Running(self.fragments[one.name], VolatileObjectSpace(), outbox)
            for one in self.inputs
            if one.name in self.fragments
        }
        places = dict.fromkeys(running, 0)
        for batch in batches:
            for one in self.inputs:
                part = self._rows_of(one, batch)
                if one.name in running and part.num_rows:
                    running[one.name].push(0, one.chunk(part, self._first(places[one.name], part.num_rows)))
                    places[one.name] += part.num_rows
            yield batch
        for fragment in running.values():
            fragment.barrier(self.epoch)

    def routed(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the changes for the shuffle; the function of ``mapInArrow``."""
        outbox, rows, size = self.outbox(), 0, 0
        with printable_errors():
            for taken in self.pushed(batches, outbox):
                rows, size = rows + taken.num_rows, size + taken.nbytes
                if outbox.rows >= ROWS_A_PIECE:
                    yield _pieces(outbox)
            yield _pieces(outbox, rows, size)

    def _rows_of(self, one: SourceInput, batch: pa.RecordBatch) -> pa.RecordBatch:
        if len(self.inputs) == 1:
            return batch
        cells = batch.column(one.name)
        kept = cells.filter(pc.equal(batch.column(TAG), one.name))
        return pa.RecordBatch.from_struct_array(kept)

    def _first(self, place: int, rows: int) -> int:
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        if place + rows > 1 << _PLACES or partition >= 1 << _PARTITIONS:
            raise ObjectSpaceError(
                f"the micro-batch has more than {1 << _PARTITIONS:,} partitions, or one with more than {1 << _PLACES:,}"
                " rows of a source without a key: use smaller micro-batches, or declare the source with key="
            )
        return (((self.epoch << _PARTITIONS) + partition) << _PLACES) + place


def intake_task(plan: OperatorPlan, intake: Intake) -> Task:
    """Return the function that hands the rows of the sources over through files.

    Args:
        plan: any plan of the epoch, which knows the location.
        intake: what to do with the rows.
    """

    def _run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        outbox, figures = intake.outbox(), {SOURCE_ROWS: 0.0, SOURCE_BYTES: 0.0}
        with collecting_seldom(), printable_errors():
            for taken in intake.pushed(batches, outbox):
                figures[SOURCE_ROWS] += taken.num_rows
                figures[SOURCE_BYTES] += taken.nbytes
        parcels = write_parcels(plan.location, plan.epoch, outbox)
        yield report_batch(0, Report(parcels=parcels, figures={SOURCES: figures}))

    return _run


@dataclass(frozen=True)
class StageTask:
    """One stage in one epoch, as it goes to the executors.

    Args:
        plans: the plans of the state of its operators: the one that it is named after, and its guests.
        stage: the stage.
        parcels: what was handed over to it.
        watermarks: those for it: (side, column, value).
        is_routed: whether its input comes through the shuffle instead.
    """

    plans: tuple[OperatorPlan, ...]
    stage: Stage
    parcels: tuple[Parcel, ...] = ()
    watermarks: tuple[tuple[str, str, Any], ...] = ()
    is_routed: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process the changes of one shard; the function of ``mapInArrow``."""
        plan = self.plans[0]
        shard = current_shard(plan)
        with printable_errors():
            try:
                with collecting_seldom():
                    report = self.run(shard, batches)
                yield report_batch(shard, report)
            except ObjectSpaceError as error:
                error.add_note(f"operator {' with '.join(self.stage.operators)}, shard {shard}, epoch {plan.epoch}")
                raise

    def run(self, shard: int, batches: Iterator[pa.RecordBatch]) -> Report:
        """Receive and process the changes of one shard, and save it for each operator."""
        plan, started = self.plans[0], time.perf_counter()
        chunks, taken = self._input(shard, batches)
        received = {"receive_ms": (time.perf_counter() - started) * 1000, **taken}
        report = self.work(shard, chunks, TaskShards(), partial(write_parcels, plan.location, plan.epoch))
        report.figures[self.stage.name] = received | report.figures[self.stage.name]
        return report

    def work(
        self, shard: int, chunks: Mapping[str, Chunk], shards: Shards, hand_over: Callable[[Outbox], tuple[Parcel, ...]]
    ) -> Report:
        """Process the changes of one shard, and save it for each operator.

        Args:
            shard: the number of the shard.
            chunks: the changes of each side that has any.
            shards: what opens and saves the shard.
            hand_over: takes what leaves the stage, and returns what of it lies in files.
        """
        plan, clock = self.plans[0], _Clock(self.stage.operators)
        outbox = Outbox(self.stage.fragment.all_exits(), shard)
        with ExitStack() as opened:
            spaces = {}
            for one in self.plans:
                spaces[one.operator] = opened.enter_context(shards.open(one, shard))
                clock.lap(one.operator, "open_ms")
            running = Running(self.stage.fragment, spaces[plan.operator], outbox, spaces)
            self._process(running, chunks)
            clock.lap(self.stage.name, "process_ms")
            parcels = hand_over(outbox)
            clock.lap(self.stage.name, "hand_over_ms")
            saved = []
            for one in self.plans:
                saved.append(shards.save(one, spaces[one.operator], shard))
                clock.lap(one.operator, "save_ms")
        figures = clock.figures
        for name, work in running.work_by_name().items():
            figures[name] |= {"rows_in": work.rows_in, "rows_out": work.rows_out}
            if name != self.stage.name:
                figures[name]["process_ms"] = work.seconds * 1000
                figures[self.stage.name]["process_ms"] -= work.seconds * 1000
        figures[self.stage.name]["rows_in"] = sum(map(len, chunks.values()))
        return Report(tuple(saved), parcels, running.watermarks(), figures)

    def _process(self, running: Running, chunks: Mapping[str, Chunk]) -> None:
        for side, chunk in chunks.items():
            running.take(chunk, side)
        for side, column, value in self.watermarks:
            running.watermark(column, value, side)
        running.barrier(self.plans[0].epoch)

    def _input(self, shard: int, batches: Iterator[pa.RecordBatch]) -> tuple[dict[str, Chunk], dict[str, float]]:
        """Return the changes of each side, in the order of the sides, and what was counted of the sources' rows."""
        taken = {SOURCE_ROWS: 0.0, SOURCE_BYTES: 0.0}
        sides = {number: side for side, number in self.stage.inputs}
        found: dict[str, list[Chunk]] = {side: [] for side in self.stage.schemas}
        for batch in batches:  # Even if they say nothing: Spark waits for a task that leaves its input unread.
            if not self.is_routed:
                continue
            taken[SOURCE_ROWS] += sum(batch.column("rows").to_pylist())
            taken[SOURCE_BYTES] += sum(batch.column("bytes").to_pylist())
            for number, data in zip(batch.column("exit").to_pylist(), batch.column("changes"), strict=True):
                if number:
                    found[sides[number]].append(from_bytes(data.as_py(), self.stage.schemas[sides[number]]))
        for parcel in self.parcels:
            if parcel.shard == shard:
                side = sides[parcel.exit]
                found[side].append(read_parcel(self.plans[0].location, parcel, self.stage.schemas[side]))
        return {side: together(chunks) for side, chunks in found.items() if chunks}, taken


def report_batch(shard: int, report: Report) -> pa.RecordBatch:
    """Return the one output row of a task, in the form of ``MESSAGE_SCHEMA``."""
    return pa.record_batch({"shard": pa.array([shard], pa.int32()), "message": pa.array([report.to_json()])})


def _pieces(outbox: Outbox, rows: int = 0, size: int = 0) -> pa.RecordBatch:
    found = [(shard, number, to_bytes(chunk)) for number, shard, chunk in outbox.taken()]
    columns = zip((0, 0, b""), *found, strict=True)
    shards, exits, changes = (list(column) for column in columns)
    return pa.record_batch(
        {
            "shard": pa.array(shards, pa.int32()),
            "exit": pa.array(exits, pa.int32()),
            "changes": pa.array(changes, pa.binary()),
            "rows": pa.array([rows] + [0] * len(found), pa.int64()),
            "bytes": pa.array([size] + [0] * len(found), pa.int64()),
        }
    )


class _Clock:
    """The milliseconds of each phase of each operator of a task."""

    def __init__(self, operators: Iterable[str]) -> None:
        self.figures: dict[str, dict[str, float]] = {name: {} for name in operators}
        self._last = time.perf_counter()

    def lap(self, operator: str, phase: str) -> None:
        """Note the time since the last call as a phase of an operator."""
        now = time.perf_counter()
        self.figures[operator][phase] = (now - self._last) * 1000
        self._last = now
