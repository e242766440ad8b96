"""What the golden store of format 3 holds: a run with a filter, and merged runs.

``python -m tests.golden.format_3`` wrote it; as those of older formats, it is never written again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace

PATH = Path(__file__).with_name("format_3.db")

EPOCHS = 50

LATE, NAMES = 45, 600
"""One epoch writes so many slots that its run has a filter; it is too young to be merged."""


def edits(epoch: int) -> dict[str, int]:
    """Return what an epoch writes into the dictionary."""
    return {f"n{number}": -1 for number in range(NAMES)} if epoch == LATE else {f"n{epoch}": epoch}


def expected(epoch: int) -> dict[str, Any]:
    """Return everything in the store at an epoch."""
    ages: dict[str, int] = {}
    for step in range(1, epoch + 1):
        ages |= edits(step)
    return {"ages": ages, "log": [f"entry {step}" for step in range(1, epoch + 1)]}


def contents(space: PersistedObjectSpace) -> dict[str, Any]:
    """Return everything in a space as plain containers."""
    return {"ages": dict(space.get_dictionary("ages")), "log": list(space.get_list("log"))}


def write(path: Path) -> None:
    """Write the golden store."""
    with CheckpointStore(path) as store:
        store.configure(history=10)
        space = PersistedObjectSpace(store)
        ages, log = space.create_dictionary("ages"), space.create_list("log")
        for epoch in range(1, EPOCHS + 1):
            ages.update(edits(epoch))
            log.append(f"entry {epoch}")
            space.checkpoint(epoch=epoch)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
