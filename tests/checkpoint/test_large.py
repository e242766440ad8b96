"""Large values: they lie beside their rows, are written once, go with the last row of theirs, and read as any other."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoint import CheckpointStore, CorruptStoreError, Run, invert
from checkpoint.diff import differences
from checkpoint.errors import RunRefusedError
from checkpoint.large import INLINE_BYTES
from objectspace import DamagedObjectError, PersistedObjectSpace
from objectspace.relational import Column, StateTable, StorageTable, TableSchema
from tests.checkpoint.store_helpers import DIFFERENTIAL, FULL, assert_bodies, images, quick_store, retained

LONG = "x" * INLINE_BYTES
KINDS = (DIFFERENTIAL, FULL)


def run_with(values: dict[Any, str | bytes | None], kind: Any = DIFFERENTIAL, object_id: int = 1) -> Run:
    items = [(object_id, slot, value, None) for slot, value in values.items()]
    return Run(kind, [(object_id, f"o{object_id}", "Sample", "{}")], [], items)


def bodies(store: CheckpointStore) -> list[Any]:
    return [row[0] for row in store.database.execute("SELECT body FROM state_large ORDER BY id")]


@pytest.mark.parametrize(
    ("value", "is_beside"),
    [
        ("x" * INLINE_BYTES, False),
        ("x" * (INLINE_BYTES + 1), True),
        (b"\0" * INLINE_BYTES, False),
        (b"\0" * (INLINE_BYTES + 1), True),
        ("\N{SNOWMAN}" * (INLINE_BYTES // 3), False),
        ("\N{SNOWMAN}" * (INLINE_BYTES // 3 + 1), True),
        ("\N{GRINNING FACE}" * (INLINE_BYTES // 4 + 1), True),
        ("a\0b" * INLINE_BYTES, True),
        ("", False),
    ],
)
def test_a_value_lies_beside_its_row_by_its_bytes_and_reads_as_any_other(value: str | bytes, is_beside: bool) -> None:
    store = quick_store(":memory:")
    store.append(run_with({1: value, 2: "2"}))
    assert bodies(store) == ([value] if is_beside else [])
    stored = {row[0]: row[1] for row in store.database.execute("SELECT slot, value FROM state_item")}
    assert (type(stored[1]) is int, stored[2]) == (is_beside, "2")
    shown = {row[0]: row[1] for row in store.database.execute("SELECT slot, value FROM stored_item")}
    assert shown == {1: value, 2: "2"}
    reader = store.reader()
    item = reader.item(1, 1)
    assert item is not None
    assert item.value == value
    assert [(one.slot, one.value) for one in reader.items(1)] == [(1, value), (2, "2")]
    assert store.verify() == 1


def test_a_tool_sees_large_values_in_the_views() -> None:
    store = quick_store(":memory:")
    store.append(run_with({1: LONG + "1", 2: LONG.encode() + b"2"}))
    store.append(run_with({1: LONG + "3"}))
    found = dict(store.database.execute("SELECT slot, value FROM current_item"))
    assert found == {1: LONG + "3", 2: f"X'{(LONG + '2').encode().hex().upper()}'"}


def test_what_is_no_value_is_refused_and_nothing_is_written() -> None:
    store = quick_store(":memory:")
    store.append(run_with({1: LONG + "1"}))
    with pytest.raises(RunRefusedError, match="a value is a int: expected text or bytes"):
        store.append(run_with({2: 1}))  # type: ignore[dict-item]
    assert len(store.checkpoints()) == 1
    assert bodies(store) == [LONG + "1"]


def test_merging_writes_no_large_value_again() -> None:
    store, written = quick_store(":memory:", history=100), list[str]()
    store.session.connection.set_trace_callback(
        lambda said: written.append(said) if "INTO state_large" in said else None
    )
    for number in range(1, 121):
        store.append(run_with({number % 9: f"{LONG}{number}", 100 + number: f"{LONG}{-number}"}))
    assert store.database.execute("SELECT count(*) FROM run WHERE state = 'merged'").fetchone()[0] > 1
    store.compact()
    assert len(written) == 240
    assert store.verify() == len(retained(store))
    assert len(bodies(store)) == 120 + 9
    assert_bodies(store)


def test_what_is_replaced_goes_in_time_and_all_of_it_at_a_prune() -> None:
    store = quick_store(":memory:", history=1)
    for number in range(300):
        store.append(run_with(dict.fromkeys(range(10), f"{LONG}{number}")))
        assert len(bodies(store)) <= 10 * 64, number
    assert_bodies(store)
    store.prune(keep=1)
    assert bodies(store) == [f"{LONG}299"] * 10
    store.append(run_with(dict.fromkeys(range(10))))
    store.prune(keep=1)
    assert bodies(store) == []


def test_a_full_checkpoint_has_bodies_of_its_own() -> None:
    store = quick_store(":memory:", history=2)
    store.append(run_with({1: LONG + "1", 2: LONG + "2", 3: LONG + "3"}))
    store.append(run_with({2: None, 4: LONG + "4"}, FULL))
    assert_bodies(store)
    assert sorted(bodies(store)) == [LONG + number for number in "112334"]
    for number in range(40):
        store.append(run_with({9: f"{LONG}9{number}"}))
    store.prune(keep=1)
    assert sorted(bodies(store)) == [LONG + number for number in ("1", "3", "4", "939")]
    assert store.verify() == 1


@pytest.mark.parametrize("slots", [1, 20])
def test_a_rollback_takes_the_bodies_that_came_since(slots: int) -> None:
    def append(number: int) -> None:
        store.append(run_with({slots * (number % 20) + slot: f"{LONG}{number}" for slot in range(slots)}))

    store = quick_store(":memory:", history=100)
    for number in range(1, 61):
        append(number)
    before = images(store)
    merged = store.database.execute("SELECT first, last FROM run WHERE state = 'merged'").fetchall()
    assert any(first <= 40 < last for first, last in merged), "one that goes shares bodies with some that stay"
    store.truncate_after(40)
    assert_bodies(store)
    assert images(store) == {number: image for number, image in before.items() if number <= 40}
    for number in range(41, 61):
        append(number)
    assert images(store) == before
    assert store.verify() == 60


LOST = "DELETE FROM state_large WHERE id = (SELECT value FROM state_item WHERE checkpoint = 3 AND slot = 1)"
OTHER = (
    "UPDATE state_item SET value = (SELECT value FROM state_item WHERE checkpoint = 2 AND slot = 2)"
    " WHERE checkpoint = 3 AND slot = 1"
)
CHANGED = "UPDATE state_large SET body = body || '!' WHERE body LIKE '%one 3'"


@pytest.mark.parametrize("damage", [LOST, OTHER, CHANGED])
def test_a_damaged_body_is_found_and_the_state_before_it_is_kept(damage: str) -> None:
    store = quick_store(":memory:")
    for number in (1, 2, 3):
        store.append(run_with({1: f"{LONG} one {number}", 2: f"{LONG} two {number}"}))
    store.database.conn.execute(damage)
    with pytest.raises(CorruptStoreError, match=r"the rows of checkpoint 3 \(epoch 3\)"):
        store.verify()
    assert store.repair().newest == 2
    assert store.reader().item(1, 1).value == f"{LONG} one 2"  # type: ignore[union-attr]
    for number in range(4, 40):
        store.append(run_with({3: f"{LONG}{number}"}))
    store.prune(keep=1)
    assert [item.value for item in store.reader().items(1)] == [f"{LONG} one 2", f"{LONG} two 2", f"{LONG}39"]
    assert store.verify() == 1
    assert_bodies(store)


def test_a_body_that_would_go_too_early_is_found_and_mended() -> None:
    store = quick_store(":memory:", history=2)
    for number in range(1, 40):
        store.append(run_with({number % 9: f"{LONG}{number}"}))
    expected = values_of(store)
    store.database.conn.execute("UPDATE state_large SET checkpoint = 1000 WHERE body LIKE '%39'")
    with pytest.raises(
        CorruptStoreError, match="the body of slot 3 of object 1 in run 39 is said to be of checkpoint 1000"
    ):
        store.verify()
    assert any("checkpoint 1000" in damage for damage in store.repair().damage)
    assert store.verify() == len(retained(store))
    assert values_of(store) == expected
    assert_bodies(store)


def test_a_body_that_no_row_refers_to_goes_at_a_repair() -> None:
    store = quick_store(":memory:")
    store.append(run_with({1: LONG + "1"}))
    store.database.conn.execute("INSERT INTO state_large (checkpoint, hash, body) VALUES (1, 0, 'nobody')")
    with pytest.raises(CorruptStoreError, match="state_large has the body 2, which no row refers to"):
        store.verify()
    store.repair()
    assert bodies(store) == [LONG + "1"]
    assert store.verify() == 1


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE run SET first = 9 WHERE first = 1",
        "UPDATE run SET last = 1 WHERE state = 'merged'",
        "UPDATE state_large SET checkpoint = checkpoint + 64",
        "UPDATE state_large SET checkpoint = 1",
    ],
)
def test_what_damage_says_of_runs_and_bodies_takes_no_body_with_it(damage: str) -> None:
    store = quick_store(":memory:", history=100)
    for number in range(1, 60):
        store.append(run_with({number % 40: f"{LONG}{number}"}))
    store.compact()
    store.database.conn.execute(damage)
    store.reopen()
    store.configure(history=1)
    for number in range(60, 110):
        store.append(run_with({100: f"{LONG}{number}"}))
    store.truncate_after(109)
    expected = {slot: f"{LONG}{max(n for n in range(1, 60) if n % 40 == slot)}" for slot in range(40)}
    assert values_of(store) == {**expected, 100: f"{LONG}109"}
    store.repair()
    assert store.verify()
    assert values_of(store) == {**expected, 100: f"{LONG}109"}


@pytest.mark.parametrize("rows", [2, 200])
def test_a_lost_body_is_damage_to_all_that_reads_it(rows: int) -> None:
    store = quick_store(":memory:", history=2)
    for number in range(1, 4):
        store.append(run_with(dict.fromkeys(range(rows), f"{LONG}{number}")))
    lost = "SELECT value FROM state_item WHERE checkpoint = 3 AND slot = 1"
    store.database.conn.execute(f"DELETE FROM state_large WHERE id = ({lost})")
    store.reopen()
    for work in (store.verify, store.compact, lambda: store.append(Run(FULL)), lambda: store.fork("unused.db")):
        with pytest.raises(CorruptStoreError):
            work()
    assert store.repair().newest == 2
    assert values_of(store) == dict.fromkeys(range(rows), f"{LONG}2")
    assert store.verify()


def test_a_lost_body_of_a_raw_dictionary_is_told_as_damage() -> None:
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    raw = space.create_sorted_dictionary("raw", raw=True)
    raw.update((b"%d" % number, LONG + "!") for number in range(9))
    space.checkpoint()
    store.database.conn.execute("DELETE FROM state_large WHERE id = 3")
    raw = PersistedObjectSpace(store).get_sorted_dictionary("raw")
    said = r"SortedDictionary 'raw', slot b'2'.*its value lay apart from its row and is lost"
    reads = lambda: raw[b"2"], lambda: raw.get_many([b"2"]), lambda: list(raw.items()), lambda: list(raw.values())
    for read in reads:
        with pytest.raises(DamagedObjectError, match=said):
            read()
    assert raw[b"3"] == LONG + "!"


def test_a_lost_body_is_named_by_a_diff_and_by_a_merge_and_is_not_brought_back(tmp_path: Path) -> None:
    store = quick_store(tmp_path / "state.db", history=100)
    for number in range(1, 4):
        store.append(run_with({7: f"{LONG}{number}"}))
    store.database.conn.execute("DELETE FROM state_large WHERE id = 2")
    store.reopen()
    fault = r"is damaged \(its value lay apart from its row and is lost\): call repair\(\)"
    for pair in ((1, 2), (2, 3)):
        with pytest.raises(CorruptStoreError, match=rf"slot 7 of Sample 'o1' {fault}"):
            list(store.diff(*pair))
    back = invert(differences(store.reader(2), store.reader(3)))
    with pytest.raises(CorruptStoreError, match=rf"slot 7 of Sample 'o1' {fault}"):
        store.apply_changes(back)
    store.database.conn.execute("DELETE FROM state_large")
    with pytest.raises(CorruptStoreError, match=rf"state.db: slot 7 of object 1 {fault}"):
        store.compact()
    assert len(store.checkpoints()) == 3


@pytest.mark.parametrize("kind", ["list", "dictionary", "value", "queue", "set", "tensor", "lists", "table"])
def test_a_lost_body_is_told_as_damage_by_every_kind_of_object(kind: str) -> None:
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    space.create_list("list").append(LONG)
    space.create_dictionary("dictionary")["k"] = LONG
    space.create_value("value", LONG)
    space.create_queue("queue").enqueue(LONG)
    space.create_set("set").add((LONG, 1))
    space.create_tensor("tensor", (200,), "float64")[:] = 1.5
    space.create_dictionary("lists", of=list)["k"] = [LONG]
    StateTable(space, "table", TableSchema([Column("k", "int64"), Column("v", "string")], ["k"])).insert_row((1, LONG))
    space.checkpoint()
    store.database.conn.execute("DELETE FROM state_large")
    space = PersistedObjectSpace(store)
    reads: dict[str, Callable[[], Any]] = {
        "dictionary": lambda: space.get_dictionary("dictionary")["k"],
        "value": lambda: space.get_value("value").value,
        "tensor": lambda: space.get_tensor("tensor")[:2],
        "lists": lambda: list(space.get_dictionary("lists")["k"]),
        "table": lambda: list(StorageTable(store, "table").scan()),
    }
    with pytest.raises(DamagedObjectError, match="its value lay apart from its row and is lost"):
        reads.get(kind, lambda: list(space.get(kind)))()


def test_a_body_that_would_never_go_is_found_and_mended() -> None:
    store = quick_store(":memory:", history=1)
    store.append(run_with({1: LONG + "1"}))
    store.database.conn.execute("UPDATE state_large SET hash = hash + 1")
    with pytest.raises(CorruptStoreError, match="slot 1 of object 1 in run 1 is said to be of another slot"):
        store.verify()
    store.repair()
    store.append(run_with({1: "2"}))
    store.prune(keep=1)
    assert bodies(store) == []


def test_a_damaged_row_takes_no_body_of_another_slot_with_it() -> None:
    store = quick_store(":memory:", history=1)
    store.append(run_with({1: LONG + "1", 2: LONG + "2"}))
    store.append(run_with({1: LONG + "3"}))
    kept = "(SELECT value FROM state_item WHERE checkpoint = 1 AND slot = 2)"
    store.database.conn.execute(f"UPDATE state_item SET value = {kept} WHERE checkpoint = 2 AND slot = 1")
    store.repair()
    for number in range(40):
        store.append(run_with({3: f"{number}"}))
    store.prune(keep=1)
    assert store.reader().item(1, 2).value == LONG + "2"  # type: ignore[union-attr]
    assert store.verify() == 1


def test_a_damaged_row_of_no_object_is_deleted_as_any_other() -> None:
    store = quick_store(":memory:", history=1)
    store.append(run_with({1: LONG + "1"}))
    store.append(run_with({1: LONG + "2"}))
    store.database.conn.execute("UPDATE state_item SET object = 'other' WHERE checkpoint = 2")
    assert store.repair().newest == 1
    for number in range(40):
        store.append(run_with({2: f"{number}"}))
    store.prune(keep=1)
    assert values_of(store) == {1: LONG + "1", 2: "39"}
    assert store.database.execute("SELECT count(*) FROM state_item WHERE object = 'other'").fetchone()[0] == 0


def values_of(store: CheckpointStore) -> dict[Any, Any]:
    return {item.slot: item.value for item in store.reader().items(1)}


@pytest.mark.parametrize("at", [212, 222])
def test_a_body_with_the_number_of_one_that_is_gone_stays_while_older_rows_are_deleted(at: int) -> None:
    store, chance = quick_store(":memory:", history=1000), random.Random(1)
    store.append(run_with({-1: LONG + "before"}))
    for number in range(2, 200):
        small = dict.fromkeys(chance.sample(range(1000), 200), f"{number}")
        store.append(run_with({**small, -1: "small"} if number == 150 else small))
    store.configure(history=1)
    numbers = [row[0] for row in store.database.execute("SELECT id FROM state_large")]
    for number in range(200, 240):
        store.append(run_with({-1: LONG + "after"} if number == at else {number: "small"}))
    assert numbers == [row[0] for row in store.database.execute("SELECT id FROM state_large")]
    assert bodies(store) == [LONG + "after"]
    assert store.reader().item(1, -1).value == LONG + "after"  # type: ignore[union-attr]
    assert store.verify()


@pytest.mark.parametrize("is_repaired", [True, False])
def test_a_damaged_row_takes_no_later_body_of_its_slot_with_it(is_repaired: bool) -> None:
    store = quick_store(":memory:", history=100)
    for number in range(1, 31):
        store.append(
            run_with({1: f"{LONG}{number}"} if number in (1, 5, 30) else {2: f"{number}"}, KINDS[number == 20])
        )
    later = "(SELECT value FROM state_item WHERE checkpoint = 30 AND slot = 1)"
    store.database.conn.execute(f"UPDATE state_item SET value = {later} WHERE checkpoint = 5 AND slot = 1")
    if is_repaired:
        assert store.repair().newest == 30
        assert store.verify()
    store.configure(history=2)
    for number in range(31, 80):
        store.append(run_with({2: f"{number}"}))
    assert values_of(store) == {1: LONG + "30", 2: "79"}


@pytest.mark.parametrize("is_cut_off", [False, True])
@pytest.mark.parametrize("damaged", ["slot = 7", "object = 7"])
def test_a_repair_leaves_no_body_of_a_row_that_was_damaged(
    damaged: str, is_cut_off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = quick_store(":memory:")
    for number in (1, 2):
        store.append(run_with({1: f"{LONG}{number}"}))
    store.append(run_with({2: "2"}, FULL))
    store.database.conn.execute(f"UPDATE state_item SET {damaged} WHERE checkpoint = 2")
    with monkeypatch.context() as patch:
        if is_cut_off:  # The rows of the damaged run are deleted by later checkpoints.
            patch.setattr(store, "_work", lambda: False)
        assert store.repair().newest == 3
    assert_bodies(store)
    for number in range(40):
        store.append(run_with({2: f"{number}"}))
    assert_bodies(store)
    assert store.verify()
