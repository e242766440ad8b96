"""Processes killed with SIGKILL at random moments: what was acknowledged is there, and nothing is half there."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.checkpoint.store_helpers import Model, child, first_line, image_of, quick_store, random_run

KILLS = 5

WRITER = """
import random, sys
from checkpoint import CheckpointKind, CheckpointStore
from tests.checkpoint.store_helpers import random_run
path, durability = sys.argv[1:]
with CheckpointStore(path, durability=durability, history=2) as store:
    print("ready")
    for number in range(store.next_number(), 1_000_000):
        kind = CheckpointKind.FULL if number % 50 == 0 else CheckpointKind.DIFFERENTIAL
        store.append(random_run(random.Random(number), number, kind))
        print(number)
"""


@pytest.mark.parametrize("durability", ["normal", "full"])
def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path: Path, durability: str) -> None:
    path, rng = tmp_path / "state.db", random.Random(durability)
    model, known = Model(), 0
    for _ in range(KILLS):
        with child(WRITER, path, durability) as process:
            assert first_line(process) == "ready"
            time.sleep(rng.uniform(0.0, 0.25))
            process.send_signal(signal.SIGKILL)
            lines = process.communicate()[0].splitlines()
        acknowledged = int(lines[-1]) if lines else known
        with quick_store(path, history=2) as store:
            newest = store.next_number() - 1
            assert newest in (acknowledged, acknowledged + 1)
            for number in range(known + 1, newest + 1):
                model = model.follow(random_run(random.Random(number), number))
            assert image_of(store.reader()) == model.image()
            store.verify()
        known = newest
    print(f"{KILLS} kills, {known} checkpoints")
    assert known > KILLS
