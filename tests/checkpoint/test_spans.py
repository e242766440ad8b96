"""Larger runs are stored with the least and the greatest slot of each object: right ones, or they count for nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from checkpoint import CheckpointStore, CorruptStoreError, Run, spans, tiers
from tests.checkpoint.store_helpers import DIFFERENTIAL, FULL, quick_store, run_of, values_in

ROWS, RUNS = 20, 30


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take runs of few rows for large ones."""
    monkeypatch.setattr(spans, "LEAST_ROWS", ROWS)
    monkeypatch.setattr(tiers, "_LARGE_ROWS", ROWS)


def grown(path: Path | str, runs: int = RUNS) -> CheckpointStore:
    """Return a store to which each checkpoint has added slots beyond all that were there."""
    store = quick_store(path)
    for start in range(0, runs * ROWS, ROWS):
        store.append(run_of(dict.fromkeys(range(start, start + ROWS), start)))
    return store


def statements(store: CheckpointStore) -> list[str]:
    """Return the list of the statements that read slots from now on."""
    found: list[str] = []
    store.session.connection.set_trace_callback(lambda text: found.append(text) if "_item" in text else None)
    return found


def stored(store: CheckpointStore) -> list[tuple[Any, ...]]:
    return store.database.execute("SELECT run, object, low, high, deletes FROM span ORDER BY run, object").fetchall()


def test_larger_runs_are_stored_with_their_spans() -> None:
    store = quick_store(":memory:")
    both = run_of(dict.fromkeys(range(ROWS), 0)).items + run_of({"a": 1, b"z": None}, object_id=2).items
    store.append(Run(DIFFERENTIAL, run_of({}).index + run_of({}, object_id=2).index, [], both))
    store.append(run_of(dict.fromkeys(range(ROWS - 1), 0)))
    store.append(run_of(dict.fromkeys(range(50, 50 + ROWS), 0), FULL))
    store.append(Run(DIFFERENTIAL, [], [], [(number, 0, "1", None) for number in range(2 * ROWS)]))
    assert stored(store) == [(1, 1, 0, 19, 0), (1, 2, "a", b"z", 1), (3, 1, 0, 69, 0), (3, 2, "a", "a", 0)]
    assert store.verify()
    store.compact()
    (base,) = store.reader().runs
    assert stored(store)[-2:] == [(base, 1, 0, 69, 0), (base, 2, 0, "a", 0)]
    assert store.verify()


def test_a_process_that_has_just_begun_asks_the_runs_that_may_have_a_slot(tmp_path: Path) -> None:
    grown(tmp_path / "state.db").close()
    with CheckpointStore(tmp_path / "state.db", read_only=True) as store:
        reader, found = store.reader(), statements(store)
        assert len(reader.runs) == RUNS
        assert reader.item(1, 333) == (333, "320", None)
        assert reader.item(1, RUNS * ROWS) is reader.item(2, 5) is None
        assert [text.count("checkpoint") for text in found] == [1], "one run, and none where none can have it"
        del found[:]
        assert len(reader.items_at(1, range(100, 140))) == 40
        assert reader.item(1, "text") is None
        assert not any("ORDER BY slot" in text for text in found), "no run is searched for its ends"


@pytest.mark.parametrize("reverse", [False, True])
def test_a_range_is_read_from_the_runs_that_reach_into_it(reverse: bool) -> None:
    with grown(":memory:") as store:
        reader, found = store.reader(), statements(store)
        slots = [item.slot for item in reader.items(1, 45, 95, reverse=reverse)]
        assert slots == (list(range(95, 44, -1)) if reverse else list(range(45, 96)))
        named = re.findall(r"checkpoint (?:= |IN \()([\d, ]+)", " ".join(found))
        asked = {int(run) for runs in named for run in runs.split(",")}
        assert asked == {3, 4, 5}, "those of slots 40 to 99"


def test_spans_go_with_their_runs(tmp_path: Path) -> None:
    with grown(tmp_path / "state.db") as store:
        store.truncate_after(10)
        assert {row[0] for row in stored(store)} == set(range(1, 11))
        store.append(run_of(dict.fromkeys(range(-100, -50), "other")))
        assert [store.reader().item(1, slot) for slot in (215, -60)] == [None, (-60, '"other"', None)]
        store.fork(tmp_path / "fork.db")
        with quick_store(tmp_path / "fork.db") as fork:
            assert stored(fork) == stored(store)
            assert fork.verify()
        store.prune(keep=1)
        store.compact()
        assert {row[0] for row in stored(store)} == {run.run for run in store._runs}
        assert store.verify()


DAMAGES = {
    "another slot": "UPDATE span SET high = 25 WHERE run = 2",
    "another type": "UPDATE span SET low = '20' WHERE run = 2",
    "another run": "UPDATE span SET run = 2.5 WHERE run = 2",
    "deletions": "UPDATE span SET deletes = 1 WHERE run = 2",
    "another count": "UPDATE span SET objects = 2 WHERE run = 2",
    "one of two": "DELETE FROM span WHERE run = 3 AND object = 2",
    "nonsense": "UPDATE span SET objects = 'x', checksum = x'00', low = x'ff' WHERE run = 2",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_spans_are_not_believed(damage: str, tmp_path: Path) -> None:
    with grown(tmp_path / "state.db", runs=2) as store:
        items = run_of(dict.fromkeys(range(40, 60), 40)).items + run_of({0: "two"}, object_id=2).items
        store.append(Run(DIFFERENTIAL, run_of({}, object_id=2).index, [], items))
        store.append(run_of({1000: 0}))
        assert store.verify()
        store.database.execute(damage)
    with quick_store(tmp_path / "state.db") as store:
        reader = store.reader()
        assert [reader.item(1, slot) for slot in range(60)] == [
            (slot, str(slot // 20 * 20), None) for slot in range(60)
        ]
        assert reader.item(2, 0) == (0, '"two"', None)
        assert len(reader.items_at(1, range(60))) == 60
        with pytest.raises(CorruptStoreError, match=r"the spans of run|span has rows under run 2\.5"):
            store.verify()
        assert "span" in "".join(store.repair().damage)
        assert store.verify()
        assert values_in(store.reader()) == {**{slot: slot // 20 * 20 for slot in range(60)}, 1000: 0}
