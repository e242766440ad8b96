"""Small chains for the tests: runs that look like a dictionary of counters, and drivers that publish them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from checkpoint import CheckpointKind, Run
from checkpoint.chain import AcceptedRun, Chain, Manifest, SourcePosition, save_run
from checkpoint.run import IndexRow, ItemRow

OPERATOR = "counter"


def run_of(
    values: dict[str, int | None], kind: CheckpointKind = CheckpointKind.DIFFERENTIAL, length: int | None = None
) -> Run:
    """Return a run that writes some slots of one dictionary, and its length where that is given."""
    index: list[IndexRow] = [(1, "counts", "Dictionary", None)] if kind is CheckpointKind.FULL else []
    items: list[ItemRow] = [(1, slot, None if value is None else str(value), None) for slot, value in values.items()]
    return Run(kind, index, [] if length is None else [(1, "length", str(length))], items)


class Publisher:
    """Publishes epochs in which each shard writes the slots that it is given; full runs are complete images."""

    has_length = True
    """Whether it writes the length of the dictionary, too, as a space does: without it the dictionary is not sound."""

    def __init__(self, cache: Path) -> None:
        self._cache = str(cache)
        self._state: dict[tuple[str, int], dict[str, int]] = {}

    def __call__(
        self,
        chain: Chain,
        *shards: dict[str, int | None],
        query: str = "q",
        full_after: int = 64,
        images: Sequence[AcceptedRun] = (),
    ) -> Manifest:
        """Publish the next epoch of a chain."""
        last = chain.newest.committed.get(query, -1) if chain.newest else -1
        plan = chain.begin(SourcePosition(query, last + 1), [OPERATOR], full_after, self._cache)
        assert plan is not None
        operator = plan.operators[OPERATOR]
        saved = [
            save_run(operator, shard, self._run(chain, shard, values, operator.kind(shard)))
            for shard, values in enumerate(shards)
        ]
        return chain.publish(plan, {OPERATOR: saved}, images=images)

    def _run(self, chain: Chain, shard: int, values: dict[str, int | None], kind: CheckpointKind) -> Run:
        state = self._state.setdefault((chain.incarnation, shard), {})
        merged = {**state, **values}
        state.clear()
        state.update({slot: value for slot, value in merged.items() if value is not None})
        if not values:
            return Run(CheckpointKind.DIFFERENTIAL)  # An empty image would say that all is gone.
        slots = dict(state) if kind is CheckpointKind.FULL else values
        return run_of(slots, kind, len(state) if self.has_length else None)
