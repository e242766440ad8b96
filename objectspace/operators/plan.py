"""The plan of a pipeline: its operators in order, the tables they keep, and what makes two of them the same.

A plan is a graph: a stream that is used twice is one node with two readers. One walk numbers the tables, starting from
the results, an operator before its inputs, each operator once. The numbers only serve to talk about the tables; what is
stored is the *name* of the operator and the role of the table. A name is given by the user, or made from the names of
the sources and operators that the operator reads from; a stored operator keeps the name that it was stored under.
"""

from __future__ import annotations

import hashlib
from collections import Counter
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
        keeps_state: whether it keeps something between epochs that is in no table.
        takes_order: whether the order of several rows with one key matters to it.
        as_it_comes: whether its rows stay in the order in which they come.
        is_own: whether a user has written it: then its label means nothing, whatever it is.
        is_numbered: whether it is a source without a key, whose rows are numbered in an added last column.
        has_watermark: whether watermarks come for the watermark column of its schema; to have such a column is not
            enough.
        rules: the rules by which it computes that were different in earlier versions.
        calls: its calls of functions, with the types of what they return, in the order in which they were made.
        more_watermark_columns: columns that watermarks come for whatever the watermark column of its schema is.
    """

    label: str
    structure: str
    schema: TableSchema
    inputs: tuple[Node, ...] = field(default=(), repr=False)
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
    has_watermark: bool = False
    rules: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    more_watermark_columns: tuple[str, ...] = ()

    @property
    def watermark_column(self) -> str | None:
        """The watermark column of its schema if watermarks come for it, or ``None`` if none do."""
        return self.schema.watermark_column if self.has_watermark else None

    @property
    def watermark_columns(self) -> tuple[str, ...]:
        """The columns that watermarks come for, first the watermark column."""
        return tuple(
            dict.fromkeys([*([] if (own := self.watermark_column) is None else [own]), *self.more_watermark_columns])
        )

    @property
    def is_stateful(self) -> bool:
        """Whether it keeps anything between epochs."""
        return bool(self.tables) or self.keeps_state

    @cached_property
    def fingerprint(self) -> str:
        """A digest of what it does to its inputs, and of what they are; if it is equal, state can be used again."""
        self._prepare("fingerprint")
        return _digest(repr(self._shape()))

    @cached_property
    def outline(self) -> str:
        """A digest of its kind, columns and structure and of what it reads, whatever the user's functions do.

        Unlike a fingerprint it is the same in every process, even if a function closes over something whose text
        differs between processes, such as an object whose text shows a set.
        """
        self._prepare("outline")
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
        return (one for one in self._read() if not one._is_looked_through)

    def reads(self) -> list[str]:
        """Describe what its rows come through: stateless operators, up to and including sources and stateful ones.

        An operator that is read in several ways comes once; earlier versions stored it once for each way.
        """
        return [one.describe() if one._is_looked_through else _as_origin(one) for one in self._read()]

    def rules_of_all(self) -> list[str]:
        """Return the rules, different in earlier versions, by which it and all that it reads from compute."""
        return sorted({rule for one in _ordered([self]) for rule in one.rules})

    @cached_property
    def types_of_calls(self) -> str:
        """A digest of the types of what the functions return that it and all that it reads from call; empty if none do.

        The text of a call that stands in another expression does not say its type, and neither does the fingerprint.
        """
        self._prepare("types_of_calls")
        below = [one.types_of_calls for one in self.inputs]
        return _digest(repr((self.calls, below))) if self.calls or any(below) else ""

    @property
    def identity(self) -> str:
        """What its state is known by: the fingerprint, and the types of calls if there are any."""
        return identity(self.fingerprint, self.types_of_calls)

    def calls_of_all(self) -> list[str]:
        """Return the calls of functions by it and all that it reads from, with the types of what they return."""
        return sorted({call for one in _ordered([self]) for call in one.calls})

    @property
    def _is_looked_through(self) -> bool:
        return bool(self.inputs) and not self.is_stateful

    def _read(self) -> Iterator[Node]:
        """Yield what its rows come through, each operator once, readers before inputs."""
        return _from_readers(self.inputs, lambda one: one.inputs if one._is_looked_through else ())

    def _prepare(self, name: str) -> None:
        """Let all that it reads from compute a property, from the sources on: however deep it is, no call nests."""
        for one in _ordered(self.inputs, lambda one: () if name in vars(one) else one.inputs):
            getattr(one, name)

    def _shape(self) -> tuple[Any, ...]:
        tables = [(role, str(schema)) for role, schema in self.tables]
        given = self.name if self.label == "Source" or not self.inputs else None
        inputs = [one.fingerprint for one in self.inputs]
        rules = [self.rules] if self.rules else []
        return self.label, given, self.structure, str(self.schema), tables, self.append_only, inputs, *rules


def identity(fingerprint: str, types_of_calls: str = "") -> str:
    """Return what the state of an operator is known by; one that an earlier version has stored, by its fingerprint."""
    return f"{fingerprint}/{types_of_calls}" if types_of_calls else fingerprint


def _as_origin(node: Node) -> str:
    kind = " that is only added to" if node.append_only else ""
    return f"{node.describe()} {node.name or ''}{kind} ({node.schema})"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Plan:
    """The operators that some results need.

    Args:
        roots: the operators whose output is a result, in the order in which they were requested.
        stored: the names of operators that are already stored, by the identities they were stored with.

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
        made = self._as_they_come
        for one in _ordered([node], lambda one: () if one.is_stateful or one in made else one.inputs):
            if not one.is_stateful and one not in made:
                inputs = tuple(made.get(each, each) for each in one.inputs)
                made[one] = replace(one, inputs=inputs, as_it_comes=True)
                self.names[made[one]] = self.names[one]
        return made.get(node, node)

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
        return "\n".join(self._lines())

    def _numbered(self) -> list[tuple[PlannedTable, TableSchema]]:
        schemas = {f"{self.names[node]}/{role}": schema for node in self.stateful for role, schema in node.tables}
        tops = [
            PlanNode(node.label, tuple(role for role, _ in node.tables), name=self.names[node])
            for node in _from_readers(self.roots)
        ]
        return [(table, schemas[table.name]) for table in plan_tables(PlanNode("Plan", (), tuple(tops)))]

    def _lines(self) -> Iterator[str]:
        """Yield the lines of the operators, drawn as a tree for each root; one that came before is only named."""
        numbered = {table.name: (table, schema) for table, schema in self._numbered()}
        seen: set[Node] = set()
        left = [(root, "", "") for root in reversed(self.roots)]
        while left:
            node, first, rest = left.pop()
            name = self.names[node]
            if node in seen:
                yield f"{first}{node.label} {name} (as above)"
                continue
            seen.add(node)
            key = ", ".join(column for column, _ in node.schema.primary_key)
            kind = ", append-only" if node.append_only else ""
            yield f"{first}{node.describe()}  [{name}; key ({key}){kind}]"
            for role, _ in node.tables:
                table, schema = numbered[f"{name}/{role}"]
                yield f"{rest}{'│' if node.inputs else ' '}    table {table.id} {table.name!r}: {schema}"
            branches = [("├─ ", "│  ")] * (len(node.inputs) - 1) + [("└─ ", "   ")]
            drawn = [(one, f"{rest}{turn}", f"{rest}{on}") for one, (turn, on) in zip(node.inputs, branches)]
            left += reversed(drawn)


Inputs = Callable[[Node], Iterable[Node]]
"""What a walk takes for the inputs of an operator."""

_INPUTS: Inputs = attrgetter("inputs")


def _ordered(roots: Iterable[Node], inputs: Inputs = _INPUTS) -> Iterator[Node]:
    """Yield every operator once, inputs before readers."""
    seen: set[Node] = set()
    for root in roots:
        way = [(root, iter(inputs(root)))] if root not in seen else []
        seen.add(root)
        while way:
            node, left = way[-1]
            for one in left:
                if one not in seen:
                    seen.add(one)
                    way.append((one, iter(inputs(one))))
                    break
            else:
                way.pop()
                yield node


def _from_readers(roots: Sequence[Node], inputs: Inputs = _INPUTS) -> Iterator[Node]:
    """Yield every operator once, where a walk from left to right meets it first, readers before inputs."""
    seen: set[Node] = set()
    left = [*reversed(roots)]
    while left:
        node = left.pop()
        if node not in seen:
            seen.add(node)
            yield node
            left += reversed([*inputs(node)])


def _named(nodes: Sequence[Node], stored: Mapping[str, Sequence[str]]) -> dict[Node, str]:
    """Give each operator its name: the user's, the one it is stored under, or the next free one of its path."""
    left = {known: list(names) for known, names in stored.items()}
    found: dict[Node, str] = {}
    given = Counter(node.name for node in nodes if node.name is not None and (node.is_stateful or not node.inputs))
    for name, times in given.items():
        if times > 1:
            is_source = any(node.name == name and not node.inputs for node in nodes)
            both = "a source and an operator" if is_source else "two operators"
            raise SchemaError(f"{both} of the pipeline have the name {name!r}: choose another one")
    for node in nodes:
        if node.name is not None:
            found[node] = node.name
        elif node.is_stateful and (names := left.get(node.identity) or left.get(node.fingerprint)):
            found[node] = name = names.pop(0)
            if name in given:
                raise SchemaError(
                    f"the state of {node.describe()} is stored under the name {name!r}: choose another one"
                )
    taken = dict.fromkeys(found.values(), 1)
    paths: dict[Node, str] = {}
    for node in nodes:
        inputs = [paths[one] for one in node.inputs]
        if node not in found:
            name = _bounded(f"{'+'.join(dict.fromkeys(inputs))}.{node.label}")
            found[node] = _free(name, taken) if node.is_stateful else name
            taken.setdefault(found[node], 1)
        # Operators without state count in the path of another only if there is nothing else.
        paths[node] = found[node] if node.is_stateful or len(inputs) != 1 else inputs[0]
    return found


LONGEST_PATH = 400
"""The number of characters beyond which the path in an operator's name is shortened."""


def _bounded(path: str) -> str:
    """Return a path of limited length: each join of a stream with itself would double it."""
    if len(path) <= LONGEST_PATH:
        return path
    digest = hashlib.sha256(path.encode()).hexdigest()[:16]
    return f"{path[: LONGEST_PATH // 2]}~{digest}.{path.rpartition('.')[2]}"


def _free(name: str, taken: dict[str, int]) -> str:
    """Return a name, with a number if it is taken; the names that are taken say which numbers of theirs are."""
    number, found = taken.get(name, 0), name
    while found in taken:
        number += 1
        found = f"{name}.{number}"
    taken[name] = max(number, 1)
    return found
