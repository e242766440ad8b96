"""What the golden chain of format 2 holds: a shard that the first epochs alone have changed, of which nothing is left.

``python -m tests.golden.chain_2 FOLDER CACHES`` wrote it; it is never written again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from checkpoint.chain import Chain, location_at
from tests.golden.chain_1 import SHARDS, advance

PATH = Path(__file__).with_name("chain_2")

EPOCHS, KEPT = 70, 4


def is_in(epoch: int, shard: int) -> bool:
    """Tell whether an epoch changes a shard."""
    return shard == 0 or epoch <= 2


def write(folder: Path, cache: Path) -> None:
    """Write the golden chain."""
    chain = Chain.open_or_create(location_at(folder), SHARDS)
    for _ in range(EPOCHS):
        advance(chain, cache, is_in)
    chain.collect(grace_seconds=0, keep_epochs=KEPT)


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
