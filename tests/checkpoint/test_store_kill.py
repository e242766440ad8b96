"""Processes killed with SIGKILL at random moments: what was acknowledged is there, and nothing is half there."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.checkpoint.store_helpers import Model, child, first_line, image_of, other_lines, quick_store, random_run
from tests.tally import TALLY

KILLS, KILLS_AT_SCALE = 5, 150

WRITER = """
import random, sys
from checkpoint import CheckpointKind, CheckpointStore
from tests.tally import TALLY
from tests.checkpoint.store_helpers import random_run
path, durability = sys.argv[1:]
with CheckpointStore(path, durability=durability, history=2) as store:
    print("ready")
    for number in range(store.next_number(), 1_000_000):
        kind = CheckpointKind.FULL if number % 50 == 0 else CheckpointKind.DIFFERENTIAL
        store.append(random_run(random.Random(number), number, kind))
        print(number)
        if number % 40 == 17:
            store.compact()
        if number % 40 == 29:
            store.prune(keep=3)
        if number % 40 == 5:
            store.fork(f"{path}-{number}.fork")
"""


@pytest.mark.parametrize("durability", ["normal", "full"])
def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path: Path, durability: str, at_scale: bool) -> None:
    path, rng = tmp_path / "state.db", random.Random(durability)
    model, known = Model(), 0
    for _ in range(KILLS_AT_SCALE if at_scale else KILLS):
        with child(WRITER, path, durability) as process:
            assert first_line(process) == "ready"
            time.sleep(rng.uniform(0.0, 0.25))
            process.send_signal(signal.SIGKILL)
            lines = other_lines(process)
        acknowledged = int(lines[-1]) if lines else known
        with quick_store(path, history=2) as store:
            newest = store.next_number() - 1
            assert newest in (acknowledged, acknowledged + 1)
            for number in range(known + 1, newest + 1):
                model = model.follow(random_run(random.Random(number), number))
            assert image_of(store.reader()) == model.image()
            store.verify()
        for fork in tmp_path.glob("*.fork"):
            with quick_store(fork) as store:
                assert store.verify() > 0
                assert store.next_number() == int(fork.stem.rpartition("-")[2]) + 1
            fork.unlink()
        known = newest
        TALLY["processes killed"] += 1
    assert known > KILLS
