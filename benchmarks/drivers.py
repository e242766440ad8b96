"""What the driver of a space does for an epoch, by shards and operators: ``python -m benchmarks.drivers``.

Executors save; the driver plans an epoch from the newest manifest and publishes the next one, and both grow with the
runs that the manifests name. The space lies in memory, so that nothing but this is timed. Nothing stands beside it: it
is here so that it is seen to stay small.
"""

from __future__ import annotations

import argparse
import statistics
import time
from uuid import uuid4

from benchmarks.timing import machine, table
from checkpoint import CheckpointKind, Run
from checkpoint.chain import Chain, SourcePosition, location_at, save_run

SIZES = ((2, 1), (16, 3), (64, 3))
"""Shards and operators."""

TAKEN = 16
"""The times of so many epochs at the end are taken."""


def driven(shards: int, operators: int, epochs: int) -> list[str]:
    """Drive a space of its own for some epochs, each shard with one changed slot, and return a row of the table."""
    location = location_at(f"memory://{uuid4()}")
    chain = Chain.open_or_create(location, shards)
    names = [f"operator-{number}" for number in range(operators)]
    planning, publishing = [], []
    for batch in range(epochs):
        started = time.perf_counter()
        plan = chain.begin(SourcePosition("q", batch), names)
        assert plan is not None
        planned = time.perf_counter()
        saved = {
            name: [save_run(each, shard, _run(batch, each.kind(shard))) for shard in range(shards)]
            for name, each in plan.operators.items()
        }
        ready = time.perf_counter()
        chain.publish(plan, saved)
        planning.append(planned - started)
        publishing.append(time.perf_counter() - ready)
    times = [f"{statistics.median(each[-TAKEN:]) * 1e3:.2f} ms" for each in (planning, publishing)]
    started = time.perf_counter()
    Chain.open(location).begin(SourcePosition("q", epochs), names)
    return [f"{shards} x {operators}", *times, f"{(time.perf_counter() - started) * 1e3:.2f} ms"]


def _run(batch: int, kind: CheckpointKind) -> Run:
    index = [(1, "counts", "Dictionary", None)] if kind is CheckpointKind.FULL else []
    return Run(kind, index, [(1, "length", "1")], [(1, batch, str(batch), None)])  # type: ignore[arg-type]


def main() -> None:
    """Run the benchmark and print its table in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drivers", description=__doc__)
    parser.add_argument("--epochs", type=int, default=128)
    epochs = parser.parse_args().epochs
    print(machine("objectspace", "orjson") + "\n")
    rows = [driven(shards, operators, epochs) for shards, operators in SIZES]
    head = ("shards x operators", "plan an epoch", "publish it", "open and plan, a new driver")
    print(table(f"The driver, medians of the last {TAKEN} of {epochs} epochs", head, rows))


if __name__ == "__main__":
    main()
