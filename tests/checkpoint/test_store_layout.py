"""Where the rows of a checkpoint lie, and how they are shown."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from checkpoint import CheckpointError, CheckpointStore, Receipt, Run, RunRefusedError
from objectspace import PersistedObjectSpace
from tests.checkpoint.store_helpers import (
    DIFFERENTIAL,
    FULL,
    Model,
    image_of,
    quick_store,
    random_run,
    run_of,
    values_in,
)


def seed_example(store: CheckpointStore) -> tuple[PersistedObjectSpace, Any]:
    space = PersistedObjectSpace(store)
    array = space.create_array("foo", 8, default=0)
    array[3], array[5] = 42, 43
    writer = store.writer(FULL)
    space.save(writer)
    writer.commit()
    space.on_saved()
    return space, array


def table(store: CheckpointStore, name: str, columns: str = "*") -> list[tuple[Any, ...]]:
    return store.database.execute(f"SELECT {columns} FROM {name}").fetchall()


def test_the_views_list_the_state_as_a_person_would() -> None:
    store = CheckpointStore(":memory:")
    seed_example(store)
    assert table(store, "current_index", "name, value") == [("foo", '{"kind":"Array"}')]
    assert ("foo", "length", "8") in table(store, "current_metadata", "name, key, value")
    shown = table(store, "current_item", "name, slot, value")
    assert shown == [("foo", slot, {3: "42", 5: "43"}.get(slot, "0")) for slot in range(8)]


def test_a_differential_checkpoint_writes_one_row_for_one_slot() -> None:
    store = CheckpointStore(":memory:")
    space, array = seed_example(store)
    array[3] = 44
    assert space.checkpoint().slots == 1
    assert table(store, "state_item WHERE checkpoint = 2", "slot, value") == [(3, "44")]
    assert table(store, "state_index WHERE checkpoint = 2") == []
    assert table(store, "current_item WHERE slot = 3", "value") == [("44",)]


def test_every_checkpoint_has_a_record_and_keeps_its_rows_under_its_number() -> None:
    store = CheckpointStore(":memory:")
    runs = [run_of({1: "a"}), Run(DIFFERENTIAL), run_of({1: None, 2: "b"}), run_of({3: "c"}, FULL)]
    receipts = [store.append(run, epoch) for run, epoch in zip(runs, (5, 7, 8, 100))]
    assert [(r.number, r.epoch, r.kind, r.slots) for r in receipts] == [
        (1, 5, DIFFERENTIAL, 1),
        (2, 7, DIFFERENTIAL, 0),
        (3, 8, DIFFERENTIAL, 2),
        (4, 100, FULL, 2),
    ]
    for receipt, record in zip(receipts, store.checkpoints()):
        assert (record.number, record.epoch, record.kind) == (receipt.number, receipt.epoch, receipt.kind)
        assert (record.slots, record.bytes) == (receipt.slots, receipt.bytes) == (record.run_slots, record.bytes)
        assert record.parent == (receipt.number - 1 or None)
    assert [record.digest for record in store.checkpoints()[:3]] == [run.digest() for run in runs[:3]]
    assert table(store, "state_item", "checkpoint, slot") == [(1, 1), (3, 1), (3, 2), (4, 2), (4, 3)]


def test_a_full_checkpoint_holds_what_it_does_not_mention_and_nothing_that_is_gone() -> None:
    store = CheckpointStore(":memory:")
    store.append(run_of({1: "a", 2: "b"}))
    store.append(run_of({1: "x"}, object_id=2))
    gone = Run(DIFFERENTIAL, [(2, "o2", None, None)], [], [(1, 2, None, None)])
    store.append(gone)
    store.append(run_of({3: "c"}, FULL))
    assert store.reader().runs == (4,)
    assert values_in(store.reader()) == {1: "a", 3: "c"}
    assert table(store, "state_item WHERE checkpoint = 4", "object, slot") == [(1, 1), (1, 3)]


def test_applying_a_full_run_replaces_the_state_and_appending_one_completes_it() -> None:
    store = CheckpointStore(":memory:")
    store.append(run_of({1: "a"}))
    store.append(run_of({2: "b"}, FULL))
    assert values_in(store.reader()) == {1: "a", 2: "b"}
    store.apply(run_of({3: "c"}, FULL))
    assert values_in(store.reader()) == {3: "c"}


@pytest.mark.parametrize("seed", range(20))
def test_replaying_a_full_run_and_its_differentials_gives_the_next_full_run(seed: int) -> None:
    rng = random.Random(seed)
    model, store, replica = Model(), quick_store(":memory:"), quick_store(":memory:")
    for number in range(60):
        run = random_run(rng, number)
        model = model.follow(run)
        store.append(run)
        if number == 30:
            store.append(Run(FULL))
            replica.apply(Run(FULL, *image_of(store.reader())))
        elif number > 30:
            replica.apply(Run(DIFFERENTIAL, run.index, run.metadata, run.items))
    full: Receipt = store.append(Run(FULL))
    replayed = replica.append(Run(FULL))
    assert image_of(replica.reader()) == image_of(store.reader()) == model.image()
    assert replica.checkpoints()[-1].digest == store.checkpoints()[-1].digest
    assert (replayed.slots, replayed.bytes) == (full.slots, full.bytes)


def test_a_full_checkpoint_of_many_slots_is_streamed() -> None:
    store = quick_store(":memory:")
    store.append(run_of(dict.fromkeys(range(50000), "x" * 50)))
    tracemalloc.start()
    store.append(Run(FULL))
    store.verify()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.parametrize("reverse", [False, True])
def test_slots_come_in_order_from_many_runs_and_pages(reverse: bool) -> None:
    store = quick_store(":memory:")
    values: dict[Any, Any] = {}
    slots: list[Any] = [-3, 0, 1.5, 7, float("inf"), "", "a", "é", b"", b"\x00"]
    for number, slot in enumerate(slots * 3):
        change = {slot: number, slots[number * 7 % 10]: None if number % 5 == 0 else -number}
        store.append(run_of(change))
        values |= change
    expected = [(slot, values[slot]) for slot in slots if values[slot] is not None]
    expected = expected[::-1] if reverse else expected
    for page_rows in (1, 2, 3, 100):
        found = [(i.slot, int(i.value)) for i in store.reader().items(1, reverse=reverse, page_rows=page_rows)]
        assert found == expected
    bounded = [item.slot for item in store.reader().items(1, 0, "a", reverse=reverse, page_rows=1)]
    inside = slots[1:7]
    assert bounded == [slot for slot, _ in expected if slot in inside]


def test_ranks_give_the_order_of_insertion_from_both_ends() -> None:
    store = quick_store(":memory:")
    ranks = {slot: (slot * 7) % 101 for slot in range(101)}
    index = [(1, "d", "Dictionary", "{}")]
    store.append(Run(DIFFERENTIAL, index, [], [(1, slot, "0", rank) for slot, rank in ranks.items()]))
    store.append(Run(DIFFERENTIAL, [], [], [(1, 5, "1", 200), (1, 6, None, None)]))
    del ranks[6]
    ranks[5] = 200
    expected = sorted(ranks, key=ranks.__getitem__)
    reader = store.reader()
    assert [item.slot for item in reader.items_by_rank(1)] == expected
    assert [item.slot for item in reader.items_by_rank(1, reverse=True)] == expected[::-1]
    assert [item.slot for item in reader.items_by_rank(1, reverse=True, limit=1)] == [5]
    assert reader.count(1) == 100


def test_a_scan_goes_on_rightly_while_the_store_is_written() -> None:
    store = quick_store(":memory:", history=1)
    store.append(run_of(dict.fromkeys(range(50), 0)))
    reader = store.reader()
    by_slot, by_rank = reader.items(1, page_rows=3), reader.items_by_rank(1)
    seen = []
    for number in range(1, 51):
        seen.append((next(by_slot).value, next(by_rank).value))
        store.append(run_of(dict.fromkeys(range(0, 50, 7), number)))
    assert seen == [("0", "0")] * 50


def test_object_ids_are_never_reused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with quick_store(path) as store:
        store.append(run_of({1: "a"}, object_id=9))
        assert store.next_object_id() == 10
    with quick_store(path) as store:
        store.append(run_of({1: "b"}, object_id=3))
        assert store.next_object_id() == 10
    with quick_store(path) as store:
        assert store.next_object_id() == 10
        store.truncate_after(1)
        assert store.next_object_id() == 10


@pytest.mark.parametrize(
    "row",
    [
        (1, 2**70, "0", None),
        (1, "\ud800", "0", None),
        (1, None, "0", None),
        (1, [1], "0", None),
        (1, True, "0", None),
        (1, 1, "\ud800", None),
    ],
)
def test_a_row_that_cannot_be_stored_is_refused_and_nothing_is_written(row: Any) -> None:
    store = quick_store(":memory:")
    store.append(run_of({1: "a"}))
    with pytest.raises(CheckpointError, match="nothing was written"):
        store.append(Run(DIFFERENTIAL, [], [], [(1, 0, "0", None), row]))
    assert values_in(store.reader()) == {1: "a"}
    assert store.append(run_of({2: "b"})).number == 2


def test_a_row_given_twice_is_refused() -> None:
    store = quick_store(":memory:")
    with pytest.raises(RunRefusedError, match="twice"):
        store.append(Run(DIFFERENTIAL, [], [], [(1, 1, "0", None), (1, 1, None, None)]))
    assert store.checkpoints() == []
    assert store.append(run_of({1: "a"})).number == 1
