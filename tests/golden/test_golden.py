"""The golden files: what this version wrote once opens, reads and verifies for ever, and work goes on with it."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from checkpoint import CheckpointError, CheckpointStore, seals
from checkpoint.chain import Chain, SourcePosition, decode_run, location_at
from objectspace import PersistedObjectSpace
from tests.checkpoint.store_helpers import assert_bodies
from tests.golden import (
    chain_1,
    chain_2,
    chain_3,
    chain_4,
    format_1,
    format_2,
    format_3,
    format_4,
    format_5,
    format_6,
    run_2,
)

STATES = {10: format_1.FIRST, 20: format_1.SECOND, 30: format_1.SECOND}


def test_the_golden_store_of_format_1_is_read_as_it_is(golden: Path) -> None:
    with CheckpointStore(golden, read_only=True) as store:
        assert store.database.execute("PRAGMA user_version").fetchone() == (1,)
        assert store.verify() == 3
        assert format_1.contents(PersistedObjectSpace(store)) == format_1.SECOND


def test_the_golden_store_of_format_1_is_forked_as_it_is(golden: Path, tmp_path: Path) -> None:
    with CheckpointStore(golden, read_only=True) as store:
        store.fork(tmp_path / "fork.db", epoch=20)
        assert store.database.execute("PRAGMA user_version").fetchone() == (1,)
    firsts = "SELECT number, run_first FROM checkpoint WHERE number < 3"
    with CheckpointStore(golden) as upgraded, PersistedObjectSpace.open(tmp_path / "fork.db") as fork:
        assert fork.store.database.execute(firsts).fetchall() == upgraded.database.execute(firsts).fetchall()
        assert fork.store.verify() == 2
        assert [format_1.contents(fork.at(epoch)) for epoch in (10, 20)] == [STATES[10], STATES[20]]


def test_the_golden_store_of_format_2_reads_at_every_epoch(tmp_path: Path) -> None:
    path = Path(shutil.copy(format_2.PATH, tmp_path / "state.db"))
    with PersistedObjectSpace.open(path) as space:
        kept = [record.epoch for record in space.store.checkpoints() if record.run_slots is not None]
        assert kept == list(range(9, format_2.EPOCHS + 1))
        assert space.store.verify() == len(kept)
        assert space.store.configure().history == 12
        assert space.store.database["run"].count > 1
        for epoch in kept:
            assert format_2.contents(space.at(epoch)) == format_2.expected(epoch)
        space.get_list("log").append("on")
        space.checkpoint()
        space.store.prune(keep=5)
        kept = [record.epoch for record in space.store.checkpoints() if record.run_slots is not None]
        assert kept[-5:] == [27, 28, 29, 30, 31]
        assert space.store.verify() == len(kept)
        assert list(space.get_list("log")) == [*format_2.expected(format_2.EPOCHS)["log"], "on"]


def test_the_golden_store_of_format_2_is_read_and_forked_as_it_is(tmp_path: Path) -> None:
    path = Path(shutil.copy(format_2.PATH, tmp_path / "state.db"))
    with CheckpointStore(path, read_only=True) as store:
        assert store.database.execute("PRAGMA user_version").fetchone() == (2,)
        assert store.verify() == 22
        reader = store.reader()
        assert [reader.item(2, slot % 30) for slot in range(100)] == [
            (slot % 30, f'"entry {slot % 30 + 1}"', None) for slot in range(100)
        ]
        store.fork(tmp_path / "fork.db", epoch=20)
    with PersistedObjectSpace.open(tmp_path / "fork.db") as fork:
        assert fork.store.verify() == 12
        assert format_2.contents(fork) == format_2.expected(20)


def test_the_golden_store_of_format_3_reads_at_every_epoch_and_by_its_filter(tmp_path: Path) -> None:
    path = Path(shutil.copy(format_3.PATH, tmp_path / "state.db"))
    with PersistedObjectSpace.open(path, cache_slots=100) as space:
        kept = [record.epoch for record in space.store.checkpoints() if record.run_slots is not None]
        assert kept[-10:] == list(range(format_3.EPOCHS - 9, format_3.EPOCHS + 1))
        assert space.store.verify() == len(kept)
        assert space.store.database["filter"].count
        assert any(not isinstance(run, int) for run in space.store.reader().runs), "a merged run"
        for epoch in kept:
            assert format_3.contents(space.at(epoch)) == format_3.expected(epoch)
        ages = space.get_dictionary("ages")
        assert [ages.get(f"n{number}") for number in range(-9, 500)] == [
            format_3.expected(format_3.EPOCHS)["ages"].get(f"n{number}") for number in range(-9, 500)
        ]
        ages["new"] = 1
        space.checkpoint()
        assert space.store.verify()
        assert dict(space.get_dictionary("ages")) == {**format_3.expected(format_3.EPOCHS)["ages"], "new": 1}


def test_the_golden_store_of_format_3_is_read_and_forked_as_it_is(tmp_path: Path) -> None:
    path = Path(shutil.copy(format_3.PATH, tmp_path / "state.db"))
    with CheckpointStore(path, read_only=True) as store:
        assert store.database.execute("PRAGMA user_version").fetchone() == (3,)
        assert store.verify()
        store.fork(tmp_path / "fork.db")
    with PersistedObjectSpace.open(tmp_path / "fork.db") as fork:
        assert fork.store.verify()
        assert format_3.contents(fork) == format_3.expected(format_3.EPOCHS)


def test_the_golden_store_of_format_4_reads_at_every_epoch_and_by_its_spans(tmp_path: Path) -> None:
    path = Path(shutil.copy(format_4.PATH, tmp_path / "state.db"))
    with PersistedObjectSpace.open(path, cache_slots=100) as space:
        kept = [record.epoch for record in space.store.checkpoints() if record.run_slots is not None]
        assert kept[-10:] == list(range(format_4.EPOCHS - 9, format_4.EPOCHS + 1))
        assert space.store.verify() == len(kept)
        assert space.store.database["span"].count
        for epoch in kept:
            assert format_4.contents(space.at(epoch)) == format_4.expected(epoch)
        log, expected = space.get_sparse_array("log"), format_4.expected(format_4.EPOCHS)["log"]
        assert [log[place] for place in range(0, 9_000, 7)] == [expected.get(place) for place in range(0, 9_000, 7)]
        log[1] = "new"
        space.checkpoint()
        assert space.store.verify()
        assert space.get_sparse_array("log").copy() == {**expected, 1: "new"}


def test_the_golden_store_of_format_5_reads_at_every_epoch_and_has_its_seals(tmp_path: Path) -> None:
    path = Path(shutil.copy(format_5.PATH, tmp_path / "state.db"))
    with PersistedObjectSpace.open(path) as space:
        database = space.store.database
        rows = {sealed.table: list(database.execute(sealed.select())) for sealed in seals.TABLES}
        assert [len(rows["checkpoint"]), rows["run"] != []] == [format_5.EPOCHS, True]
        assert all(map(seals.is_right, [*rows["checkpoint"], *rows["run"]]))
        kept = [record.epoch for record in space.store.checkpoints() if record.run_slots is not None]
        assert kept[-format_5.HISTORY :] == list(range(format_5.EPOCHS - format_5.HISTORY + 1, format_5.EPOCHS + 1))
        assert space.store.verify() == len(kept)
        for epoch in kept:
            assert format_5.contents(space.at(epoch)) == format_5.expected(epoch)
        space.get_list("log").append(format_5.EPOCHS + 1)
        space.checkpoint()
        assert space.get_list("log").copy() == format_5.expected(format_5.EPOCHS + 1)["log"]
        assert space.store.verify()


def kept_in(store: CheckpointStore) -> list[int]:
    return [record.epoch for record in store.checkpoints() if record.run_slots is not None]


def test_the_golden_store_of_format_6_reads_at_every_epoch(tmp_path: Path) -> None:
    path = Path(shutil.copy(format_6.PATH, tmp_path / "state.db"))
    with PersistedObjectSpace.open(path) as space:
        merged = space.store.database.execute("SELECT count(*) FROM run WHERE state = 'merged'").fetchone()[0]
        assert merged > 0
        assert_bodies(space.store)
        assert space.store.verify() == len(kept_in(space.store))
        for epoch in kept_in(space.store):
            assert format_6.contents(space.at(epoch)) == format_6.expected(epoch)


def test_a_store_with_large_values_in_their_rows_is_read_as_it_is(tmp_path: Path) -> None:
    path = Path(shutil.copy(format_6.BEFORE, tmp_path / "state.db"))
    before = path.read_bytes()
    with PersistedObjectSpace.open(path, read_only=True) as space:
        assert space.store.verify() == len(kept_in(space.store))
        for epoch in kept_in(space.store):
            assert format_6.contents(space.at(epoch)) == format_6.expected(epoch)
        space.store.fork(tmp_path / "fork.db")
    assert path.read_bytes() == before
    with PersistedObjectSpace.open(tmp_path / "fork.db") as space:
        assert format_6.contents(space) == format_6.expected(format_6.EPOCHS)
        assert space.store.verify()


def test_a_store_with_large_values_in_their_rows_goes_on(tmp_path: Path) -> None:
    path = Path(shutil.copy(format_6.BEFORE, tmp_path / "state.db"))
    with PersistedObjectSpace.open(path) as space:
        assert [format_6.contents(space.at(epoch)) for epoch in kept_in(space.store)] == [
            format_6.expected(epoch) for epoch in kept_in(space.store)
        ]
        places, last = space.get_dictionary("places"), space.get_value("last")
        for epoch in range(format_6.EPOCHS + 1, 2 * format_6.EPOCHS):
            places[epoch % 7] = last.value = format_6.value_of(epoch)
            space.checkpoint(epoch=epoch)
        for epoch in kept_in(space.store):
            assert format_6.contents(space.at(epoch)) == format_6.expected(epoch)
        assert_bodies(space.store)
        space.store.compact()
        (run,) = space.store.reader().runs
        inline = "SELECT max(length(value)) FROM state_item WHERE checkpoint = ?"
        assert space.store.database.execute(inline, (run,)).fetchone()[0] < 600
        assert space.store.verify()


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """A copy of the golden store."""
    return Path(shutil.copy(format_1.PATH, tmp_path / "state.db"))


def test_the_golden_store_of_format_1_reads_at_every_epoch(golden: Path) -> None:
    with CheckpointStore(golden) as store:
        assert [record.format for record in store.checkpoints()] == [1, 1, 1]
        assert store.verify() == 3
        assert store.database["state_item"].count > 50
    with PersistedObjectSpace.open(golden, read_only=True) as space:
        for epoch, state in STATES.items():
            view = space.at(epoch)
            assert format_1.contents(view) == state
            assert list(map(type, view.get_list("list")))[-13:] == list(map(type, format_1.VALUES))
            assert list(view.get_dictionary("dictionary")) == list(state["dictionary"])
        assert list(space.store.diff(a_epoch=20, b_epoch=30)) == []


def test_work_goes_on_with_the_golden_store(golden: Path) -> None:
    with PersistedObjectSpace.open(golden) as space:
        space.get_list("list").append("more")
        space.create_stack("stack").push(1)
        space.checkpoint()
        space._check()
        space.store.compact()
        assert space.store.verify() == 1
    with PersistedObjectSpace.open(golden) as space:
        expected = format_1.SECOND["list"] + ["more"]
        assert format_1.contents(space) == {**format_1.SECOND, "list": expected, "stack": [1]}


def test_the_golden_store_is_plain_to_any_sqlite_tool(golden: Path) -> None:
    connection = sqlite3.connect(golden)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    rows = dict(connection.execute("SELECT slot, value FROM current_item WHERE name = 'array'"))
    assert rows == {0: "0", 1: "43", 2: "42", 3: "0"}
    connection.close()


def test_this_version_still_makes_the_same_contents(tmp_path: Path) -> None:
    format_1.write(tmp_path / "new.db")
    with PersistedObjectSpace.open(tmp_path / "new.db") as space:
        assert {epoch: format_1.contents(space.at(epoch)) for epoch in STATES} == STATES


@pytest.mark.parametrize(("made", "version"), [(chain_1, 1), (chain_2, 2)])
def test_the_golden_chain_reads_at_every_epoch_and_goes_on(tmp_path: Path, made: Any, version: int) -> None:
    folder, cache = Path(shutil.copytree(made.PATH, tmp_path / "space")), tmp_path / "cache"
    chain = Chain.open(location_at(folder))
    assert (chain.shards, chain.epoch) == (chain_1.SHARDS, made.EPOCHS)
    assert chain.newest is not None
    assert (chain.first_epoch, chain.newest.format) == (made.EPOCHS - made.KEPT + 1, version)
    for epoch in range(chain.first_epoch, chain.epoch + 1):
        plan = chain.operator_plan(chain_1.OPERATOR, epoch, cache=str(cache / str(epoch)))
        for shard in range(chain.shards):
            assert chain_1.contents(plan, shard) == chain_1.expected(epoch, shard, made.is_in)
    chain_1.advance(chain, cache, made.is_in)
    plan = Chain.open(location_at(folder)).operator_plan(chain_1.OPERATOR, cache=str(cache))
    for shard in range(chain.shards):
        assert chain_1.contents(plan, shard) == chain_1.expected(made.EPOCHS + 1, shard, made.is_in)


def test_the_golden_chain_of_format_3_is_divided_as_ever(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(chain_3.PATH, tmp_path / "space"))
    chain = Chain.open(location_at(folder))
    assert [manifest.format for manifest in chain.manifests()] == [1, 3, 1]
    for manifest in chain.manifests():
        plan = chain.operator_plan(chain_3.OPERATOR, manifest.epoch, cache=str(tmp_path / str(manifest.epoch)))
        for shard in range(manifest.shards):
            found, steps = chain_3.contents(plan, shard), chain_3.expected(manifest.epoch, manifest.shards, shard)
            texts = {key: step for key, step in steps.items() if isinstance(key, str)}
            assert dict(found["counts"]) == steps
            assert dict(found["logs"]) == {key: [*range(1, step + 1)] for key, step in steps.items()}
            assert set(found["seen"]) == set(steps)
            assert found["sorted"] == sorted(texts)
            assert found["ordered"] == found["table"] == sorted(texts.items())
        digests = [chain_3.digest_of(plan, shard) for shard in range(manifest.shards)]
        assert digests == chain_3.DIGESTS.get(manifest.epoch, digests)


def test_the_golden_chain_of_format_4_is_read_and_nothing_goes_on_from_it(tmp_path: Path) -> None:
    chain = Chain.open(location_at(chain_4.PATH))
    assert [manifest.format for manifest in chain.manifests()] == [4]
    plan = chain.operator_plan(chain_3.OPERATOR, cache=str(tmp_path))
    for shard in range(chain.shards):
        wanted = chain_3.expected(chain_4.EPOCH, chain.shards, shard)
        assert chain_4.contents(plan, shard) == {chain_4.NAME: wanted}
    with pytest.raises(CheckpointError, match="it is a copy of only some objects of another space"):
        chain.begin(SourcePosition("golden", 2), [chain_3.OPERATOR])


def test_the_golden_run_file_of_format_2_is_read() -> None:
    file = pq.ParquetFile(run_2.PATH)
    assert file.metadata.metadata[b"format"] == b"2"
    assert {"value_number_0", "value_number_1"} < set(file.schema_arrow.names)
    assert decode_run(run_2.PATH.read_bytes()) == run_2.expected()
