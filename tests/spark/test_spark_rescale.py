"""Another number of shards: the same state, every key where rows of its key go, and the query goes on."""

from __future__ import annotations

import os
import resource
import shutil
import tracemalloc
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from checkpoint import CheckpointError, CorruptStoreError, FencedError, Reader, recent
from checkpoint.chain import Chain, SourcePosition, folding, location_at, open_cache, receipts, runfile
from checkpoint.run import Page
from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.objects import limits
from objectspace.operators.division import dividing
from objectspace.spark import Pipeline, open_shard, rescale, save_shard, shard_of

from .spark_helpers import SHARDS, expected, kept

MakePipeline = Callable[..., Pipeline]
OPERATOR = "keyed"
KEYED = {OPERATOR: ["d", "empty", "s", "sd", "ss"]}
KEYS = [*(f"k{n}" for n in range(60)), *range(40), None, b"raw", ("a", 1), ("b", None)]


def publish(folder: Path, shards: int, change: Callable[[PersistedObjectSpace, int], None]) -> Chain:
    """Publish an epoch without Spark."""
    chain = Chain.open_or_create(location_at(folder / "space"), shards)
    batch = chain.newest.committed["q"] + 1 if chain.newest else 0
    plan = chain.begin(SourcePosition("q", batch), [OPERATOR], cache=str(folder / "cache"))
    assert plan is not None
    saved = []
    for shard in range(shards):
        with open_shard(plan.operators[OPERATOR], shard) as space:
            change(space, shard)
            saved.append(save_shard(plan.operators[OPERATOR], space, shard))
    chain.publish(plan, {OPERATOR: saved})
    return chain


def parts(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def filled(shards: int) -> Callable[[PersistedObjectSpace, int], None]:
    """Return what gives every shard its keys, in objects of each kind that can be divided."""

    def fill(space: PersistedObjectSpace, shard: int) -> None:
        mine = [key for key in KEYS if shard_of(shards, *parts(key)) == shard]
        space.get_or_create_dictionary("d").update({key: {"n": str(key)} for key in mine})
        space.get_or_create_dictionary("empty")
        for key in mine:
            space.get_or_create_set("s").add(key)
            if isinstance(key, str):
                space.get_or_create_sorted_dictionary("sd")[key] = len(key)
                space.get_or_create_sorted_set("ss").add(key)

    return fill


def state(folder: Path, epoch: int | None = None) -> dict[str, Any]:
    """Return what the shards hold together, and see that every key lies where rows of its key go."""
    chain = Chain.open(location_at(folder / "space"))
    plan = chain.operator_plan(OPERATOR, epoch, cache=str(folder / "cache"))
    found: dict[str, Any] = {"d": {}, "s": set(), "sd": {}, "ss": set()}
    for shard in range(plan.shards):
        with open_shard(plan, shard) as space:
            assert len(space.get_dictionary("empty")) == 0
            for name, whole in found.items():
                if name in space:
                    keys = list(space.get(name))
                    assert all(shard_of(plan.shards, *parts(key)) == shard for key in keys)
                    assert not set(whole) & set(keys)
                    whole.update(space.get(name).copy())
    return found


def rows(folder: Path, cache: str) -> list[list[Page]]:
    """Return the rows of each shard, as a machine that has nothing yet finds them."""
    plan = Chain.open(location_at(folder / "space")).operator_plan(OPERATOR, cache=str(folder / cache))
    found = []
    for shard in range(plan.shards):
        with open_cache(plan, shard) as store:
            found.append(list(store.reader().image_pages()))
    return found


WANTED = {
    "d": {key: {"n": str(key)} for key in KEYS},
    "s": set(KEYS),
    "sd": {key: len(key) for key in KEYS if isinstance(key, str)},
    "ss": {key for key in KEYS if isinstance(key, str)},
}


@pytest.mark.parametrize(("before", "after"), [(1, 5), (5, 1), (2, 4), (4, 3), (3, 16)])
def test_every_key_moves_to_its_shard(tmp_path: Path, before: int, after: int) -> None:
    publish(tmp_path, before, filled(before))
    manifest = rescale(tmp_path / "space", after, keyed=KEYED)
    assert manifest is not None
    assert (manifest.epoch, manifest.shards, manifest.committed) == (2, after, {"q": 0})
    assert state(tmp_path) == WANTED
    assert state(tmp_path, 1) == WANTED
    assert rescale(tmp_path / "space", after) is None
    sizes = [receipt.state_slots for receipt in receipts(Chain.open(location_at(tmp_path / "space")))]
    assert sizes[0] == sizes[1] == sum(map(len, WANTED.values()))


def test_work_goes_on_and_old_epochs_go(tmp_path: Path) -> None:
    publish(tmp_path, 2, filled(2))
    rescale(tmp_path / "space", 3, keyed=KEYED)
    with pytest.raises(CheckpointError, match="has 3 shards, found a pipeline with 2: run it with shards=3, rescale"):
        Chain.open_or_create(location_at(tmp_path / "space"), 2)

    def change(space: PersistedObjectSpace, shard: int) -> None:
        space.get_dictionary("d").update({key: {"n": "new"} for key in space.get_dictionary("d")})

    for _ in range(3):
        chain = publish(tmp_path, 3, change)
    assert chain.epoch == 5
    assert state(tmp_path)["d"] == {key: {"n": "new"} for key in KEYS}
    assert chain.collect(grace_seconds=0, keep_epochs=2).runs == 0, "the new shards are made of the old ones"
    assert state(tmp_path)["d"] == {key: {"n": "new"} for key in KEYS}
    rescale(tmp_path / "space", 2, keyed=KEYED)
    assert state(tmp_path)["s"] == WANTED["s"]


def test_a_driver_that_still_runs_is_fenced(tmp_path: Path) -> None:
    chain = publish(tmp_path, 2, filled(2))
    plan = chain.begin(SourcePosition("q", 1), [OPERATOR], cache=str(tmp_path / "cache"))
    assert plan is not None
    saved = []
    for shard in range(2):
        with open_shard(plan.operators[OPERATOR], shard) as space:
            saved.append(save_shard(plan.operators[OPERATOR], space, shard))
    rescale(tmp_path / "space", 3, keyed=KEYED)
    with pytest.raises(FencedError):
        chain.publish(plan, {OPERATOR: saved})
    assert state(tmp_path) == WANTED


def changed(folder: Path, old: bytes, new: bytes) -> int:
    """Change some bytes wherever caches of a folder have them, and return in how many files."""
    files = [file for file in folder.rglob("*.db") if old in file.read_bytes()]
    for file in files:
        file.write_bytes(file.read_bytes().replace(old, new))
    return len(files)


def test_new_shards_are_made_of_what_the_runs_say_whatever_has_become_of_a_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OBJECTSPACE_CACHE", str(tmp_path / "cache"))
    publish(tmp_path, 2, filled(2))
    rescale(tmp_path / "space", 3, keyed=KEYED)
    assert state(tmp_path) == WANTED
    before = rows(tmp_path, "cache")
    assert changed(tmp_path / "cache", b'"n":"k7"', b'"n":"k9"') > 0
    assert rows(tmp_path, "cache") != before, "SQLite notices nothing"
    with pytest.raises(CorruptStoreError, match="was a cache of this machine and is removed now: try again"):
        rescale(tmp_path / "space", 4, keyed=KEYED)
    rescale(tmp_path / "space", 4, keyed=KEYED)
    assert state(tmp_path) == WANTED


def test_a_full_run_is_made_of_what_the_runs_say_whatever_has_become_of_a_cache(tmp_path: Path) -> None:
    chain = publish(tmp_path, 1, filled(1))
    assert state(tmp_path) == WANTED
    plan = chain.begin(SourcePosition("q", 1), [OPERATOR], full_after=0, cache=str(tmp_path / "cache"))
    assert plan is not None
    assert changed(tmp_path / "cache", b'"n":"k7"', b'"n":"k9"') == 1
    removed = pytest.raises(CorruptStoreError, match="was a cache of this machine and is removed now: try again")
    with removed, open_shard(plan.operators[OPERATOR], 0) as space:
        save_shard(plan.operators[OPERATOR], space, 0)
    with open_shard(plan.operators[OPERATOR], 0) as space:
        saved = save_shard(plan.operators[OPERATOR], space, 0)
    chain.publish(plan, {OPERATOR: [saved]})
    assert [run.epoch for run in chain.lineage(OPERATOR, 0)] == [2]
    assert state(tmp_path) == WANTED


def test_what_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    def foreign(space: PersistedObjectSpace, shard: int) -> None:
        space.get_or_create_dictionary("d")["the same in both"] = 1

    publish(tmp_path, 2, foreign)
    with pytest.raises(ObjectSpaceError, match="the key 'the same in both' is not one that rows are routed by"):
        rescale(tmp_path / "space", 4, keyed={OPERATOR: ["d"]})
    publish(tmp_path / "other", 2, lambda space, shard: space.get_or_create_list("log").append(shard))
    with pytest.raises(ObjectSpaceError, match="operator keyed, shard 0, List 'log': expected objects with keys"):
        rescale(tmp_path / "other" / "space", 4)
    for wrong in (0, 257, 2.5, "4", True, None):
        with pytest.raises(ObjectSpaceError, match="expected 1 to 256"):
            rescale(tmp_path / "space", wrong)  # type: ignore[arg-type]
    with pytest.raises(ObjectSpaceError, match="expected the names of objects by the name of their operator"):
        rescale(tmp_path / "space", 4, keyed=["log"])  # type: ignore[arg-type]
    assert Chain.open(location_at(tmp_path / "space")).epoch == 1


def test_a_space_without_an_epoch_says_how_it_gets_other_shards(tmp_path: Path) -> None:
    young = tmp_path / "young"
    Chain.open_or_create(location_at(young), 2)
    with pytest.raises(
        CheckpointError, match=r"run it with shards=2, and rescale it once it has an epoch; or .* remove"
    ):
        Chain.open_or_create(location_at(young), 4)
    with pytest.raises(ObjectSpaceError, match=r"run the pipeline with shards=2, .* and then rescale .* with shards=4"):
        rescale(young, 4)
    assert rescale(young, 2) is None
    shutil.rmtree(young)
    assert Chain.open_or_create(location_at(young), 4).shards == 4


@pytest.mark.parametrize("shards", [2, 4])
def test_a_space_whose_manifests_are_out_of_sight_is_not_rescaled(tmp_path: Path, shards: int) -> None:
    publish(tmp_path, 2, filled(2))
    rescale(tmp_path / "space", 4, keyed=KEYED)
    (tmp_path / "space" / "manifest").rename(tmp_path / "manifest")
    with pytest.raises(CorruptStoreError, match=r"no manifest is listed, .* remove nothing"):
        rescale(tmp_path / "space", shards, keyed=KEYED)


@pytest.mark.usefixtures("query")
def test_a_pipeline_goes_on_with_other_shards(
    tmp_path: Path, make_pipeline: MakePipeline, batches: list[DataFrame]
) -> None:
    make_pipeline().run_epoch(batches[0], 0)
    rescale(tmp_path / "space", 2)
    assert kept(make_pipeline(shards=2)) == expected(batches[:1])
    assert make_pipeline(shards=2).run_epoch(batches[0], 0) is None
    make_pipeline(shards=2).run_epoch(batches[1], 1)
    assert kept(make_pipeline(shards=2)) == expected(batches[:2])
    assert SHARDS == 3


@pytest.mark.parametrize("shards", [1, 5])
def test_what_is_flushed_in_between_makes_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int
) -> None:
    publish(tmp_path, 3, filled(3))
    before = state(tmp_path)
    rescale(str(tmp_path / "space"), shards, keyed=KEYED)
    whole = rows(tmp_path, "one")
    monkeypatch.setattr(dividing, "_FLUSH_SLOTS", 7)
    monkeypatch.setattr(dividing, "_CACHE_SLOTS", 2)
    assert rows(tmp_path, "other") == whole
    assert state(tmp_path) == before


@pytest.mark.slow
def test_many_shards_need_few_open_files(tmp_path: Path) -> None:
    publish(tmp_path, 2, filled(2))
    before = state(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 100, limits[1]))
    try:
        rescale(str(tmp_path / "space"), 256, keyed=KEYED)
        assert state(tmp_path) == before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_shard_that_holds_nothing_has_no_file(tmp_path: Path) -> None:
    publish(tmp_path, 2, lambda space, shard: None)
    rescale(str(tmp_path / "space"), 5)
    assert not list((tmp_path / "space").glob("run/*"))


Filled = Callable[[PersistedObjectSpace, int], None]


def flat(slots: int) -> tuple[int, Filled]:
    return 1, lambda space, _: space.create_dictionary("d").update((f"k{n}", n) for n in range(slots))


def in_lists(slots: int, kind: str = "list") -> tuple[int, Filled]:
    """Return what gives a shard fifty lists, or objects of another kind, with so many elements together."""

    def fill(space: PersistedObjectSpace, _: int) -> None:
        lists = space.create_dictionary("d", of=kind)
        for number in range(50):
            lists[f"k{number}"] = [*range(slots // 50)]

    return 1, fill


def in_queues(slots: int) -> tuple[int, Filled]:
    return in_lists(slots, "queue")


def large(slots: int) -> tuple[int, Filled]:
    """Return what gives a shard a tenth as many slots, each of them counted as ten."""
    text = "t" * 9 * limits.SLOT_BYTES
    return 1, lambda space, _: space.create_dictionary("d").update((f"k{n}", text) for n in range(slots // 10))


def in_many_shards(slots: int) -> tuple[int, Filled]:
    """Return what gives each of twenty shards a part of so many slots."""
    keys = [(n, shard_of(20, n)) for n in range(slots)]
    return 20, lambda space, shard: space.create_dictionary("d").update((n, n) for n, owner in keys if owner == shard)


@pytest.mark.parametrize("made", [flat, in_lists, in_queues, in_many_shards, large])
def test_little_is_divided_between_two_flushes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[[int], tuple[int, Filled]]
) -> None:
    monkeypatch.setattr(dividing, "_FLUSH_SLOTS", 1_000)
    written, save = [], PersistedObjectSpace.checkpoint
    monkeypatch.setattr(
        PersistedObjectSpace,
        "checkpoint",
        lambda space: written.append(save(space).slots),  # type: ignore[union-attr]
    )
    shards, fill = made(10_000)
    publish(tmp_path, shards, fill)
    rescale(str(tmp_path / "space"), 2, keyed={OPERATOR: ["d"]})
    assert not written
    rows(tmp_path, "new")
    least = 1_000 if made is large else 10_000
    assert sum(written) >= least
    assert max(written) <= least // 10 + least // 50 + 1


@pytest.mark.slow
def test_memory_does_not_grow_with_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dividing, "_FLUSH_SLOTS", 1_000)
    monkeypatch.setattr(dividing, "_CACHE_SLOTS", 2_000)
    monkeypatch.setattr(runfile, "_PAGE_ROWS", 1_000)
    monkeypatch.setattr(folding, "PAGED_SLOTS", 1_000)
    monkeypatch.setattr(recent, "MOST_ROWS", 2_000)
    monkeypatch.setattr(Reader, "image_pages", partialmethod(Reader.image_pages, 1_000))
    peaks = []
    for slots in (20_000, 80_000):
        folder = tmp_path / str(slots)
        publish(folder, *flat(slots))
        tracemalloc.start()
        rescale(str(folder / "space"), 2, keyed={OPERATOR: ["d"]})
        with open_cache(Chain.open(location_at(folder / "space")).operator_plan(OPERATOR, cache=str(folder)), 1):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2 * peaks[0] + (1 << 20), peaks


def test_what_is_owned_keeps_its_order_and_may_be_a_value(tmp_path: Path) -> None:
    elements = [f"v{number}" for number in (3, 0, 2, 1, 9, 5)]

    def fill(space: PersistedObjectSpace, shard: int) -> None:
        space.create_dictionary("sets", of=set).setdefault("k").update(elements)
        space.create_dictionary("values", of="value").setdefault("k").value = {"n": 1}

    publish(tmp_path, 1, fill)
    rescale(tmp_path / "space", 3, keyed={OPERATOR: ["sets", "values"]})
    plan = Chain.open(location_at(tmp_path / "space")).operator_plan(OPERATOR, None, cache=str(tmp_path / "cache"))
    with open_shard(plan, shard_of(3, "k")) as space:
        assert list(space.get("sets")["k"]) == elements
        assert space.get("values")["k"].value == {"n": 1}
