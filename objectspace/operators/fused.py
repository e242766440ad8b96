"""A whole pipeline as one operator: for embedding, and for tests that take an operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from objectspace.errors import CheckpointProtocolError
from objectspace.operators import catalogue
from objectspace.operators.base import Operator, ask_before_saves, check_number
from objectspace.operators.chunks import taken
from objectspace.operators.graph import Graph
from objectspace.operators.inputs import chunks_of
from objectspace.operators.plan import Node
from objectspace.relational import Chunk, SchemaError, TableSchema
from objectspace.space import ObjectSpace

if TYPE_CHECKING:
    from objectspace.operators.builder import Pipeline


class PipelineOperator(Operator):
    """A pipeline that is driven from outside: chunks of its sources in, the changes of its results out.

    Its sides are the names of the sources. The names of its tables begin with the name that it is opened under. Each
    epoch ends with :meth:`barrier` and then the checkpoint of the space, which is refused between rows and their
    barrier.

    Args:
        pipeline: the pipeline.

    >>> from objectspace import VolatileObjectSpace
    >>> from objectspace.operators import Pipeline, count
    >>> pipeline = Pipeline()
    >>> events = pipeline.source("events", {"id": "int64", "kind": "string"}, key=["id"])
    >>> _ = events.group_by("kind").agg(n=count()).sink("counts")
    >>> operator = PipelineOperator(pipeline)
    >>> operator.open(VolatileObjectSpace(), "mine")
    >>> operator.process(Chunk.from_rows(events.schema, [("+", (1, "a"))]), side="events")
    []
    >>> operator.barrier(epoch=1)
    [Chunk(1 rows: + ('a', 1))]
    """

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__()
        self.pipeline, self.plan = pipeline, pipeline.plan()
        self.sides = tuple(pipeline.sources)  # type: ignore[misc]  # Each pipeline has sides of its own.
        self._is_underway = False
        self._places: dict[tuple[int, str], int] = {}
        """By number of a batch and source: how many rows without a key this epoch has brought."""
        self._last_ended = -1
        """The greatest number of a batch with such rows in an epoch that has ended, -1 if none is known."""
        self._graph = Graph(self.plan, {node: node.make() for node in self.plan.at_work if node.make is not None})

    def _at_prompt(self) -> tuple[str, str]:
        return self.pipeline._at_prompt()[0], "not open" if self._home is None else ""

    @property
    def schema(self) -> TableSchema:
        """The schema of its one result.

        Raises:
            SchemaError: it has none, or several.
        """
        if len(self.plan.roots) != 1:
            raise SchemaError(f"the pipeline has {len(self.plan.roots)} results, each with a schema of its own")
        return self.plan.roots[0].schema

    def state(self) -> list[tuple[str, TableSchema]]:
        """Return the tables of all its operators."""
        return [
            (f"{self.plan.names[node]}/{role}", schema) for node in self.plan.stateful for role, schema in node.tables
        ]

    def open(self, space: ObjectSpace, name: str) -> None:
        """Open all its operators, under names that begin with ``name``.

        Raises:
            PipelineChangedError: the state under this name is that of another pipeline.
        """
        self._space, self._under = space, f"{name}/"
        catalogue.require_same(space, self.plan, self._under)
        for node, operator in self._graph.operators.items():
            operator.open(space, f"{name}/{self.plan.names[node]}")
        self._is_underway = False
        self._follow_rollbacks(space)
        ask_before_saves(space, self._refuse_underway)

    def process(self, chunk: Chunk, side: str = "input") -> list[Chunk]:
        """Take changes of a source, and return the changes of the results that are already known.

        Raises:
            SchemaError: there is no such source.
            SchemaMismatchError: the chunk has other columns.
        """
        if side not in self.pipeline.sources:
            raise SchemaError(f"the pipeline has no source {side!r}: its sources are {', '.join(self.sides)}")
        source = self.pipeline.sources[side]
        for entrance in self.plan.entrances(source):
            self._push(entrance, taken(source.schema, chunk))
        return self._taken()

    def take(self, batch: Mapping[str, Any], number: int) -> list[Chunk]:
        """Take the rows of several sources, and return the changes of the results that are already known.

        Args:
            batch: the rows of each source by its name: see :func:`objectspace.operators.inputs.chunks_of`.
            number: the number of the batch, such as that of the epoch. Together with its place among the rows that the
                source has brought under this number, it is the key of a row that has none. So each epoch has greater
                ones than those before, also after a restart.

        Raises:
            SchemaError: the number is none, or below 0.
            RowError: a row does not fit its source.
            CheckpointProtocolError: rows without a key come under a number of an epoch that has ended.
        """
        check_number("the number of a batch", number, 0)
        sources = self.pipeline.sources
        before = {name: self._places.get((number, name), 0) for name, node in sources.items() if node.is_numbered}
        chunks = chunks_of(self.plan, sources, batch, number, before)
        for name in before:
            brought = [len(chunks[entrance]) for entrance in self.plan.entrances(sources[name]) if entrance in chunks]
            self._count_places(number, name, max(brought, default=0))
        found: list[Chunk] = []
        for entrance, chunk in chunks.items():
            self._push(entrance, chunk)
            found += self._taken()
        return found

    def _count_places(self, number: int, source: str, rows: int) -> None:
        """Note that a source has brought rows without a key under a number.

        Raises:
            CheckpointProtocolError: an epoch that has ended may have rows of this number.
        """
        if rows and number <= self._last_ended:
            raise CheckpointProtocolError(
                f"pipeline {self._under.removesuffix('/')!r}: source {source!r} brings rows without a key as batch"
                f" {number}, and an epoch that has ended had batch {self._last_ended}, so they might take the places of"
                " its rows: give each epoch a greater number, such as its own, or roll the space back first"
            )
        if rows:
            self._places[number, source] = self._places.get((number, source), 0) + rows

    def barrier(self, epoch: int) -> list[Chunk]:
        """End an epoch in all its operators, and return the changes of the results that were held back.

        If one of them refuses, those before it have already ended the epoch: roll the space back, and give the epoch
        again.
        """
        catalogue.note_once(self._space, self.plan, self._under)
        self._graph.barrier(epoch, self.plan.at_work)
        self._last_ended = max([self._last_ended, *(number for number, _ in self._places)])
        self._places.clear()
        self._is_underway = False
        return self._taken()

    def _forget(self) -> None:
        """Drop output that was not taken, and watermarks on their way, because an operator downstream failed."""
        self._graph.forget()
        self._places.clear()
        self._last_ended, self._is_underway = -1, False

    def _push(self, entrance: Node, chunk: Chunk) -> None:
        self._is_underway = self._is_underway or len(chunk) > 0
        self._graph.push(entrance, chunk)

    def _refuse_underway(self, space: ObjectSpace) -> None:
        """Refuse a checkpoint between rows and their barrier: what operators hold back until then would be lost.

        Raises:
            CheckpointProtocolError: rows were taken since the last barrier.
        """
        if self._is_underway and space is self._space:
            raise CheckpointProtocolError(
                f"pipeline {self._under.removesuffix('/')!r} has taken rows since its last barrier, some of which may"
                " be in memory only: call barrier(epoch) on it first, then take the checkpoint of that epoch"
            )

    def _taken(self) -> list[Chunk]:
        found = self._graph.taken_output()
        return [chunk for root in self.plan.roots for chunk in found.get(root, [])]
