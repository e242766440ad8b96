"""What the golden chain holds: two shards, differential runs on full ones, epochs that were collected.

``python -m tests.golden.chain_1 FOLDER`` wrote it; it is never written again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from checkpoint import RunWriter
from checkpoint.chain import Chain, OperatorPlan, ShardSaved, SourcePosition, location_at, open_cache, save_run
from objectspace import PersistedObjectSpace

PATH = Path(__file__).with_name("chain_1")

EPOCHS, KEPT, SHARDS, OPERATOR = 14, 8, 2, "counter"

State = tuple[dict[str, int], list[str]]

Changes = Callable[[int, int], bool]


def is_in(epoch: int, shard: int) -> bool:
    """Tell whether an epoch changes a shard: the second changes seldom."""
    return shard == 0 or epoch % 3 == 1


def expected(epoch: int, shard: int, is_in: Changes = is_in) -> State:
    """Return what a shard holds at an epoch."""
    steps = [step for step in range(1, epoch + 1) if is_in(step, shard)]
    return {f"k{step % 4}": step for step in steps}, [f"entry {step}" for step in steps]


def contents(plan: OperatorPlan, shard: int) -> State:
    """Return what a shard holds at the epoch of a plan."""
    with open_cache(plan, shard) as store:
        space = PersistedObjectSpace(store)
        return dict(space.get_dictionary("counts")), list(space.get_list("log"))


def advance(chain: Chain, cache: Path, is_in: Changes = is_in) -> None:
    """Publish the next epoch."""
    step = chain.epoch + 1
    plan = chain.begin(SourcePosition("golden", step - 1), [OPERATOR], full_after=2, cache=str(cache))
    assert plan is not None
    operator = plan.operators[OPERATOR]
    chain.publish(plan, {OPERATOR: [_saved(operator, shard, step, is_in(step, shard)) for shard in range(SHARDS)]})


def _saved(plan: OperatorPlan, shard: int, step: int, is_changed: bool) -> ShardSaved:
    with open_cache(plan, shard) as store:
        space = PersistedObjectSpace(store)
        if is_changed:
            space.get_or_create_dictionary("counts")[f"k{step % 4}"] = step
            space.get_or_create_list("log").append(f"entry {step}")
        writer = RunWriter(plan.kind(shard))
        space.save(writer)
        writer.commit()
        return save_run(plan, shard, writer.run)


def write(folder: Path, cache: Path) -> None:
    """Write the golden chain."""
    chain = Chain.open_or_create(location_at(folder), SHARDS)
    for _ in range(EPOCHS):
        advance(chain, cache)
    chain.collect(grace_seconds=0, keep_epochs=KEPT)


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
