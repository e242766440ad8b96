"""The plan of a pipeline as stages: what runs in one Spark action, and what goes from one action to the next.

An operator that keeps state is a stage. The operators without state that follow it run in its tasks, up to the next
operators with state and to the results. Those that follow a source run before the first shuffle. An operator with state
is a *guest* in the stage before it if all its rows come from there and stay in their shard: the table of the groups of
an aggregation, say. It keeps its own state, and needs neither an action of its own nor a hand-over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from objectspace.operators import Node, Operator, Plan
from objectspace.relational import SchemaError, TableSchema
from objectspace.relational.chunk import OP_COLUMN

Maker = Callable[[], Operator]


@dataclass(frozen=True)
class Exit:
    """Where changes leave a fragment: to one side of a stage, or to a result.

    Args:
        number: its number in the pipeline.
        schema: the schema of the changes.
        keys: the columns that say which shard a change goes to; ``()`` if all go to one, ``None`` if each stays and has
            the net change of its keys.
        tasks: how many shards there are at the other end.
    """

    number: int
    schema: TableSchema
    keys: tuple[str, ...] | None
    tasks: int


@dataclass(frozen=True)
class Fragment:
    """Operators that run in one task, each feeding the next.

    Args:
        names: the names of the operators; the first feeds the others; for a source, it is the source itself.
        makes: what makes each operator; None for a source.
        links: for each operator, those that read it, with their sides.
        exits: for each operator, where its changes leave the fragment.
    """

    names: tuple[str, ...]
    makes: tuple[Maker | None, ...]
    links: tuple[tuple[tuple[int, str], ...], ...]
    exits: tuple[tuple[Exit, ...], ...]

    def all_exits(self) -> list[Exit]:
        """Return every exit once."""
        return [one for exits in self.exits for one in exits]


@dataclass(frozen=True)
class Stage:
    """One operator that keeps state, with what follows it.

    Args:
        name: the name of the operator, under which its state is kept.
        label: its kind.
        fragment: the operator, followed by those without state and its guests.
        guests: the names of the guests, under which their state is kept.
        inputs: for each of its sides, the number of the exit that feeds it.
        schemas: for each of its sides, the schema of the changes.
        tasks: how many shards it is divided into.
        rests: whether it has nothing to do in an epoch without input, once it has state.
    """

    name: str
    label: str
    fragment: Fragment
    guests: tuple[str, ...]
    inputs: tuple[tuple[str, int], ...]
    schemas: Mapping[str, TableSchema]
    tasks: int
    rests: bool

    @property
    def operators(self) -> tuple[str, ...]:
        """The names of its operators that keep state."""
        return self.name, *self.guests

    def passes_over_stream_keys(self) -> bool:
        """Return whether its operator ignores the stream keys of its input."""
        make = self.fragment.makes[0]
        return make is not None and make().passes_over_stream_keys


@dataclass(frozen=True)
class Stages:
    """A pipeline as it runs on Spark.

    Args:
        sources: what each source feeds.
        stages: the stages, inputs before readers.
        results: the exit of each result whose changes somebody wants.
    """

    sources: Mapping[str, Fragment]
    stages: Sequence[Stage]
    results: Mapping[str, Exit]

    def readers(self) -> set[str]:
        """Return the names of the stages that read from a source."""
        fed = {one.number for fragment in self.sources.values() for one in fragment.all_exits()}
        return {stage.name for stage in self.stages if any(number in fed for _, number in stage.inputs)}

    def wants_rows(self) -> bool:
        """Return whether the changes of some result come straight from a source."""
        wanted = {one.number for one in self.results.values()}
        return any(one.number in wanted for fragment in self.sources.values() for one in fragment.all_exits())


_RESTING = frozenset(
    (
        "Apply",
        "Dedup",
        "DynamicFilter",
        "GroupTopN",
        "HashAgg",
        "HashJoin",
        "Materialize",
        "SessionWindow",
        "SimpleAgg",
        "TopN",
    )
)
"""Kinds of operators that do nothing at a barrier if nothing came before it.

A watermark filter repeats its watermark: a join after it waits for those of both sides, in one epoch.
"""


_GUESTS = frozenset(("Dedup", "GroupTopN", "HashAgg", "Materialize", "SimpleAgg", "TopN"))
"""Kinds of operators that may be guests: they have one input, and rest without it."""


def compiled(plan: Plan, results: Mapping[str, Node], shards: int) -> Stages:
    """Return a plan as stages.

    Args:
        plan: the plan.
        results: the operators whose changes are wanted, by the names of the results.
        shards: the number of shards.
    """
    maker = _Compiler(plan, results, shards)
    sources = {node.name or "": maker.fragment(node) for node in plan.nodes if node.make is None}
    anchors = [node for node in plan.stateful if node.make is not None]
    stages = [maker.stage(node) for node in anchors if node not in maker.guests]
    return Stages(sources, [maker.fed(stage) for stage in stages], maker.results)


def _meeting(node: Node) -> tuple[str, ...] | None:
    """Return the columns by which the changes of a result meet in a shard; None if those of a key are together.

    Those of a source may be in any partition of a micro-batch; if rows are only added, each key comes once.
    """
    if node.append_only or not _meets_source(node):
        return None
    return tuple(name for name, _ in node.schema.primary_key)


def _meets_source(node: Node) -> bool:
    """Return whether rows of a source reach an operator with no operator that keeps state in between."""
    return node.make is None or (not node.is_stateful and any(one.make is None for one in node.origins()))


def tasks_of(node: Node, shards: int) -> int:
    """Return how many shards an operator is divided into: one, if rows of different keys must meet."""
    return shards if node.keys and all(node.keys) else 1


@dataclass
class _Compiler:
    """What is found while the fragments are made."""

    plan: Plan
    wanted: Mapping[str, Node]
    shards: int
    results: dict[str, Exit] = field(default_factory=dict)
    feeding: dict[tuple[str, str], list[Exit]] = field(default_factory=dict)
    count: int = 0

    def fragment(self, anchor: Node) -> Fragment:
        """Return an operator and those without state that it feeds."""
        members = self._members(anchor)
        places = {node: place for place, node in enumerate(members)}
        links = tuple(
            tuple((places[reader], side) for reader, side in self.plan.readers(node) if reader in places)
            for node in members
        )
        return Fragment(
            tuple(self.plan.names[node] for node in members),
            tuple(node.make for node in members),
            links,
            tuple(tuple(self._exits(node, places)) for node in members),
        )

    @cached_property
    def guests(self) -> set[Node]:
        """The guests of all stages."""
        return set(filter(self._is_guest, self.plan.stateful))

    def stage(self, node: Node) -> tuple[Node, Fragment]:
        """Return an operator with state, and its fragment."""
        return node, self.fragment(node)

    def fed(self, made: tuple[Node, Fragment]) -> Stage:
        """Return the stage of an operator, now that all that feeds it is known."""
        node, fragment = made
        name = self.plan.names[node]
        found = {side: self.feeding.get((name, side), []) for side in node.sides}
        return Stage(
            name,
            node.label,
            fragment,
            tuple(self.plan.names[one] for one in self._members(node)[1:] if one.is_stateful),
            tuple((side, one.number) for side, exits in found.items() for one in exits),
            {side: one.schema for side, one in zip(node.sides, node.inputs, strict=True)},
            tasks_of(node, self.shards),
            node.is_one_of(_RESTING),
        )

    def _members(self, anchor: Node) -> list[Node]:
        found = {anchor}
        for node in self.plan.nodes:  # In order, inputs before readers.
            if (not node.is_stateful or node in self.guests) and any(one in found for one in node.inputs):
                found.add(node)
        return [node for node in self.plan.nodes if node in found]

    def _is_guest(self, node: Node) -> bool:
        """Return whether all rows of an operator come from one stage, and from the shard that they go to."""
        if not node.is_one_of(_GUESTS):
            return False
        source = node.inputs[0]
        while not source.is_stateful and len(source.inputs) == 1:
            source = source.inputs[0]
        if not source.is_stateful or tasks_of(source, self.shards) != tasks_of(node, self.shards):
            return False
        return tasks_of(node, self.shards) == 1 or node.keys[0] == self._placing(node.inputs[0])

    def _placing(self, node: Node) -> tuple[str, ...] | None:
        """Return the columns whose values say which shard a row of an operator is in; None if none do."""
        way = [node]
        while not way[-1].is_stateful and len(way[-1].inputs) == 1:
            way += way[-1].inputs
        if way[-1].make is None or len(way[-1].inputs) != 1:
            return None
        placing: tuple[str | None, ...] | None = way[-1].keys[0]
        for one in reversed(way):
            if placing is None or one.make is None:
                return None
            operator = one.make()
            placing = tuple(None if name is None else operator.kept_as(name) for name in placing)
        return None if placing is None or None in placing else placing  # type: ignore[return-value]

    def _exits(self, node: Node, members: Mapping[Node, int]) -> Iterable[Exit]:
        for reader, side in self.plan.readers(node):
            if reader not in members:
                keys = reader.keys[reader.sides.index(side)]
                made = self._exit(node.schema, keys or (), tasks_of(reader, self.shards))
                self.feeding.setdefault((self.plan.names[reader], side), []).append(made)
                yield made
        for name, wanted in self.wanted.items():
            if wanted is node:
                # Each of several stages that feed a result gives a part through the one exit.
                if name not in self.results:
                    self.results[name] = self._exit(node.schema, _meeting(node), self.shards)
                yield self.results[name]

    def _exit(self, schema: TableSchema, keys: tuple[str, ...] | None, tasks: int) -> Exit:
        if OP_COLUMN in schema.names:
            raise SchemaError(
                f"a stream with the columns {', '.join(schema.names)}: {OP_COLUMN!r} is where changes say what they do"
                " when they go from task to task: give the column another name, or declare its source with op_column="
            )
        self.count += 1
        return Exit(self.count, schema, keys, tasks)
