"""New shards that are made of old ones where they are opened: no row is written again, and what they need stays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from checkpoint import CheckpointError, CheckpointKind, CorruptStoreError
from checkpoint.chain import (
    AcceptedRun,
    Chain,
    EpochPlan,
    Location,
    OperatorPlan,
    SourcePosition,
    folding,
    location_at,
    open_cache,
    write_image,
    write_image_beside,
)
from checkpoint.chain.division import Division, Part, read_division
from checkpoint.chain.local_location import LocalLocation
from checkpoint.chain.manifest import FORMAT_VERSION, seal, unseal
from checkpoint.chain.runfile import checksum
from checkpoint.tool.command import cli, load
from objectspace import PersistedObjectSpace, codec, register_dataclass
from objectspace.errors import ObjectSpaceError
from objectspace.operators import division
from objectspace.operators.division import dividing
from objectspace.spark import Retention, Upkeep, open_shard, rescale, save_shard, shard_of
from tests.chain.faulty_location import crash_points
from tests.chain.test_chain_kill import kill_soon

from .test_spark_in_driver import trained
from .test_spark_rescale import KEYED, KEYS, OPERATOR, WANTED, filled, parts, publish, rows, state

Write = Callable[[OperatorPlan, int], AcceptedRun]


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what the machine keeps in a folder of the test."""
    monkeypatch.setenv("OBJECTSPACE_CACHE", str(tmp_path / "machine"))


def files(folder: Path) -> dict[str, bytes]:
    """Return the run files of a space."""
    return {path.name: path.read_bytes() for path in (folder / "space" / "run").iterdir()}


def plan_of(folder: Path, cache: str = "cache", epoch: int | None = None) -> OperatorPlan:
    chain = Chain.open(location_at(folder / "space"))
    return chain.operator_plan(OPERATOR, epoch, cache=str(folder / cache))


def named(folder: Path, images: list[AcceptedRun]) -> Chain:
    """Publish an epoch that changes nothing but names images."""
    chain = Chain.open(location_at(folder / "space"))
    assert chain.newest is not None
    plan = chain.begin(SourcePosition("q", chain.newest.committed["q"] + 1), [OPERATOR], cache=str(folder / "cache"))
    assert plan is not None
    operator = plan.operators[OPERATOR]
    saved = []
    for shard in range(operator.shards):
        with open_shard(operator, shard) as space:
            saved.append(save_shard(operator, space, shard))
    chain.publish(plan, {OPERATOR: saved}, images=images)
    return chain


def test_no_row_is_written_again(tmp_path: Path) -> None:
    publish(tmp_path, 2, filled(2))
    before = files(tmp_path)
    manifest = rescale(tmp_path / "space", 4, keyed=KEYED)
    assert manifest is not None
    assert (manifest.slots, manifest.bytes, manifest.format) == (0, 0, 3)
    after = files(tmp_path)
    assert {name: after[name] for name in before} == before
    assert {name.partition(".")[2] for name in after.keys() - before.keys()} == {"division"}
    assert state(tmp_path) == WANTED
    assert files(tmp_path) == after


def change(number: int) -> Callable[[PersistedObjectSpace, int], None]:
    """Return what changes some keys of a shard, takes one away and makes an object."""

    def _change(space: PersistedObjectSpace, shard: int) -> None:
        counts = space.get_or_create_dictionary("d")
        for key in [key for key in counts if hash(str(key)[-1:]) % 3 == number % 3]:
            counts[key] = {"n": number}
        space.get_or_create_dictionary("late")

    return _change


def test_every_machine_finds_the_same_rows(tmp_path: Path) -> None:
    """What an epoch writes names objects by their ids: they must be the same wherever a shard is divided."""
    publish(tmp_path, 3, filled(3))
    shards = 3
    for number, wanted in enumerate((2, 5, 1, 4)):
        rescale(tmp_path / "space", wanted, keyed={OPERATOR: [*KEYED[OPERATOR], *(["late"] if number else [])]})
        shards = wanted
        publish(tmp_path, shards, change(number))
        assert rows(tmp_path, f"machine {number}") == rows(tmp_path, "cache")
    assert set(state(tmp_path)["d"]) == set(KEYS)
    assert state(tmp_path, 1) == WANTED


@pytest.mark.parametrize("write", [write_image, write_image_beside])
@pytest.mark.parametrize("changes", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_an_image_takes_the_place_of_a_division(tmp_path: Path, write: Write, changes: int) -> None:
    publish(tmp_path, 2, filled(2))
    rescale(tmp_path / "space", 3, keyed=KEYED)
    for number in range(changes):
        publish(tmp_path, 3, change(number))
    wanted, plan = state(tmp_path), plan_of(tmp_path)
    assert all(plan.is_image_due(shard) for shard in range(3))
    chain = named(tmp_path, [write(plan_of(tmp_path, "maker"), shard) for shard in range(3)])
    assert not any(run.is_division for shard in range(3) for run in chain.lineage(OPERATOR, shard))
    assert chain.newest is not None
    assert chain.newest.format == 1
    assert state(tmp_path) == wanted
    assert rows(tmp_path, "fresh") == rows(tmp_path, "cache")
    assert chain.collect(grace_seconds=0, keep_epochs=1).runs >= 2 + 3
    assert state(tmp_path) == wanted
    assert rows(tmp_path, "another") == rows(tmp_path, "cache")


@register_dataclass
@dataclass
class Spot:
    """A value of which only this process has the class."""

    x: int


def with_points(space: PersistedObjectSpace, shard: int) -> None:
    """Fill a shard with instances, alone, inside of other values, under keys of all kinds, and in owned lists."""
    values, lists = space.create_dictionary("d"), space.create_dictionary("lists", of=list)
    for key in KEYS:
        if shard_of(2, *parts(key)) == shard:
            values[key] = Spot(1) if isinstance(key, str) else {"at": (Spot(2), [3])}
            lists[key] = [Spot(4), None]


def test_values_whose_class_is_unknown_are_divided_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(tmp_path, 2, with_points)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(codec, "_registered", {})
        rescale(tmp_path / "space", 3, keyed={OPERATOR: ["d", "lists"]})
        chain = named(tmp_path, [write_image(plan_of(tmp_path, "maker"), shard) for shard in range(3)])
        with pytest.raises(ObjectSpaceError, match="a Spot is stored here"), open_shard(plan_of(tmp_path), 0) as space:
            space.get_dictionary("d").copy()
    assert not any(run.is_division for shard in range(3) for run in chain.lineage(OPERATOR, shard))
    found: dict[Any, Any] = {}
    for shard in range(3):
        with open_shard(plan_of(tmp_path, "fresh"), shard) as space:
            lists = space.get_dictionary("lists")
            found |= {key: (value, list(lists[key])) for key, value in space.get_dictionary("d").items()}
    whole = {key: Spot(1) if isinstance(key, str) else {"at": (Spot(2), [3])} for key in KEYS}
    assert found == {key: (value, [Spot(4), None]) for key, value in whole.items()}
    assert rows(tmp_path, "fresh") == rows(tmp_path, "another")


def test_the_upkeep_makes_images_of_divided_shards(tmp_path: Path) -> None:
    publish(tmp_path, 2, filled(2))
    rescale(tmp_path / "space", 3, keyed=KEYED)
    location = location_at(tmp_path / "space")
    upkeep = Upkeep(location, Retention(), full_after=8, image_lag=0)
    assert upkeep.published(2)
    upkeep.wait()
    assert [image.shard for image in upkeep.images(3)] == [0, 1, 2]
    plan = plan_of(tmp_path)
    assert [plan.kind(shard) for shard in range(3)] == [CheckpointKind.DIFFERENTIAL] * 3, "no epoch waits for that"


@pytest.mark.slow
def test_noted_images_of_shards_that_are_divided_go(tmp_path: Path) -> None:
    publish(tmp_path, 2, filled(2))
    location = location_at(tmp_path / "space")
    for epoch, shards in ((2, 3), (3, 4)):
        rescale(tmp_path / "space", shards, keyed=KEYED)
        upkeep = Upkeep(location, Retention(), full_after=4)
        upkeep.published(epoch)
        upkeep.wait()
        assert sorted(one.image.shard for one in Chain.open(location).waiting_images()) == [*range(shards)]
        assert len(location.names("handover")) == shards


def test_the_driver_leaves_divided_shards_to_tasks(tmp_path: Path) -> None:
    """Nothing tells how large they are."""
    source = SourcePosition("q", 1)
    publish(tmp_path, 2, filled(2))
    assert trained().is_in_driver(EpochPlan(1, source, {OPERATOR: plan_of(tmp_path)}))
    rescale(tmp_path / "space", 3, keyed=KEYED)
    assert not trained().is_in_driver(EpochPlan(2, source, {OPERATOR: plan_of(tmp_path)}))


def test_a_shard_is_divided_where_its_cache_lies_and_nothing_is_left(tmp_path: Path) -> None:
    publish(tmp_path, 2, filled(2))
    rescale(tmp_path / "space", 3, keyed=KEYED)
    plan, seen = plan_of(tmp_path, "elsewhere"), []
    with pytest.MonkeyPatch.context() as watching:
        watching.setattr(dividing, "closing", lambda space: seen.append(space.store.path) or closing(space))
        for _ in range(2):
            with open_cache(plan, 1):
                pass
    assert len(seen) == 2, "once for each part, and not again"
    assert all(Path(path).is_relative_to(tmp_path / "elsewhere") for path in seen)
    left = [path.name for path in (tmp_path / "elsewhere").rglob("*") if path.is_dir()]
    assert sorted(left) == sorted([plan.incarnation, f"{OPERATOR}-1"])


def test_what_a_division_is_made_of_is_kept(tmp_path: Path) -> None:
    publish(tmp_path, 2, filled(2))
    publish(tmp_path, 2, change(1))
    for shards in (3, 5):
        rescale(tmp_path / "space", shards, keyed={OPERATOR: [*KEYED[OPERATOR], "late"]})
    wanted = state(tmp_path)
    for number in range(3):
        chain = publish(tmp_path, 5, lambda space, _, number=number: space.get("d").update({}))  # type: ignore[misc]
        assert chain.collect(grace_seconds=0, keep_epochs=1).first_epoch == 5 + number
    assert state(tmp_path) == wanted
    assert rows(tmp_path, "fresh") == rows(tmp_path, "cache")
    assert len(files(tmp_path)) == 3 + 5, "the images of the three shards, and what says how five are made of them"


@pytest.mark.parametrize("damage", ["gone", "flipped", "of another shard", "newer", "no division"])
def test_a_division_that_is_damaged_is_named(tmp_path: Path, damage: str) -> None:
    chain = publish(tmp_path, 1, filled(1))
    rescale(tmp_path / "space", 2, keyed=KEYED)
    chain.refresh()
    (first,), (second,) = (chain.lineage(OPERATOR, shard) for shard in range(2))
    data = chain.location.read(second.file) or b""
    made: dict[str, tuple[bytes | None, str]] = {
        "gone": (None, "is missing: restore it"),
        "flipped": (data.replace(b"keyed", b"kexed"), "is damaged: expected checksum"),
        "of another shard": (chain.location.read(first.file), "divides keyed/0"),
        "newer": (seal({**unseal(data, "it"), "format": 2}), "has format 2: expected at most 1: upgrade"),
        "no division": (seal({"format": 1}), "is no division"),
    }
    changed, message = made[damage]
    path = tmp_path / "space" / second.file
    path.unlink()
    if changed is not None:
        path.write_bytes(changed)
        if damage != "flipped":  # as if the manifest named it so
            manifest = tmp_path / "space" / "manifest" / "000000000002.json"
            values = unseal(manifest.read_bytes(), "it", FORMAT_VERSION)
            values["runs"][1] |= {"checksum": checksum(changed), "digest": checksum(changed)}
            manifest.write_bytes(seal(values))
    with pytest.raises(CheckpointError, match=message), open_cache(plan_of(tmp_path, "fresh"), 1):
        pass
    with open_cache(plan_of(tmp_path, "fresh"), 0):
        pass
    with pytest.raises(CheckpointError, match=message):
        Chain.open(chain.location).collect(grace_seconds=0, keep_epochs=1)
    assert state(tmp_path, 1) == WANTED


def test_a_run_that_a_division_needs_is_missed_by_name(tmp_path: Path) -> None:
    chain = publish(tmp_path, 1, filled(1))
    rescale(tmp_path / "space", 2, keyed=KEYED)
    (tmp_path / "space" / chain.lineage(OPERATOR, 0)[0].file).unlink()
    with pytest.raises(CorruptStoreError, match=r"\(epoch 1, keyed/0\) is missing"), open_cache(plan_of(tmp_path), 1):
        pass


@pytest.mark.parametrize("is_local", [True, False])
def test_a_rescale_whose_images_were_collected_meanwhile_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_local: bool
) -> None:
    publish(tmp_path, 2, filled(2))
    rescale(tmp_path / "space", 3, keyed=KEYED)
    if not is_local:  # On an object store, where each look at a file would cost a request.
        monkeypatch.setattr(LocalLocation, "lost", Location.lost)
    made: list[AcceptedRun] = []

    def write(plan: OperatorPlan, shard: int) -> AcceptedRun:
        made.append(write_image(plan, shard))
        if len(made) == 2:  # The images take longer than the grace period.
            assert Chain.open(plan.location).collect(grace_seconds=0).runs == 2
        return made[-1]

    monkeypatch.setattr(sys.modules[rescale.__module__], "write_image", write)
    with pytest.raises(CheckpointError, match=r"run/\w+\.parquet, which was saved for epoch 3, is gone: .* again$"):
        rescale(tmp_path / "space", 5, keyed=KEYED)
    assert Chain.open(location_at(tmp_path / "space")).epoch == 2
    rescale(tmp_path / "space", 5, keyed=KEYED)
    assert state(tmp_path) == WANTED


def test_no_shard_is_divided_whose_run_is_lost(tmp_path: Path) -> None:
    chain = publish(tmp_path, 2, filled(2))
    for shard in range(2):  # The caches of the machine have all that is read before.
        with open_shard(chain.operator_plan(OPERATOR), shard):
            pass
    chain.location.delete(chain.lineage(OPERATOR, 1)[0].file)
    told = r"\(epoch 1, keyed/1\) is missing, which epoch 2 was to be made of; nothing was published: restore it"
    with pytest.raises(CorruptStoreError, match=told):
        rescale(tmp_path / "space", 3, keyed=KEYED)
    assert Chain.open(chain.location).epoch == 1


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("lasting", [False, True])
def test_a_rescale_survives_every_crash_point(tmp_path: Path, late: bool, lasting: bool) -> None:
    chain = publish(tmp_path, 2, filled(2))
    tried = 0

    def work(location: Location) -> None:
        rescale(location, 3, keyed=KEYED)

    for _ in crash_points(chain.location, work, late=late, lasting=lasting):
        tried += 1
        assert state(tmp_path) == WANTED
        chain.refresh()
        if chain.shards == 3:  # it was published before it failed
            break
    chain.collect(grace_seconds=0, keep_epochs=1)
    assert state(tmp_path) == WANTED
    assert tried > 5


@pytest.mark.parametrize("late", [False, True])
def test_who_opens_a_divided_shard_survives_every_crash_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    chain = publish(tmp_path, 2, filled(2))
    rescale(chain.location, 3, keyed=KEYED)
    wanted = rows(tmp_path, "sound")

    def work(location: Location) -> None:
        with open_cache(replace(plan_of(tmp_path), location=location), 1):
            pass

    for _ in crash_points(chain.location, work, late=late, lasting=False):
        pass
    assert rows(tmp_path, "cache") == wanted
    for number, place in enumerate(["_note_image", "runs_seen"]):
        with monkeypatch.context() as failing:
            failing.setattr(folding, place, lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError), open_cache(plan_of(tmp_path, f"cut off {number}"), 1):
                pass
        assert rows(tmp_path, f"cut off {number}") == wanted


READER = """
import sys
from pathlib import Path
from checkpoint.chain import Chain, location_at, open_cache
folder = Path(sys.argv[1])
print("ready")
number = 0
while True:
    number += 1
    plan = Chain.open(location_at(folder / "space")).operator_plan("keyed", cache=str(folder / f"killed {number % 3}"))
    for shard in range(plan.shards):
        with open_cache(plan, shard):
            print(shard)
"""


def test_a_reader_killed_while_it_divides_leaves_a_cache_that_is_right_or_made_again(
    tmp_path: Path, at_scale: bool
) -> None:
    publish(tmp_path, 2, filled(2))
    rescale(tmp_path / "space", 3, keyed=KEYED)
    wanted, rng = rows(tmp_path, "sound"), Random(1)
    for number in range(40 if at_scale else 4):
        kill_soon(READER, tmp_path, rng=rng, after=number % 4)
        for cache in range(3):
            assert rows(tmp_path, f"killed {cache}") == wanted


def test_what_is_shared_by_two_shards_must_agree(tmp_path: Path) -> None:
    def fill(space: PersistedObjectSpace, shard: int) -> None:
        space.create_dictionary("$keyed")["d"] = {"parts": 1 + shard, "places": [0]}

    publish(tmp_path, 2, fill)
    rescale(tmp_path / "space", 4, keyed={})
    with pytest.raises(ObjectSpaceError, match="in another shard: let the query run one more epoch"):
        rescale(tmp_path / "space", 1, keyed={})
    assert Chain.open(location_at(tmp_path / "space")).shards == 4


def test_the_tool_reads_what_was_rescaled(tmp_path: Path) -> None:
    publish(tmp_path, 2, filled(2))
    rescale(tmp_path / "space", 3, keyed=KEYED)
    publish(tmp_path, 3, change(1))
    wanted = state(tmp_path)

    load()

    def tool(*words: object) -> str:
        done = CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    space = tmp_path / "space"
    assert "3 shards at epoch 3" in tool("verify", space)
    assert "run files that no readable epoch names: 0" in tool("doctor", space)
    assert "k7" in tool("show", space, "d", "--shard", shard_of(3, "k7"))
    assert "k7" in tool("show", space, "d@2", "--shard", shard_of(3, "k7"))
    assert len(tool("log", space).splitlines()) >= 3
    for number, command in enumerate(("fork", "restore")):
        copy = tmp_path / f"copy {number}"
        tool(command, space, copy / "space", "@3")
        assert "3 shards at epoch 3" in tool("verify", copy / "space")
        assert state(copy) == wanted
    tool("gc", space, "--keep-epochs", 1, "--grace", 0)
    assert state(tmp_path) == wanted
    assert rows(tmp_path, "fresh") == rows(tmp_path, "cache")


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, 2, 3, 4, 5))])
def test_random_histories_of_rescales(tmp_path: Path, seed: int) -> None:
    """Edits, rescales, images, collections and new machines in any order, beside a plain dictionary."""
    rng = Random(seed)
    model: dict[object, int] = {}
    shards = rng.randint(1, 4)
    for step in range(14):
        if step and rng.random() < 0.4:
            shards = rng.choice([number for number in range(1, 7) if number != shards])
            rescale(tmp_path / "space", shards, keyed={OPERATOR: ["d"]})
        edits: dict[object, int | None] = {
            rng.choice(KEYS): rng.choice([None, step, -step]) for _ in range(rng.randrange(12))
        }
        model.update({key: value for key, value in edits.items() if value is not None})
        for key in [key for key, value in edits.items() if value is None]:
            model.pop(key, None)

        def edit(
            space: PersistedObjectSpace,
            shard: int,
            edits: dict[object, int | None] = edits,
            shards: int = shards,
        ) -> None:
            counts = space.get_or_create_dictionary("d")
            for key, value in edits.items():
                if shard_of(shards, *parts(key)) == shard:
                    counts.pop(key, None) if value is None else counts.update({key: value})

        chain = publish(tmp_path, shards, edit)
        if rng.random() < 0.3:
            plan = plan_of(tmp_path, rng.choice(["cache", "maker"]))
            due = [shard for shard in range(shards) if plan.is_image_due(shard)]
            chain = named(tmp_path, [write_image(plan, shard) for shard in due])
        if rng.random() < 0.3:
            chain.collect(grace_seconds=0, keep_epochs=rng.randint(1, 3))
        plan = plan_of(tmp_path, rng.choice(["cache", f"fresh {step}"]))
        found: dict[object, int] = {}
        for shard in range(shards):
            with open_shard(plan, shard) as space:
                space._check()
                counts = space.get_or_create_dictionary("d").copy()
                assert all(shard_of(shards, *parts(key)) == shard for key in counts)
                found.update(counts)
        assert found == model
        runs = [run for shard in range(shards) for run in chain.lineage(OPERATOR, shard) if run.is_division]
        divisions = [read_division(chain.location, run) for run in runs]
        assert not any(run.is_division for one in divisions for part in one.parts for run in part.lineage)


@pytest.mark.parametrize(
    "rule", [{"kinds": 5}, {"sides": "k"}, {"sides": [5]}, {"sides": [[5]]}, {"named": [5]}, {"more": []}], ids=str
)
def test_a_rule_that_is_none_is_refused(tmp_path: Path, rule: dict[str, Any]) -> None:
    divided = Division("op", 1, 2, 1, (Part(0, ()),), rule)
    with (
        pytest.raises(ObjectSpaceError, match=r"shard 1 of 'op' is divided by the rule \{.*\}, which is none: restore"),
        dividing.divide(divided, iter(()), tmp_path),
    ):
        pass


def test_the_tool_says_why_a_shard_cannot_be_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(tmp_path, 2, filled(2))
    rescale(tmp_path / "space", 3, keyed=KEYED)
    load()
    monkeypatch.setattr(division, "divide", Mock(side_effect=ObjectSpaceError("nothing tells where 'd' belongs")))
    done = CliRunner().invoke(cli, ["verify", str(tmp_path / "space")])
    assert (done.exit_code, done.stderr) == (2, "error: nothing tells where 'd' belongs\n")
