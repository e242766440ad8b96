"""Garbage collection: kept epochs stay whole wherever it is interrupted, the rest goes, and no driver is misled."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pytest

from checkpoint import CheckpointError, CheckpointKind, CorruptStoreError, FencedError, UnknownCheckpointError
from checkpoint.chain import (
    Chain,
    Collected,
    Location,
    SourcePosition,
    collect_beside,
    location_at,
    open_cache,
    read_run,
    receipts,
    save_run,
    write_image,
    write_image_beside,
)
from tests.chain.chain_helpers import OPERATOR, Publisher, run_of
from tests.chain.faulty_location import FaultyLocation, T, crash_points

State = tuple[dict[Any, Any], ...]


def state_at(chain: Chain, epoch: int) -> State:
    """Return what the shards hold at an epoch, replayed from their run files."""
    states = []
    for shard in range(chain.shards):
        state: dict[Any, Any] = {}
        for accepted in chain.lineage(OPERATOR, shard, epoch):
            state |= {slot: value for _, slot, value, _ in read_run(chain.location, accepted).items}
        states.append({slot: value for slot, value in state.items() if value is not None})
    return tuple(states)


def files_of(location: Location) -> dict[str, bytes]:
    names = [f"{folder}/{name}" for folder in ("run", "manifest", "floor") for name in location.names(folder)]
    found = {name: location.read(name) for name in [*names, "space.json"]}
    return {name: data for name, data in found.items() if data is not None}


def put_back(location: Location, files: dict[str, bytes]) -> None:
    for name in files_of(location):
        location.delete(name)
    for name, data in files.items():
        location.write(name, data)


def make(location: Location, publish: Publisher, epochs: int, full_after: int = 3) -> Chain:
    """Publish epochs over two shards, of which the second changes seldom: its lineages reach far back."""
    chain, rng = Chain.open_or_create(location, 2), random.Random(7)
    for epoch in range(1, epochs + 1):
        slow = {"slow": epoch} if epoch % 4 == 1 else {}
        publish(chain, {rng.choice("abc"): epoch, "last": epoch}, slow, full_after=full_after)
    return chain


def orphan(chain: Chain) -> str:
    saved = save_run(chain.operator_plan(OPERATOR), 0, run_of({"lost": 1}, CheckpointKind.FULL))
    assert saved.run is not None
    return saved.run.file.removeprefix("run/")


def test_kept_epochs_stay_as_they_are_and_the_rest_goes(location: Location, publish: Publisher) -> None:
    chain = make(location, publish, 20)
    states = {epoch: state_at(chain, epoch) for epoch in range(1, 21)}
    sizes = [receipt.state_slots for receipt in receipts(chain)]
    lost, before = orphan(chain), len(location.names("run"))
    assert chain.collect(grace_seconds=3600, keep_epochs=20) == Collected(1, 0, 0, 0)
    collected = chain.collect(grace_seconds=0, keep_epochs=5)
    assert collected.first_epoch == 16
    for opened in (chain, Chain.open(location)):
        assert [state_at(opened, epoch) for epoch in range(16, 21)] == [states[epoch] for epoch in range(16, 21)]
        for gone in (1, 15):
            with pytest.raises(UnknownCheckpointError, match=f"no epoch {gone}: expected one from 16 to 20"):
                opened.operator_plan(OPERATOR, gone)
        assert [manifest.epoch for manifest in opened.manifests()] == list(range(16, 21))
        assert [receipt.state_slots for receipt in receipts(opened)] == sizes[15:]
    assert lost not in location.names("run")
    assert len(location.names("run")) == before - collected.runs
    named = {run.file for epoch in range(16, 21) for s in (0, 1) for run in chain.lineage(OPERATOR, s, epoch)}
    assert {f"run/{name}" for name in location.names("run")} == named
    assert chain.collect(grace_seconds=0, keep_epochs=5) == Collected(16, 0, 0, 0)
    publish(chain, {"a": 100}, {})
    assert state_at(chain, 21)[0]["a"] == "100"


def test_what_is_young_or_under_way_stays(location: Location, publish: Publisher) -> None:
    chain = make(location, publish, 3)
    plan = chain.begin(SourcePosition("q", 3), [OPERATOR])
    assert plan is not None
    saved = [save_run(plan.operators[OPERATOR], shard, run_of({"b": 1}, CheckpointKind.FULL)) for shard in (0, 1)]
    assert Chain.open(location).collect(grace_seconds=600, keep_epochs=1).runs == 0
    assert chain.publish(plan, {OPERATOR: saved}).epoch == 4
    assert all(location.read(message.run.file) for message in saved if message.run)


def test_an_epoch_whose_files_were_collected_is_done_again(tmp_path: Path, publish: Publisher) -> None:
    location = location_at(tmp_path / "space")
    chain = make(location, publish, 3)
    image = write_image(chain.operator_plan(OPERATOR, cache=str(tmp_path / "cache")), 0)
    plan = chain.begin(SourcePosition("q", 3), [OPERATOR])
    assert plan is not None
    operator = plan.operators[OPERATOR]
    first, again, second = (save_run(operator, shard, run_of({"b": 4})) for shard in (0, 0, 1))
    assert first.run is not None
    for file in (first.run.file, image.file):
        os.utime(tmp_path / "space" / file, (1, 1))  # The clock of the folder was behind, and has been put right since.
    assert Chain.open(location).collect(grace_seconds=86_400).runs == 2
    with pytest.raises(CheckpointError, match=f"{first.run.file}, which was saved for epoch 4, is gone"):
        chain.publish(plan, {OPERATOR: [first, second]})
    assert Chain.open(location).epoch == 3
    assert not chain.publish(plan, {OPERATOR: [again, second]}, images=[image]).images
    assert [state["b"] for state in state_at(Chain.open(location), 4)] == ["4", "4"]


def test_an_image_whose_file_was_collected_is_passed_over(
    location: Location, publish: Publisher, tmp_path: Path
) -> None:
    chain = make(location, publish, 3)
    gone = write_image(chain.operator_plan(OPERATOR, cache=str(tmp_path / "cache")), 0)
    assert Chain.open(location).collect(grace_seconds=0).runs == 1
    assert publish(chain, {"b": 4}, {}, images=[gone]).images == ()
    assert state_at(Chain.open(location), 4)[0]["b"] == "4"


def test_of_an_epoch_only_its_images_are_looked_at(publish: Publisher, tmp_path: Path) -> None:
    watched = _Between(location_at(f"memory://{uuid4().hex}"), 0)
    chain = make(watched, publish, 3)
    image = write_image(chain.operator_plan(OPERATOR, cache=str(tmp_path / "cache")), 0)
    assert watched.looks == 0
    assert publish(chain, {"b": 4}, {}, images=[image]).images == (image,)
    assert watched.looks == 1


def test_an_image_that_is_named_while_a_collection_looks_at_files_stays(publish: Publisher, tmp_path: Path) -> None:
    location = location_at(f"memory://{uuid4().hex}")
    chain = make(location, publish, 3)
    image = write_image(chain.operator_plan(OPERATOR, cache=str(tmp_path / "cache")), 0)
    lost = orphan(chain)
    watched = _Between(location, 0, looked_at=image.file, work=lambda: publish(chain, {"b": 4}, {}, images=[image]))
    assert Chain.open(watched).collect(grace_seconds=0).runs == 1
    assert lost not in location.names("run")
    assert chain.lineage(OPERATOR, 0)[0] == image
    assert state_at(Chain.open(location), 4)[0]["b"] == "4"


def test_a_collection_survives_every_crash_point(publish: Publisher, some_mode: dict[str, bool]) -> None:
    location, points = location_at(f"memory://{uuid4().hex}"), 0
    chain = make(location, publish, 9)
    expected, files = {epoch: state_at(chain, epoch) for epoch in range(7, 10)}, files_of(location)
    chain.collect(grace_seconds=0, keep_epochs=3)
    wanted = files_of(location).keys()

    def work(faulty: Location) -> None:
        put_back(location, files)
        Chain.open(faulty).collect(grace_seconds=0, keep_epochs=3)

    for _ in crash_points(location, work, **some_mode):
        opened = Chain.open(location)
        assert {epoch: state_at(opened, epoch) for epoch in expected} == expected
        for epoch in range(1, opened.first_epoch):
            with pytest.raises(UnknownCheckpointError):
                opened.lineage(OPERATOR, 0, epoch)
        assert opened.collect(grace_seconds=0, keep_epochs=3).first_epoch == 7
        assert files_of(location).keys() == wanted
        points += 1
    print(f"{points} crash points tried: collect {some_mode}")
    assert points > 10


@pytest.mark.parametrize("epochs", [0, 3])
def test_publishing_and_catching_up_survive_every_crash_point(
    publish: Publisher, tmp_path: Path, some_mode: dict[str, bool], epochs: int
) -> None:
    location, points, cache = location_at(f"memory://{uuid4().hex}"), 0, str(tmp_path / "cache")
    for epoch in range(1, epochs + 1):
        publish(Chain.open_or_create(location, 1), {f"k{epoch}": epoch})
    files, expected = files_of(location), {f"k{epoch}": str(epoch) for epoch in range(1, epochs + 1)}

    def work(faulty: Location) -> None:
        put_back(location, files)
        chain = Chain.open_or_create(faulty, 1)
        plan = chain.begin(SourcePosition("q", epochs), [OPERATOR], cache=cache)
        assert plan is not None
        operator = plan.operators[OPERATOR]
        with open_cache(operator, 0) as store:
            assert {item.slot: item.value for item in store.reader().items(1)} == expected
        chain.publish(plan, {OPERATOR: [save_run(operator, 0, run_of({"new": 1}, operator.kind(0)))]})

    for _ in crash_points(location, work, **some_mode):
        chain = Chain.open_or_create(location, 1)
        assert chain.epoch in (epochs, epochs + 1)
        assert state_at(chain, epochs) == (expected,)
        if chain.epoch > epochs:
            assert state_at(chain, chain.epoch) == ({**expected, "new": "1"},)
        points += 1
    print(f"{points} crash points tried: publish and catch up {some_mode}")
    assert points > 8


def test_a_driver_that_slept_through_a_collection_is_fenced(location: Location, publish: Publisher) -> None:
    sleeper = make(location, publish, 2)
    plan = sleeper.begin(SourcePosition("q", 2), [OPERATOR])
    assert plan is not None
    saved = [save_run(plan.operators[OPERATOR], shard, run_of({"z": 1}, CheckpointKind.FULL)) for shard in (0, 1)]
    chain, reader = Chain.open(location), Chain.open(location)
    publish(chain, {"a": 3}, {"a": 3}, full_after=1)
    other = Chain.open(location)
    assert other.newest == chain.newest
    for epoch in range(4, 12):
        publish(chain, {"a": epoch}, {"a": epoch}, full_after=1)
    chain.collect(grace_seconds=3600, keep_epochs=1)
    assert "000000000003.json" not in location.names("manifest")
    with pytest.raises(FencedError, match="epoch 3 was published by another driver first"):
        sleeper.publish(plan, {OPERATOR: saved})
    assert "000000000003.json" not in location.names("manifest"), "nobody can have built upon it"
    other.refresh()
    assert other.newest == chain.newest
    chain.collect(grace_seconds=0, keep_epochs=1)
    assert not {one.run.file for one in saved if one.run} & files_of(location).keys()
    with pytest.raises(
        UnknownCheckpointError, match="up to 2, were collected meanwhile, and the oldest one kept is 11"
    ):
        reader.lineage(OPERATOR, 0, 1)


def test_an_epoch_that_others_have_built_upon_stays_wherever_its_driver_slept(publish: Publisher) -> None:
    location, at, counted = location_at(f"memory://{uuid4().hex}"), 0, set[bool]()
    make(location, publish, 2)
    files = files_of(location)

    def others() -> None:
        chain = Chain.open(location)
        while chain.epoch < 9:
            publish(chain, {"a": chain.epoch + 1}, {"a": 1})
        chain.collect(grace_seconds=0, keep_epochs=2)

    while True:
        at += 1
        put_back(location, files)
        sleeper = Chain.open(location)
        plan = sleeper.begin(SourcePosition("q", 2), [OPERATOR])
        assert plan is not None
        saved = [save_run(plan.operators[OPERATOR], shard, run_of({"z": 1})) for shard in (0, 1)]
        sleeper.location = watched = _Between(location, at, work=others)
        with suppress(FencedError):
            sleeper.publish(plan, {OPERATOR: saved})
        if watched.seen < at:
            break
        opened = Chain.open(location)
        is_in = opened.manifest_for(3, 8).runs[0] == saved[0].run
        assert [state_at(opened, epoch)[0]["a"] for epoch in (8, 9)] == ["8", "9"]
        assert ["z" in state_at(opened, epoch)[0] for epoch in (8, 9)] == [is_in, is_in]
        counted.add(is_in)
    assert counted == {False, True}


def test_a_needed_manifest_that_is_lost_stops_the_collection(location: Location, publish: Publisher) -> None:
    chain = make(location, publish, 6)
    location.delete("manifest/000000000005.json")
    before = location.names("run")
    with pytest.raises(CorruptStoreError, match=r"000000000005\.json .* is missing"):
        Chain.open(location).collect(grace_seconds=0, keep_epochs=2)
    assert (location.names("run"), location.names("floor")) == (before, [])
    with pytest.raises(ValueError, match="keep_epochs is 0"):
        chain.collect(keep_epochs=0)


def test_a_needed_run_file_that_is_lost_stops_the_collection(location: Location, publish: Publisher) -> None:
    chain = make(location, publish, 9)
    lost = chain.lineage(OPERATOR, 1)[-1]
    location.delete(lost.file)
    before = files_of(location)
    with pytest.raises(
        CorruptStoreError, match=rf"{lost.file} .* is missing, .* epoch from 8 to 9 .* before that epoch"
    ):
        chain.collect(grace_seconds=0, keep_epochs=2)
    assert files_of(location) == before
    publish(chain, {}, {"slow": 10}, full_after=0)
    assert chain.collect(grace_seconds=0, keep_epochs=1).first_epoch == 10, "nothing that is kept needs it any more"


@dataclass
class _Between(FaultyLocation):
    """Does something else before its n-th operation or the look at a file, not failing, and counts these looks."""

    work: Callable[[], object] = lambda: None
    looked_at: str = ""
    looks: int = 0

    def modified(self, name: str) -> float | None:
        self.looks += 1
        if name == self.looked_at:
            self.work()
        return super().modified(name)

    def _try(self, work: Callable[[], T]) -> T:
        self.seen += 1
        if self.seen == self.at:
            self.work()
        return work()


def test_a_collection_that_another_one_overtakes_anywhere_ends_well(publish: Publisher) -> None:
    location, at = location_at(f"memory://{uuid4().hex}"), 0
    chain = Chain.open_or_create(location, 1)
    for epoch in range(1, 10):
        publish(chain, {f"k{epoch}": epoch}, full_after=2)
    files, expected = files_of(location), state_at(chain, 9)
    while True:
        at += 1
        put_back(location, files)
        between = _Between(location, at, work=lambda: Chain.open(location).collect(grace_seconds=0, keep_epochs=1))
        Chain.open(between).collect(grace_seconds=0, keep_epochs=5)
        if between.seen < at:
            break
        opened = Chain.open(location)
        assert (opened.first_epoch, state_at(opened, 9)) == (9, expected)
    assert at > 10


def test_a_collection_that_is_overtaken_again_and_again_gives_up(
    publish: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = make(location_at(f"memory://{uuid4().hex}"), publish, 2)
    overtaken = Mock(side_effect=[UnknownCheckpointError("it was collected meanwhile")] * 20)
    monkeypatch.setattr(chain, "_collect", overtaken)
    monkeypatch.setattr(chain, "_stored_floor", count(1).__next__)
    with pytest.raises(UnknownCheckpointError, match="it was collected meanwhile"):
        chain.collect()
    assert overtaken.call_count == 9


def test_a_collection_looks_at_the_files_that_have_come_since_its_listing(publish: Publisher) -> None:
    location = location_at(f"memory://{uuid4().hex}")
    chain, looks = make(location, publish, 9), []
    for publishes in (False, True):
        work = (lambda: publish(chain, {"new": 1}, {"new": 1})) if publishes else lambda: None
        between = _Between(location, 5, work=work)  # It has opened the space, and has listed the run files.
        opened = Chain.open(between)
        assert opened.collect(grace_seconds=86_400, keep_epochs=20) == Collected(1, 0, 0, 0)
        assert opened.epoch == 9 + publishes
        looks.append(between.looks)
    assert looks == [1, 3], "that is when the newest epoch was published; of no file that was listed"


def test_a_reader_that_a_collection_has_overtaken_is_told_what_helps(location: Location, publish: Publisher) -> None:
    chain = make(location, publish, 3)
    reader, other = Chain.open(location), Chain.open(location)
    for epoch in range(4, 7):
        publish(chain, {"a": epoch}, {"a": epoch}, full_after=1)
    chain.collect(grace_seconds=0, keep_epochs=1)
    told = r"all epochs that this chain knows, up to 3, were collected meanwhile, .* kept is 6: call refresh\(\)"
    for look in (lambda: reader.lineage(OPERATOR, 0), lambda: reader.newest, lambda: other.operator_plan(OPERATOR)):
        with pytest.raises(UnknownCheckpointError, match=told):
            look()
    reader.refresh()
    assert state_at(reader, reader.epoch) == state_at(chain, 6)
    for manifest in location.names("manifest"):
        location.write(f"manifest/{int(manifest[:12]) - 3:012d}.json", location.read(f"manifest/{manifest}") or b"")
        location.delete(f"manifest/{manifest}")
    with pytest.raises(
        CorruptStoreError, match="its first kept epoch is 6, and the newest is 3: manifests are missing"
    ):
        other.operator_plan(OPERATOR)  # Nothing helps a space over which an older copy was laid.


def test_leftovers_of_dead_processes_go(tmp_path: Path, publish: Publisher) -> None:
    location = location_at(tmp_path / "space")
    chain = make(location, publish, 2)
    (tmp_path / "space" / "handover").mkdir()
    for folder in ("", "run", "manifest", "handover"):
        (tmp_path / "space" / folder / ".tmp-dead").write_bytes(b"half")
    assert chain.collect(grace_seconds=600, keep_epochs=1).leftovers == 0
    assert chain.collect(grace_seconds=0, keep_epochs=1).leftovers == 4
    assert not [name for _, _, names in os.walk(tmp_path / "space") for name in names if name.startswith(".tmp")]


def test_an_orphan_is_as_old_as_the_newest_epoch_says(tmp_path: Path, publish: Publisher) -> None:
    chain = make(location_at(tmp_path / "space"), publish, 2)
    left = tmp_path / "space" / "run" / orphan(chain)
    published = (tmp_path / "space" / "manifest" / f"{chain.epoch:012d}.json").stat().st_mtime
    for age, gone in ((500, 0), (700, 1)):
        os.utime(left, (published - age, published - age))
        assert chain.collect(grace_seconds=600, keep_epochs=2).runs == gone


def test_where_no_epoch_is_listed_no_run_file_is_garbage(location: Location, publish: Publisher) -> None:
    chain = Chain.open_or_create(location, 1)
    lost = orphan(chain)
    assert chain.collect(grace_seconds=0) == Collected(1, 0, 0, 0)
    publish(chain, {"a": 1})
    publish(chain, {"a": 2})
    expected, files = state_at(chain, 2), files_of(location)
    manifests = {name: data for name, data in files.items() if name.startswith("manifest/")}
    for name in manifests:  # They are out of sight for a moment, as where a mount is missing.
        location.delete(name)
    assert Chain.open(location).collect(grace_seconds=0) == Collected(1, 0, 0, 0)
    for name, data in manifests.items():
        location.write(name, data)
    assert Chain.open(location).collect(grace_seconds=0) == Collected(1, 0, 1, 0)
    assert lost not in location.names("run")
    assert state_at(Chain.open(location), 2) == expected


class _Short(FaultyLocation):
    """Lists only the first manifests, as many as ``at`` says, if it says so."""

    def names(self, folder: str) -> list[str]:
        found = super().names(folder)
        return found[: self.at] if folder == "manifest" else found

    def _try(self, work: Callable[[], T]) -> T:
        return work()


@pytest.mark.parametrize("listed", [0, 1, 2])
def test_a_listing_that_lacks_epochs_that_were_read_is_not_believed(publish: Publisher, listed: int) -> None:
    location = location_at(f"memory://{uuid4().hex}")
    make(location, publish, 3)
    short = _Short(location, 3)
    chain, before = Chain.open(short), files_of(location)
    assert chain.newest is not None
    short.at = listed
    told = f"the newest epoch that is listed is {listed}, and 3 was read from it before: .* check the location"
    for look in (chain.refresh, lambda: chain.collect(grace_seconds=0, keep_epochs=1)):
        with pytest.raises(CorruptStoreError, match=told):
            look()
    assert (files_of(location), chain.epoch, chain.first_epoch) == (before, 3, 1)
    short.at = 3
    assert chain.collect(grace_seconds=0, keep_epochs=1).first_epoch == 3


@pytest.mark.parametrize("folder", ["run", "inner"])
def test_no_space_is_founded_inside_of_another(location: Location, publish: Publisher, folder: str) -> None:
    publish(Chain.open_or_create(location, 1), {"a": 1})
    inner = location_at(f"{location.url}/{folder}")
    before = inner.names("")
    with pytest.raises(CheckpointError, match=f"it lies inside of the space at {location.url}, .* another location"):
        Chain.open_or_create(inner, 1)
    assert inner.names("") == before
    inner.write("space.json", location.read("space.json") or b"")
    assert Chain.open_or_create(inner, 1).epoch == 0  # One that is there goes on.


def test_a_stray_folder_stops_no_collection(tmp_path: Path, publish: Publisher) -> None:
    chain = make(location_at(tmp_path / "space"), publish, 3)
    orphan(chain)
    strays = [tmp_path / "space" / "run" / name for name in ("backup", ".tmp-dead")]
    for stray in strays:
        stray.mkdir()
    assert chain.collect(grace_seconds=0, keep_epochs=3) == Collected(1, 0, 1, 0)
    assert all(stray.is_dir() for stray in strays)


def test_who_has_opened_a_space_before_a_collection_sees_what_is_left(location: Location, publish: Publisher) -> None:
    chain = Chain.open_or_create(location, 2)
    for epoch in range(8):
        publish(chain, {"a": epoch}, {})
    early = Chain.open(location)
    Chain.open(location).collect(grace_seconds=0, keep_epochs=3)
    assert [manifest.epoch for manifest in early.manifests()] == [6, 7, 8]
    late = Chain.open_or_create(location, 2)
    Chain.open(location).collect(grace_seconds=0, keep_epochs=1)
    with pytest.raises(CheckpointError, match="whose epoch is no longer kept"):
        late.begin(SourcePosition("q", 2, "offsets"), [OPERATOR])


def test_a_location_in_memory_is_looked_after_in_this_process(publish: Publisher, tmp_path: Path) -> None:
    location = location_at(f"memory://{uuid4().hex}")
    chain = Chain.open_or_create(location, 2)
    for epoch in range(3):
        publish(chain, {"a": epoch}, {})
    assert not collect_beside(location, 0, 1)
    image = write_image_beside(chain.operator_plan(OPERATOR, cache=str(tmp_path)), 0)
    assert location.read(image.file) is not None
