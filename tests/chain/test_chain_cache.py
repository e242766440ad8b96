"""Local caches: brought up from any older state, never trusted beyond the lineage, never in each other's way."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import sqlite3
import tempfile
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pytest

from checkpoint import (
    CheckpointError,
    CheckpointKind,
    CheckpointStore,
    CorruptStoreError,
    FencedError,
    Run,
    StoreFailedError,
)
from checkpoint.chain import (
    Chain,
    Location,
    OperatorPlan,
    cache,
    catch_up,
    fold,
    location_at,
    open_cache,
    save_run,
    write_image,
)
from checkpoint.chain.folders import LONGEST_NAME, cache_root, discard, folder_name, scratch_folder, sweep
from checkpoint.session import PAGE_BYTES
from objectspace import PersistedObjectSpace

from .chain_helpers import OPERATOR, Publisher, run_of


def _plan(chain: Chain, folder: Path, epoch: int | None = None) -> OperatorPlan:
    return chain.operator_plan(OPERATOR, epoch, cache=str(folder / "cache"))


def _open_to_make(chain: Chain, folder: Path) -> dict[object, object]:
    """Return what a task of the next epoch finds."""
    with open_cache(replace(_plan(chain, folder), makes_epoch=True), 0) as store:
        return _content(store)


def _content(store: CheckpointStore) -> dict[object, object]:
    return {item.slot: item.value for item in store.reader().items(1)}


def _open(chain: Chain, folder: Path, epoch: int | None = None) -> dict[object, object]:
    with open_cache(_plan(chain, folder, epoch), 0) as store:
        return _content(store)


def _files(folder: Path) -> list[Path]:
    return sorted((folder / "cache").rglob("*.db"))


def test_a_cache_of_any_age_catches_up(chain: Chain, publish: Publisher, tmp_path: Path) -> None:
    expected: list[dict[object, object]] = [{}]
    for number in range(7):
        # Each epoch adds a key and takes one away; full runs come in between.
        publish(chain, {f"k{number}": number, f"k{number - 2}": None, "last": number}, full_after=3)
        kept: dict[object, object] = {f"k{n}": str(n) for n in (number - 1, number) if n >= 0}
        expected.append({**kept, "last": str(number)})
    for age in range(8):
        for now in range(age, 8):
            folder = tmp_path / f"{age}-{now}"
            assert _open(chain, folder, age) == expected[age]
            assert _open(chain, folder, now) == expected[now]


def test_only_what_is_lacking_is_read(chain: Chain, publish: Publisher, tmp_path: Path, location: Location) -> None:
    publish(chain, {"a": 1})
    publish(chain, {"b": 2})
    assert _open(chain, tmp_path) == {"a": "1", "b": "2"}
    for run in chain.lineage(OPERATOR, 0):
        location.write(run.file, b"a cache that reads this again fails")
    publish(chain, {"a": 3})
    assert _open(chain, tmp_path) == {"a": "3", "b": "2"}


def test_a_cache_that_is_ahead_serves_while_it_reads_what_was_before(
    chain: Chain, publish: Publisher, tmp_path: Path
) -> None:
    for number in range(60):
        publish(chain, {"a": number})
    _open(chain, tmp_path, 55)
    (kept,) = _files(tmp_path)
    for before, is_kept in ((53, True), (55, True), (2, False)):
        runs = chain.runs(OPERATOR, 0, before + 1, 60)
        with open_cache(_plan(chain, tmp_path, before), 0, runs) as store:
            assert (store.path == str(kept)) is is_kept
            fold(store, chain.location, runs[:1])
            at = store.reader(epoch=before + 1)
            assert [item.value for item in at.items(1)] == [str(before)]
    assert _files(tmp_path) == [kept]
    assert [run.epoch for run in chain.runs(OPERATOR, 0, 39, 40)] == [39, 40]


def test_a_cache_that_is_ahead_serves_only_what_it_reads_epoch_by_epoch(
    chain: Chain, publish: Publisher, tmp_path: Path
) -> None:
    publish(chain, {f"k{number}": number for number in range(2_000)})
    for number in range(60):  # Small runs are merged, while the large one before them stays.
        publish(chain, {"a": number})
    _open(chain, tmp_path)
    for before in (1, 2, 30, 58):
        runs = chain.runs(OPERATOR, 0, before + 1, 61)
        with open_cache(_plan(chain, tmp_path, before), 0, runs) as store:
            for run in runs:
                fold(store, chain.location, [run])
                found = store.reader(epoch=run.epoch).item(1, "a")
                assert found is not None
                assert found.value == str(run.epoch - 2)


def test_a_store_with_another_past_is_left_alone(chain: Chain, publish: Publisher, tmp_path: Path) -> None:
    publish(chain, {"a": 1})
    publish(chain, {"a": 2})
    lineage = chain.lineage(OPERATOR, 0)
    with CheckpointStore(tmp_path / "other.db") as store:
        store.apply(run_of({"a": 7}), 1)
        assert not catch_up(store, chain.location, lineage)
        assert [record.epoch for record in store.checkpoints()] == [1]


def test_a_run_that_was_not_accepted_is_dropped_from_a_cache(chain: Chain, publish: Publisher, tmp_path: Path) -> None:
    publish(chain, {"a": 1})
    with open_cache(_plan(chain, tmp_path), 0) as store:
        store.apply(run_of({"a": 666}), 2)
    before = _files(tmp_path)
    assert _open(chain, tmp_path) == {"a": "1"}  # Who reads is given one of his own.
    assert _open_to_make(chain, tmp_path) == {"a": "1"}
    with open_cache(_plan(chain, tmp_path), 0) as store:
        store.apply(run_of({"a": 666}), 2)
    publish(chain, {"b": 2})
    assert _open_to_make(chain, tmp_path) == {"a": "1", "b": "2"}
    assert _files(tmp_path) == before


def test_a_first_run_that_was_not_accepted_is_no_part_of_a_shard(
    chain: Chain, publish: Publisher, tmp_path: Path
) -> None:
    with open_cache(_plan(chain, tmp_path), 0) as store:
        store.apply(run_of({"a": 666}, CheckpointKind.FULL), 1)
    with open_cache(replace(_plan(chain, tmp_path), makes_epoch=True), 0) as store:
        assert store.checkpoints() == []
    publish(chain, {"b": 1})
    assert _open(chain, tmp_path) == {"b": "1"}


def test_one_that_was_accepted_need_not_be_read(chain: Chain, publish: Publisher, tmp_path: Path) -> None:
    publish(chain, {"a": 1})
    with open_cache(_plan(chain, tmp_path), 0) as store:
        store.apply(run_of({"a": 2}, length=1), 2)
    publish(chain, {"a": 2})
    chain.location.write(chain.lineage(OPERATOR, 0)[-1].file, b"a cache that reads this fails")
    assert _open(chain, tmp_path) == {"a": "2"}


def test_what_no_image_stands_for_is_dropped_from_a_cache(chain: Chain, publish: Publisher, tmp_path: Path) -> None:
    publish(chain, {"a": 1})
    publish(chain, {"a": 2})
    image = write_image(_plan(chain, tmp_path), 0)
    with open_cache(_plan(chain, tmp_path), 0) as store:
        store.apply(run_of({"a": 666}), 3)
    publish(chain, {"b": 3}, images=[image])
    before = _files(tmp_path)
    assert _open_to_make(chain, tmp_path) == {"a": "2", "b": "3"}
    assert _files(tmp_path) == before


def test_a_cache_with_two_runs_that_were_not_accepted_is_rebuilt(
    chain: Chain, publish: Publisher, tmp_path: Path
) -> None:
    publish(chain, {"a": 1})
    with open_cache(_plan(chain, tmp_path), 0) as store:
        for epoch in (2, 3):
            store.apply(run_of({"a": 666}), epoch)
    before = _files(tmp_path)
    publish(chain, {"b": 2})
    publish(chain, {"b": 3})
    assert _open(chain, tmp_path) == {"a": "1", "b": "3"}
    assert len(_files(tmp_path)) == 1
    assert _files(tmp_path) != before


def test_a_space_made_again_at_the_same_place_does_not_meet_old_caches(publish: Publisher, tmp_path: Path) -> None:
    location = location_at(tmp_path / "space")
    first = Chain.open_or_create(location, 1)
    publish(first, {"a": 1})
    assert _open(first, tmp_path) == {"a": "1"}
    shutil.rmtree(tmp_path / "space")
    second = Chain.open_or_create(location, 1)
    publish(second, {"b": 2})
    assert second.incarnation != first.incarnation
    assert _open(second, tmp_path) == {"b": "2"}


def test_a_cache_in_use_is_not_waited_for(chain: Chain, publish: Publisher, tmp_path: Path) -> None:
    publish(chain, {"a": 1})
    with open_cache(_plan(chain, tmp_path), 0) as held, open_cache(_plan(chain, tmp_path), 0) as private:
        assert held.path != private.path
        assert _content(held) == _content(private) == {"a": "1"}
    assert len(_files(tmp_path)) == 1


def test_a_cache_that_is_closed_soon_is_waited_for(chain: Chain, publish: Publisher, tmp_path: Path) -> None:
    publish(chain, {"a": 1})
    publish(chain, {"a": 2})
    with ExitStack() as opened:
        held = opened.enter_context(open_cache(_plan(chain, tmp_path), 0))
        held.announce_close()
        timer = Timer(0.1, opened.pop_all().close)
        timer.start()
        with open_cache(_plan(chain, tmp_path), 0) as store:
            assert store.path == held.path
            assert _content(store) == {"a": "2"}
        timer.join()


@pytest.mark.parametrize("is_said", [True, False])
def test_patience_with_a_cache_that_is_closed_soon_has_an_end(
    chain: Chain, publish: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_said: bool
) -> None:
    monkeypatch.setattr(cache, "_PATIENCE_SECONDS", {True: 0.05, None: 0.05, False: 0.0})
    publish(chain, {"a": 1})
    with open_cache(_plan(chain, tmp_path), 0) as held:
        if is_said:
            held.announce_close()
        else:
            Path(f"{held.path}.owner").unlink()  # As in the moment between two owners.
        with open_cache(_plan(chain, tmp_path), 0) as private:
            assert private.path != held.path
            assert _content(private) == {"a": "1"}


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_forked_child_leaves_the_cache_of_its_parent_alone(
    chain: Chain, publish: Publisher, tmp_path: Path, is_closed: bool
) -> None:
    publish(chain, {"a": 1})
    answers, theirs = multiprocessing.Pipe(duplex=False)
    begin = multiprocessing.get_context("fork").Event()

    def read() -> None:
        begin.wait(30)
        with open_cache(_plan(chain, tmp_path), 0) as store:
            theirs.send((store.path, _content(store)))

    with ExitStack() as opened:
        held = opened.enter_context(open_cache(_plan(chain, tmp_path), 0))
        held.announce_close()
        child = multiprocessing.get_context("fork").Process(target=read)
        child.start()
        if is_closed:
            opened.pop_all().close()
        begin.set()
        child.join()
        assert child.exitcode == 0
        path, content = answers.recv()
        assert (path != held.path, content) == (True, {"a": "1"})
    assert _open(chain, tmp_path) == {"a": "1"}
    assert _files(tmp_path) == [Path(held.path)]


def test_reading_an_older_epoch_leaves_the_newer_cache(chain: Chain, publish: Publisher, tmp_path: Path) -> None:
    for number in range(15):
        publish(chain, {"a": number})
        assert _open(chain, tmp_path) == {"a": str(number)}
    (kept,) = _files(tmp_path)
    before = kept.read_bytes()
    for epoch in range(14, 0, -1):
        assert _open(chain, tmp_path, epoch) == {"a": str(epoch - 1)}
    assert _files(tmp_path) == [kept]
    assert kept.read_bytes() == before


def test_a_damaged_cache_is_rebuilt(chain: Chain, publish: Publisher, tmp_path: Path) -> None:
    publish(chain, {f"key {number}": number for number in range(2000)})
    _open(chain, tmp_path)
    (cache,) = _files(tmp_path)
    data = bytearray(cache.read_bytes())
    data[100:200] = b"\xff" * 100  # the root of the schema
    cache.write_bytes(bytes(data))
    assert len(_open(chain, tmp_path)) == 2000


def test_a_cache_that_lost_a_record_is_rebuilt(chain: Chain, publish: Publisher, tmp_path: Path) -> None:
    for number in range(3):
        publish(chain, {"a": number})
    _open(chain, tmp_path)
    _lose_last_record(tmp_path)
    publish(chain, {"a": 3})
    assert _open(chain, tmp_path) == {"a": "3"}
    _lose_last_record(tmp_path)
    removed = pytest.raises(CorruptStoreError, match="was a cache of this machine and is removed now: try again")
    with removed, open_cache(_plan(chain, tmp_path, 3), 0) as store:
        store.apply(run_of({"a": 4}), 4)  # what a task folds in ahead
    assert _open(chain, tmp_path) == {"a": "3"}


def _lose_last_record(folder: Path) -> None:
    """Take a record out of a cache, as one bit of the page that holds it does, and leave its rows."""
    (path,) = _files(folder)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM checkpoint WHERE number = (SELECT max(number) FROM checkpoint)")


@pytest.mark.parametrize("damage", [b"\0" * 4096, b"x" * 100, b"short", b""])
def test_a_cache_that_is_no_store_any_more_is_made_anew(
    damage: bytes, chain: Chain, publish: Publisher, tmp_path: Path
) -> None:
    publish(chain, {"a": 1})
    assert _open(chain, tmp_path) == {"a": "1"}
    (path,) = _files(tmp_path)
    path.write_bytes(damage + path.read_bytes()[len(damage) :] if len(damage) > 50 else damage)
    assert _open(chain, tmp_path) == {"a": "1"}


def test_a_cache_whose_damage_shows_late_is_rebuilt(chain: Chain, publish: Publisher, tmp_path: Path) -> None:
    publish(chain, {f"key {number}": "x" * 50 for number in range(2000)})
    _open(chain, tmp_path)
    (cache,) = _files(tmp_path)
    data = bytearray(cache.read_bytes())
    for page in range(PAGE_BYTES * 20, len(data), PAGE_BYTES):
        data[page : page + 200] = b"\xff" * 200
    cache.write_bytes(bytes(data))
    with pytest.raises(CorruptStoreError, match="was a cache of this machine and is removed now: try again"):
        _open(chain, tmp_path)
    assert _files(tmp_path) == []
    assert len(_open(chain, tmp_path)) == 2000


def test_a_cache_with_a_value_that_does_not_decode_is_rebuilt(chain: Chain, publish: Publisher, tmp_path: Path) -> None:
    publish(chain, {"a": 987654321})
    _open(chain, tmp_path)
    (cache,) = _files(tmp_path)
    cache.write_bytes(cache.read_bytes().replace(b"987654321", b"9876\x174321"))
    removed = pytest.raises(CorruptStoreError, match="was a cache of this machine and is removed now: try again")
    with removed, open_cache(_plan(chain, tmp_path), 0) as store:
        PersistedObjectSpace(store).get("counts").copy()
    assert _open(chain, tmp_path) == {"a": "987654321"}


def test_an_error_of_the_work_leaves_a_sound_cache(chain: Chain, publish: Publisher, tmp_path: Path) -> None:
    publish(chain, {"a": 1})
    before = _open(chain, tmp_path), _files(tmp_path)
    with pytest.raises(CorruptStoreError, match=r"^elsewhere$"), open_cache(_plan(chain, tmp_path), 0):
        raise CorruptStoreError("elsewhere")
    assert (_open(chain, tmp_path), _files(tmp_path)) == before


def test_damage_of_an_accepted_run_is_not_hidden(chain: Chain, publish: Publisher, tmp_path: Path) -> None:
    publish(chain, {"a": 1})
    (run,) = chain.lineage(OPERATOR, 0)
    data = chain.location.read(run.file) or b""
    chain.location.write(run.file, data[:-9] + b"!" + data[-8:])
    with pytest.raises(CorruptStoreError, match=run.file):
        _open(chain, tmp_path)


def test_a_shard_without_a_run_is_an_empty_store(chain: Chain, tmp_path: Path) -> None:
    with open_cache(_plan(chain, tmp_path), 0) as store:
        assert store.checkpoints() == []


@pytest.mark.parametrize("names", [("à1", "ก"), ("a b", "a%20b"), ("ab" * 90, "ab" * 91), ("é" * 80, "é" * 81)])
def test_no_two_operators_share_a_folder(names: tuple[str, str]) -> None:
    first, second = map(folder_name, names)
    assert first != second
    assert len(f"{first}{second}".encode()) <= 2 * LONGEST_NAME


@pytest.mark.parametrize("operator", [folder_name("op/é€"), folder_name("é" * 80), "named-as-once-%2f%20ac"])
def test_caches_that_nobody_opens_go(chain: Chain, publish: Publisher, tmp_path: Path, operator: str) -> None:
    publish(chain, {"a": 1})
    _open(chain, tmp_path)
    (kept,) = _files(tmp_path)
    past = tmp_path / "cache" / str(uuid4()) / f"{operator}-0"
    old, young = past / f"{uuid4().hex}.db", past / f"{uuid4().hex}.db"
    private, scratch = past / f"private-{uuid4().hex}-a_b_c_d1", tmp_path / "cache" / f"private-{uuid4().hex}-01234567"
    for folder in (private, scratch):
        folder.mkdir(parents=True)
    for path in (old, young, past / f"{old.name}-wal", private / "x.db", scratch / "0.db"):
        path.touch()
    for path in (old, private, scratch):
        os.utime(path, (1, 1))
    sweep.cache_clear()
    _open(Chain.open_or_create(location_at(tmp_path / "another"), 1), tmp_path)
    assert [*past.iterdir()] == [young]
    assert kept.exists()
    assert not scratch.exists()


def test_what_others_keep_beside_the_caches_stays(tmp_path: Path) -> None:
    space, shard, file = str(uuid4()), f"{OPERATOR}-0", f"{uuid4().hex}.db"
    others = [
        tmp_path / name
        for name in (
            "app/data/state.db",
            f"app/{shard}/{file}",
            f"{space}/data/{file}",
            f"{space}/{shard}/state.db",
            f"{space}/{shard}/{file}.bak",
            f"{space}/{shard}/deeper/{file}",
            f"{space}-old/{shard}/{file}",
            "private-keys/id",
            "private-projects/id",
            f"app/{shard}/private-{uuid4().hex}-01234567/id",
        )
    ]
    for path in others:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for path in tmp_path.rglob("*"):
        os.utime(path, (1, 1))
    sweep.cache_clear()
    sweep(tmp_path)
    assert all(path.is_file() for path in others)


def test_a_scratch_folder_is_gone_afterwards_and_old_ones_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OBJECTSPACE_CACHE", str(tmp_path / "cache"))
    with scratch_folder() as folder:
        name = folder.name
    folder.mkdir()
    os.utime(folder, (1, 1))
    sweep.cache_clear()
    with scratch_folder() as folder:
        (folder / "x.db").touch()
        assert folder.name != name
        assert [*(tmp_path / "cache").iterdir()] == [folder]
    assert [*(tmp_path / "cache").iterdir()] == []


def test_a_cache_folder_that_cannot_be_made_is_named(chain: Chain, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    with pytest.raises(CheckpointError, match="set OBJECTSPACE_CACHE"):
        _open(chain, tmp_path)


def test_a_cache_that_its_disk_has_no_room_for_is_named(chain: Chain, publish: Publisher, tmp_path: Path) -> None:
    publish(chain, {"a": 1})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (PAGE_BYTES, limits[1]))
    try:
        with pytest.raises(StoreFailedError, match=r"cache folder .*make room there, or set OBJECTSPACE_CACHE") as said:
            _open(chain, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "reopen" not in str(said.value), "there is no store that the caller could open again"
    assert _files(tmp_path) == []
    assert _open(chain, tmp_path) == {"a": "1"}


@pytest.mark.parametrize("is_there", [False, True])
def test_a_cache_that_fills_its_disk_is_named_and_one_that_is_half_made_gone(
    chain: Chain, publish: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    def on_a_full_disk(store: CheckpointStore, *arguments: Any) -> bool:
        store.session.connection.execute("PRAGMA max_page_count = 20")
        return catch_up(store, *arguments)

    publish(chain, {"a": 1})
    if is_there:
        _open(chain, tmp_path)
    publish(chain, dict.fromkeys(map(str, range(1000)), "x" * 200))
    with monkeypatch.context() as patch:
        patch.setattr(cache, "catch_up", on_a_full_disk)
        with pytest.raises(StoreFailedError, match=r"cache folder .*make room there, or set OBJECTSPACE_CACHE"):
            _open(chain, tmp_path)
    assert len(_files(tmp_path)) == is_there
    assert len(_open(chain, tmp_path)) == 1001


@pytest.mark.parametrize("is_there", [False, True])
def test_a_cache_that_is_removed_while_it_catches_up_says_to_try_again(
    chain: Chain, publish: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    def as_it_is_removed(store: CheckpointStore, *arguments: Any) -> bool:
        shutil.rmtree(tmp_path / "cache")
        return catch_up(store, *arguments)

    publish(chain, {"a": 1})
    if is_there:
        _open(chain, tmp_path)
    publish(chain, {"a": 2})
    with monkeypatch.context() as patch:
        patch.setattr(cache, "catch_up", as_it_is_removed)
        with pytest.raises(CheckpointError, match=r"^cache .*\.db was removed while it was open: try again"):
            _open(chain, tmp_path)
    assert _open(chain, tmp_path) == {"a": "2"}


def test_a_cache_that_is_of_no_use_here_is_left_to_whoever_has_it_open(
    chain: Chain, publish: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(chain, {"a": 1})
    _open(chain, tmp_path)
    with CheckpointStore(_files(tmp_path)[0]) as held:
        # A process that cannot open it at all knows nothing of its lock.
        monkeypatch.setattr(cache, "_opened", Mock(side_effect=CheckpointError("has format 99")))
        assert _open(chain, tmp_path) == {"a": "1"}
        assert held.append(run_of({"a": 2})).number == 2, "its file is there"
        monkeypatch.undo()
        discard(Path(held.path))
        assert Path(held.path).exists()
    discard(Path(held.path))
    assert _files(tmp_path) == []


def test_caches_in_the_folder_of_another_user_are_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OBJECTSPACE_CACHE", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    root = cache_root()
    root.chmod(0o775)
    assert cache_root().stat().st_mode & 0o077 == 0
    root.rename(tmp_path / "elsewhere")
    root.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match=rf"cache folder {root} is a link: .* set OBJECTSPACE_CACHE to a folder"):
        cache_root()
    root.unlink()
    root.mkdir()
    found = root.lstat()
    for ask in ("getuid", "geteuid"):
        monkeypatch.setattr(os, ask, lambda: found.st_uid + 1)
    (tmp_path / f"objectspace-{found.st_uid + 1}").mkdir()
    with pytest.raises(CheckpointError, match=f"belongs to user {found.st_uid}: whoever made it decides what is read"):
        cache_root()


def test_a_cache_folder_that_is_read_only_from_now_on_is_named(
    chain: Chain, publish: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    publish(chain, {"a": 1})
    _open(chain, tmp_path)
    (kept,) = _files(tmp_path)
    kept.write_bytes(b"no store")
    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(CheckpointError, match=f"cache folder {kept.parent}: Permission denied: set OBJECTSPACE_CACHE"):
        _open(chain, tmp_path)


def test_a_cache_folder_that_goes_while_an_image_is_noted_is_named(
    chain: Chain, publish: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        publish(chain, {"a": number})
    publish(chain, {"a": 3}, images=[write_image(_plan(chain, tmp_path), 0)])
    (kept,) = _files(tmp_path)
    monkeypatch.setattr(Path, "write_text", Mock(side_effect=FileNotFoundError(2, "No such file or directory")))
    with pytest.raises(CheckpointError, match=f"cache folder {kept.parent}: No such file or directory: set OBJECTS"):
        _open(chain, tmp_path)


def test_a_task_makes_no_other_folder_where_that_of_its_space_is_gone(publish: Publisher, tmp_path: Path) -> None:
    chain = Chain.open_or_create(location_at(tmp_path / "space"), 1)
    publish(chain, {"a": 1})
    plan = chain.operator_plan(OPERATOR)
    root = tmp_path / "space"
    away = root.rename(root.with_name("away"))
    with pytest.raises(FencedError, match=r"the folder is gone: .* put it back"):
        save_run(plan, 0, run_of({"a": 2}))
    assert not root.exists()
    away.rename(root)
    assert publish(chain, {"a": 3}).epoch == 2


def test_an_unchanged_shard_writes_no_file(chain: Chain, publish: Publisher, location: Location) -> None:
    publish(chain, {"a": 1})
    before = location.names("run")
    publish(chain, {})
    assert location.names("run") == before
    assert Run(chain.operator_plan(OPERATOR).kind(0)).is_empty()


def test_a_name_that_no_file_system_takes_has_a_cache_all_the_same(location: Location, tmp_path: Path) -> None:
    plans = [OperatorPlan(location, "space", f"{'a' * 300}{end}", 1, ((),), cache=str(tmp_path)) for end in ("x", "y")]
    paths = set()
    for plan in plans:
        with open_cache(plan, 0) as store:
            paths.add(Path(store.path).parent)
    assert len(paths) == 2


def test_who_reads_while_a_run_is_not_accepted_yet_gets_the_cache(
    chain: Chain, publish: Publisher, tmp_path: Path
) -> None:
    publish(chain, {"a": 1})
    publish(chain, {"a": 2})
    with open_cache(_plan(chain, tmp_path), 0) as store:
        store.apply(run_of({"a": 3}), 3)
    (kept,) = _files(tmp_path)
    with open_cache(_plan(chain, tmp_path), 0) as store:
        assert (store.path, _content(store)) == (str(kept), {"a": "2"})
