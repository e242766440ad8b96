"""Spaces and manifests: lineage, replay, fencing, and clear refusals."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from checkpoint import CheckpointError, CheckpointKind, CorruptStoreError, FencedError, UnknownCheckpointError
from checkpoint.chain import Chain, Location, OperatorPlan, ShardSaved, SourcePosition, location_at, save_run
from checkpoint.chain.manifest import AcceptedRun, seal, unseal
from checkpoint.chain.plan import MOST_RUNS
from checkpoint.settings import DEFAULT_RECORDS
from tests.tally import TALLY

from .chain_helpers import OPERATOR, Publisher, run_of


def test_a_space_remembers_its_epochs(location: Location, publish: Publisher) -> None:
    chain = Chain.open_or_create(location, 2)
    publish(chain, {"a": 1}, {"b": 1, "c": 2})
    publish(chain, {"a": 2}, {})
    again = Chain.open(location)
    assert (again.incarnation, again.shards, again.epoch) == (chain.incarnation, 2, 2)
    assert list(again.manifests()) == list(chain.manifests())
    assert [manifest.slots for manifest in again.manifests()] == [3, 1]
    assert again.newest is not None
    assert again.newest.base == 1
    assert again.newest.source == SourcePosition("q", 1)


def test_a_manifest_at_a_prompt_is_a_short_line(location: Location, publish: Publisher) -> None:
    chain = Chain.open_or_create(location, 2)
    manifest = publish(chain, {"a": 1}, {"b": 1, "c": 2})
    counts = "shards 2, operators 1, runs 2, slots 3"
    assert repr(manifest) == f"<Manifest of epoch 1, published {manifest.time}: {counts}>"
    assert replace(manifest, publisher="another") != manifest == replace(manifest)


def test_a_lineage_is_a_full_run_and_the_differences_since(location: Location, publish: Publisher) -> None:
    chain = Chain.open_or_create(location, 2)
    publish(chain, {"a": 1}, {"b": 1})
    publish(chain, {}, {"b": 2})
    publish(chain, {"a": 3}, {})
    kinds = {CheckpointKind.FULL: "F", CheckpointKind.DIFFERENTIAL: "D"}
    shapes = [
        [f"{kinds[run.kind]}{run.epoch}" for run in Chain.open(location).lineage(OPERATOR, shard, epoch)]
        for shard, epoch in ((0, None), (1, None), (0, 1), (1, 2), (0, 0))
    ]
    assert shapes == [["F1", "D3"], ["F1", "D2"], ["F1"], ["F1", "D2"], []]
    assert chain.lineage("unknown operator", 0) == ()


def test_a_full_run_starts_the_lineage_anew(location: Location, publish: Publisher) -> None:
    chain = Chain.open_or_create(location, 1)
    for number in range(10):
        publish(chain, {"a": number}, full_after=3)
    fulls = [
        manifest.epoch for manifest in Chain.open(location).manifests() for run in manifest.runs if run.kind == "full"
    ]
    assert fulls == [1, 5, 9]
    assert [run.epoch for run in chain.lineage(OPERATOR, 0)] == [9, 10]
    assert [run.epoch for run in chain.lineage(OPERATOR, 0, 8)] == [5, 6, 7, 8]


def test_a_chain_that_follows_keeps_what_its_newest_lineages_need(location: Location, publish: Publisher) -> None:
    driver, follower = Chain.open_or_create(location, 1), Chain.open(location)
    for number in range(10):
        publish(driver, {"a": number}, full_after=3)
        follower.refresh()
        assert [run.epoch for run in follower.lineage(OPERATOR, 0)] == [
            run.epoch for run in driver.lineage(OPERATOR, 0)
        ]
        assert len(follower._manifests) <= 5
    assert [manifest.epoch for manifest in follower.manifests()] == [*range(1, 11)]


def test_a_full_run_waits_until_the_differences_outweigh_it(location: Location, publish: Publisher) -> None:
    chain = Chain.open_or_create(location, 1)
    publish(chain, {f"key {number}": number for number in range(5000)}, full_after=3)
    for number in range(6):
        publish(chain, {"key 1": number}, full_after=3)
    assert [run.kind for run in chain.lineage(OPERATOR, 0)] == ["full"] + ["differential"] * 6


def test_a_committed_batch_is_recognised(location: Location, publish: Publisher) -> None:
    chain = Chain.open_or_create(location, 1)
    publish(chain, {"a": 1})
    publish(chain, {"a": 2})
    for batch in (0, 1):
        assert Chain.open(location).begin(SourcePosition("q", batch), [OPERATOR]) is None
    plan = chain.begin(SourcePosition("q", 2), [OPERATOR])
    assert plan is not None
    assert plan.epoch == 3


def test_a_committed_batch_that_comes_with_other_rows_is_refused(location: Location, publish: Publisher) -> None:
    chain = Chain.open_or_create(location, 1)
    for batch, offsets in enumerate(("", "first", "second")):
        plan = chain.begin(SourcePosition("q", batch, offsets), [OPERATOR])
        assert plan is not None
        chain.publish(plan, {OPERATOR: [ShardSaved(OPERATOR, 0, None)]})
    again = Chain.open(location)
    for batch, offsets in ((0, "any"), (1, "first"), (1, ""), (2, "second")):
        assert again.begin(SourcePosition("q", batch, offsets), [OPERATOR]) is None
    with pytest.raises(CheckpointError, match="batch 1 again, with other rows than those that epoch 2 holds"):
        again.begin(SourcePosition("q", 1, "second"), [OPERATOR])


def test_a_batch_that_follows_another_one_than_the_space_is_refused(location: Location) -> None:
    chain = Chain.open_or_create(location, 1)
    batches = [("q", 0, ""), ("q", 1, "one"), ("other", 0, "zero"), ("q", 2, "two"), ("other", 1, "one")]
    for query, batch, offsets in batches:
        plan = chain.begin(SourcePosition(query, batch, offsets), [OPERATOR])
        assert plan is not None
        chain.publish(plan, {OPERATOR: [ShardSaved(OPERATOR, 0, None)]})
    again = Chain.open(location)
    assert again.newest is not None
    assert b"before" not in again.newest.to_json()
    for query, batch, before in (("q", 3, "two"), ("q", 3, ""), ("other", 2, "one")):
        assert again.begin(SourcePosition(query, batch, "any", before), [OPERATOR]) is not None
    with pytest.raises(
        CheckpointError, match="batch 3, and its batch 2 has other rows than the one that epoch 4 holds"
    ):
        again.begin(SourcePosition("q", 3, "any", "two of another history"), [OPERATOR])
    chain.collect(grace_seconds=0, keep_epochs=1)
    assert Chain.open(location).begin(SourcePosition("q", 3, "any", "any"), [OPERATOR]) is not None, "not kept"


def test_a_batch_that_follows_one_whose_rows_nobody_noted_is_taken(location: Location, publish: Publisher) -> None:
    chain = Chain.open_or_create(location, 1)
    publish(chain, {"a": 1})
    assert chain.begin(SourcePosition("q", 1, "one", "zero"), [OPERATOR]) is not None


def test_a_batch_whose_epoch_is_not_kept_any_more_is_refused(location: Location) -> None:
    chain = Chain.open_or_create(location, 1)
    for batch in range(30):
        plan = chain.begin(SourcePosition("q", batch, f"rows {batch}"), [OPERATOR])
        assert plan is not None
        chain.publish(plan, {OPERATOR: [ShardSaved(OPERATOR, 0, None)]})
    chain.collect(grace_seconds=0, keep_epochs=4)
    again = Chain.open(location)
    assert again.begin(SourcePosition("q", 29, "rows 29"), [OPERATOR]) is None
    with pytest.raises(CheckpointError, match="batch 5 again, whose epoch is no longer kept"):
        again.begin(SourcePosition("q", 5, "other rows"), [OPERATOR])


def test_another_query_starts_again_at_batch_0(location: Location, publish: Publisher) -> None:
    chain = Chain.open_or_create(location, 1)
    publish(chain, {"a": 1})
    assert publish(chain, {"a": 2}, query="other").committed == {"q": 0, "other": 0}
    assert chain.begin(SourcePosition("q", 0), [OPERATOR]) is None


def test_missing_batches_are_refused(location: Location, publish: Publisher) -> None:
    chain = Chain.open_or_create(location, 1)
    publish(chain, {"a": 1})
    with pytest.raises(CheckpointError, match="comes with batch 5, but the last one committed here is 0"):
        chain.begin(SourcePosition("q", 5), [OPERATOR])
    chain.require_committed(SourcePosition("q", 0))
    for query, batch, found in (("q", 1, "the last one committed here is 0"), ("r", 0, "none of its batches is")):
        with pytest.raises(CheckpointError, match=f"query {query} comes with batch {batch + 1}, (but|and) {found}"):
            chain.require_committed(SourcePosition(query, batch))


def test_a_query_that_has_fed_another_location_is_refused(location: Location, publish: Publisher) -> None:
    chain = Chain.open_or_create(location, 1)
    for _ in range(2):
        with pytest.raises(CheckpointError, match="comes with batch 2, and none of its batches is committed here"):
            chain.begin(SourcePosition("elsewhere", 2), [OPERATOR])
        publish(chain, {"a": 1})


def test_the_second_of_two_drivers_is_fenced(location: Location, publish: Publisher) -> None:
    first, second = Chain.open_or_create(location, 1), Chain.open_or_create(location, 1)
    assert first.incarnation == second.incarnation
    publish(first, {"a": 1})
    with pytest.raises(FencedError, match="epoch 1 was published by another driver first"):
        publish(second, {"a": 100})
    newest = Chain.open(location).newest
    assert newest == first.newest
    assert second.epoch == 0


def test_whoever_reads_beside_a_driver_leaves_its_fence_alone(location: Location, publish: Publisher) -> None:
    first, second = Chain.open_or_create(location, 1), Chain.open_or_create(location, 1)
    publish(first, {"a": 1})
    assert second.newest_view().epoch == 1
    assert second.epoch == 0
    with pytest.raises(FencedError, match="epoch 1 was published by another driver first"):
        publish(second, {"a": 100})


def replace_space(folder: Path, copy: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)


@pytest.mark.parametrize("epochs", [0, 1, 3])
def test_a_driver_whose_space_was_made_anew_is_fenced(tmp_path: Path, publish: Publisher, epochs: int) -> None:
    location = location_at(tmp_path / "space")
    first = Chain.open_or_create(location, 1)
    for number in range(2):
        publish(first, {"a": number})
    shutil.rmtree(tmp_path / "space")
    with pytest.raises(FencedError, match=r"the folder is gone: .* nothing was written"):
        publish(first, {"a": 2})
    shutil.rmtree(tmp_path / "space", ignore_errors=True)
    second = Chain.open_or_create(location, 1)
    for number in range(epochs):
        publish(second, {"b": number})
    with pytest.raises(FencedError, match=r"space\.json names the incarnation .* nothing was published"):
        publish(first, {"a": 2})
    publish(second, {"b": 3})
    assert Chain.open(location).newest == second.newest


def put_back(folder: Path, publish: Publisher, more: int) -> tuple[Location, Chain, Chain]:
    """Return a location where a copy from epoch 1 was put back, a chain that had seen epoch 3, and one that went on."""
    location = location_at(folder / "space")
    first = Chain.open_or_create(location, 1)
    publish(first, {"a": 0})
    shutil.copytree(folder / "space", folder / "copy")
    for number in range(2):
        publish(first, {"a": number})
    replace_space(folder / "space", folder / "copy")
    second = Chain.open(location)
    for number in range(more):
        publish(second, {"b": number})
    return location, first, second


@pytest.mark.parametrize("more", [0, 2])
def test_a_driver_whose_space_became_an_older_copy_is_fenced(tmp_path: Path, publish: Publisher, more: int) -> None:
    location, first, second = put_back(tmp_path, publish, more)
    what = "is another one than the next epoch builds upon" if more else "is gone, which the next epoch builds upon"
    with pytest.raises(FencedError, match=rf"manifest/000000000003\.json {what}: an older copy was put back"):
        publish(first, {"a": 2})
    publish(second, {"b": 3})
    assert [run.epoch for run in Chain.open(location).lineage(OPERATOR, 0)] == [*range(1, more + 3)]


@pytest.mark.parametrize("more", [0, 2, 3])
def test_a_chain_from_before_an_older_copy_mixes_no_histories(tmp_path: Path, publish: Publisher, more: int) -> None:
    _, first, second = put_back(tmp_path, publish, more)
    what = "is another one" if more >= 2 else "is gone"
    with pytest.raises(FencedError, match=rf"manifest/000000000003\.json {what}.*make a new Pipeline"):
        first.refresh()
    found = first.newest_view()
    assert found.newest == second.newest
    assert found.lineage(OPERATOR, 0) == second.lineage(OPERATOR, 0)
    assert first.epoch == 3, "the fence of a driver stays where it was"


@pytest.mark.parametrize("epochs", [0, 1, 3])
def test_a_chain_from_before_a_space_was_made_anew_reads_the_new_one(
    tmp_path: Path, publish: Publisher, epochs: int
) -> None:
    location = location_at(tmp_path / "space")
    first = Chain.open_or_create(location, 1)
    publish(first, {"a": 0})
    shutil.rmtree(tmp_path / "space")
    with pytest.raises(CheckpointError, match="no space here"):
        first.newest_view()
    second = Chain.open_or_create(location, 1)
    for number in range(epochs):
        publish(second, {"b": number})
    with pytest.raises(FencedError, match=r"space\.json names the incarnation .*make a new Pipeline"):
        first.refresh()
    found = first.newest_view()
    assert (found.incarnation, found.newest) == (second.incarnation, second.newest)


def test_a_chain_whose_epochs_were_collected_goes_on_with_those_that_are_kept(
    location: Location, publish: Publisher
) -> None:
    driver = Chain.open_or_create(location, 1)
    publish(driver, {"a": 0})
    slept = Chain.open(location)
    assert slept.newest == driver.newest
    for number in range(3):
        publish(driver, {"a": number}, full_after=0)
    driver.collect(grace_seconds=0, keep_epochs=1)
    assert slept.newest_view().newest == driver.newest
    slept.refresh()
    assert slept.newest == driver.newest


def test_nothing_is_published_unless_every_shard_has_one_message(location: Location) -> None:
    chain = Chain.open_or_create(location, 3)
    plan = chain.begin(SourcePosition("q", 0), [OPERATOR])
    assert plan is not None
    saved = [save_run(plan.operators[OPERATOR], shard, run_of({"a": 1}, CheckpointKind.FULL)) for shard in (0, 1, 1)]
    with pytest.raises(CheckpointError, match=r"each of 3 shards, found shards \[0, 1, 1\]"):
        chain.publish(plan, {OPERATOR: saved})
    with pytest.raises(CheckpointError, match=r"found shards \[\]"):
        chain.publish(plan, {})
    whole = [*saved[:2], save_run(plan.operators[OPERATOR], 2, run_of({"a": 1}, CheckpointKind.FULL))]
    with pytest.raises(CheckpointError, match=r"operator other: .* each of 3 shards, found shards \[3\]"):
        chain.publish(plan, {OPERATOR: whole, "other": [ShardSaved("other", 3, None)]})
    assert Chain.open(location).epoch == 0


def test_a_first_run_that_is_no_full_one_is_refused(location: Location) -> None:
    chain = Chain.open_or_create(location, 1)
    plan = chain.begin(SourcePosition("q", 0), [OPERATOR])
    assert plan is not None
    saved = [save_run(plan.operators[OPERATOR], 0, run_of({"a": 1}))]
    with pytest.raises(
        CheckpointError, match="counter, shard 0: its first run is a differential one, whose rows nobody"
    ):
        chain.publish(plan, {OPERATOR: saved})
    assert Chain.open(location).epoch == 0


def test_a_message_that_was_saved_for_another_epoch_or_shard_is_refused(location: Location) -> None:
    chain = Chain.open_or_create(location, 2)
    plan = chain.begin(SourcePosition("q", 0), [OPERATOR])
    assert plan is not None
    full = run_of({"a": 1}, CheckpointKind.FULL)
    one, other = (save_run(plan.operators[OPERATOR], shard, full) for shard in range(2))
    with pytest.raises(CheckpointError, match="shard 1: its run was saved for counter/0 at epoch 1, and epoch 1 is to"):
        chain.publish(plan, {OPERATOR: [replace(one, shard=1), replace(other, shard=0)]})
    chain.publish(plan, {OPERATOR: [one, other]})
    following = chain.begin(SourcePosition("q", 1), [OPERATOR])
    assert following is not None
    with pytest.raises(CheckpointError, match="shard 0: its run was saved for counter/0 at epoch 1, and epoch 2 is to"):
        chain.publish(following, {OPERATOR: [one, other]})
    assert Chain.open(location).epoch == 1


@pytest.mark.parametrize("name", ["9", "9.json", "x.json", "000000000009", "000000000009.json.bak"])
def test_a_stray_file_is_no_epoch(location: Location, publish: Publisher, name: str) -> None:
    publish(Chain.open_or_create(location, 1), {"a": 1})
    for folder in ("manifest", "floor"):
        location.write(f"{folder}/{name}", b"stray")
    chain = Chain.open(location)
    assert (chain.first_epoch, chain.epoch) == (1, 1)
    publish(chain, {"a": 2})
    assert Chain.open(location).newest == chain.newest


@pytest.mark.parametrize("figure", [float("nan"), float("inf"), 2**64, "3", None, np.float64(3)])
def test_a_metric_that_no_manifest_holds_is_refused(location: Location, figure: Any) -> None:
    chain = Chain.open_or_create(location, 1)
    plan = chain.begin(SourcePosition("q", 0), [OPERATOR])
    assert plan is not None
    message = ShardSaved(OPERATOR, 0, None)
    with pytest.raises(CheckpointError, match=r"metric 'rows' is .*: expected a finite number below"):
        chain.publish(plan, {OPERATOR: [message]}, {"rows": figure})
    with pytest.raises(CheckpointError, match=r"metric 'rows' is .*: expected a finite number below"):
        chain.publish(plan, {OPERATOR: [replace(message, metrics={"rows": figure})]})
    assert chain.publish(plan, {OPERATOR: [message]}, {"rows": 2**60, "is_late": True}).metrics["rows"] == 2**60
    newest = Chain.open(location).newest
    assert newest is not None
    assert newest.metrics == {"rows": 2**60, "is_late": True}


def test_what_no_reader_would_take_is_not_published(location: Location) -> None:
    chain = Chain.open_or_create(location, 2)
    plan = chain.begin(SourcePosition("q", 0), [OPERATOR])
    assert plan is not None
    saved = save_run(plan.operators[OPERATOR], True, run_of({"a": 1}, CheckpointKind.FULL))
    with pytest.raises(CheckpointError, match=r"epoch 1 would not be read .*: nothing was published"):
        chain.publish(plan, {OPERATOR: [ShardSaved(OPERATOR, 0, None), saved]})
    assert Chain.open(location).epoch == 0


@pytest.mark.parametrize(("query", "operator"), [("q\ud800", "o"), ("q", "o\udfff")])
def test_a_name_that_no_manifest_holds_is_refused(location: Location, query: str, operator: str) -> None:
    chain = Chain.open_or_create(location, 1)
    plan = chain.begin(SourcePosition(query, 0), [operator])
    assert plan is not None
    with pytest.raises(CheckpointError, match="cannot be stored as text: nothing was published"):
        chain.publish(plan, {operator: [ShardSaved(operator, 0, None)]})
    assert Chain.open(location).epoch == 0


@pytest.mark.parametrize("batch", [1.0, "0", True, -1])
def test_a_batch_that_is_no_number_is_refused(location: Location, batch: Any) -> None:
    with pytest.raises(CheckpointError, match=f"query q comes with batch {batch!r}: expected a whole number from 0"):
        Chain.open_or_create(location, 1).begin(SourcePosition("q", batch), [])


@pytest.mark.parametrize("wrong", [{"keep_epochs": "3"}, {"keep_epochs": 1.5}, {"grace_seconds": float("nan")}])
def test_a_collection_that_keeps_no_number_is_refused(location: Location, publish: Publisher, wrong: Any) -> None:
    chain = Chain.open_or_create(location, 1)
    publish(chain, {"a": 1})
    with pytest.raises(ValueError, match="expected a whole number from 1 on, and a number of seconds from 0 on"):
        chain.collect(**wrong)
    with pytest.raises(UnknownCheckpointError, match=r"no epoch 1\.5: expected one from 1 to 1"):
        chain.manifest(1.5)  # type: ignore[arg-type]


def test_a_message_survives_as_text(location: Location) -> None:
    plan = Chain.open_or_create(location, 1).operator_plan(OPERATOR)
    saved = save_run(plan, 0, run_of({"a": 1}, CheckpointKind.FULL), {"rows": 3})
    assert ShardSaved.from_json(saved.to_json()) == saved
    unchanged = save_run(plan, 0, run_of({}))
    assert unchanged.run is None
    assert ShardSaved.from_json(unchanged.to_json()) == unchanged


def test_the_number_of_shards_stays(location: Location) -> None:
    Chain.open_or_create(location, 4)
    with pytest.raises(CheckpointError, match="has 4 shards, found a pipeline with 8: run it with shards=4") as caught:
        Chain.open_or_create(location, 8)
    assert not isinstance(caught.value, FencedError)


def test_a_space_whose_manifests_are_out_of_sight_is_not_called_new(tmp_path: Path, publish: Publisher) -> None:
    location = location_at(tmp_path / "space")
    with pytest.raises(CheckpointError, match="or stop what runs on it and remove the location, if it never had one"):
        Chain.open_or_create(location, Chain.open_or_create(location, 1).shards + 1)
    for number in range(2):
        publish(Chain.open_or_create(location, 1), {"a": number})
    (tmp_path / "space" / "manifest").rename(tmp_path / "manifest")
    with pytest.raises(CorruptStoreError, match=r"no manifest is listed, .* remove nothing"):
        Chain.open_or_create(location, 2)


@pytest.mark.parametrize("shards", [0, 257, 2.5, True, "2"])
def test_a_number_of_shards_that_is_none_is_refused(location: Location, shards: Any) -> None:
    with pytest.raises(CheckpointError, match=f"expected 1 to 256 shards, found {shards!r}: give their number"):
        Chain.open_or_create(location, shards)
    assert location.read("space.json") is None


def test_a_location_without_a_space_is_refused(location: Location) -> None:
    with pytest.raises(CheckpointError, match=r"no space here: expected a file space\.json"):
        Chain.open(location)
    assert location.names("") == []


def test_an_unknown_epoch_is_named(location: Location, publish: Publisher) -> None:
    chain = Chain.open_or_create(location, 1)
    publish(chain, {"a": 1})
    with pytest.raises(UnknownCheckpointError, match="no epoch 9: expected one from 1 to 1"):
        chain.manifest(9)


def test_a_view_of_the_newest_epochs_reads_no_manifest_again_that_is_known(
    location: Location, publish: Publisher
) -> None:
    chain = Chain.open_or_create(location, 1)
    known = [publish(chain, {"a": number}) for number in range(3)]
    view = chain.newest_view()
    assert all(view.manifest(one.epoch) is one for one in known)


@pytest.mark.parametrize("name", ["space.json", "manifest/000000000001.json"])
def test_damage_of_a_file_is_found(location: Location, publish: Publisher, name: str) -> None:
    publish(Chain.open_or_create(location, 1), {"a": 1})
    data = location.read(name) or b""
    for place in range(0, len(data), 3):
        if data[place : place + 1].isspace():
            continue  # the layout of the JSON carries nothing
        location.write(name, data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(CheckpointError, match=name):
            _ = Chain.open(location).newest
        TALLY["bytes flipped"] += 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"runs": None},
        {"runs": [{}]},
        {"runs": [{"file": "../outside.parquet"}]},
        {"runs": [{"file": "/outside.parquet"}]},
        {"runs": [{"shard": 1}]},
        {"runs": [{"slots": "1"}]},
        {"runs": [{"epoch": 2}]},
        {"runs": [{"epoch": 0}]},
        {"runs": [{"operator": ["a"]}]},
        {"lineage": {OPERATOR: []}},
        {"lineage": {OPERATOR: [2]}},
        {"shards": "1"},
        {"lineage": {}, "runs": [], "shards": 2**40},
        {"epoch": "1"},
        {"committed": {"q": None}},
        {"metrics": 5},
        {"source": {}},
        {"unknown": 1},
        {"format": 2},
    ],
)
def test_what_no_epoch_is_like_is_refused(location: Location, publish: Publisher, wrong: dict[str, Any]) -> None:
    publish(Chain.open_or_create(location, 1), {"a": 1})
    name = "manifest/000000000001.json"
    values = unseal(location.read(name) or b"", name)
    if wrong.get("runs"):
        wrong = {"runs": [{**values["runs"][0], **run} if run else run for run in wrong["runs"]]}
    location.write(name, seal({**values, **wrong}))
    with pytest.raises(CorruptStoreError, match=f"{name}.* is no manifest"):
        _ = Chain.open(location).newest
    location.write("space.json", seal({**unseal(location.read("space.json") or b"", ""), "unknown": 1}))
    with pytest.raises(CorruptStoreError, match=r"space\.json.* founds no space"):
        Chain.open(location)


@pytest.mark.parametrize(("name", "newest"), [("space.json", 1), ("manifest/000000000001.json", 4)])
def test_a_newer_format_is_refused(location: Location, publish: Publisher, name: str, newest: int) -> None:
    publish(Chain.open_or_create(location, 1), {"a": 1})
    values = orjson.loads(location.read(name) or b"")
    del values["checksum"]
    location.write(name, seal({**values, "format": newest + 1, "new": True}))
    with pytest.raises(CheckpointError, match=f"has format {newest + 1}: expected at most {newest}: upgrade"):
        _ = Chain.open(location).newest


def test_a_missing_manifest_is_named(tmp_path: Path, publish: Publisher) -> None:
    location = location_at(tmp_path / "space")
    chain = Chain.open_or_create(location, 1)
    publish(chain, {"a": 1})
    publish(chain, {"a": 2})
    (tmp_path / "space" / "manifest" / "000000000001.json").unlink()
    with pytest.raises(CorruptStoreError, match=r"manifest/000000000001\.json .* is missing"):
        Chain.open(location).lineage(OPERATOR, 0)


def test_a_manifest_of_another_space_is_refused(tmp_path: Path, publish: Publisher) -> None:
    one, other = (location_at(tmp_path / name) for name in ("one", "other"))
    publish(Chain.open_or_create(one, 1), {"a": 1})
    Chain.open_or_create(other, 1)
    other.write("manifest/000000000001.json", one.read("manifest/000000000001.json") or b"")
    with pytest.raises(CorruptStoreError, match="two spaces were mixed up"):
        _ = Chain.open(other).newest


def test_a_lineage_ends_before_a_cache_forgets_its_beginning(tmp_path: Path) -> None:
    def kind_after(runs: int) -> CheckpointKind:
        lineage = tuple(
            AcceptedRun(OPERATOR, 0, number, f"run/{number}", kind, "digest", "checksum", 1, 1, size)
            for number, kind, size in [(1, CheckpointKind.FULL, 10**9)]
            + [(number, CheckpointKind.DIFFERENTIAL, 1) for number in range(2, runs + 1)]
        )
        plan = OperatorPlan(location_at(tmp_path), "", OPERATOR, runs + 1, (lineage,), full_after=100_000)
        return plan.kind(0)

    assert kind_after(MOST_RUNS) is CheckpointKind.DIFFERENTIAL
    assert kind_after(MOST_RUNS + 1) is CheckpointKind.FULL
    assert MOST_RUNS + 1 < DEFAULT_RECORDS
