"""A job that is larger than this machine, by a model: ``python -m benchmarks.scale``.

What a slot costs is measured here, on a shard of real size; what the job around it looks like is assumed, and every
assumption is printed. Nothing here has been measured on a cluster.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

from benchmarks.figures import quantity
from benchmarks.timing import Action, in_turn, machine, table
from checkpoint import CheckpointKind, CheckpointStore, Run
from checkpoint.chain import (
    AcceptedRun,
    Location,
    Manifest,
    OperatorPlan,
    SourcePosition,
    catch_up,
    location_at,
    write_run,
)

OPERATOR = "aggregate"


@dataclass(frozen=True)
class Costs:
    """What one shard costs, measured.

    Args:
        save_seconds: to encode and write one dirty slot into a run file, and to apply it to the local cache.
        run_bytes: of a run file, for each of its slots.
        image_bytes: of a full image, for each of its slots.
        catch_up_seconds: to read and apply one slot of an image to an empty cache.
        manifest_bytes: what one accepted run takes in a manifest.
    """

    save_seconds: float
    run_bytes: float
    image_bytes: float
    catch_up_seconds: float
    manifest_bytes: float


@dataclass(frozen=True)
class Assumptions:
    """The job, assumed.

    Args:
        slots: stored in all.
        shards: over which they are spread evenly.
        executors: machines, each with as many shards as the others.
        cores: of an executor, all of which work on shards.
        epoch_seconds: from one checkpoint to the next.
        dirty_share: of the slots change in an epoch, evenly over the shards.
        lost_share: of the executors are lost at once; their shards are spread evenly over those that are left.
        executor_bandwidth: between an executor and the object store, bytes a second.
        request_seconds: of one request to the object store.
        full_after: how many differential runs may follow a full one before the next full one is considered.
    """

    slots: int = 1_000_000_000
    shards: int = 1_000
    executors: int = 100
    cores: int = 4
    epoch_seconds: float = 60.0
    dirty_share: float = 0.001
    lost_share: float = 0.01
    executor_bandwidth: float = 100e6
    request_seconds: float = 0.05
    full_after: int = OperatorPlan.full_after


MEANINGS = {
    "slots": "stored in all, spread evenly over the shards",
    "shards": "a space of this version has 256 at most, so it is four spaces",
    "executors": "each with as many shards as the others",
    "cores": "of an executor, as fast as those of this machine, all working on shards",
    "epoch_seconds": "from one checkpoint to the next",
    "dirty_share": "of the slots change in an epoch, evenly over the shards and at random within them",
    "lost_share": "of the executors are lost at once, with their disks; the others share their shards evenly",
    "executor_bandwidth": "bytes a second between an executor and the object store, either way",
    "request_seconds": "of one request to the object store",
    "full_after": "the default: then a full run follows as soon as the differential ones outweigh the last full one",
}


@dataclass(frozen=True)
class Model:
    """A job of these assumptions with these costs: arithmetic, nothing else."""

    costs: Costs
    job: Assumptions

    @property
    def shard_slots(self) -> float:
        """Slots of a shard."""
        return self.job.slots / self.job.shards

    @property
    def dirty(self) -> float:
        """Dirty slots of a shard in an epoch."""
        return self.shard_slots * self.job.dirty_share

    @property
    def epochs_between_images(self) -> int:
        """How many differential runs of a shard lie between two full ones, by the rule of ``OperatorPlan.kind``."""
        outweighed = math.ceil(self.shard_slots * self.costs.image_bytes / (self.dirty * self.costs.run_bytes))
        return max(self.job.full_after + 1, min(outweighed, 16 * self.job.full_after))

    @property
    def differential_rate(self) -> float:
        """Bytes a second of differential runs to the object store."""
        return self.job.shards * self.dirty * self.costs.run_bytes / self.job.epoch_seconds

    @property
    def image_rate(self) -> float:
        """Bytes a second of full runs, spread over the time between them."""
        image = self.job.slots * self.costs.image_bytes
        return image / (self.epochs_between_images * self.job.epoch_seconds)

    @property
    def snapshot_rate(self) -> float:
        """Bytes a second where each epoch writes the whole state."""
        return self.job.slots * self.costs.image_bytes / self.job.epoch_seconds

    @property
    def requests(self) -> int:
        """Requests of an epoch that write: a run file for each shard, and the manifests."""
        return self.job.shards + 1

    @property
    def manifest(self) -> float:
        """Bytes of the manifests of one epoch."""
        return self.job.shards * self.costs.manifest_bytes

    @property
    def save_seconds(self) -> float:
        """Seconds that an epoch keeps an executor: its cores save their shards one after the other."""
        shards = self.job.shards / self.job.executors
        computing = shards * self.dirty * self.costs.save_seconds / self.job.cores
        requests = math.ceil(shards / self.job.cores) * self.job.request_seconds
        return computing + requests + shards * self.dirty * self.costs.run_bytes / self.job.executor_bandwidth

    @property
    def catch_up_seconds(self) -> float:
        """Seconds until the shards of the lost executors are whole again elsewhere.

        At worst the differential runs weigh as much as the image, so that twice its bytes are read; applying them costs
        a slot what a slot of an image costs.
        """
        lost = math.ceil(self.job.executors * self.job.lost_share)
        left = self.job.executors - lost
        shards = math.ceil(self.job.shards * lost / self.job.executors / left)
        differentials = min(self.epochs_between_images * self.dirty, self._outweighing_slots)
        slots = shards * (self.shard_slots + differentials)
        read = shards * (self.shard_slots * self.costs.image_bytes + differentials * self.costs.run_bytes)
        requests = shards * self.epochs_between_images * self.job.request_seconds
        computing = slots * self.costs.catch_up_seconds
        cores = min(shards, self.job.cores)
        return (computing + requests) / cores + read / self.job.executor_bandwidth

    @property
    def _outweighing_slots(self) -> float:
        return max(
            self.shard_slots * self.costs.image_bytes / self.costs.run_bytes, (self.job.full_after + 1) * self.dirty
        )

    def describe(self) -> str:
        """Return the costs, the assumptions and what follows, as Markdown."""
        costs = [
            ("save a dirty slot: encode, write, apply to the cache", quantity(self.costs.save_seconds, "s")),
            ("a slot of a differential run file", quantity(self.costs.run_bytes, "B")),
            ("a slot of a full image", quantity(self.costs.image_bytes, "B")),
            ("read a slot of an image and apply it to an empty cache", quantity(self.costs.catch_up_seconds, "s")),
            ("a run in a manifest", quantity(self.costs.manifest_bytes, "B")),
        ]
        assumed = [(name, f"{value:,}", MEANINGS[name]) for name, value in asdict(self.job).items()]
        rate = self.differential_rate + self.image_rate
        follows = [
            ("dirty slots an epoch", f"{self.dirty * self.job.shards:,.0f}"),
            ("bytes a second to the object store: differential runs", quantity(self.differential_rate, "B")),
            (f"and full runs, one a shard in {self.epochs_between_images} epochs", quantity(self.image_rate, "B")),
            ("the whole state in each epoch instead", quantity(self.snapshot_rate, "B")),
            ("that is so many times as much", f"{self.snapshot_rate / rate:,.0f}"),
            ("requests an epoch that write", f"{self.requests:,}"),
            ("manifests of an epoch", quantity(self.manifest, "B")),
            ("an epoch's saving keeps an executor busy for", quantity(self.save_seconds, "s")),
            ("catching up after the loss, at worst", quantity(self.catch_up_seconds, "s")),
        ]
        return "\n".join(
            [
                table("Measured on one shard", ("what", "cost"), costs),
                table("Assumed", ("what", "value", "meaning"), assumed),
                table("What follows", ("what", "figure"), follows),
            ]
        )


def run_of(slots: list[int], chance: random.Random, kind: CheckpointKind) -> Run:
    """Return a run of a sorted dictionary: integer keys, rows of a count and a sum."""
    items = [(1, slot, f"[{chance.randrange(1_000)},{chance.random()!r}]", None) for slot in slots]
    return Run(kind, [(1, "groups", "SortedDictionary", None)], [], items)  # type: ignore[arg-type]


def measure(slots: int, dirty: int, repetitions: int) -> Costs:
    """Measure the costs of one shard on a location in a folder.

    Args:
        slots: of the shard.
        dirty: of them in one epoch.
        repetitions: how many are counted.
    """
    chance = random.Random(1)
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=".") as name:
        place = Path(name).resolve()
        location = location_at(str(place / "chain"))
        image = write_run(location, run_of(list(range(slots)), chance, CheckpointKind.FULL), OPERATOR, 0, 1)
        cache = CheckpointStore(place / "cache.db", durability="normal")
        catch_up(cache, location, (image,))
        written: list[AcceptedRun] = []

        def saving() -> Action:
            run = run_of(sorted(chance.sample(range(slots), dirty)), chance, CheckpointKind.DIFFERENTIAL)

            def save() -> None:
                written.append(write_run(location, run, OPERATOR, 0, len(written) + 2))
                cache.apply(run)

            return save

        def catching() -> Action:
            return lambda: _caught_up(place, location, image)

        found = in_turn({"save": saving, "catch up": catching}, repetitions)
        cache.close()
    return Costs(
        save_seconds=found["save"].median / dirty,
        run_bytes=statistics.median(run.file_bytes for run in written) / dirty,
        image_bytes=image.file_bytes / slots,
        catch_up_seconds=found["catch up"].median / slots,
        manifest_bytes=manifest_bytes(written[0]),
    )


def _caught_up(place: Path, location: Location, image: AcceptedRun) -> None:
    store = CheckpointStore(place / f"{uuid4().hex}.db", durability="normal")
    catch_up(store, location, (image,))
    store.close()
    os.unlink(store.path)


def manifest_bytes(run: AcceptedRun, runs: int = 250) -> float:
    """Return what a run takes in a manifest of many: its own entry, and its part of the rest."""
    manifest = Manifest(
        incarnation=str(uuid4()),
        epoch=1_000,
        base=999,
        shards=runs,
        source=SourcePosition("query", 999),
        committed={"query": 999},
        runs=(run,) * runs,
        lineage={OPERATOR: [900] * runs},
        publisher=str(uuid4()),
        time="2026-01-01T00:00:00+00:00",
    )
    return len(manifest.to_json()) / runs


def main() -> None:
    """Measure, and print the model."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="measure a shard of 50,000 slots, not of 1,000,000")
    quick = parser.parse_args().quick
    job = Assumptions()
    slots = 50_000 if quick else job.slots // job.shards
    started = time.perf_counter()
    costs = measure(slots, max(1_000, int(slots * job.dirty_share)), 3 if quick else 9)
    print(machine("objectspace", "pyarrow", "orjson") + "\n")
    print(Model(costs, job).describe())
    print(f"The shard that was measured has {slots:,} slots. ({time.perf_counter() - started:.0f} s in all)")


if __name__ == "__main__":
    main()
