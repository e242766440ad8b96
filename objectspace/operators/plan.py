"""The plan of a pipeline: its operators in order, the tables they keep, and what makes two of them the same.

A plan is a graph: a stream that is used twice is one node with two readers. One walk numbers the tables, starting from
the results, an operator before its inputs, each operator once. The numbers only serve to talk about the tables; what is
stored is the *name* of the operator and the role of the table. A name is given by the user, or made from the names of
the sources and operators that the operator reads from; a stored operator keeps the name that it was stored under.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

from objectspace.operators.base import Operator
from objectspace.operators.fingerprints import without_functions
from objectspace.relational import PlannedTable, PlanNode, SchemaError, TableSchema, plan_tables


@dataclass(eq=False)
class Node:
    """One operator of a plan.

    Args:
        label: what kind it is: ``HashAgg``, ``Source``.
        structure: what it does, as text; two operators with equal texts and equal inputs do the same.
        schema: the schema of its output.
        inputs: the nodes that its sides read from, from left to right.
        sides: the names of its sides.
        make: a function that makes the operator; a source has none.
        keys: for each side the columns whose equal values must meet in one place; ``()`` if all rows must, and ``None``
            if it does not matter. An engine with shards routes by them.
        tables: the role and schema of each table it keeps.
        append_only: whether its output has no retractions.
        name: the name that the user gave it.
        takes_order: whether the order of several rows with one key matters to it.
        as_it_comes: whether its rows stay in the order in which they come.
        is_own: whether a user has written it: then its label means nothing, whatever it is.
        is_numbered: whether it is a source without a key, whose rows are numbered in an added last column.
        is_promised: whether promises come for the watermark column of its schema; having such a column does not imply
            it.
        rules: the rules by which it computes that were different in earlier versions.
    """

    label: str
    structure: str
    schema: TableSchema
    inputs: tuple[Node, ...] = ()
    sides: tuple[str, ...] = ("input",)
    make: Callable[[], Operator] | None = None
    keys: tuple[tuple[str, ...] | None, ...] = (None,)
    tables: list[tuple[str, TableSchema]] = field(default_factory=list)
    append_only: bool = False
    name: str | None = None
    keeps_state: bool = False
    takes_order: bool = False
    as_it_comes: bool = False
    is_own: bool = False
    is_numbered: bool = False
    is_promised: bool = False
    rules: tuple[str, ...] = ()

    @property
    def promised(self) -> str | None:
        """The column that promises come for, or ``None`` if none do."""
        return self.schema.watermark_column if self.is_promised else None

    @property
    def is_stateful(self) -> bool:
        """Whether it keeps anything between epochs."""
        return bool(self.tables) or self.keeps_state

    @cached_property
    def fingerprint(self) -> str:
        """A digest of what it does to its inputs, and of what they are; if it is equal, state can be used again."""
        return _digest(repr(self._shape()))

    @cached_property
    def outline(self) -> str:
        """A digest of its kind, columns and structure and of what it reads, whatever the user's functions do.

        Unlike a fingerprint it is the same in every process, even if a function closes over something whose text
        differs between processes, such as an object whose text shows a set.
        """
        given = None if self.inputs else self.name
        shape = self.label, given, without_functions(self.structure), str(self.schema)
        return _digest(repr((*shape, [one.outline for one in self.inputs])))

    def is_one_of(self, labels: Container[str]) -> bool:
        """Return whether it is one of these operators of the library, not a user's operator of that name."""
        return not self.is_own and self.label in labels

    def describe(self) -> str:
        """Return its kind and what it does."""
        return f"{self.label}({self.structure})" if self.structure else self.label

    def origins(self) -> Iterator[Node]:
        """Yield the sources and stateful operators that its rows come from, looking through operators without state."""
        for one in self.inputs:
            if one.inputs and not one.is_stateful:
                yield from one.origins()
            else:
                yield one

    def reads(self) -> list[str]:
        """Describe what its rows come through: stateless operators, up to and including sources and stateful ones."""
        found: list[str] = []
        for one in self.inputs:
            if one.inputs and not one.is_stateful:
                found += [one.describe(), *one.reads()]
            else:
                kind = " that is only added to" if one.append_only else ""
                found.append(f"{one.describe()} {one.name or ''}{kind} ({one.schema})")
        return found

    def rules_of_all(self) -> list[str]:
        """Return the rules, different in earlier versions, by which it and all that it reads from compute."""
        return sorted({*self.rules, *(rule for one in self.inputs for rule in one.rules_of_all())})

    def _shape(self) -> tuple[Any, ...]:
        tables = [(role, str(schema)) for role, schema in self.tables]
        given = self.name if self.label == "Source" or not self.inputs else None
        inputs = [one.fingerprint for one in self.inputs]
        rules = [self.rules] if self.rules else []
        return self.label, given, self.structure, str(self.schema), tables, self.append_only, inputs, *rules


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Plan:
    """The operators that some results need.

    Args:
        roots: the operators whose output is a result, in the order in which they were requested.
        stored: the names of operators that are already stored, by the fingerprints they were stored with.

    Raises:
        SchemaError: two operators were given the same name.
    """

    def __init__(self, roots: Sequence[Node], stored: Mapping[str, Sequence[str]] | None = None) -> None:
        self.roots = list(roots)
        self.nodes = list(_ordered(self.roots))
        self.names = _named(self.nodes, stored or {})
        self._as_they_come: dict[Node, Node] = {}

    @property
    def stateful(self) -> list[Node]:
        """The operators that keep state, inputs before readers."""
        return [node for node in self.nodes if node.is_stateful]

    @cached_property
    def at_work(self) -> list[Node]:
        """The operators as they run in one process, inputs before readers.

        An operator to which order matters has sources of its own, which give their rows as they come. So what another
        operator gets does not depend on the other results, and stays the same when a result is added or dropped.
        """
        return list(_ordered(self.roots, self.inputs_at_work))

    def inputs_at_work(self, node: Node) -> tuple[Node, ...]:
        """Return the nodes that the sides of an operator read from in one process."""
        return tuple(map(self._as_it_comes, node.inputs)) if node.takes_order else node.inputs

    def entrances(self, source: Node) -> list[Node]:
        """Return the nodes that give a source's rows in one process: it, one that gives them as they come, or both."""
        return [node for node in self.at_work if node in (source, self._as_they_come.get(source))]

    def _as_it_comes(self, node: Node) -> Node:
        """Return a separate node for an operator that gets source rows as they come; one with state stays itself."""
        if node.is_stateful:
            return node
        if node not in self._as_they_come:
            inputs = tuple(map(self._as_it_comes, node.inputs))
            made = self._as_they_come[node] = replace(node, inputs=inputs, as_it_comes=True)
            self.names[made] = self.names[node]
        return self._as_they_come[node]

    def readers(self, node: Node) -> Iterator[tuple[Node, str]]:
        """Yield each operator that reads from a node, with the side that does; one that reads twice comes twice."""
        for reader in self.nodes:
            for side, source in zip(reader.sides, reader.inputs):
                if source is node:
                    yield reader, side

    def tables(self) -> list[PlannedTable]:
        """Return the tables of the plan with their numbers and the names they are stored under."""
        return [table for table, _ in self._numbered()]

    def explain(self) -> str:
        """Return the plan as text: every operator with its stream key, every table with its number, name and schema."""
        numbered = self._numbered()
        seen: set[int] = set()
        return "\n".join(line for root in self.roots for line in self._lines(root, "", "", numbered, seen))

    def _numbered(self) -> list[tuple[PlannedTable, TableSchema]]:
        seen: set[int] = set()
        tops = tuple(self._plan_node(root, seen) for root in self.roots)
        schemas = {f"{self.names[node]}/{role}": schema for node in self.stateful for role, schema in node.tables}
        return [(table, schemas[table.name]) for table in plan_tables(PlanNode("Plan", (), tops))]

    def _plan_node(self, node: Node, seen: set[int]) -> PlanNode:
        if id(node) in seen:
            return PlanNode(node.label, name=self.names[node])
        seen.add(id(node))
        roles = tuple(role for role, _ in node.tables)
        return PlanNode(node.label, roles, tuple(self._plan_node(one, seen) for one in node.inputs), self.names[node])

    def _lines(
        self,
        node: Node,
        first: str,
        rest: str,
        numbered: list[tuple[PlannedTable, TableSchema]],
        seen: set[int],
    ) -> Iterator[str]:
        """Yield the lines of an operator and its inputs, drawn as a tree; one that came before is only named."""
        name = self.names[node]
        if id(node) in seen:
            yield f"{first}{node.label} {name} (as above)"
            return
        seen.add(id(node))
        key = ", ".join(column for column, _ in node.schema.primary_key)
        kind = ", append-only" if node.append_only else ""
        yield f"{first}{node.describe()}  [{name}; key ({key}){kind}]"
        own = {f"{name}/{role}" for role, _ in node.tables}
        for table, schema in numbered:
            if table.name in own:
                yield f"{rest}{'│' if node.inputs else ' '}    table {table.id} {table.name!r}: {schema}"
        for place, source in enumerate(node.inputs):
            last = place == len(node.inputs) - 1
            yield from self._lines(
                source, f"{rest}{'└─ ' if last else '├─ '}", f"{rest}{'   ' if last else '│  '}", numbered, seen
            )


def _ordered(roots: Iterable[Node], inputs: Callable[[Node], Iterable[Node]] = attrgetter("inputs")) -> Iterator[Node]:
    """Yield every operator once, inputs before readers."""
    seen: set[int] = set()

    def _visit(node: Node) -> Iterator[Node]:
        if id(node) not in seen:
            seen.add(id(node))
            for source in inputs(node):
                yield from _visit(source)
            yield node

    for root in roots:
        yield from _visit(root)


def _named(nodes: Sequence[Node], stored: Mapping[str, Sequence[str]]) -> dict[Node, str]:
    """Give each operator its name: the user's, the one it is stored under, or the next free one of its path."""
    left = {fingerprint: list(names) for fingerprint, names in stored.items()}
    found: dict[Node, str] = {}
    given = [node.name for node in nodes if node.name is not None and (node.is_stateful or not node.inputs)]
    for name in given:
        if given.count(name) > 1:
            is_source = any(node.name == name and not node.inputs for node in nodes)
            both = "a source and an operator" if is_source else "two operators"
            raise SchemaError(f"{both} of the pipeline have the name {name!r}: choose another one")
    for node in nodes:
        if node.name is not None:
            found[node] = node.name
        elif node.is_stateful and left.get(node.fingerprint):
            found[node] = name = left[node.fingerprint].pop(0)
            if name in given:
                raise SchemaError(
                    f"the state of {node.describe()} is stored under the name {name!r}: choose another one"
                )
    taken = set(found.values())
    for node in nodes:
        if node not in found:
            path = f"{'+'.join(dict.fromkeys(_path(one, found) for one in node.inputs))}.{node.label}"
            found[node] = name = _free(_bounded(path), taken if node.is_stateful else ())
            taken.add(name)
    return found


LONGEST_PATH = 400
"""The number of characters beyond which the path in an operator's name is shortened."""


def _path(node: Node, names: Mapping[Node, str]) -> str:
    """Return the path of an operator: stateless operators count only if there is nothing else."""
    while not node.is_stateful and len(node.inputs) == 1:
        node = node.inputs[0]
    return names[node]


def _bounded(path: str) -> str:
    """Return a path of limited length: each join of a stream with itself would double it."""
    if len(path) <= LONGEST_PATH:
        return path
    digest = hashlib.sha256(path.encode()).hexdigest()[:16]
    return f"{path[: LONGEST_PATH // 2]}~{digest}.{path.rpartition('.')[2]}"


def _free(name: str, taken: Iterable[str]) -> str:
    known, number, found = set(taken), 1, name
    while found in known:
        number += 1
        found = f"{name}.{number}"
    return found
