"""What the golden store of format 6 holds: large values beside their rows, some of which merged runs share.

``python -m tests.golden.format_6`` wrote it; as those of older formats, it is never written again. ``BEFORE`` is the
same store as format 5 has written it, with all values in their rows.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace

PATH, BEFORE = Path(__file__).with_name("format_6.db"), Path(__file__).with_name("format_5_large.db")

EPOCHS, FULL_AT, HISTORY = 60, 20, 6


def value_of(epoch: int) -> Any:
    """Return what an epoch writes: every third value is small."""
    return epoch if epoch % 3 == 0 else f"{epoch:_>600}"


def expected(epoch: int) -> dict[str, Any]:
    """Return everything in the store at an epoch."""
    places = {step % 7: value_of(step) for step in range(1, epoch + 1)}
    return {"places": places, "last": value_of(epoch)}


def contents(space: PersistedObjectSpace) -> dict[str, Any]:
    """Return everything in a space as plain containers."""
    return {"places": space.get_dictionary("places").copy(), "last": space.get_value("last").value}


def write(path: Path) -> None:
    """Write the golden store."""
    with CheckpointStore(path) as store:
        store.configure(history=HISTORY)
        space = PersistedObjectSpace(store)
        places, last = space.create_dictionary("places"), space.create_value("last")
        for epoch in range(1, EPOCHS + 1):
            places[epoch % 7] = last.value = value_of(epoch)
            space.checkpoint(kind="full" if epoch == FULL_AT else "differential", epoch=epoch)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
