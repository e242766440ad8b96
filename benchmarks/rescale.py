"""Another number of shards: what it writes, how long it takes, and what who opens the first new shard does.

All in one process and without Spark, each repetition on caches of its own: ``python -m benchmarks.rescale``.
"""

from __future__ import annotations

import argparse
import os
from functools import partial
from itertools import count
from pathlib import Path

from benchmarks.timing import Action, Ratio, folder, in_turn, machine, table
from checkpoint.chain import Chain, OperatorPlan, SourcePosition, location_at
from objectspace.spark import open_shard, rescale, save_shard, shard_of

OPERATOR, TOTALS = "totals", "totals"


def fill(space: Path, slots: int, shards: int) -> None:
    """Make a space of one epoch, whose shards have a dictionary each."""
    chain = Chain.open_or_create(location_at(space), shards)
    plan = chain.begin(SourcePosition("benchmark", 0), [OPERATOR])
    assert plan is not None
    keys: list[list[int]] = [[] for _ in range(shards)]
    for key in range(slots):
        keys[shard_of(shards, key)].append(key)
    saved = []
    for shard in range(shards):
        with open_shard(plan.operators[OPERATOR], shard) as state:
            state.create_dictionary(TOTALS).update((key, {"rows": 1, "sum": key}) for key in keys[shard])
            saved.append(save_shard(plan.operators[OPERATOR], state, shard))
    chain.publish(plan, {OPERATOR: saved})


def size_of(space: Path) -> int:
    """Return the bytes of all files of a space."""
    return sum(file.stat().st_size for file in space.rglob("*") if file.is_file())


def open_first(plan: OperatorPlan) -> None:
    """Open the first shard of a plan on a machine that has nothing of it."""
    with open_shard(plan, 0) as space:
        assert len(space.get_dictionary(TOTALS)) > 0


def compared(place: Path, slots: int, shards: tuple[int, int], repetitions: int) -> list[list[str]]:
    """Return the figures of one change of the number of shards."""
    before, after = shards
    space, number = place / "space", count()
    fill(space, slots, before)
    sizes = [size_of(space)]

    def change() -> Action:
        copy = place / f"copy {next(number)}"
        fill(copy, slots, before)
        return partial(rescale, copy, after, keyed={OPERATOR: [TOTALS]})

    rescaled = in_turn({"rescale": change}, repetitions)["rescale"]
    rescale(space, after, keyed={OPERATOR: [TOTALS]})
    sizes.append(size_of(space))
    chain = Chain.open(location_at(space))

    def prepare(epoch: int) -> Action:
        return partial(open_first, chain.operator_plan(OPERATOR, epoch, cache=str(place / f"machine {next(number)}")))

    ways = {"new": partial(prepare, 2), "old": partial(prepare, 1)}
    new, old = in_turn(ways, repetitions).values()
    return [
        [f"rescale({after}) of {before} shards, keys compared", f"{rescaled.median:.2f} s", ""],
        ["what it writes, beside what was there", f"{sizes[1] - sizes[0]:,} bytes", f"{sizes[0]:,} bytes"],
        ["to open a new shard, beside an old one", f"{new.median:.2f} s", Ratio(new, old).describe()],
    ]


def main() -> None:
    """Run the benchmark and print its table in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rescale", description=__doc__)
    parser.add_argument("--slots", type=int, default=1_000_000)
    parser.add_argument("--repetitions", type=int, default=3)
    given = parser.parse_args()
    print(machine("objectspace", "pyarrow") + "\n")
    for shards in ((2, 4), (4, 2)):
        with folder() as place:
            os.environ["OBJECTSPACE_CACHE"] = str(place / "caches")
            title = f"{given.slots:,} slots in {shards[0]} shards that become {shards[1]}"
            print(table(title, ("step", "median", ""), compared(place, given.slots, shards, given.repetitions)))


if __name__ == "__main__":
    main()
