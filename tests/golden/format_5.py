"""What the golden store of format 5 holds: sealed records, of a full checkpoint, of merged runs, of runs that are gone.

``python -m tests.golden.format_5`` wrote it; as those of older formats, it is never written again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace

PATH = Path(__file__).with_name("format_5.db")

EPOCHS, FULL_AT, HISTORY = 70, 5, 6


def expected(epoch: int) -> dict[str, Any]:
    """Return everything in the store at an epoch."""
    places = {step % 7: step for step in range(1, epoch + 1)}
    return {"log": list(range(1, epoch + 1)), "places": places}


def contents(space: PersistedObjectSpace) -> dict[str, Any]:
    """Return everything in a space as plain containers."""
    return {"log": space.get_list("log").copy(), "places": space.get_dictionary("places").copy()}


def write(path: Path) -> None:
    """Write the golden store."""
    with CheckpointStore(path) as store:
        store.configure(history=HISTORY)
        space = PersistedObjectSpace(store)
        log, places = space.create_list("log"), space.create_dictionary("places")
        for epoch in range(1, EPOCHS + 1):
            log.append(epoch)
            places[epoch % 7] = epoch
            space.checkpoint(kind="full" if epoch == FULL_AT else "differential", epoch=epoch)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
