"""What the golden chain of format 4 holds: a copy of one object of that of format 3, from which nothing goes on.

``python -m tests.golden.chain_4 FOLDER`` wrote it; it is never written again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from checkpoint.chain import Chain, OperatorPlan, location_at, open_cache
from checkpoint.tool.copying import restore_space
from objectspace import PersistedObjectSpace
from tests.golden import chain_3

PATH = Path(__file__).with_name("chain_4")

EPOCH, NAME = 3, "counts"


def contents(plan: OperatorPlan, shard: int) -> dict[str, dict[object, int]]:
    """Return what a shard holds at the epoch of a plan, by the names of the objects."""
    with open_cache(plan, shard) as store:
        space = PersistedObjectSpace(store)
        return {name: dict(space.get(name).items()) for name in space}


def write(folder: Path) -> None:
    """Write the golden chain."""
    shards = [(chain_3.OPERATOR, shard) for shard in range(chain_3.AFTER)]
    restore_space(Chain.open(location_at(chain_3.PATH)), str(folder), EPOCH, shards, [NAME], lambda done, total: None)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
