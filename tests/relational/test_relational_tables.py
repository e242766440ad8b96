"""State tables: the examples of the seed, barriers over many tables, errors that change nothing, recovery."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from itertools import count, islice, product
from typing import Any

import pytest

from checkpoint import CheckpointError, CheckpointStore
from objectspace import ObjectNotFoundError, PersistedObjectSpace, VolatileObjectSpace
from objectspace.errors import CheckpointProtocolError
from objectspace.relational import (
    Chunk,
    Column,
    EpochError,
    InconsistentOperationError,
    Kind,
    RowError,
    SchemaError,
    SchemaMismatchError,
    StateTable,
    StorageTable,
    TableRecord,
    TableSchema,
    VnodeNotOwnedError,
    drop_table,
    rename_table,
    seal_tables,
    tables,
)
from objectspace.relational.row_store import RowStore
from objectspace.testing.faults import FAILURES, ONCE, Fault, failing
from tests.objects.interruptions import at_exit, interrupted
from tests.objects.stand_ins import at_each_step
from tests.relational.helpers import new_space, schema_of, space_on

ORDERS = schema_of("a int64", "b int64", "c int64", key=["a"])


def filled(consistency: Any = "strict") -> StateTable:
    table = StateTable(new_space(), "orders", ORDERS, consistency)
    table.write_chunk([("+", (1, 11, 111)), ("+", (2, 22, 222))])
    table.commit(1)
    return table


# The examples of the seed ---------------------------------------------------------------------------------------------


def test_the_get_example() -> None:
    table = StateTable(new_space(), "t", ORDERS)
    table.insert_row((1, None, 111))
    table.insert_row((2, 22, 222))
    table.delete_row((2, 22, 222))
    table.insert_row((3, 33, 333))
    table.commit(1)
    table.insert_row((1, None, 3333))
    assert table.get_row((1,)) == (1, None, 3333)
    assert table.get_row((2,)) is None
    table.insert_row((3, 3333, 3333))
    assert table.get_row((3,)) == (3, 3333, 3333)
    table.commit(2)
    assert table.get_row((1,)) == (1, None, 3333)


def test_the_merged_scan_example() -> None:
    table = StateTable(new_space(), "t", ORDERS)
    for key in (1, 2, 3, 6):
        table.insert_row((key, 0, 0))
    table.commit(1)
    table.delete_row((2, 0, 0))
    table.delete_row((3, 0, 0))
    for key in (4, 5):
        table.insert_row((key, 0, 0))
    assert [row[0] for row in table.scan()] == [1, 4, 5, 6]
    assert [row[0] for row in table.scan(reverse=True)] == [6, 5, 4, 1]
    table.commit(2)
    assert [row[0] for row in table.scan()] == [1, 4, 5, 6]


def test_a_scan_goes_on_after_a_chunk_that_failed() -> None:
    table = StateTable(new_space(), "t", ORDERS, "strict")
    table.insert_rows([(key, 0, 0) for key in range(0, 1000, 2)])
    scan = table.scan()
    assert next(scan) == (0, 0, 0)
    with pytest.raises(InconsistentOperationError):
        table.write_chunk([("+", (501, 0, 0)), ("-", (501, 0, 0)), ("+", (503, 0, 0)), ("-", (9, 9, 9))])
    table.delete_row((998, 0, 0))
    assert [row[0] for row in scan] == list(range(2, 998, 2))


# Scans that are open while the rows change ----------------------------------------------------------------------------

ONE_KEY = TableSchema([Column("k", "int64")], ["k"])
ROUTED_KEY = TableSchema([Column("k", "int64")], ["k"], distribution_key=["k"])
SUBSETS = [{key for key in range(3) if bits >> key & 1} for bits in range(8)]


def change_to(table: StateTable, present: set[int], wanted: set[int]) -> None:
    table.insert_rows([(key,) for key in wanted - present])
    for key in present - wanted:
        table.delete_row((key,))


def keys_of(rows: Any) -> list[int]:
    return [row[0] for row in rows]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("schema", [ONE_KEY, ROUTED_KEY], ids=["plain", "distributed"])
def test_a_scan_that_is_open_at_a_barrier_goes_on_after_its_last_key(
    schema: TableSchema, reverse: bool, apart: int
) -> None:
    table, present, epoch = StateTable(VolatileObjectSpace(), "t", schema), set[int](), 0
    for sealed, written, later, taken in islice(product(SUBSETS, SUBSETS, SUBSETS[::2], [0, 1]), 0, None, apart):
        change_to(table, present, sealed)
        table.commit(epoch := epoch + 1)
        change_to(table, sealed, written)
        scan = table.scan(reverse=reverse)
        begun = keys_of(islice(scan, taken))
        change_to(table, written, later)
        table.commit(epoch := epoch + 1)
        present = later
        assert begun == sorted(written, reverse=reverse)[:taken]
        follow = [key for key in later if not begun or (key < begun[0] if reverse else key > begun[0])]
        assert keys_of(scan) == (sorted(follow, reverse=reverse) if begun or not taken else [])


@pytest.mark.parametrize("key", ["k", "ts"])
def test_a_scan_that_is_open_at_a_barrier_follows_the_watermark(key: str) -> None:
    table = StateTable(new_space(), "t", schema_of("k int64", "ts int64", key=[key], watermark_column="ts"))
    table.insert_rows([(n, n) for n in range(100)])
    table.commit(1)
    scan = table.scan()
    assert next(scan) == (0, 0)
    table.update_watermark(90)
    table.commit(2)
    table.vacuum()
    assert keys_of(scan) == list(range(90, 100))


def test_a_scan_goes_on_where_the_space_is_rolled_back_or_another_handle_commits() -> None:
    space = new_space()
    table = StateTable(space, "t", ROUTED_KEY)
    table.insert_rows([(0,), (2,)])
    space.checkpoint(epoch=1)
    table.insert_rows([(1,), (3,)])
    scan = table.scan()
    assert next(scan) == (0,)
    space.rollback()
    assert keys_of(scan) == [2]
    scan = table.scan(reverse=True)
    assert next(scan) == (2,)
    other = StateTable(space, "t", ROUTED_KEY)
    other.insert_rows([(1,), (5,)])
    other.commit(2)
    assert keys_of(scan) == [1, 0]


def test_a_scan_goes_on_after_its_last_key_where_a_save_seals_nothing() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"), cache_slots=300)
    table = StateTable(space, "t", ONE_KEY)
    table.insert_rows([(key,) for key in range(5000)])
    table.commit(1)
    scan = table.scan()
    begun = keys_of(islice(scan, 30))
    writer = space.store.writer()
    space.save(writer)
    writer.commit()
    space.on_saved()
    assert begun + keys_of(scan) == list(range(5000))


def test_a_scan_for_which_the_stack_was_too_full_does_not_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    table, begun = filled(), []

    def too_deep(*args: Any, **options: Any) -> Iterator[tuple[bytes, str]]:
        begun.append(args)
        yield from ()
        raise RecursionError

    monkeypatch.setattr(RowStore, "between", too_deep)
    with pytest.raises(RecursionError):
        list(table.scan())
    assert len(begun) == 1


def test_a_scan_may_come_in_the_midst_of_another_as_from_a_signal_handler() -> None:
    table, found = filled("blind"), list[list[Any]]()
    table.insert_row((0, 0, 0))
    assert len(list(table.scan())) == 3
    table.insert_rows([(key, 0, 0) for key in range(3, 9)])  # They are sorted in by the next scan.
    at_each_step(lambda: found.append(keys_of(table.scan())), lambda: found.append(keys_of(table.scan())))
    assert len(found) > 1
    assert all(keys == list(range(9)) for keys in [*found, keys_of(table.scan())])


def test_a_table_of_one_row_is_scanned_once() -> None:
    table = StateTable(VolatileObjectSpace(), "t", TableSchema([Column("v", "int64")]))
    table.insert_row((1,))
    for epoch, reverse in enumerate([False, True], 1):
        scan = table.scan(reverse=reverse)
        assert next(scan) == (1,)
        table.commit(epoch)
        assert list(scan) == []


def test_the_operations_of_an_epoch_are_read_on_after_its_end() -> None:
    table = filled()
    table.insert_rows([(3, 33, 333), (4, 44, 444)])
    found = table.operations()
    assert next(found) == (Kind.INSERT, None, (3, 33, 333))
    table.commit(2)
    assert list(found) == [(Kind.INSERT, None, (4, 44, 444))]


# Barriers -------------------------------------------------------------------------------------------------------------


def test_a_checkpoint_seals_every_table_and_makes_all_durable_at_once() -> None:
    store = CheckpointStore(":memory:")
    space = space_on(store)
    one, two = StateTable(space, "one", ORDERS), StateTable(space, "two", ORDERS)
    one.insert_row((1, 1, 1))
    two.insert_row((2, 2, 2))
    space.checkpoint(epoch=7)
    assert (one.epoch, two.epoch) == (7, 7)
    one.insert_row((3, 3, 3))
    two.insert_row((4, 4, 4))
    recovered = PersistedObjectSpace(store)
    assert list(StateTable(recovered, "one").scan()) == [(1, 1, 1)]
    assert list(StateTable(recovered, "two").scan()) == [(2, 2, 2)]
    assert StateTable(recovered, "one").epoch == 7
    assert space.checkpoint().epoch == 8
    assert one.epoch == 8


def test_a_barrier_that_one_table_refuses_seals_none() -> None:
    space = new_space()
    one, two = StateTable(space, "one", ORDERS), StateTable(space, "two", ORDERS)
    one.insert_row((1, 1, 1))
    two.commit(5)
    with pytest.raises(EpochError, match="epoch 3 is not after epoch 5"):
        space.checkpoint(epoch=3)
    assert one.epoch == 0
    assert [kind for kind, _, _ in one.operations()] == [Kind.INSERT]
    space.checkpoint(epoch=5)
    assert one.epoch == 5


def test_a_save_writes_what_is_sealed() -> None:
    store = CheckpointStore(":memory:")
    space = space_on(store)
    table = StateTable(space, "t", ORDERS)
    table.insert_row((1, 1, 1))
    table.commit(1)
    table.insert_row((2, 2, 2))
    writer = store.writer()
    space.save(writer)
    writer.commit()
    space.on_saved()
    assert list(StateTable(PersistedObjectSpace(store), "t").scan()) == [(1, 1, 1)]
    assert list(table.scan()) == [(1, 1, 1), (2, 2, 2)]


def test_a_row_costs_one_slot_and_what_returns_costs_none() -> None:
    space = new_space()
    table = StateTable(space, "t", ORDERS)
    table.write_chunk(("+", (key, key, key)) for key in range(100))
    space.checkpoint(epoch=1)
    table.update_row((7, 7, 7), (7, 8, 9))
    table.delete_row((8, 8, 8))
    table.insert_row((8, 8, 8))
    table.insert_row((500, 5, 5))
    table.delete_row((500, 5, 5))
    assert space.checkpoint(epoch=2).slots == 1


def test_a_table_whose_handle_is_dropped_keeps_its_rows() -> None:
    space = new_space()
    StateTable(space, "t", ORDERS).insert_row((1, 1, 1))
    space.checkpoint(epoch=1)
    assert list(StateTable(space, "t").scan()) == [(1, 1, 1)]


def test_a_rollback_drops_what_is_not_sealed_too() -> None:
    space = new_space()
    table = StateTable(space, "t", ORDERS)
    for epoch in (1, 2, 3):
        table.insert_row((epoch, 0, 0))
        space.checkpoint(epoch=epoch)
    table.insert_row((4, 0, 0))
    space.rollback()
    assert [row[0] for row in table.scan()] == [1, 2, 3]
    space.rollback(epoch=1)
    assert [row[0] for row in table.scan()] == [1]
    assert table.epoch == 1
    table.insert_row((5, 0, 0))
    space.checkpoint(epoch=2)
    assert [row[0] for row in table.scan()] == [1, 5]


Strike = Callable[[Fault, Callable[[], object], int], bool]


def fails(fault: Fault, work: Callable[[], object], number: int) -> bool:
    """Do some work whose n-th statement fails; tell whether it came to that."""
    fault.at = fault.seen + number
    with suppress(*FAILURES):
        work()
    fault.at = sys.maxsize
    return fault.has_struck


def is_interrupted(_: Fault, work: Callable[[], object], number: int) -> bool:
    """Do some work with Ctrl-C after so many times 29 lines; tell whether it came to that."""
    return interrupted(work, 29 * number)


@pytest.mark.usefixtures("only_new_garbage")
def test_an_interruption_that_is_let_go_late_takes_nothing_back_that_was_written_since() -> None:
    change = [("-", (1, 11, 111)), ("+", (1, 0, 0)), ("+", (3, 33, 333))]
    for number in count():
        table, kept = filled(), list[BaseException]()
        if not interrupted(lambda: table.write_chunk(change), number, where=at_exit, kept=kept):  # noqa: B023
            break
        if table.get_row((1,)) == (1, 11, 111):
            table.write_chunk(change)
        table.update_row((1, 0, 0), (1, 10, 100))
        table.delete_row((3, 33, 333))
        kept.clear()
        gc.collect()
        assert list(table.scan()) == [(1, 10, 100), (2, 22, 222)]
    assert number > 0


def test_an_interrupted_deletion_hides_no_row_from_scans() -> None:
    for number in count():
        table = filled("trusted")
        table.insert_rows([(3, 33, 333), (4, 44, 444)])
        scan = table.scan()
        next(scan)
        is_over = not interrupted(lambda: table.delete_row((3, 33, 333)), number)  # noqa: B023
        assert [row for row in map(table.get_row, [(1,), (2,), (3,), (4,)]) if row is not None] == list(table.scan())
        if is_over:
            break
    assert number > 10


SEALS: dict[str, Callable[[list[StateTable]], object]] = {
    "all": lambda tables: seal_tables(tables[0]._space, 2),
    "one": lambda tables: tables[0].commit(2),
}


@pytest.mark.parametrize("name", SEALS)
@pytest.mark.parametrize("consistency", ["blind", "strict"])
def test_an_epoch_whose_seal_was_interrupted_is_saved_whole_or_not_at_all(
    name: str, consistency: Any, at_scale: bool, apart: int
) -> None:
    def written() -> list[StateTable]:
        space = new_space()
        found = [StateTable(space, name, ORDERS, consistency) for name in ("from", "to")]
        found[0].insert_row((1, 1, 100))
        space.checkpoint(epoch=1)
        for table in found:
            table.write_chunk([("+", (7, 7, 50))])
        found[0].delete_row((1, 1, 100))
        return found

    refused = 0
    for line in count(step=1 if at_scale else 7 * apart):
        tables = written()
        space: Any = tables[0]._space
        if not interrupted(lambda: SEALS[name](tables), line):  # noqa: B023
            break
        try:
            writer = space.store.writer()
            space.save(writer)
        except CheckpointProtocolError:
            refused += 1
            space.rollback()
            assert list(tables[0].scan()) == [(1, 1, 100)]
            continue
        writer.commit()
        rows = [list(StorageTable(space.store, one).scan()) for one in ("from", "to")]
        assert rows in ([[(1, 1, 100)], []], [[(7, 7, 50)], [(7, 7, 50)] if name == "all" else []])
    assert refused > 0


@pytest.mark.parametrize("strike", [fails, is_interrupted])
@pytest.mark.parametrize("epoch", [None, 1])
def test_of_a_rollback_that_fails_anywhere_no_half_is_saved(strike: Strike, epoch: int | None, apart: int) -> None:
    ends = set()
    for number in count(1, apart):
        with failing(fault := Fault(sys.maxsize, ONCE)):
            space = new_space()
            first, second = (StateTable(space, name, ORDERS) for name in "ab")
            noted = space.create_dictionary("noted")
            for value in range(3):
                first.insert_row((1, 1, value))
                second.insert_row((1, 1, value))
                noted["c"] = value
                if value < 2:
                    space.checkpoint()
            has_struck = strike(fault, lambda: space.rollback(epoch), number)  # noqa: B023 - it is called at once
            try:
                space.checkpoint()
                ends.add("saved")
            except CheckpointProtocolError:
                ends.add("refused")
                space.rollback(epoch)
            (value,) = {*(row[2] for table in (first, second) for row in table.scan()), noted["c"]}
            stored = space_on(space.store)
            assert {StateTable(stored, name).get_row((1,)) for name in "ab"} == {(1, 1, value)}
            assert stored.get("noted") == {"c": value}
            if not has_struck:
                break
    assert number > 5
    assert ends == {"saved", "refused"}


def test_a_table_that_a_rollback_took_back_says_so_whatever_was_sealed() -> None:
    space = new_space()
    table = StateTable(space, "t", ORDERS)
    table.commit(1)
    space.rollback()
    with pytest.raises(
        ObjectNotFoundError, match="table 't' no longer exists: it was dropped, or its creation was rolled back"
    ):
        table.commit(1)


def test_seal_tables_may_be_called_before_a_checkpoint() -> None:
    space = new_space()
    table = StateTable(space, "t", ORDERS)
    table.insert_row((1, 1, 1))
    seal_tables(space, 1)
    space.checkpoint(epoch=1)
    assert table.epoch == 1


@pytest.mark.parametrize("epoch", [None, 0, 1, 7])
def test_a_checkpoint_that_is_tried_again_has_what_was_written_in_between(
    epoch: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = new_space()
    first, second = (StateTable(space, name, schema_of("a int64", key=["a"], watermark_column="a")) for name in "ab")
    first.insert_row((1,))

    def _fail(*_: object) -> None:
        raise OSError("no room")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no room"):
        patch.setattr(space.store, "append", _fail)
        space.checkpoint(epoch=epoch)
    first.insert_row((2,))
    second.insert_row((3,))
    second.update_watermark(3)
    assert space.checkpoint(epoch=epoch).epoch == (1 if epoch is None else epoch)
    stored = PersistedObjectSpace(space.store)
    assert [list(StateTable(stored, name).scan()) for name in "ab"] == [[(1,), (2,)], [(3,)]]
    assert StateTable(stored, "b").watermark == 3


def test_an_epoch_that_is_durable_is_not_sealed_again() -> None:
    space = new_space()
    table = StateTable(space, "t", ORDERS)
    table.insert_row((1, 1, 1))
    for _ in range(2):
        seal_tables(space, 1)
        table.insert_row((2, 2, 2))
    space.checkpoint(epoch=1)
    table.insert_row((3, 3, 3))
    with pytest.raises(EpochError, match="epoch 1 is not after epoch 1, the last one sealed"):
        space.checkpoint(epoch=1)
    assert list(StorageTable(space, "t").scan()) == [(1, 1, 1), (2, 2, 2)]
    space.checkpoint(epoch=2)
    assert list(StorageTable(space, "t").scan()) == [(1, 1, 1), (2, 2, 2), (3, 3, 3)]


def test_a_save_has_no_earlier_epoch_than_the_last_one_sealed() -> None:
    table = filled()
    space: Any = table._space
    table.commit(20)
    table.insert_row((3, 3, 3))
    table.commit(30)
    with pytest.raises(CheckpointProtocolError, match="sealed for epoch 30"):
        space.save(space.store.writer(epoch=25))
    writer = space.store.writer()
    space.save(writer)
    assert writer.commit().epoch == 30
    space.on_saved()
    table.commit(40)
    assert (space.checkpoint().epoch, table.epoch) == (40, 40)
    assert (space.checkpoint().epoch, table.epoch) == (41, 41)
    assert len(list(StateTable(space_on(space.store), "orders").scan())) == 3


# Errors ---------------------------------------------------------------------------------------------------------------


def test_a_strict_table_refuses_at_the_call_and_says_all() -> None:
    table = filled()
    with pytest.raises(InconsistentOperationError) as caught:
        table.insert_row((1, 0, 0))
    text = str(caught.value)
    for part in ("'orders'", "a=1", "insert of (1, 0, 0)", "the row (1, 11, 111)", "sealed", "update_row"):
        assert part in text
    with pytest.raises(InconsistentOperationError, match=r"no row of this key; insert it, or leave the delete out"):
        table.delete_row((9, 0, 0))
    with pytest.raises(InconsistentOperationError, match="the row"):
        table.update_row((2, 0, 0), (2, 1, 1))
    table.delete_row((1, 11, 111))
    with pytest.raises(InconsistentOperationError, match="not sealed yet"):
        table.delete_row((1, 11, 111))
    assert list(table.scan()) == [(2, 22, 222)]


def test_an_error_shows_only_the_beginning_of_a_large_key_and_row() -> None:
    table = StateTable(new_space(), "t", schema_of("k string", "v string", key=["k"]), "strict")
    row = ("k" * 10**6, "v" * 10**6)
    table.insert_row(row)
    for mistake in (
        lambda: table.insert_row(row),
        lambda: table.delete_row((row[0], "w" * 10**6)),
        lambda: table.update_row(row, ("l", row[1])),
        lambda: Chunk.from_rows(table.schema, [("+", row), ("+", row)]).compact(),
    ):
        with pytest.raises((InconsistentOperationError, RowError), match=r"\('kkkk") as caught:
            mistake()
        assert len(str(caught.value)) < 1000


def test_equal_numbers_of_other_spelling_are_the_same_row() -> None:
    schema = schema_of("k float64", "d decimal", "f float32", "n float64", key=["k"])
    table = StateTable(new_space(), "t", schema, "strict")
    table.insert_row((0.0, Decimal("1.0"), 3.15, float("nan")))
    table.delete_row((-0.0, Decimal("1.00"), 3.1500000953674316, float("nan")))
    assert list(table.scan()) == []


BAD_ROWS: list[Any] = [(1, 2), (1, 2, "x"), (1, 2, 3, 4), (1, 2, 2**63), {"z": 1}, "abc", None, 5, {1, 2, 3}]


@pytest.mark.parametrize("row", BAD_ROWS, ids=repr)
@pytest.mark.parametrize("method", ["insert_row", "delete_row"])
def test_a_bad_row_leaves_the_epoch_as_it_was(method: str, row: Any) -> None:
    table = filled()
    table.insert_row((3, 33, 333))
    with pytest.raises(RowError, match="table 'orders'"):
        getattr(table, method)(row)
    with pytest.raises(RowError):
        table.update_row((3, 33, 333), row)
    assert list(table.scan()) == [(1, 11, 111), (2, 22, 222), (3, 33, 333)]
    table.commit(2)
    assert list(table.scan()) == [(1, 11, 111), (2, 22, 222), (3, 33, 333)]


def test_a_chunk_is_applied_as_a_whole_or_not_at_all() -> None:
    table = filled()
    table.delete_row((2, 22, 222))
    with pytest.raises(InconsistentOperationError):
        table.write_chunk([("-", (1, 11, 111)), ("+", (2, 0, 0)), ("+", (4, 0, 0)), ("-", (9, 0, 0))])
    with pytest.raises(RowError, match="operation"):
        table.write_chunk([("-", (1, 11, 111)), ("?", (2, 0, 0))])
    with pytest.raises(RowError, match="found None"):
        table.write_chunk(None)  # type: ignore[arg-type]
    assert list(table.scan()) == [(1, 11, 111)]
    table.write_chunk(Chunk.from_rows(ORDERS, [("U-", (1, 11, 111)), ("U+", (1, 0, 0)), ("+", (5, 0, 0), False)]))
    assert list(table.scan()) == [(1, 0, 0)]


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (lambda table: table.insert_rows([(5, 0, 0), (2, 0, 0), (6, 0, 0)]), r"insert of \(2, 0, 0\)"),
        (lambda table: table.write_rows([(False, (1, 11, 111)), (True, (2, 0, 0))]), r"insert of \(2, 0, 0\)"),
        (lambda table: table.write_rows([(True, (0, 0, 0)), (False, (7, 7, 7))]), "has no row of this key; insert it"),
        (lambda table: table.update_row((7, 7, 7), (7, 7, -1)), "insert it, or leave the delete out"),
    ],
)
def test_many_rows_are_applied_as_a_whole_or_not_at_all(work: Callable[[StateTable], object], why: str) -> None:
    schema = TableSchema(ORDERS.columns, ["a"], watermark_column="c")
    table = StateTable(new_space(), "orders", schema, consistency="strict")
    table.insert_rows([(1, 11, 111), (2, 22, 222)])
    table.update_watermark(0)
    table.commit(1)
    for _ in range(2):
        with pytest.raises(InconsistentOperationError, match=why):
            work(table)
        assert (list(table.scan()), table.late_rows) == ([(1, 11, 111), (2, 22, 222)], 0)
    with pytest.raises(VnodeNotOwnedError):
        _owning_half(lambda half, rows: half.insert_rows(rows))
    with pytest.raises(VnodeNotOwnedError):
        _owning_half(lambda half, rows: half.write_rows((True, row) for row in rows))


def _owning_half(work: Callable[[StateTable, list[Any]], object]) -> None:
    """Write rows of all vnodes to a table that owns half of them, and check that it stays empty."""
    schema = TableSchema(ORDERS.columns, ["a"], distribution_key=["a"])
    half = StateTable(new_space(), "half", schema, "strict", vnodes=range(128))
    try:
        work(half, [(number, 0, 0) for number in range(100)])
    finally:
        assert list(half.scan()) == []


@pytest.mark.parametrize("key", [(), (1, 2), ("x",), 1, "ab"], ids=repr)
def test_a_key_that_does_not_fit_is_refused(key: Any) -> None:
    table = filled()
    with pytest.raises(RowError, match="table 'orders'"):
        table.get_row(key)
    if key not in ((), (1, 2)):
        with pytest.raises(RowError):
            table.scan(prefix=key)


def test_an_update_must_keep_the_key() -> None:
    table = filled()
    with pytest.raises(RowError, match="the keys differ"):
        table.update_row((1, 11, 111), (3, 11, 111))
    assert list(table.scan()) == [(1, 11, 111), (2, 22, 222)]


@pytest.mark.parametrize("epoch", [1, 0, -5, "2", 2.0, True])
def test_an_epoch_that_does_not_follow_is_refused(epoch: Any) -> None:
    table = filled()
    with pytest.raises(EpochError):
        table.commit(epoch)
    table.commit(2)
    assert table.epoch == 2


@pytest.mark.parametrize("epoch", [2**63, 2**70])
def test_an_epoch_that_no_checkpoint_can_have_is_refused(epoch: int) -> None:
    table = filled()
    space: Any = table._space
    with pytest.raises(EpochError, match=r"table 'orders': epoch \d+ is not a 64-bit int"):
        table.commit(epoch)
    with pytest.raises(EpochError, match="not a 64-bit int"):
        seal_tables(space, epoch)
    assert space.checkpoint().epoch == 1


def test_strings_with_a_nul_are_kept_and_lone_surrogates_refused() -> None:
    table = StateTable(new_space(), "t", schema_of("k string", key=["k"]))
    for key in ("a", "a\x00", "a\x00b", "\x00", ""):
        table.insert_row((key,))
    with pytest.raises(RowError, match="lone surrogate"):
        table.insert_row(("\udc80",))
    table.commit(1)
    assert [row[0] for row in table.scan()] == ["", "\x00", "a", "a\x00", "a\x00b"]


def test_lists_that_are_changed_after_a_write_or_a_read_change_nothing() -> None:
    table = StateTable(new_space(), "t", schema_of("k int64", "l list<int64>", key=["k"]))
    given = [1]
    table.insert_row((1, given))
    given.append(2)
    found = table.get_row((1,))
    assert found == (1, [1])
    found[1].append(3)
    assert table.get_row((1,)) == (1, [1])


def test_handles_of_closed_spaces_and_dropped_tables_refuse_work() -> None:
    table = filled()
    space = table._space
    rename_table(space, "orders", "old")
    drop_table(space, "old")
    actions = (
        lambda: table.insert_row((1, 1, 1)),
        lambda: table.commit(2),
        lambda: table.get_row((1,)),
        lambda: table.get_rows([(1,)]),
        lambda: list(table.scan()),
    )
    for _ in range(2):
        for action in actions:
            with pytest.raises(
                ObjectNotFoundError, match=r"table 'old' no longer exists: .* StateTable\(space, 'old'\)"
            ):
                action()
        StateTable(space, "old", ORDERS)  # Another one of this name.
    other = filled()
    other._space.close()
    for action in (lambda: other.insert_row((3, 3, 3)), lambda: other.commit(2), lambda: list(other.scan())):
        with pytest.raises(CheckpointProtocolError):
            action()


def test_a_table_of_a_space_that_is_read_only_refuses_at_the_call() -> None:
    table = filled("blind")
    space: Any = table._space
    space.checkpoint(epoch=1)
    assert not space.read_only
    read = StateTable(space.at(1), "orders")
    row = (3, 33, 333)
    for write in (lambda: read.insert_row(row), lambda: read.insert_rows([row]), lambda: read.delete_row((1, 11, 111))):
        with pytest.raises(CheckpointError, match="table 'orders': its space is read-only"):
            write()
    assert list(read.scan()) == list(table.scan())


def test_a_name_that_another_object_has_is_refused() -> None:
    space = new_space()
    space.create_list("t")
    with pytest.raises(ValueError, match="'t'"):
        StateTable(space, "t", ORDERS)
    assert tables(space) == {}


FLOATS = [Column("a", "float64"), Column("b", "int64")]
REFUSED: list[tuple[TableSchema, dict[str, Any]]] = [
    (TableSchema(FLOATS, ["a", "b"], distribution_key=["a"]), {}),
    (TableSchema(FLOATS, ["b"]), {"vnodes": [1]}),
    (TableSchema(FLOATS, ["b"], distribution_key=["b"]), {"vnodes": [-1]}),
]


@pytest.mark.parametrize(("schema", "options"), REFUSED, ids=["float", "undistributed", "vnode"])
def test_a_table_that_is_refused_takes_no_name(schema: TableSchema, options: dict[str, Any]) -> None:
    space = new_space()
    with pytest.raises(ValueError):
        StateTable(space, "t", schema, **options)
    assert list(space) == []


@pytest.mark.parametrize(
    ("columns", "key"), [(["a"], ["a"]), (FLOATS, [("a",)]), (FLOATS, [3]), (FLOATS, [(1, "asc")])]
)
def test_a_schema_of_something_else_is_refused_in_words(columns: Any, key: Any) -> None:
    with pytest.raises(SchemaError, match="found"):
        TableSchema(columns, key)


@pytest.mark.parametrize(("kind", "number"), [("float64", float), ("decimal", Decimal)])
@pytest.mark.parametrize("key", [["w", "k"], ["k"]], ids=str)
def test_nan_is_above_every_watermark_and_is_none(kind: str, number: Any, key: list[str]) -> None:
    space = new_space()
    schema = TableSchema([Column("w", kind), Column("k", "int64")], key, watermark_column="w")
    table = StateTable(space, "t", schema)
    table.insert_row((number(1), 1))
    table.insert_row((number("nan"), 2))
    with pytest.raises(RowError, match="is NaN: pass a number"):
        table.update_watermark(number("nan"))
    table.update_watermark(number(2))
    space.checkpoint(epoch=1)
    table.insert_row((number("nan"), 3))
    assert [row[1] for row in table.scan()] == [2, 3]
    found = [table.get_row([{"w": number("nan"), "k": k}[name] for name in key]) for k in (2, 3)]
    assert [row and row[1] for row in found] == [2, 3]


def test_a_volatile_space_has_tables_too() -> None:
    table = StateTable(VolatileObjectSpace(), "t", TableSchema([Column("k", "int64")], ["k"]))
    table.insert_row((1,))
    table.commit(1)
    assert list(table.scan()) == [(1,)]


def test_a_table_larger_than_memory_is_read_and_written() -> None:
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store, cache_slots=10)
    table = StateTable(space, "t", ORDERS, "strict")
    model = {}
    for epoch in range(1, 6):
        for key in range(epoch, 3000, 5):
            model[key] = (key, epoch, key)
            table.insert_row(model[key])
        table.commit(epoch)
        space.checkpoint(epoch=epoch)
        table.update_row(model[epoch], (epoch, -1, 0))
        model[epoch] = (epoch, -1, 0)
    assert list(table.scan()) == [model[key] for key in sorted(model)]
    assert list(table.scan(lower=(2990,), reverse=True)) == [model[key] for key in range(2999, 2989, -1)]
    assert table.get_row((1234,)) == model[1234]


def evolved(space: PersistedObjectSpace) -> tuple[StateTable, StateTable]:
    """Return a table opened before and after it got a column."""
    table = StateTable(space, "t", TableSchema([Column("k", "int64"), Column("v", "int64")], ["k"]))
    table.insert_row((1, 1))
    space.checkpoint(epoch=1)
    wider = table.schema.with_column(Column("w", "int64", nullable=True))
    return table, StateTable(space, "t", wider, evolve=True)


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_rollback_takes_a_change_of_the_schema_back(is_committed: bool) -> None:
    space = PersistedObjectSpace.open(":memory:")
    _, table = evolved(space)
    if is_committed:
        space.checkpoint(epoch=2)
    space.rollback(*[1] * is_committed)
    assert table.schema.names == ("k", "v")
    with pytest.raises(RowError, match="a row has 2 values"):
        table.insert_row((5, 5, 5))
    table.insert_row((5, 5))
    space.checkpoint(epoch=2)
    assert list(StateTable(space, "t").scan()) == list(table.scan()) == [(1, 1), (5, 5)]


def test_a_row_of_a_layout_that_the_catalogue_does_not_list_is_named() -> None:
    space = PersistedObjectSpace.open(":memory:")
    _, table = evolved(space)
    table.insert_row((7, 7, 7))
    space.checkpoint(epoch=2)
    before = TableRecord("t", 1, table.schema.without_column("w"), ((1, 2),))
    space.get_dictionary("$tables")["t"] = before.to_json()
    table = StateTable(space, "t")
    for read in (lambda: list(table.scan()), lambda: table.get_row((7,)), lambda: table.get_rows([(7,)])):
        with pytest.raises(SchemaMismatchError, match=r"layout 1, .* up to 0: .* '\$tables' is not that of its rows"):
            read()


def test_what_is_no_schema_and_no_change_is_refused_in_words() -> None:
    with pytest.raises(SchemaError, match="expected a TableSchema"):
        StateTable(new_space(), "t", 5)  # type: ignore[arg-type]
    with pytest.raises(RowError, match=r"expected \(operation, row\)"):
        filled().write_chunk([5])  # type: ignore[list-item]
    with pytest.raises(
        SchemaError, match=r"type map has no match: drop it, or .* map_entries\(\); .* arrays and structs"
    ):
        TableSchema.from_spark({"fields": [{"name": "m", "type": {"type": "map"}, "nullable": True}]})
    with pytest.raises(SchemaError, match="column 'm'"):
        TableSchema.from_spark({"fields": [{"name": "m", "type": {"type": "map"}, "nullable": True}]})


def test_text_with_a_collation_is_refused() -> None:
    collated = {
        "name": "s",
        "type": "string",
        "nullable": True,
        "metadata": {"__COLLATIONS": {"s": "spark.UTF8_LCASE"}},
    }
    with pytest.raises(SchemaError, match=r"column 's' is text with a collation \(spark.UTF8_LCASE\)"):
        TableSchema.from_spark({"fields": [collated]})
    inside = {"name": "outer", "type": {"type": "struct", "fields": [collated]}, "nullable": True}
    with pytest.raises(SchemaError, match="collation"):
        TableSchema.from_spark({"fields": [inside]})
