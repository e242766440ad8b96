"""Images made beside the epochs: later lineages start from them, and caches that need them least never read them."""

from __future__ import annotations

import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner
from filelock import FileLock

from checkpoint import CheckpointError, CorruptStoreError, RunWriter, StoreLockedError, UnknownCheckpointError
from checkpoint.chain import (
    AcceptedRun,
    Chain,
    Location,
    SourcePosition,
    cache_root,
    collect_beside,
    location_at,
    open_cache,
    receipts,
    save_run,
    write_image,
    write_image_beside,
)
from checkpoint.chain.manifest import seal, unseal
from checkpoint.chain.waiting import note_image, noted_files
from checkpoint.tool.command import cli, load
from checkpoint.tool.copying import fork_space
from checkpoint.tool.rehearsal import Rehearsal
from objectspace import PersistedObjectSpace
from tests.patience import wait_until

from .chain_helpers import OPERATOR, Publisher
from .faulty_location import FaultyLocation
from .test_chain_collect import _Between, files_of


def content(chain: Chain, cache: Path, epoch: int | None = None, shard: int = 0) -> dict[Any, Any]:
    """Return what a cache in a folder gives of a shard."""
    with open_cache(chain.operator_plan(OPERATOR, epoch, cache=str(cache)), shard) as store:
        return {item.slot: item.value for item in store.reader().items(1)}


def tool(*arguments: object) -> int:
    """Run the command, and return its exit status."""
    load()
    return CliRunner().invoke(cli, [str(argument) for argument in arguments]).exit_code


def image_of(chain: Chain, cache: Path, epoch: int | None = None) -> AcceptedRun:
    return write_image(chain.operator_plan(OPERATOR, epoch, cache=str(cache)), 0)


def test_later_lineages_start_from_an_image(chain: Chain, publish: Publisher, tmp_path: Path) -> None:
    for number in range(4):
        publish(chain, {f"k{number}": number, "last": number})
    assert content(chain, tmp_path / "kept")["last"] == "3"
    image = image_of(chain, tmp_path / "beside", 3)
    manifest = publish(chain, {"k0": None, "last": 4}, images=[image])
    assert [run.epoch for run in chain.lineage(OPERATOR, 0)] == [3, 4, 5]
    assert [run.epoch for run in chain.lineage(OPERATOR, 0, 4)] == [1, 2, 3, 4]
    assert chain.lineage(OPERATOR, 0)[0] == image == manifest.starts(OPERATOR, 0)[0]
    wanted = {"k1": "1", "k2": "2", "k3": "3", "last": "4"}
    opened = Chain.open(chain.location)
    assert content(opened, tmp_path / "new") == wanted
    # What has been read once is enough for a cache that is nearly there, also after a fault of the image.
    chain.location.write(image.file, b"a cache that reads this fails")
    assert content(opened, tmp_path / "kept") == wanted
    publish(chain, {"last": 5})
    (file,) = (tmp_path / "kept").rglob("*.db")
    assert content(chain, tmp_path / "kept") == {**wanted, "last": "5"}
    assert content(chain, tmp_path / "kept", 4)["k0"] == "0"  # by a lineage without the image
    assert list((tmp_path / "kept").rglob("*.db")) == [file]


def test_an_image_is_made_of_what_the_runs_say_whatever_has_become_of_the_cache(
    chain: Chain, publish: Publisher, tmp_path: Path
) -> None:
    for number in range(3):
        publish(chain, {"a": 987654321, "b": number})
    wanted = content(chain, tmp_path / "cache")
    (file,) = (tmp_path / "cache").rglob("*.db")
    file.write_bytes(file.read_bytes().replace(b"987654321", b"987654329"))
    assert content(chain, tmp_path / "cache") != wanted, "SQLite notices nothing"
    with pytest.raises(CorruptStoreError, match="was a cache of this machine and is removed now: try again"):
        image_of(chain, tmp_path / "cache")
    publish(chain, {"b": 3}, images=[image_of(chain, tmp_path / "cache")])
    assert [run.epoch for run in chain.lineage(OPERATOR, 0)] == [3, 4]
    assert content(chain, tmp_path / "new") == {**wanted, "b": "3"}


def test_an_image_of_another_history_is_passed_over(chain: Chain, publish: Publisher, tmp_path: Path) -> None:
    other = Chain.open_or_create(location_at(tmp_path / "other"), 1)
    for number in range(3):
        publish(chain, {"a": number})
        publish(other, {"a": number + 10})
    foreign = image_of(other, tmp_path / "cache")
    publish(chain, {"b": 1}, images=[foreign])
    assert [run.epoch for run in chain.lineage(OPERATOR, 0)] == [1, 2, 3, 4]
    early = image_of(chain, tmp_path / "cache", 2)
    publish(chain, {"b": 2}, full_after=1)
    assert [run.epoch for run in chain.lineage(OPERATOR, 0)] == [5], "a full run makes the image worthless"
    publish(chain, {"b": 3}, images=[early])
    assert [run.epoch for run in chain.lineage(OPERATOR, 0)] == [5, 6]
    later = image_of(chain, tmp_path / "cache", 6)
    publish(chain, {"b": 4}, images=[later])
    publish(chain, {"b": 5}, full_after=0)
    assert chain.manifest(8).images == ()
    assert content(chain, tmp_path / "new") == {"a": "2", "b": "5"}


def test_a_cache_that_lost_its_end_is_not_taken_for_the_image(chain: Chain, publish: Publisher, tmp_path: Path) -> None:
    for number in range(4):
        publish(chain, {"a": number, f"k{number}": number})
    content(chain, tmp_path / "cache", 3)
    (file,) = (tmp_path / "cache").rglob("*.db")
    old = file.read_bytes()
    content(chain, tmp_path / "cache")
    publish(chain, {"b": 1}, images=[image_of(chain, tmp_path / "beside")])
    assert content(chain, tmp_path / "cache")["a"] == "3"
    assert (note := file.with_name(f"{file.name}.image")).exists()
    file.write_bytes(old)  # as after a power failure: the note is there, the checkpoints are not
    assert content(chain, tmp_path / "cache") == {"a": "3", "b": "1", **{f"k{n}": str(n) for n in range(4)}}
    assert not note.exists()


@pytest.mark.parametrize(
    ("seed", "carry_after", "quiet"),
    [
        (1, 64, 0.3),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in [(0, 64, 0), (2, 3, 0.7), (3, 1, 0.7), (4, 2, 0.5)]),
    ],
)
def test_images_collections_and_caches_of_any_age_go_together(
    publish: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, carry_after: int, quiet: float
) -> None:
    monkeypatch.setattr("checkpoint.chain.lineages.CARRY_AFTER", carry_after)
    rng, chain = random.Random(seed), Chain.open_or_create(location_at(f"memory://{uuid4().hex}"), 1)
    states: list[dict[Any, Any]] = [{}]
    made: list[AcceptedRun] = []
    adopted = 0
    for epoch in range(1, 41):
        change = {} if rng.random() < quiet else {rng.choice("abcdef"): rng.choice([None, epoch, epoch]), "last": epoch}
        ready = [made.pop()] if made and rng.random() < 0.4 else []
        manifest = publish(chain, change, full_after=rng.choice([64, 64, 12]), images=ready)
        adopted += ready != [] and manifest.starts(OPERATOR, 0)[:1] == tuple(ready)
        merged = {**states[-1], **{slot: None if value is None else str(value) for slot, value in change.items()}}
        states.append({slot: value for slot, value in merged.items() if value is not None})
        if rng.random() < 0.3 and len(chain.lineage(OPERATOR, 0)) > 1:
            made.append(image_of(chain, tmp_path / "beside"))
        if rng.random() < 0.2:
            chain.collect(grace_seconds=0, keep_epochs=6, keep_files=[image.file for image in made])
        for cache in rng.sample(range(4), 2):
            assert content(chain, tmp_path / str(cache)) == states[epoch]
        back = rng.randint(chain.first_epoch, epoch)
        assert content(chain, tmp_path / str(rng.randrange(4)), back) == states[back]
    opened = Chain.open(chain.location)
    opened.collect(grace_seconds=0, keep_epochs=3)
    for epoch in range(opened.first_epoch, 41):
        assert content(opened, tmp_path / f"fresh {epoch}", epoch) == states[epoch]
    assert [receipt.state_slots for receipt in receipts(opened)] == [len(state) for state in states[-3:]]
    assert adopted > 0


def test_a_collection_spares_what_can_make_a_lost_image_good(
    location: Location, publish: Publisher, tmp_path: Path
) -> None:
    chain = Chain.open_or_create(location, 1)
    for number in range(5):
        publish(chain, {f"k{number}": number})
    image = image_of(chain, tmp_path / "beside", 3)
    for number in range(5, 12):  # It is named late, while the epochs before it are still kept.
        publish(chain, {f"k{number}": number}, images=[image] if number == 7 else [])
    data = location.read(image.file) or b""
    location.delete(image.file)
    before = files_of(location)
    said = rf"{image.file} .* \(epoch 3, counter/0\) is missing, which an epoch from 9 to 12 needs; nothing was removed"
    with pytest.raises(CorruptStoreError, match=f"{said}, so that `checkpoint fork` .* in its place the copy has the"):
        Chain.open(location).collect(grace_seconds=0, keep_epochs=4)
    assert files_of(location) == before
    fork_space(chain, f"{location.url}-fork", 12, [], lambda done, total: None)
    fork = Chain.open(location_at(f"{location.url}-fork"))
    assert fork.collect(grace_seconds=0, keep_epochs=4).first_epoch == 9
    assert content(fork, tmp_path / "new") == {f"k{number}": str(number) for number in range(12)}
    location.write(image.file, data)
    assert chain.collect(grace_seconds=0, keep_epochs=4).runs == 3


@pytest.mark.parametrize("is_image", [True, False])
def test_a_collection_reads_what_takes_the_place_of_older_runs_once(
    location: Location, publish: Publisher, tmp_path: Path, is_image: bool
) -> None:
    chain = Chain.open_or_create(location, 1)
    for number in range(4):
        publish(chain, {"a": number})
    images = [image_of(chain, tmp_path / "beside", 3)] if is_image else []
    for number in range(4, 8):
        publish(chain, {"a": number}, images=images, full_after=64 if is_image or number != 4 else 0)
    begin = chain.lineage(OPERATOR, 0)[0]
    data, before = location.read(begin.file) or b"", files_of(location)
    location.write(begin.file, data[:-1])
    with pytest.raises(CorruptStoreError, match=f"nothing was removed, so that .*{begin.file} .* is damaged"):
        chain.collect(grace_seconds=0, keep_epochs=3)
    assert files_of(location) == before | {begin.file: data[:-1]}
    location.write(begin.file, data)
    assert chain.collect(grace_seconds=0, keep_epochs=3).first_epoch == 6
    location.write(begin.file, data[:-1])
    assert chain.collect(grace_seconds=0, keep_epochs=1).first_epoch == 8, "the older runs are gone as it is"


def test_a_shard_that_changes_no_more_keeps_no_manifest(
    publish: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_after, epochs = 16, 40
    monkeypatch.setattr("checkpoint.chain.lineages.CARRY_AFTER", carry_after)
    chain = Chain.open_or_create(location_at(tmp_path / "space"), 2)
    for number in range(epochs):
        publish(chain, {"a": number}, {"b": number} if number < 3 else {}, full_after=16)
        if number == 5:
            assert content(chain, tmp_path / "old", shard=1) == {"b": "2"}
    assert chain.newest is not None
    assert (len(chain.newest.starts(OPERATOR, 1)), chain.newest.format) == (3, 2)
    assert chain.newest.lineage[OPERATOR][1] > epochs - carry_after
    chain.collect(grace_seconds=0, keep_epochs=4)
    assert len(chain.location.names("manifest")) <= carry_after + 4
    opened = Chain.open(chain.location)
    assert [run.epoch for run in opened.lineage(OPERATOR, 1)] == [1, 2, 3]
    for epoch in (opened.first_epoch, None):
        for cache in ("old", "new"):  # an old cache of the shard serves as it is
            assert content(opened, tmp_path / cache, epoch, shard=1) == {"b": "2"}
    publish(chain, {}, {"b": 300})
    assert content(chain, tmp_path / "new", shard=1) == {"b": "300"}
    for command in ("fork", "restore"):
        assert tool(command, chain.location.url, tmp_path / command) == 0
        assert tool("verify", tmp_path / command) == 0
        copy = Chain.open(location_at(tmp_path / command))
        assert content(copy, tmp_path / "copies", shard=1) == {"b": "300"}


def test_another_process_makes_the_same_image(publish: Publisher, tmp_path: Path) -> None:
    chain = Chain.open_or_create(location_at(tmp_path / "space"), 1)
    for number in range(3):
        publish(chain, {f"k{number}": number})
    plan = chain.operator_plan(OPERATOR, cache=str(tmp_path / "cache"))
    here, there = write_image(plan, 0), write_image_beside(plan, 0)
    assert replace(there, file=here.file) == here
    assert chain.location.read(there.file) == chain.location.read(here.file)
    chain.location.write(chain.lineage(OPERATOR, 0)[1].file, b"damaged")
    with pytest.raises(CheckpointError, match=r"image of counter/0 at .*CorruptStoreError: run file .* is damaged"):
        write_image_beside(replace(plan, cache=str(tmp_path / "another cache")), 0)


def test_a_noted_image_stays_until_its_note_goes(publish: Publisher, tmp_path: Path) -> None:
    chain = Chain.open_or_create(location_at(tmp_path / "space"), 1)
    for number in range(3):
        publish(chain, {f"k{number}": number})
    plan = chain.operator_plan(OPERATOR, cache=str(tmp_path / "cache"))
    image = write_image_beside(plan, 0, is_noted=True)
    assert chain.collect(grace_seconds=0).runs == 0
    assert tool("verify", tmp_path / "space") == 0
    assert tool("fork", tmp_path / "space", tmp_path / "copy") == 0
    assert Chain.open(location_at(tmp_path / "copy")).waiting_images() == []
    assert [one.image for one in chain.waiting_images()] == [image]
    other = write_image_beside(plan, 0, is_noted=True)  # Another driver has made it, too.
    publish(chain, {"last": 1}, images=[image])
    assert chain.waiting_images() == [], "one is named, and there is nothing to replace for the other"
    assert chain.collect(grace_seconds=0).runs == 1
    assert (chain.location.read(other.file), chain.location.names("handover")) == (None, [])


class _AtNotes(Rehearsal):
    """A location that no other process reaches, where something is done whenever an image is to be noted."""

    def __init__(self, location: Location, work: Callable[[], object]) -> None:
        super().__init__(location, lambda done, total: None, is_dry=False)
        self._work = work

    def write(self, name: str, data: bytes) -> None:
        """Do the work first if it is a note."""
        if name.startswith("handover/"):
            self._work()
        super().write(name, data)


def test_one_process_of_a_machine_makes_an_image_of_a_shard_to_note(
    publish: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = Chain.open_or_create(location_at(tmp_path / "space"), 2)
    for number in range(3):
        publish(chain, {"a": number}, {"b": number})
    plan = chain.operator_plan(OPERATOR)
    made: list[Any] = []

    def start_another() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", "no process is to start")
            with pytest.raises(StoreLockedError, match=r"image of counter/0 at .*: another process of this machine is"):
                write_image_beside(plan, 0, is_noted=True)
        made.append(write_image_beside(plan, 1, is_noted=True))

    made.append(write_image_beside(replace(plan, location=_AtNotes(chain.location, start_another)), 0, is_noted=True))
    made.append(write_image_beside(plan, 0, is_noted=True))
    assert [image.shard for image in made] == [1, 0, 0]
    assert {image.file for image in made} == noted_files(chain.location)


def test_a_process_that_finds_another_one_at_its_work_says_so(
    publish: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, run = Chain.open_or_create(location_at(tmp_path / "space"), 1), subprocess.run
    publish(chain, {"a": 1})

    def run_late(*given: Any, **named: Any) -> Any:
        with FileLock(cache_root() / chain.incarnation / f"{OPERATOR}-0" / "image.lock"):
            return run(*given, **named)

    monkeypatch.setattr(subprocess, "run", run_late)
    with pytest.raises(StoreLockedError, match="another process of this machine is making one"):
        write_image_beside(chain.operator_plan(OPERATOR), 0, is_noted=True)


def test_an_image_that_is_noted_while_a_collection_looks_at_files_stays(publish: Publisher, tmp_path: Path) -> None:
    location = location_at(f"memory://{uuid4().hex}")
    chain = Chain.open_or_create(location, 1)
    for number in range(3):
        publish(chain, {"a": number})
    image = image_of(chain, tmp_path / "cache")
    watched = _Between(location, 0, looked_at=image.file, work=lambda: note_image(location, chain.incarnation, image))
    assert Chain.open(watched).collect(grace_seconds=0).runs == 0
    assert [one.image for one in chain.waiting_images()] == [image]


def test_an_image_that_no_epoch_can_name_is_collected_with_its_note(publish: Publisher, tmp_path: Path) -> None:
    load()
    chain = Chain.open_or_create(location_at(tmp_path / "space"), 1)
    for number in range(3):
        publish(chain, {f"k{number}": number})
    plan = chain.operator_plan(OPERATOR, cache=str(tmp_path / "cache"))
    image, same = (write_image_beside(plan, 0, is_noted=True) for _ in range(2))
    publish(chain, {"last": 1}, images=[image])
    dry = CliRunner().invoke(cli, ["gc", str(tmp_path / "space"), "--grace", "0", "--dry-run"])
    assert dry.output.startswith("1 file would go: 1 run, ")
    assert len(chain.location.names("handover")) == 2
    assert tool("gc", tmp_path / "space", "--grace", "0") == 0
    assert chain.location.names("handover") == []
    assert (chain.location.read(same.file), chain.location.read(image.file) is not None) == (None, True)


@pytest.mark.parametrize("change", [{"incarnation": "another"}, {"format": 99}, {"image": {"kind": "full"}}])
def test_a_note_that_says_nothing_of_use_goes(publish: Publisher, tmp_path: Path, change: dict[str, Any]) -> None:
    chain = Chain.open_or_create(location_at(tmp_path / "space"), 1)
    for number in range(2):
        publish(chain, {"a": number})
    image = write_image_beside(chain.operator_plan(OPERATOR, cache=str(tmp_path / "cache")), 0, is_noted=True)
    (note,) = (tmp_path / "space" / "handover").iterdir()
    note.write_bytes(seal({**unseal(note.read_bytes(), "the note"), **change}))
    assert chain.waiting_images() == []
    assert not note.exists()
    assert chain.location.read(image.file) is not None, "it is garbage from now on"


def test_the_tool_copies_and_checks_images(publish: Publisher, tmp_path: Path) -> None:
    chain = Chain.open_or_create(location_at(tmp_path / "space"), 1)
    for number in range(4):
        publish(chain, {f"k{number}": number})
    image = image_of(chain, tmp_path / "beside", 3)
    publish(chain, {"last": 1}, images=[image])
    chain.collect(grace_seconds=0, keep_epochs=1)
    assert tool("fork", tmp_path / "space", tmp_path / "copy") == 0
    copy = Chain.open(location_at(tmp_path / "copy"))
    assert content(copy, tmp_path / "cache") == content(chain, tmp_path / "cache")
    assert tool("verify", tmp_path / "space") == 0
    chain.location.write(image.file, b"damaged")
    assert tool("verify", tmp_path / "space") == 2
    with pytest.raises(CheckpointError, match="is damaged"):
        content(chain, tmp_path / "new")


def test_another_process_collects_and_nobody_waits_for_it(
    publish: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = Chain.open_or_create(location_at(tmp_path / "space"), 1)
    for number in range(10):
        publish(chain, {f"k{number}": number})
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert collect_beside(chain.location, 0, 3)
    assert warned == []
    wait_until(lambda: Chain.open(chain.location).first_epoch >= 8, "the collection")
    assert Chain.open(chain.location).first_epoch == 8
    assert content(chain, tmp_path / "cache")["k9"] == "9"
    assert not collect_beside(FaultyLocation(chain.location, 0), 0, 1), "another process cannot reach it"
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    assert not collect_beside(chain.location, 0, 1), "what cannot begin is no error of the epoch that was published"


def work(
    chain: Chain, cache: Path, change: Callable[[PersistedObjectSpace], object], full_after: int = 64, **publish: Any
) -> Any:
    """Publish an epoch in which a machine with a cache of its own changes the objects of the shard."""
    plan = chain.begin(SourcePosition("q", chain.epoch), [OPERATOR], full_after, str(cache))
    assert plan is not None
    operator = plan.operators[OPERATOR]
    with open_cache(operator, 0) as store:
        space = PersistedObjectSpace(store)
        change(space)
        writer = RunWriter(operator.kind(0))
        space.save(writer)
        writer.commit()
        saved = save_run(operator, 0, writer.run)
    return chain.publish(plan, {OPERATOR: [saved]}, **publish)


def objects_of(chain: Chain, cache: Path) -> dict[str, Any]:
    """Return what the objects of the shard hold, as a machine with a cache of its own sees them."""
    with open_cache(chain.operator_plan(OPERATOR, cache=str(cache)), 0) as store:
        assert store.verify()
        space = PersistedObjectSpace(store)
        return {name: space.get(name).copy() for name in space}


@pytest.mark.parametrize("is_all_gone", [False, True])
def test_an_id_is_not_given_again_after_an_image(location: Location, tmp_path: Path, is_all_gone: bool) -> None:
    chain, here, there = Chain.open_or_create(location, 1), tmp_path / "here", tmp_path / "there"
    if not is_all_gone:
        work(chain, here, lambda space: space.create_value("kept", 1))
    work(chain, here, lambda space: space.create_sorted_dictionary("old").update(dict.fromkeys(range(50), "old")))
    work(chain, here, lambda space: space.delete("old"))
    image = image_of(chain, tmp_path / "beside")
    work(chain, here, lambda space: None, images=[image])
    assert chain.lineage(OPERATOR, 0)[0] == image
    # The other machine begins with the image, which knows nothing of the object that is gone; this one has its rows.
    new = dict.fromkeys(range(40, 20_000), "new")
    work(chain, there, lambda space: space.create_sorted_dictionary("new").update(new))
    wanted = {"new": new} if is_all_gone else {"kept": 1, "new": new}
    assert objects_of(chain, here) == objects_of(chain, there) == objects_of(chain, tmp_path / "fresh") == wanted


def test_receipts_count_what_is_there(location: Location, tmp_path: Path) -> None:
    chain, cache = Chain.open_or_create(location, 1), tmp_path / "cache"
    kept, given = "kept", dict.fromkeys(range(200), 1)
    work(chain, cache, lambda space: space.create_list(kept).append(1))
    alone = list(receipts(chain))[-1].state_bytes
    work(chain, cache, lambda space: space.create_dictionary("gone").update(given))
    work(chain, cache, lambda space: space.get("gone").clear())
    work(chain, cache, lambda space: space.delete("gone"))
    work(chain, cache, lambda space: space.create_dictionary("lists", of=list).update({"a": [1, 2], "b": [3]}))
    work(chain, cache, lambda space: space.get("lists").pop("a"))
    work(chain, cache, lambda space: space.delete("lists"))
    found = list(receipts(Chain.open(location)))
    assert [one.state_slots for one in found] == [1, 201, 1, 1, 6, 3, 1]
    assert found[-1].state_bytes == found[3].state_bytes == alone


def test_a_plan_whose_epoch_was_collected_says_so(location: Location, publish: Publisher, tmp_path: Path) -> None:
    chain = Chain.open_or_create(location, 1)
    publish(chain, {"a": 1})
    plan = chain.operator_plan(OPERATOR, 1, cache=str(tmp_path / "late"))
    for number in range(3):
        publish(chain, {"a": number}, full_after=1)
    chain.collect(grace_seconds=0, keep_epochs=1)
    with pytest.raises(UnknownCheckpointError, match="epoch 1 was collected meanwhile"), open_cache(plan, 0):
        pass


def test_an_image_without_a_row_says_that_all_is_gone(location: Location, tmp_path: Path) -> None:
    chain, cache = Chain.open_or_create(location, 1), tmp_path / "cache"
    work(chain, cache, lambda space: None, full_after=1)
    assert chain.lineage(OPERATOR, 0) == ()
    work(chain, cache, lambda space: space.create_list("list").append(1), full_after=1)
    work(chain, cache, lambda space: space.get("list").extend(range(400)), full_after=1)
    work(chain, cache, lambda space: space.delete("list"), full_after=1)
    assert objects_of(chain, cache) == objects_of(chain, tmp_path / "fresh") == {}
    work(chain, cache, lambda space: space.create_list("list").append(2), full_after=1)
    assert objects_of(chain, cache) == objects_of(chain, tmp_path / "fresh") == {"list": [2]}
