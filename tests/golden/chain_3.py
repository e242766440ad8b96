"""What the golden chain of format 3 holds: objects of each kind that can be divided, in shards made of other ones.

``python -m tests.golden.chain_3 FOLDER CACHES`` wrote it; it is never written again. What was written after the rescale
names objects by the ids that they got when the shards were divided: these must be the same for ever.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from checkpoint.chain import Chain, OperatorPlan, SourcePosition, location_at, open_cache
from objectspace import PersistedObjectSpace
from objectspace.relational import Column, StateTable, TableSchema
from objectspace.spark import open_shard, rescale, save_shard, shard_of

PATH = Path(__file__).with_name("chain_3")

OPERATOR, BEFORE, AFTER = "mixed", 2, 3
KEYS = [*(f"k{number}" for number in range(12)), *range(12), ("a", 1), ("b", None), b"raw"]
SCHEMA = TableSchema([Column("key", "string"), Column("n", "int64")], ["key"])
NAMES = ["counts", "logs", "marks", "ordered", "seen", "sorted", "table"]

DIGESTS = {
    2: ["044ccb0d241e9427c45f11fe88c10209", "5f0d256b337562da272dc91dad5cd7ec", "b2b5c4f9f949480f65a8f3d076bac2d4"],
    3: ["3114ef3f63793e9005eb501b5532cc34", "0f0b3a9011666e5d52d5695eed565d98", "c7ee983f4f6e673fd8e00b8bc864369e"],
}
"""Of the epoch of the rescale, and the one after it, the digests of the rows of each shard."""


def own(keys: list[Any], shards: int, shard: int) -> list[Any]:
    """Return the keys of a shard."""
    return [key for key in keys if shard_of(shards, *(key if isinstance(key, tuple) else (key,))) == shard]


def change(space: PersistedObjectSpace, shards: int, shard: int, step: int) -> None:
    """Make an epoch of a shard, the first one or the one after the rescale."""
    keys = own(KEYS[::step], shards, shard)
    space.get_or_create_dictionary("counts").update(dict.fromkeys(keys, step))
    logs = space.get_or_create_dictionary("logs", list)
    for key in keys:
        logs.setdefault(key).append(step)
    space.get_or_create_set("seen").update(keys)
    space.get_or_create_dictionary("marks", set).setdefault(keys[0]).update([step, "mark"])
    texts = [key for key in keys if isinstance(key, str)]
    space.get_or_create_sorted_dictionary("ordered").update(dict.fromkeys(texts, step))
    space.get_or_create_sorted_set("sorted").update(texts)
    table = StateTable(space, "table", SCHEMA)
    for key in texts:
        old = table.get_row((key,))
        table.insert_row((key, step)) if old is None else table.update_row(old, (key, step))


def contents(plan: OperatorPlan, shard: int) -> dict[str, Any]:
    """Return what a shard holds at the epoch of a plan, in its order."""
    with open_cache(plan, shard) as store:
        space = PersistedObjectSpace(store)
        space._check()
        found: dict[str, Any] = {name: list(space.get(name)) for name in ("seen", "sorted")}
        found |= {name: list(space.get(name).items()) for name in ("counts", "ordered")}
        found |= {name: [(key, list(one)) for key, one in space.get(name).items()] for name in ("logs", "marks")}
        return {**found, "table": list(StateTable(space, "table", SCHEMA).scan())}


def expected(epoch: int, shards: int, shard: int) -> dict[Any, int]:
    """Return the keys of a shard at an epoch, with the step that changed them last."""
    return {key: 2 if epoch > 2 and key in KEYS[::2] else 1 for key in own(KEYS, shards, shard)}


def digest_of(plan: OperatorPlan, shard: int) -> str:
    """Return the digest of the rows of a shard at the epoch of a plan."""
    with open_cache(plan, shard) as store:
        return store.reader().image().digest()


def advance(chain: Chain, cache: Path, step: int) -> None:
    """Publish the next epoch."""
    plan = chain.begin(SourcePosition("golden", step - 1), [OPERATOR], cache=str(cache))
    assert plan is not None
    saved = []
    for shard in range(chain.shards):
        with open_shard(plan.operators[OPERATOR], shard) as space:
            change(space, chain.shards, shard, step)
            saved.append(save_shard(plan.operators[OPERATOR], space, shard))
    chain.publish(plan, {OPERATOR: saved})


def write(folder: Path, cache: Path) -> None:
    """Write the golden chain."""
    advance(Chain.open_or_create(location_at(folder), BEFORE), cache, 1)
    rescale(folder, AFTER, keyed={OPERATOR: NAMES})
    advance(Chain.open_or_create(location_at(folder), AFTER), cache, 2)


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
