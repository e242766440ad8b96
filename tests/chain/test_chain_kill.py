"""Processes killed with SIGKILL while they catch up, publish and collect: every epoch that is there is right."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from checkpoint.chain import Chain, location_at
from tests.checkpoint.store_helpers import child, first_line, other_lines
from tests.golden import chain_1
from tests.tally import TALLY

KILLS, KILLS_AT_SCALE = 3, 40

PUBLISHER = """
import sys
from pathlib import Path
from checkpoint.chain import Chain, location_at
from tests.golden import chain_1
folder, cache = map(Path, sys.argv[1:])
chain = Chain.open_or_create(location_at(folder), chain_1.SHARDS)
print("ready")
while True:
    chain_1.advance(chain, cache)
    print(chain.epoch)
    if chain.epoch % 5 == 0:
        chain.collect(grace_seconds=0, keep_epochs=3)
"""

READER = """
import shutil, sys
from pathlib import Path
from checkpoint.chain import Chain, location_at
from tests.golden import chain_1
folder, cache = map(Path, sys.argv[1:])
print("ready")
while True:
    chain = Chain.open(location_at(folder))
    for epoch in range(chain.first_epoch, chain.epoch + 1):
        plan = chain.operator_plan(chain_1.OPERATOR, epoch, cache=str(cache))
        for shard in range(chain.shards):
            chain_1.contents(plan, shard)
"""

COLLECTOR = """
import sys
from pathlib import Path
from checkpoint.chain import Chain, location_at
folder = Path(sys.argv[1])
print("ready")
for keep in (12, 9, 7, 5, 4, 3, 2):
    Chain.open(location_at(folder)).collect(grace_seconds=0, keep_epochs=keep)
    print(keep)
"""


def require_right(folder: Path, cache: Path) -> int:
    """See that every epoch that a chain has reads right, on a cache of any past, and return the newest."""
    chain = Chain.open(location_at(folder))
    for epoch in range(chain.first_epoch, chain.epoch + 1):
        plan = chain.operator_plan(chain_1.OPERATOR, epoch, cache=str(cache))
        for shard in range(chain.shards):
            assert chain_1.contents(plan, shard) == chain_1.expected(epoch, shard)
    return chain.epoch


@pytest.fixture
def kills(at_scale: bool) -> int:
    return KILLS_AT_SCALE if at_scale else KILLS


def kill_soon(code: str, *arguments: Path, rng: random.Random, after: int = 0) -> list[str]:
    """Run a process, kill it at a random moment after so many lines, and return what it has said."""
    with child(code, *arguments) as process:
        assert first_line(process) == "ready"
        said = [first_line(process) for _ in range(after)]
        time.sleep(rng.uniform(0.0, 0.05 if after else 0.3))
        process.send_signal(signal.SIGKILL)
        TALLY["processes killed"] += 1
        return said + other_lines(process)


def test_a_killed_publisher_and_collector_loses_no_epoch_that_it_published(tmp_path: Path, kills: int) -> None:
    folder, cache, rng, known = tmp_path / "space", tmp_path / "cache", random.Random(1), 0
    for number in range(kills):
        said = kill_soon(PUBLISHER, folder, cache, rng=rng, after=number % 3)
        acknowledged = int(said[-1]) if said else known
        newest = require_right(folder, cache)
        assert newest in (acknowledged, acknowledged + 1)
        known = newest
    assert known >= kills


def test_a_killed_reader_leaves_a_cache_that_is_right_or_replaced(tmp_path: Path, kills: int) -> None:
    cache, rng = tmp_path / "cache", random.Random(2)
    for _ in range(kills):
        kill_soon(READER, chain_1.PATH, cache, rng=rng)
        assert require_right(chain_1.PATH, cache) == chain_1.EPOCHS


def test_a_killed_collector_leaves_every_epoch_whole_or_gone(tmp_path: Path, kills: int) -> None:
    folder, rng = tmp_path / "space", random.Random(3)
    chain = Chain.open_or_create(location_at(folder), chain_1.SHARDS)
    for number in range(kills):
        while chain.epoch < 15 * (number + 1):
            chain_1.advance(chain, tmp_path / "cache")
        kill_soon(COLLECTOR, folder, rng=rng)
        assert require_right(folder, tmp_path / "cache") == chain.epoch
        chain.refresh()
