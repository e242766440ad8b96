"""What the golden store of format 4 holds: a run that is stored with its spans, and small ones around it.

``python -m tests.golden.format_4`` wrote it; as those of older formats, it is never written again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace

PATH = Path(__file__).with_name("format_4.db")

EPOCHS = 20

LARGE, PLACES = 15, range(1_000, 5_500)
"""One epoch writes so many slots that its run is stored with its spans; it is too young to be merged."""


def edits(epoch: int) -> dict[int, int]:
    """Return what an epoch writes into the sparse array."""
    return dict.fromkeys(PLACES, 0) if epoch == LARGE else {300 * epoch: epoch}


def expected(epoch: int) -> dict[str, Any]:
    """Return everything in the store at an epoch."""
    log: dict[int, int] = {}
    for step in range(1, epoch + 1):
        log |= edits(step)
    return {"log": log, "count": epoch}


def contents(space: PersistedObjectSpace) -> dict[str, Any]:
    """Return everything in a space as plain containers."""
    return {"log": space.get_sparse_array("log").copy(), "count": space.get_value("count").value}


def write(path: Path) -> None:
    """Write the golden store."""
    with CheckpointStore(path) as store:
        store.configure(history=10)
        space = PersistedObjectSpace(store)
        log, count = space.create_sparse_array("log"), space.create_value("count")
        for epoch in range(1, EPOCHS + 1):
            for place, value in edits(epoch).items():
                log[place] = value
            count.value = epoch
            space.checkpoint(epoch=epoch)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
