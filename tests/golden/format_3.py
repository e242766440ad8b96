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

EPOCHS = 24

NAMES = 4_096


def expected(epoch: int) -> dict[str, Any]:
    """Return everything in the store at an epoch."""
    ages = {f"n{number}": 0 for number in range(NAMES if epoch > 1 else 0)}
    ages |= {f"n{3 * step}": step for step in range(3, epoch + 1)}
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
            if epoch > 1:
                ages.update(dict.fromkeys(expected(2)["ages"], 0) if epoch == 2 else {f"n{3 * epoch}": epoch})
            log.append(f"entry {epoch}")
            space.checkpoint(epoch=epoch)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
