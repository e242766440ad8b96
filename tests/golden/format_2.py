"""What the golden store of format 2 holds: merged runs beside their parts, and settings.

``python -m tests.golden.format_2`` wrote it; as that of format 1, it is never written again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace

PATH = Path(__file__).with_name("format_2.db")

EPOCHS = 30


def expected(epoch: int) -> dict[str, Any]:
    """Return everything in the store at an epoch."""
    cells = [0, 0, 0, 0, 0]
    for step in range(1, epoch + 1):
        cells[step % 5] = step
    return {"cells": cells, "log": [f"entry {step}" for step in range(1, epoch + 1)]}


def contents(space: PersistedObjectSpace) -> dict[str, Any]:
    """Return everything in a space as plain containers."""
    return {name: list(space.get(name)) for name in sorted(space)}


def write(path: Path) -> None:
    """Write the golden store."""
    with CheckpointStore(path) as store:
        store.configure(history=12, records=1000)
        space = PersistedObjectSpace(store)
        cells, log = space.create_array("cells", 5, default=0), space.create_list("log")
        for epoch in range(1, EPOCHS + 1):
            cells[epoch % 5] = epoch
            log.append(f"entry {epoch}")
            space.checkpoint(epoch=epoch)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
