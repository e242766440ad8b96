"""The tables of a plan: numbered by one walk, and named after the path of their operator.

The walk is depth first: the tables of an operator, then its inputs from left to right. The numbers change with every
change of the plan, so they only serve to talk about it. The *name* is what is stored: the operators on the way from the
root, and the role of the table; inputs of an operator that share a name are told apart by their place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from objectspace.relational.errors import SchemaError


@dataclass(frozen=True)
class PlanNode:
    """An operator of a plan.

    Args:
        operator: its name.
        tables: the roles of its tables, in the order in which they are numbered.
        inputs: the operators that it reads from, from left to right.
        name: a name that the user gave it; its tables then keep their names wherever it stands in the plan.
    """

    operator: str
    tables: tuple[str, ...] = ()
    inputs: tuple[PlanNode, ...] = ()
    name: str | None = None


@dataclass(frozen=True)
class PlannedTable:
    """A table of a plan: its number, its operator and role, and the name under which it is stored."""

    id: int
    operator: str
    role: str
    name: str


def plan_tables(root: PlanNode) -> list[PlannedTable]:
    """Return the tables of a plan, in the order of their numbers.

    Raises:
        SchemaError: two tables would have the same name.

    >>> scan = PlanNode("Scan", ("StreamScan",))
    >>> for table in plan_tables(PlanNode("Agg", ("HashAggCall0", "HashAggState"), (scan,))):
    ...     print(table.id, table.name)
    0 Agg/HashAggCall0
    1 Agg/HashAggState
    2 Agg/Scan/StreamScan
    """
    found = [
        PlannedTable(number, node.operator, role, f"{path}/{role}")
        for number, (node, path, role) in enumerate(_walk(root, root.name or root.operator))
    ]
    for name, times in Counter(table.name for table in found).items():
        if times > 1:
            raise SchemaError(f"two tables of the plan have the name {name!r}: give their operators names of their own")
    return found


def _walk(node: PlanNode, path: str) -> Iterator[tuple[PlanNode, str, str]]:
    for role in node.tables:
        yield node, path, role
    times = Counter(child.operator for child in node.inputs)
    for place, child in enumerate(node.inputs):
        step = child.operator if times[child.operator] == 1 else f"{child.operator}.{place}"
        yield from _walk(child, child.name or f"{path}/{step}")
