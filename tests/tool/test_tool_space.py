"""Commands on a whole space of shards: what every shard holds, at an epoch that not every shard wrote."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from checkpoint import CheckpointError, CheckpointKind, RunWriter
from checkpoint.chain import (
    Chain,
    Location,
    SourcePosition,
    SpaceFile,
    location_at,
    open_cache,
    save_run,
    write_image,
)
from checkpoint.chain.founding import CLAIM, SPACE_FILE
from checkpoint.chain.local_location import LocalLocation
from checkpoint.chain.location import PROBE
from checkpoint.chain.runfile import write_pages
from checkpoint.tool.copying import Copied, fork_space, restore_space
from checkpoint.tool.report import collect
from checkpoint.tool.source import Source
from objectspace import PersistedObjectSpace
from objectspace.kvt import KeyValueTableConfiguration, KeyValueTableManager
from tests.chain.chain_helpers import OPERATOR, Publisher, run_of
from tests.chain.faulty_location import FaultyLocation, T, crash_points
from tests.tool.conftest import Tool, rows, state


def ignored(done: int, total: int) -> None:
    """Take note of no progress."""


@pytest.fixture(scope="session")
def long_space_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the space that each test gets a copy of."""
    folder = tmp_path_factory.mktemp("long")
    publish, chain = Publisher(folder / "caches"), Chain.open_or_create(location_at(folder / "space"), 3)
    for epoch in range(1, 31):
        shards = [{f"k{shard}": epoch} if epoch % (shard + 1) == 0 or epoch == 1 else {} for shard in range(3)]
        publish(chain, *shards, full_after=5)  # type: ignore[arg-type]
    return folder / "space"


@pytest.fixture
def long_space(long_space_once: Path, tmp_path: Path) -> Path:
    """Return a space of three shards and 30 epochs with full runs in between; each epoch leaves some shards alone."""
    return shutil.copytree(long_space_once, tmp_path / "long")


def expected(epoch: int) -> dict[str, int]:
    return {f"k{shard}": max(e for e in range(1, epoch + 1) if e % (shard + 1) == 0 or e == 1) for shard in range(3)}


@pytest.fixture(params=["folder", "memory"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """A location that holds nothing yet, on disk and in memory."""
    return location_at(tmp_path / "target" if request.param == "folder" else f"memory://{uuid4().hex}/target")


def files_in(location: Location) -> list[str]:
    return [name.rpartition("/")[2] for name in paths_in(location)]


def paths_in(location: Location) -> list[str]:
    folders = ("", "manifest/", "run/", "floor/")
    return [f"{folder}{name}" for folder in folders for name in location.names(folder[:-1]) if "." in name]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("copy", [fork_space, restore_space])
def test_a_copy_of_a_space_that_fails_anywhere_leaves_nothing(
    target: Location, tmp_path: Path, copy: Callable[..., Copied], late: bool
) -> None:
    publish, chain = Publisher(tmp_path / "caches"), Chain.open_or_create(location_at(tmp_path / "space"), 1)
    for number in range(3):
        publish(chain, {"a": number})
    shards = [[(OPERATOR, 0)]] if copy is restore_space else []

    def work(location: Location) -> None:
        copy(chain, location, 3, *shards, (), ignored)

    whole = 0
    for _ in crash_points(target, work, late=late, lasting=False):
        if SPACE_FILE in files_in(target):
            assert Chain.open(target).epoch == 3
            assert (CLAIM in files_in(target)) is not late
            for name in paths_in(target):
                target.delete(name)
            whole += 1
        # Where exclusive puts are tried on a remote location something stays, which is no file of a space.
        assert [name for name in files_in(target) if name != PROBE] == []
    assert (whole, Chain.open(target).epoch) == (1, 3)


def test_a_copy_that_cannot_be_taken_back_stays_whole(target: Location, tmp_path: Path) -> None:
    publish, chain = Publisher(tmp_path / "caches"), Chain.open_or_create(location_at(tmp_path / "space"), 1)
    publish(chain, {"a": 1})
    counting = FaultyLocation(location_at(tmp_path / "counted"), 10**6)
    fork_space(chain, counting, 1, (), ignored)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match="injected"):
        fork_space(chain, FaultyLocation(target, counting.seen, True, True), 1, (), ignored)  # type: ignore[arg-type]
    assert Chain.open(target).operator_plan(OPERATOR).lineages[0] == chain.lineage(OPERATOR, 0)
    with open_cache(Chain.open(target).operator_plan(OPERATOR, cache=str(tmp_path / "cache")), 0) as store:
        assert [item.value for item in store.reader().items(1)] == ["1"]


def test_no_space_is_founded_on_what_is_left_of_a_copy(target: Location, tmp_path: Path) -> None:
    publish, chain = Publisher(tmp_path / "caches"), Chain.open_or_create(location_at(tmp_path / "space"), 1)
    publish(chain, {"a": 1})
    copies = (
        lambda: fork_space(chain, target, 1, (), ignored),  # type: ignore[arg-type]
        lambda: restore_space(chain, target, 1, [(OPERATOR, 0)], (), ignored),  # type: ignore[arg-type]
    )
    target.write("run/left.parquet", b"")
    for found in (lambda: Chain.open_or_create(target, 1), *copies):
        with pytest.raises(
            CheckpointError, match=r"files in run, and no space\.json: they are left by a copy .*: remove"
        ):
            found()
    target.write("notes.txt", b"")
    for copy in copies:
        with pytest.raises(CheckpointError, match="exists: a copy overwrites nothing; name another location"):
            copy()
    for name in ("run/left.parquet", "notes.txt"):
        target.delete(name)
    assert Chain.open_or_create(target, 1).epoch == 0


SHARD = [(OPERATOR, 0)]
Copy = Callable[[Chain, Location, Callable[[int, int], None]], Copied]
COPIES: dict[str, Copy] = {
    "fork 3": lambda chain, target, show: fork_space(chain, target, 3, (), show),  # type: ignore[arg-type]
    "fork 2": lambda chain, target, show: fork_space(chain, target, 2, (), show),  # type: ignore[arg-type]
    "restore 3": lambda chain, target, show: restore_space(chain, target, 3, SHARD, (), show),  # type: ignore[arg-type]
    "restore 2": lambda chain, target, show: restore_space(chain, target, 2, SHARD, (), show),  # type: ignore[arg-type]
}


@pytest.fixture
def three(tmp_path: Path) -> Chain:
    """Return a space of one shard and three epochs, for copies."""
    publish, chain = Publisher(tmp_path / "caches"), Chain.open_or_create(location_at(tmp_path / "space"), 1)
    for number in range(3):
        publish(chain, {"a": number, f"k{number}": number})
    return chain


def require_whole(target: Location, cache: Path, epoch: int) -> None:
    copy = Chain.open(target)
    assert [manifest.epoch for manifest in copy.manifests()][-1] == copy.epoch == epoch
    with open_cache(copy.operator_plan(OPERATOR, cache=str(cache)), 0) as store:
        store.verify()
        assert {item.slot: item.value for item in store.reader().items(1)}["a"] == str(epoch - 1)


class During(FaultyLocation):
    """Does something else before its n-th operation, and fails only if that does."""

    def __init__(self, inner: Location, at: int, work: Callable[[], object]) -> None:
        super().__init__(inner, at)
        self.work = work

    def place(self) -> tuple[object, str]:
        return self.inner.place()

    def _try(self, work: Callable[[], T]) -> T:
        self.seen += 1
        if self.seen == self.at:
            self.work()
        return work()


@pytest.mark.parametrize(
    ("first", "second"),
    [("fork 3", "fork 3"), ("restore 3", "restore 2"), ("fork 3", "fork 2"), ("fork 2", "restore 3")],
)
def test_of_two_copies_to_one_place_the_one_that_is_told_of_success_is_whole(
    three: Chain, tmp_path: Path, first: str, second: str
) -> None:
    at, won = 0, set[str]()
    while True:
        at += 1
        target, told = location_at(f"memory://{uuid4().hex}/{at}"), list[str]()

        def copy(name: str, location: Location, told: list[str] = told) -> None:
            with suppress(CheckpointError):
                COPIES[name](three, location, ignored)
                told.append(name)

        during = During(target, at, lambda target=target, copy=copy: copy(second, target))
        copy(first, during)
        if during.seen < at:
            break
        (winner,) = told
        require_whole(target, tmp_path / "caches of copies" / str(at), int(winner[-1]))
        assert [name for name in files_in(target) if name.endswith("claim")] == []
        won.add(winner)
    assert won == {first, second}


@pytest.mark.parametrize(("first", "second"), [("fork 3", "fork 3"), ("restore 3", "fork 3"), ("fork 3", "fork 2")])
def test_a_copy_that_was_taken_for_dead_leaves_the_one_that_took_its_place_alone(
    three: Chain, tmp_path: Path, first: str, second: str
) -> None:
    at, is_named = 0, False
    while True:
        at += 1
        target, made = location_at(f"memory://{uuid4().hex}/{at}"), list[Copied]()

        def copy_again(target: Location = target, made: list[Copied] = made) -> None:
            if SPACE_FILE not in files_in(target):
                for name in paths_in(target):
                    target.delete(name)
                made.append(COPIES[second](three, target, ignored))

        stopped = During(target, at, copy_again)
        try:
            COPIES[first](three, stopped, ignored)
        except CheckpointError as error:
            is_named |= f"the file {CLAIM} of this copy was removed meanwhile" in str(error)
        if stopped.seen < at:
            break
        assert len(made) == 1
        require_whole(target, tmp_path / "caches of copies" / str(at), int(second[-1]))
        written = len(target.names("run"))
        Chain.open(target).collect(grace_seconds=0)
        assert written >= made[0].files == len(target.names("run"))
    assert (is_named, at > 10) == (True, True)


@pytest.mark.parametrize("copy", COPIES)
def test_a_space_that_is_founded_where_a_copy_is_under_way_stays_as_it_is(
    three: Chain, tmp_path: Path, copy: str
) -> None:
    publish, at = Publisher(tmp_path / "others"), 0
    while True:
        at += 1
        target, founded = location_at(f"memory://{uuid4().hex}/{at}"), list[bool]()

        def found(target: Location = target, founded: list[bool] = founded) -> None:
            founded.append(SpaceFile(str(uuid4()), 1).found_at(target))  # It has looked at the place before.
            with suppress(CheckpointError):
                while founded[0] and Chain.open(target).epoch < 2:
                    publish(Chain.open(target), {"a": 1}, full_after=0)
                Chain.open(target).collect(0, 1)

        during = During(target, at, found)
        with suppress(CheckpointError):
            COPIES[copy](three, during, ignored)
        if during.seen < at:
            break
        while Chain.open(target).epoch < 2:
            publish(Chain.open(target), {"a": 1}, full_after=0)
        require_whole(target, tmp_path / "caches of copies" / str(at), 2 if founded[0] else int(copy[-1]))
        assert [name for name in files_in(target) if name.endswith("claim")] == []
    assert at > 10


@pytest.mark.parametrize("left", [[CLAIM], ["run/left.parquet", CLAIM]])
def test_a_copy_that_was_cut_off_says_what_to_remove(three: Chain, target: Location, left: list[str]) -> None:
    for name in left:
        target.write(name, b"")
    those = ", ".join(name.partition("/")[0] for name in left)
    told = f"there is the file {CLAIM}: .*; if no copy is under way, remove {those}; if it is .* restore that"
    for found in (lambda: Chain.open_or_create(target, 1), lambda: COPIES["restore 3"](three, target, ignored)):
        with pytest.raises(CheckpointError, match=told):
            found()
    for name in left:
        target.delete(name)
    COPIES["restore 3"](three, target, ignored)


HIDDEN = "import sys; sys.modules['fsspec'] = None; from checkpoint.tool.command import main; main()"


@pytest.mark.parametrize("command", [["verify"], ["restore", "new"], ["ls"]])
def test_what_a_space_takes_and_is_not_installed_is_named(tmp_path: Path, command: list[str]) -> None:
    name, *target = command
    done = subprocess.run([sys.executable, "-c", HIDDEN, name, tmp_path, *target], capture_output=True, text=True)
    assert (
        done.stderr
        == "error: a space of shards takes fsspec, which is not installed: pip install 'objectspace[arrow]'\n"
    )


@pytest.mark.parametrize("epoch", [1, 2, 5, 12, 29, 30])
def test_the_state_of_all_shards_at_an_epoch(tool: Tool, long_space: Path, epoch: int) -> None:
    assert state(tool, long_space, epoch) == expected(epoch)
    (listed,) = rows(tool, "ls", long_space, f"@{epoch}", "--json")
    assert (listed["operator"], listed["name"], listed["length"], listed["shards"]) == (OPERATOR, "counts", 3, 3)


@pytest.mark.parametrize(("a", "b"), [(1, 2), (3, 30), (30, 3), (12, 13), (7, 7)])
def test_a_diff_of_all_shards(tool: Tool, long_space: Path, a: int, b: int) -> None:
    before, after = expected(a), expected(b)
    found = {row["key"]: (row["old"], row["new"]) for row in rows(tool, "diff", long_space, a, b, "--json")}
    assert found == {key: (before[key], after[key]) for key in before if before[key] != after[key]}


def test_blame_names_the_epoch_that_wrote_last(tool: Tool, long_space: Path) -> None:
    # A full run has every slot, so that it counts as the one that wrote those that did not change.
    found = {row["key"]: row["epoch"] for row in rows(tool, "blame", long_space, "counts", "--json")}
    assert all(found[key] >= epoch for key, epoch in expected(30).items())
    assert found["k0"] == 30


def test_a_restored_space_has_one_epoch_with_all_of_the_state(tool: Tool, long_space: Path, tmp_path: Path) -> None:
    done = tool("restore", long_space, tmp_path / "then", 17, "--json")
    assert json.loads(done.output)["shards"] == 3
    assert state(tool, tmp_path / "then") == expected(17)
    assert [row["epoch"] for row in rows(tool, "log", tmp_path / "then", "--json")] == [17]
    assert "17 is the only one that can be read, as after a restore" in tool("diff", tmp_path / "then").stderr
    advice = f"use checkpoint diff {tmp_path / 'then'} --shard 1 0 HEAD, which"
    assert advice in tool("diff", tmp_path / "then", "--shard", 1).stderr
    assert tool("verify", tmp_path / "then").exit_code == 0
    assert tool("restore", long_space, tmp_path / "then", 17).exit_code == 2
    assert "there is no object 'x'" in tool("restore", long_space, tmp_path / "no", "--object", "x").stderr
    assert not (tmp_path / "no" / "space.json").exists()


def test_a_forked_space_goes_on(tool: Tool, long_space: Path, tmp_path: Path) -> None:
    assert tool("fork", long_space, tmp_path / "fork", 17).exit_code == 0
    assert state(tool, tmp_path / "fork") == expected(17)
    assert state(tool, tmp_path / "fork", 4) == expected(4)
    chain = Chain.open(location_at(tmp_path / "fork"))
    assert chain.incarnation != Chain.open(location_at(long_space)).incarnation
    publisher = Publisher(tmp_path / "more")
    publisher._state = {(chain.incarnation, shard): {f"k{shard}": expected(17)[f"k{shard}"]} for shard in range(3)}
    publisher(chain, {"k0": 18}, {}, {})
    assert state(tool, tmp_path / "fork") == {**expected(17), "k0": 18}
    assert tool("verify", tmp_path / "fork").exit_code == 0
    assert state(tool, long_space) == expected(30)


@pytest.mark.parametrize("command", ["fork", "restore"])
def test_a_copy_does_not_lie_inside_of_the_space(tool: Tool, long_space: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "link").symlink_to(long_space)
    for inner in (long_space / "inner", tmp_path / "link" / "run" / "inner"):
        refused = tool(command, long_space, inner)
        assert (refused.exit_code, "lies inside of the space at" in refused.stderr) == (2, True)
        assert not inner.exists()
    assert tool(command, long_space, f"{long_space}-beside").exit_code == 0


@pytest.mark.parametrize("command", ["fork", "restore"])
def test_a_copy_onto_a_file_system_that_cannot_publish_says_so(tool: Tool, long_space: Path, command: str) -> None:
    refused = tool(command, long_space, "sftp://host/copy")
    assert (refused.exit_code, "cannot create a file only where it is absent" in refused.stderr) == (2, True)


@pytest.mark.parametrize("outer", ["memory://", "memory://outer"])
def test_a_copy_does_not_lie_inside_of_the_space_however_that_is_spelt(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outer: str
) -> None:
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    Publisher(tmp_path)(Chain.open_or_create(location_at(outer), 1), {"a": 1})
    refused = tool("fork", outer, "memory:///outer/inner")
    assert (refused.exit_code, "lies inside of the space at" in refused.stderr) == (2, True)


def test_a_fork_of_a_space_whose_first_epochs_are_gone(tool: Tool, long_space: Path, tmp_path: Path) -> None:
    assert tool("gc", long_space, "--grace", 0, "--keep-epochs", 4).exit_code == 0
    assert tool("fork", long_space, tmp_path / "fork", 28).exit_code == 0
    assert state(tool, tmp_path / "fork", 27) == expected(27)
    assert "has no epoch @26: there are 27 to 28" in tool("show", tmp_path / "fork", "counts@26").stderr


def test_a_dry_collection_says_what_the_real_one_does(tool: Tool, long_space: Path) -> None:
    files = sorted(path for path in long_space.rglob("*") if path.is_file())
    (said,) = rows(tool, "gc", long_space, "--grace", 0, "--keep-epochs", 3, "--dry-run", "--json")
    assert sorted(path for path in long_space.rglob("*") if path.is_file()) == files
    (done,) = rows(tool, "gc", long_space, "--grace", 0, "--keep-epochs", 3, "--json")
    assert said["runs"] > 0
    assert {**said, "dry_run": False} == done
    assert state(tool, long_space) == expected(30)


def test_a_collection_that_fails_says_why(tool: Tool, long_space: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(location: LocalLocation, name: str) -> None:
        raise CheckpointError(f"cannot delete {name}")

    monkeypatch.setattr(LocalLocation, "delete", refuse)
    for _ in range(2):
        found = tool("gc", long_space, "--keep-epochs", 2, "--grace", 0)
        assert (found.exit_code, "error: cannot delete run/" in found.stderr) == (2, True)


def test_a_graph_of_shards(tool: Tool, long_space: Path) -> None:
    found = tool("log", long_space, "--graph", "-n", 0).output.splitlines()
    assert found[0] == "columns 1 to 3: counter, shards 0 to 2"
    assert found[-1].startswith("◆ ◆ ◆  epoch 1 ")
    for line in found[1:-1]:
        epoch = int(line.split("epoch ")[1].split()[0])
        marks = [mark != "│" for mark in line[:5].split()]
        assert marks == [epoch % (shard + 1) == 0 for shard in range(3)]


def test_bisect_on_a_space(tool: Tool, long_space: Path) -> None:
    check = "import json, sys; sys.exit(sum(json.loads(line)['value'] for line in sys.stdin) >= 9 + 8 + 9)"
    found = tool("bisect", long_space, "--input", "counts", "--json", "--", sys.executable, "-c", check)
    assert json.loads(found.stdout)["epoch"] == 9
    newest = ["sh", "-c", "! ls {}/manifest | grep -qE '0(9|10).json'"]
    forked = tool("bisect", long_space, "--good", 7, "--bad", 10, "--json", "--", *newest)
    assert json.loads(forked.stdout)["epoch"] == 9


def test_what_a_command_advises_is_about_the_shards_that_were_chosen(tool: Tool, long_space: Path) -> None:
    chosen = ["--operator", OPERATOR, "--shard", "1"]
    command = ["--good", 22, "--bad", 23, "--", "sh", "-c", "! ls {}/manifest | grep -q 23"]
    advised = f"checkpoint diff {long_space} --operator {OPERATOR} --shard 1"
    assert f"\nsee: {advised} 22 23\n" in tool("bisect", long_space, *chosen, *command).output
    assert f"use {advised} HEAD~1 HEAD counts\n" in tool("diff", long_space, *chosen, "counts").stderr
    assert f"{advised.replace('diff', 'show')} counts`\n" in tool("blame", long_space, *chosen, "counts[none]").stderr
    assert tool(*advised.split()[1:], 22, 23).exit_code == 0


class Place(tuple[str, int]):
    """A shard that counts how often it is compared with another one."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Place.compared += 1
        return super().__eq__(other)

    __hash__ = tuple.__hash__


@pytest.mark.parametrize("command", ["log {} -n 0", "top {} --count 1", "report {} {}.html"])
def test_the_runs_of_an_epoch_are_not_compared_with_every_shard(
    tool: Tool, long_space: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    shards = Source.shards
    monkeypatch.setattr(Source, "shards", lambda *arguments: [*map(Place, shards(*arguments))])
    monkeypatch.setattr(Place, "compared", 0)
    assert tool(*command.replace("{}", str(long_space)).split()).exit_code == 0
    runs = sum(len(manifest.runs) for manifest in Chain.open(location_at(long_space)).manifests())
    assert Place.compared <= runs


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "arrow", "db"])
def test_an_export_of_all_shards(tool: Tool, long_space: Path, tmp_path: Path, ending: str) -> None:
    target = tmp_path / f"counts.{ending}"
    assert tool("export", long_space, "counts", target, "@12").output.endswith(": 3 rows\n")
    new = tmp_path / f"{ending}-new.db"
    assert tool("import", new, target, "counts", "--key", "key").exit_code == 0
    assert {row["key"]: row["value"]["value"] for row in rows(tool, "show", new, "counts", "--format", "json")} == (
        expected(12)
    )


def test_damage_of_a_space_is_found(tool: Tool, long_space: Path) -> None:
    assert rows(tool, "verify", long_space, "--json")[0]["run_files"] > 30
    victim = sorted((long_space / "run").iterdir())[0]
    victim.write_bytes(victim.read_bytes()[:-7])
    found = tool("verify", long_space)
    assert (found.exit_code, victim.name in found.stderr) == (2, True)
    victim.unlink()
    assert "is missing" in tool("verify", long_space).stderr


def test_an_image_that_is_not_what_its_runs_give_is_found(tool: Tool, tmp_path: Path) -> None:
    publish, chain = Publisher(tmp_path / "caches"), Chain.open_or_create(location_at(tmp_path / "space"), 1)
    for number in range(4):
        publish(chain, {"a": number, f"k{number}": number})
    plan = chain.operator_plan(OPERATOR, cache=str(tmp_path / "caches"))
    image = write_image(plan, 0)
    publish(chain, {"a": 4}, images=[image])
    assert tool("verify", tmp_path / "space").output.endswith("; 1 image, same as the runs they replace\n")
    with open_cache(plan, 0) as store:
        wrong = [(place, [(*row[:2], "7", *row[3:]) for row in rows]) for place, rows in store.reader().image_pages()]
    other = write_pages(chain.location, [(0, [(1, "counts", "Dictionary", None)]), wrong[-1]], OPERATOR, 0, 4)
    manifest = replace(chain.newest, images=(replace(other, replaces=image.replaces),))  # type: ignore[type-var]
    chain.location.write("manifest/000000000005.json", manifest.to_json())
    found = tool("verify", tmp_path / "space")
    assert (found.exit_code, "of counter/0 at epoch 4 has" in found.stderr) == (2, True)
    assert tool("fork", tmp_path / "space", tmp_path / "fork", 4).exit_code == 0
    assert state(tool, tmp_path / "fork")["a"] == 3


@pytest.mark.parametrize("is_missing", [False, True])
def test_a_fork_has_the_runs_that_a_damaged_image_takes_the_place_of(
    tool: Tool, tmp_path: Path, is_missing: bool
) -> None:
    path, publish = tmp_path / "space", Publisher(tmp_path / "caches")
    chain = Chain.open_or_create(location_at(path), 1)
    for number in range(1, 9):
        plan = chain.operator_plan(OPERATOR, cache=str(tmp_path / "caches"))
        # The second one is made of the first.
        images = [write_image(plan, 0)] if number in (4, 7) else []
        publish(chain, {"a": number, f"k{number}": number}, images=images)
    named = {run.file for manifest in chain.manifests() for run in manifest.images}
    assert len(named) == 2
    wanted = state(tool, path)
    for name in named:
        (path / name).unlink() if is_missing else (path / name).write_bytes(b"damaged")
    said = tool("verify", path).stderr
    assert "fork the space: in its place the copy has the runs that it was made of, if these are there" in said
    assert tool("fork", path, tmp_path / "fork").exit_code == 0
    assert state(tool, tmp_path / "fork") == wanted
    assert tool("verify", tmp_path / "fork").exit_code == 0
    fork = Chain.open(location_at(tmp_path / "fork"))
    assert len(fork.lineage(OPERATOR, 0)) == fork.epoch == 8
    publish(fork, {"a": 9})
    assert state(tool, tmp_path / "fork") == {**wanted, "a": 9}


def test_a_fork_does_not_read_what_came_after_its_epoch(tool: Tool, long_space: Path, tmp_path: Path) -> None:
    (long_space / "manifest" / "000000000018.json").write_bytes(b"damaged")
    assert tool("fork", long_space, tmp_path / "fork", 17).exit_code == 0
    assert state(tool, tmp_path / "fork") == expected(17)


def test_doctor_tells_of_a_run_file_that_is_missing(tool: Tool, long_space: Path) -> None:
    assert tool("doctor", long_space).exit_code == 0
    victim = Chain.open(location_at(long_space)).lineage(OPERATOR, 0)[0].file
    (long_space / victim).unlink()
    found = tool("doctor", long_space)
    assert found.exit_code == 2
    assert f"1 run file missing that readable epochs need, as {victim}: run `checkpoint verify" in found.output


READING = ("verify {}", "log {} -n 0", "doctor {}", "report {} {}.html", "fork {} {}-fork", "show {} counts@7")


@pytest.mark.parametrize(
    ("command", "name"), [("doctor {}", "run"), *((command, "manifest/000000000007.json") for command in READING)]
)
def test_a_command_says_that_what_it_reads_was_collected_meanwhile(
    tool: Tool, long_space: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    method = "names" if name == "run" else "read"
    look = getattr(LocalLocation, method)

    def _look(location: LocalLocation, wanted: str) -> Any:
        if wanted == name:
            monkeypatch.undo()
            Chain.open(location).collect(0, 1)
        return look(location, wanted)

    monkeypatch.setattr(LocalLocation, method, _look)
    answer = tool(*command.replace("{}", str(long_space)).split())
    assert answer.exit_code == 2
    assert f"{long_space}: the epochs before 30 were collected while they were read: run it again" in answer.output


@pytest.mark.parametrize("command", ["report {} {}/page.html", "top {} --count 1", "doctor {}"])
def test_the_other_commands_take_a_space(tool: Tool, long_space: Path, command: str) -> None:
    found = tool(*command.replace("{}", str(long_space)).split(), "--json")
    assert found.exit_code in (0, 2), found.stderr
    assert isinstance(json.loads(found.stdout), dict)


def test_a_space_in_another_file_system(tool: Tool) -> None:
    url = "memory://tool-space"
    chain = Chain.open_or_create(location_at(url), 1)
    with TemporaryDirectory() as folder:
        publish = Publisher(Path(folder))
        publish(chain, {"a": 1})
        publish(chain, {"a": 2})
    assert [row["epoch"] for row in rows(tool, "log", url, "--json")] == [2, 1]
    assert state(tool, url, 1) == {"a": 1}
    assert tool("fork", url, "memory://tool-fork").exit_code == 0
    assert state(tool, "memory://tool-fork") == {"a": 2}
    assert tool("verify", url).exit_code == 0
    assert tool("restore", url, "memory://tool-then", 1).exit_code == 0
    assert state(tool, "memory://tool-then") == {"a": 1}


def test_lengths_of_a_space_are_those_of_all_its_shards_at_an_epoch(tmp_path: Path) -> None:
    publish, chain = Publisher(tmp_path / "caches"), Chain.open_or_create(location_at(tmp_path / "space"), 2)
    for epoch in range(1, 11):
        publish(chain, {f"a{epoch}": 1}, {f"b{epoch}": 1} if epoch % 3 == 1 else {})
    (growth,) = collect(Source(str(tmp_path / "space"))).growth()
    assert growth.points == [(epoch, epoch + 1 + (epoch - 1) // 3) for epoch in range(1, 11)]
    assert (growth.name, growth.rate, growth.only_grows) == (f"{OPERATOR}: counts", (14 - 2) / 9, True)


@pytest.fixture
def stock(tmp_path: Path) -> Path:
    """Return a space of two shards and four epochs, each of which puts a key of a table in both and logs it."""
    chain = Chain.open_or_create(location_at(tmp_path / "stock"), 2)
    for epoch in range(1, 5):
        plan = chain.begin(SourcePosition("q", epoch - 1), [OPERATOR], 64, str(tmp_path / "stock-cache"))
        assert plan is not None
        operator = plan.operators[OPERATOR]
        saved = []
        for shard in range(2):
            with open_cache(operator, shard) as store, PersistedObjectSpace(store) as space:
                manager = KeyValueTableManager(space)
                manager.create_scope("shop")
                manager.create_key_value_table("shop", "stock", KeyValueTableConfiguration(partition_count=2))
                table = manager.open_key_value_table("shop", "stock")
                space.get_or_create_list("log").append(epoch)
                table.put(b"even" if epoch % 2 == 0 else b"odd", str(epoch).encode(), key_family=f"f{shard}")
                writer = RunWriter(operator.kind(shard))
                space.save(writer)
                writer.commit()
                saved.append(save_run(operator, shard, writer.run))
        chain.publish(plan, {OPERATOR: saved})
    return tmp_path / "stock"


def test_a_key_value_table_in_shards(tool: Tool, stock: Path, tmp_path: Path) -> None:
    def values(*arguments: object) -> dict[tuple[str, str], str]:
        found = rows(tool, "show", *arguments, "--format", "json")
        return {(row["family"], row["key"]): row["value"] for row in found}

    assert values(stock, "shop/stock") == {(f, k): v for f in ("f0", "f1") for k, v in (("odd", "3"), ("even", "4"))}
    assert values(stock, "shop/stock@2", "--where", "family=f1") == {("f1", "odd"): "1", ("f1", "even"): "2"}
    changed = [row for row in rows(tool, "diff", stock, 2, 3, "shop/stock", "--json") if row["table"] == "item"]
    assert [(row["shard"][-1], row["key"]["key"], row["new"]["value"]) for row in changed] == [
        *(("0", "odd", "3"), ("1", "odd", "3")),
    ]
    blamed = {
        (row["key"]["family"], row["key"]["key"]): row["epoch"]
        for row in rows(tool, "blame", stock, "shop/stock", "--json")
    }
    assert blamed == {("f0", "odd"): 3, ("f0", "even"): 4, ("f1", "odd"): 3, ("f1", "even"): 4}
    (listed,) = (row for row in rows(tool, "ls", stock, "--tree", "--json") if row["kind"] == "KeyValueTable")
    assert (listed["length"], listed["shards"], sorted(one["shard"] for one in listed["owned"])) == (4, 2, [0, 1])
    assert "shard 1 " in tool("ls", stock, "--tree").output
    assert tool("restore", stock, tmp_path / "then", 2, "--object", "shop/stock").exit_code == 0
    assert values(tmp_path / "then", "shop/stock") == values(stock, "shop/stock@2")
    assert "did you mean 'shop/stock'?" in tool("show", stock, "shop/stoc").stderr


@pytest.mark.parametrize("kept", ["log", "kvt/shop/stock"])
def test_a_fork_of_some_objects_of_a_space(tool: Tool, stock: Path, tmp_path: Path, kept: str) -> None:
    everything = {row["name"] for row in rows(tool, "ls", stock, "--json")}
    assert tool("fork", stock, tmp_path / "fork", "@3", "--object", kept).exit_code == 0
    left = {row["name"] for row in rows(tool, "ls", tmp_path / "fork", "--json")}
    assert kept in left < everything
    assert not {"log", "kvt/shop/stock"} <= left
    for name, epoch in ((kept, 4), (kept, 3), ("log", 3)):
        before = tool("show", stock, f"{name}@{min(epoch, 3)}", "-n", 0)
        assert tool("show", tmp_path / "fork", f"{name}@{epoch}", "-n", 0).output == before.output != ""
    assert tool("verify", tmp_path / "fork").exit_code == 0
    chain = Chain.open(location_at(tmp_path / "fork"))
    assert chain.epoch == 4
    for shard in range(2):
        with open_cache(chain.operator_plan(OPERATOR, cache=str(tmp_path / "fork-cache")), shard) as store:
            assert store.verify() > 0
    missing = tool("fork", stock, tmp_path / "no", "--object", "lgo")
    assert (missing.exit_code, "there is no object 'lgo'" in missing.stderr) == (2, True)
    assert not (tmp_path / "no" / "space.json").exists()


def test_doctor_counts_the_files_that_no_epoch_needs(tool: Tool, long_space: Path) -> None:
    assert tool("gc", long_space, "--keep-epochs", 12, "--grace", 0).exit_code == 0
    assert json.loads(tool("doctor", long_space, "--json").output)["run files that no readable epoch names"] == 0
    (long_space / "run" / "orphan.parquet").touch()
    assert json.loads(tool("doctor", long_space, "--json").output)["run files that no readable epoch names"] == 1


@pytest.mark.parametrize(("limit", "said"), [(0, "Dictionary of 3\n"), (1, "Dictionary of 1 or more\n")])
def test_a_count_says_whether_all_shards_were_read(tool: Tool, long_space: Path, limit: int, said: str) -> None:
    assert tool("show", long_space, "counts", "-n", limit).output.startswith(f"counts = {said}")


@pytest.mark.parametrize("options", [[], ["--shard", 1], ["--operator", OPERATOR, "--shard", 2]], ids=str)
def test_the_slots_of_an_epoch_are_those_of_the_chosen_shards(
    tool: Tool, long_space: Path, options: list[object]
) -> None:
    wrote = {row["epoch"]: row["slots"] for row in rows(tool, "log", long_space, "-n", 0, "--json", *options)}
    graph = tool("log", long_space, "-n", 0, "--graph", *options).output
    drawn = {int(epoch): int(slots) for epoch, slots in re.findall(r"epoch (\d+) .*? (\d+) slots?,", graph)}
    assert drawn == wrote
    for epoch in (1, 2, 7, 11, 29, 30):
        (listed,) = rows(tool, "ls", long_space, f"@{epoch}", "--json", *options)
        assert listed["dirty"] == wrote[epoch]


def test_a_short_log_reads_the_newest_manifests_alone(tool: Tool, long_space: Path) -> None:
    whole = tool("log", long_space, "-n", 3).output
    assert "27 older" in whole
    (oldest,) = (long_space / "manifest").glob("*01.json")
    oldest.write_bytes(b"damaged")
    assert tool("log", long_space, "-n", 3).output == whole
    assert tool("bisect", long_space, "--good", 20, "--bad", 23, "--", "true").stderr.endswith("give a --bad one\n")
    assert tool("log", long_space, "-n", 0).exit_code == 2
    refused = tool("log", long_space, "--with", long_space / "other.db")
    assert (refused.exit_code, "is a space" in refused.stderr) == (2, True)


@pytest.mark.parametrize("command", ["restore", "fork"])
def test_a_copy_that_fails_leaves_the_place_free(tool: Tool, long_space: Path, tmp_path: Path, command: str) -> None:
    victim = Chain.open(location_at(long_space)).lineage(OPERATOR, 2)[0].file
    data = (long_space / victim).read_bytes()
    (long_space / victim).write_bytes(data[:-3])
    assert tool(command, long_space, tmp_path / "copy").exit_code == 2
    (long_space / victim).write_bytes(data)
    assert tool(command, long_space, tmp_path / "copy", "--object", "x").exit_code == 2
    assert [path for path in tmp_path.glob("copy/**/*") if path.is_file()] == []
    assert tool(command, long_space, tmp_path / "copy").exit_code == 0
    assert state(tool, tmp_path / "copy") == expected(30)


def test_shards_that_hold_nothing_yet(tool: Tool, tmp_path: Path) -> None:
    publish, chain = Publisher(tmp_path / "caches"), Chain.open_or_create(location_at(tmp_path / "space"), 2)
    assert "has no epoch yet" in tool("restore", tmp_path / "space", tmp_path / "one.db", "--shard", 0).stderr
    publish(chain, {"a": 1}, {})
    for number in (2, 3, 4):
        publish(chain, {"a": 1}, {"b": number})
    refused = tool("restore", tmp_path / "space", tmp_path / "one.db", 1, "--shard", 1)
    assert f"{OPERATOR}/1 holds nothing at epoch 1" in refused.stderr
    check = "import sys; from checkpoint.chain import *; c = Chain.open(location_at(sys.argv[1]))"
    check += "; sys.exit(sum(r.slots for r in c.newest.runs) > 0 and c.epoch > 2)"
    found = tool("bisect", tmp_path / "space", "--shard", 1, "--json", "--", sys.executable, "-c", check, "{}")
    assert json.loads(found.stdout)["epoch"] == 3


def test_the_slots_of_runs_say_nothing_of_growth(tool: Tool, long_space: Path) -> None:
    looks = rows(tool, "top", long_space, "--count", 6, "--interval", 0, "--json")
    assert [{"run_slots", "only_grows"} & {*one} for look in looks for one in look["objects"]] == [{"run_slots"}] * 18
    assert "slots in its runs" in tool("top", long_space, "--count", 1).output


def test_blame_marks_what_an_image_holds_of_older_epochs(tool: Tool, tmp_path: Path) -> None:
    publish, chain = Publisher(tmp_path / "caches"), Chain.open_or_create(location_at(tmp_path / "space"), 1)
    publish(chain, {"a": 1, "b": 1})
    publish(chain, {"b": 2})
    assert all(not row["merged"] for row in rows(tool, "blame", tmp_path / "space", "counts", "--json"))
    image = write_image(chain.operator_plan(OPERATOR, cache=str(tmp_path / "cache")), 0)
    publish(chain, {"c": 3}, images=[image])
    found = {
        row["key"]: (row["epoch"], row["merged"]) for row in rows(tool, "blame", chain.location.url, "counts", "--json")
    }
    assert found == {"a": (2, True), "b": (2, True), "c": (3, False)}
    assert tool("blame", tmp_path / "space", "counts[a]").output.splitlines()[1].split() == ["≤2", "a", "1"]


def test_a_run_that_an_image_stands_for_is_collected(tool: Tool, tmp_path: Path) -> None:
    publish, chain = Publisher(tmp_path / "caches"), Chain.open_or_create(location_at(tmp_path / "space"), 1)
    for number in range(3):
        publish(chain, {f"k{number}": number})
    image = write_image(chain.operator_plan(OPERATOR, cache=str(tmp_path / "cache")), 0)
    publish(chain, {"last": 4}, images=[image])
    assert tool("gc", tmp_path / "space", "--keep-epochs", 1, "--grace", 0).exit_code == 0
    found = json.loads(tool("doctor", tmp_path / "space", "--json").output)
    assert (found["run files"], found["run files that no readable epoch names"]) == (2, 0)
    assert state(tool, tmp_path / "space") == {"k0": 0, "k1": 1, "k2": 2, "last": 4}
    # The one epoch that is left has none before it to compare it with.
    assert tool("diff", tmp_path / "space").exit_code == 2


@pytest.mark.parametrize(("age", "status"), [(0, 0), (100_000, 2)])
def test_doctor_minds_old_leftovers_alone(tool: Tool, long_space: Path, age: int, status: int) -> None:
    staged = long_space / "run" / ".tmp-1"
    staged.touch()
    os.utime(staged, (time.time() - age,) * 2)
    found = tool("doctor", long_space, "--json")
    assert (found.exit_code, json.loads(found.output)["leftovers"]) == (status, ["run/.tmp-1"])


def test_doctor_needs_no_times_of_files_where_nothing_is_left_over(
    tool: Tool, long_space: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalLocation, "modified", Mock(side_effect=CheckpointError("it does not tell times")))
    assert tool("doctor", long_space).exit_code == 0
    (long_space / "run" / ".tmp-1").touch()
    assert "it does not tell times" in tool("doctor", long_space).stderr


@pytest.mark.parametrize("folder", ["run", "handover"])
@pytest.mark.parametrize("since", [0, 100_000])
def test_doctor_advises_a_collection_only_where_it_removes_leftovers(
    tool: Tool, long_space: Path, folder: str, since: int
) -> None:
    (long_space / folder).mkdir(exist_ok=True)
    (long_space / folder / ".tmp-1").touch()
    newest = max((long_space / "manifest").iterdir())
    for path in long_space.rglob("*"):
        os.utime(path, (time.time() - 200_000 + since * (path == newest),) * 2)
    found = json.loads(tool("doctor", long_space, "--json").output)
    assert found["leftovers"] == [f"{folder}/.tmp-1"]
    assert len(found["advice"]) == rows(tool, "gc", long_space, "--json")[0]["leftovers"] == bool(since)


def test_doctor_advises_no_collection_of_a_space_without_an_epoch_that_removes_nothing(
    tool: Tool, tmp_path: Path
) -> None:
    location = Chain.open_or_create(location_at(tmp_path / "space"), 1).location
    (tmp_path / "space" / "run").mkdir()
    for number in range(2):
        leftover = tmp_path / "space" / "run" / f".tmp-{number}"
        leftover.touch()
        os.utime(leftover, (time.time() - 100_000 * number,) * 2)
    assert tool("doctor", location.url).exit_code == 2
    assert rows(tool, "gc", location.url, "--json")[0]["leftovers"] == 1
    assert tool("doctor", location.url).exit_code == 0


@pytest.mark.parametrize("left", ["changes", "floor"])
def test_manifests_that_are_out_of_sight_are_told_of(tool: Tool, tmp_path: Path, left: str) -> None:
    place, publish = tmp_path / "space", Publisher(tmp_path / "cache")
    chain = Chain.open_or_create(location_at(place), 1)
    for number in range(2):
        publish(chain, {"a": number}, full_after=0 if left == "floor" else 64)
    if left == "floor":
        chain.collect(keep_epochs=1)
    (place / "manifest").rename(tmp_path / "manifest")
    told = r"no manifest is listed, although there is \S+\.\w+, .* check the location \(is its folder manifest there"
    verified, looked, collected = (
        tool(*name.split(), place) for name in ("verify", "doctor", "gc --dry-run --grace 0")
    )
    assert (verified.exit_code, looked.exit_code, collected.exit_code) == (2, 2, 2 if left == "floor" else 0)
    for said in (verified.stderr, looked.output, *([] if left == "floor" else [collected.stderr])):
        assert re.search(told, said)
    (tmp_path / "manifest").rename(place / "manifest")
    for name in ("verify", "doctor", "gc --dry-run"):
        done = tool(*name.split(), place)
        assert (done.exit_code, done.stderr) == (0, "")


def test_a_first_epoch_under_way_or_given_up_is_no_damage(tool: Tool, tmp_path: Path) -> None:
    chain = Chain.open_or_create(location_at(tmp_path / "space"), 2)
    save_run(chain.operator_plan(OPERATOR), 0, run_of({"a": 1}, CheckpointKind.FULL))
    (run,) = (tmp_path / "space" / "run").iterdir()
    os.utime(run, (time.time() - 100_000,) * 2)
    for name in ("verify", "doctor", "gc"):
        done = tool(name, tmp_path / "space")
        assert (done.exit_code, done.stderr) == (0, "")


def test_children_of_a_tree_are_counted_over_all_shards(tool: Tool, stock: Path) -> None:
    (listed,) = (
        row for row in rows(tool, "ls", stock, "--tree", "--children", 1, "--json") if row["kind"] == "KeyValueTable"
    )
    assert (len(listed["owned"]), listed["more"]) == (1, 1)
