"""The operators of a plan at work: changes, watermarks and barriers on their way from the sources to the results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from objectspace.operators.base import Operator, Watermark
from objectspace.operators.plan import Node, Plan
from objectspace.operators.returned import chunks_from
from objectspace.relational import Chunk


class Graph:
    """The operators of a plan, and the way of the changes between them.

    Args:
        plan: the plan.
        operators: an operator for each node at work that has one.
    """

    def __init__(self, plan: Plan, operators: Mapping[Node, Operator]) -> None:
        self.plan, self.operators = plan, operators
        self._readers: dict[Node, list[tuple[Node, str]]] = defaultdict(list)
        for reader in plan.at_work:
            for side, node in zip(reader.sides, plan.inputs_at_work(reader)):
                self._readers[node].append((reader, side))
        self._results = set(plan.roots)
        self.output: dict[Node, list[Chunk]] = defaultdict(list)
        self._held: dict[Node, list[Watermark]] = defaultdict(list)

    def push(self, node: Node, chunk: Chunk) -> None:
        """Pass the output of a node on, all the way through, however long the way is."""
        way = [iter([(node, chunk)])]
        while way:
            for giver, made in way[-1]:
                if len(made):
                    way.append(self._passed_on(giver, made))
                    break
            else:
                way.pop()

    def _passed_on(self, node: Node, chunk: Chunk) -> Iterator[tuple[Node, Chunk]]:
        """Give the output of a node to its readers, and yield what each of them makes of it."""
        if node in self._results:
            self.output[node].append(chunk)
        for reader, side in self._readers.get(node, ()):
            operator = self.operators[reader]
            for made in chunks_from(operator, operator.process(chunk, side)):
                yield reader, made

    def watermark(self, node: Node, column: str, value: Any) -> None:
        """Give a watermark of a node to its readers, which pass on theirs once they have given what they hold back."""
        for reader, side in self._readers.get(node, ()):
            self._held[reader] += self.operators[reader].watermark(column, value, side)

    def barrier(self, epoch: int, nodes: Iterable[Node]) -> None:
        """Send the barrier: an operator gets it once all its inputs have had it and given their last changes."""
        for node in nodes:
            if node in self.operators:
                operator = self.operators[node]
                for chunk in chunks_from(operator, operator.barrier(epoch)):
                    self.push(node, chunk)
                for column, value in (*self._held.pop(node, ()), *operator.watermarks()):
                    self.watermark(node, column, value)

    def forget(self) -> None:
        """Drop what an unfinished epoch has left: output that was not taken, and watermarks on their way."""
        self.output, self._held = defaultdict(list), defaultdict(list)

    def taken_output(self) -> dict[Node, list[Chunk]]:
        """Return the changes of the results since the last call."""
        found, self.output = dict(self.output), defaultdict(list)
        return found
