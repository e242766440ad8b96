"""Commands on a space whose number of shards changed."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from checkpoint import CheckpointKind
from checkpoint.chain import (
    Chain,
    EpochPlan,
    ShardSaved,
    SourcePosition,
    location_at,
    save_run,
    write_image,
)
from checkpoint.chain.local_location import LocalLocation
from checkpoint.chain.manifest import DIVISION
from checkpoint.tool.replaced import images_with_runs
from checkpoint.tool.report import collect
from checkpoint.tool.source import Source
from tests.chain.chain_helpers import OPERATOR, Publisher, run_of
from tests.golden import chain_3
from tests.tool.conftest import Tool, rows, state


def begin_anew(chain: Chain, shards: int, name: str) -> None:
    """Publish an epoch with another number of shards, each of which has one key."""
    assert chain.newest is not None
    plan = EpochPlan(chain.epoch, chain.newest.source, {OPERATOR: chain.operator_plan(OPERATOR)})
    saved = [
        save_run(plan.operators[OPERATOR], shard, run_of({f"{name}{shard}": plan.epoch}, CheckpointKind.FULL, 1))
        for shard in range(shards)
    ]
    chain.publish_rescaled(plan, {OPERATOR: saved}, shards, {})


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4)])
def test_a_space_whose_number_of_shards_changed(tool: Tool, tmp_path: Path, before: int, after: int) -> None:
    path, publish = tmp_path / "space", Publisher(tmp_path / "caches")
    chain = Chain.open_or_create(location_at(path), before)
    for epoch in (1, 2):
        publish(chain, *({f"k{shard}": epoch} for shard in range(before)))
    older = {f"k{shard}": 2 for shard in range(before)}
    begin_anew(chain, after, "n")
    newer = {f"n{shard}": 3 for shard in range(after)}

    assert (state(tool, path, 2), state(tool, path)) == (older, newer)
    (listed,) = rows(tool, "ls", path, "@2", "--json")
    assert (listed["length"], listed["shards"]) == (before, before)
    changes = [row for row in rows(tool, "diff", path, 2, 3, "--json") if row["table"] == "item"]
    assert {row["key"]: row["new"] for row in changes} == {**dict.fromkeys(older), **newer}
    assert [row["runs"] for row in rows(tool, "log", path, "--json")] == [after, before, before]
    assert [step.slots for step in collect(Source(str(path))).steps] == [before, before, after]
    for command in ("restore", "fork"):
        assert tool(command, path, tmp_path / command, "@2").exit_code == 0
        assert state(tool, tmp_path / command) == older
        assert tool("verify", tmp_path / command).exit_code == 0
    assert rows(tool, "verify", path, "--json")[0]["run_files"] == 2 * before + after
    assert tool("show", path, "counts@2", "--shard", before - 1).exit_code == 0
    assert tool("bisect", path, "--", "sh", "-c", "ls {}/manifest | grep -qv 3").output.endswith("2 3\n")
    for words in (["log", path, "-n", 1], ["verify", path], ["report", path, tmp_path / "page.html"]):
        said = tool(*words, "--shard", after).stderr
        assert said == f"error: {path} has no shard {after}: it has {after} at epoch 3, counted from 0\n"


def test_a_diff_across_a_rescale_compares_no_object_with_another_of_its_id(tool: Tool) -> None:
    changes = rows(tool, "diff", chain_3.PATH, 1, 2, "table", "--json")
    found = Counter(
        (row["op"], row["key"]["key"]) for row in changes if (row["table"], row["object"]) == ("item", "table")
    )
    assert found == Counter({(op, key): 1 for op in "+-" for key in chain_3.KEYS if isinstance(key, str)})


@pytest.mark.parametrize(("a", "b"), [(1, 3), (3, 1)])
def test_a_diff_across_two_rescales_takes_no_object_for_another_of_its_id(
    tool: Tool, tmp_path: Path, a: int, b: int
) -> None:
    publish, chain = Publisher(tmp_path / "caches"), Chain.open_or_create(location_at(tmp_path / "space"), 2)
    publish(chain, {"k0": 1}, {"k1": 1})
    for shards in (3, 2):
        begin_anew(chain, shards, "k")
    changes = [row for row in rows(tool, "diff", tmp_path / "space", a, b, "--json") if row["table"] == "item"]
    assert {(row["op"], row["key"]) for row in changes} == {(op, key) for op in "+-" for key in ("k0", "k1")}
    assert {row["object"] for row in rows(tool, "diff", tmp_path / "space", 0, 3, "--stat", "--json")} == {
        f"{OPERATOR}/{shard}: counts" for shard in range(2)
    }


@pytest.mark.parametrize(("a", "b"), [(3, 4), (4, 3)])
def test_a_diff_beyond_an_image_of_the_epoch_of_a_rescale(tool: Tool, tmp_path: Path, a: int, b: int) -> None:
    chain = Chain.open(location_at(shutil.copytree(chain_3.PATH, tmp_path / "space")))
    divided = chain.operator_plan(chain_3.OPERATOR, 2, cache=str(tmp_path / "caches"))
    plan = chain.begin(SourcePosition("golden", 2), [chain_3.OPERATOR])
    assert plan is not None
    shards = range(divided.shards)
    saved = [ShardSaved(chain_3.OPERATOR, shard, None) for shard in shards]
    chain.publish(plan, {chain_3.OPERATOR: saved}, images=[write_image(divided, shard) for shard in shards])
    assert [run.epoch for run in chain.lineage(chain_3.OPERATOR, 0)] == [2, 3]
    assert rows(tool, "diff", tmp_path / "space", a, b, "--json") == []
    assert tool("verify", tmp_path / "space").output.endswith("; 3 images, same as the runs they replace\n")


def test_a_division_that_epochs_go_on_naming_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkpoint.chain.lineages.CARRY_AFTER", 1)
    chain = Chain.open(location_at(shutil.copytree(chain_3.PATH, tmp_path / "space")))
    for batch in range(2, 6):
        plan = chain.begin(SourcePosition("golden", batch), [chain_3.OPERATOR])
        assert plan is not None
        saved = [ShardSaved(chain_3.OPERATOR, shard, None) for shard in range(chain.shards)]
        chain.publish(plan, {chain_3.OPERATOR: saved})
    read, names = LocalLocation.read, Counter[str]()

    def _counted(location: LocalLocation, name: str) -> bytes | None:
        names[name] += 1
        return read(location, name)

    monkeypatch.setattr(LocalLocation, "read", _counted)
    assert list(images_with_runs(chain)) == []
    assert [count for name, count in names.items() if name.endswith(DIVISION)] == [1] * chain.shards
