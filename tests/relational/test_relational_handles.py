"""Several handles on the same rows: one at a time has rows that are not sealed, unless they own different vnodes."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from functools import partial
from itertools import count
from typing import Any, NoReturn

import pytest

from objectspace import CheckpointProtocolError, DamagedObjectError, ObjectNotFoundError, PersistedObjectSpace
from objectspace.relational import (
    Column,
    InconsistentOperationError,
    RowError,
    StateTable,
    StorageTable,
    TableSchema,
    VnodeBitmap,
    drop_table,
    rename_table,
    seal_tables,
    state_table,
    tables,
)
from objectspace.relational.catalogue import find_record
from objectspace.relational.registry import registry_of
from tests.objects.interruptions import interrupted
from tests.relational.helpers import new_space, schema_of

STOCK = TableSchema([Column("item", "string"), Column("n", "int32")], primary_key=["item"])
ROUTED = schema_of("k int64", "v int64", key=["k"], vnode_column="k")
ROUTED_AND_TIMED = schema_of("k int64", "v int64", key=["k"], vnode_column="k", watermark_column="v")
PLAIN = schema_of("k int64", "v int64", key=["k"])
TIMED = schema_of("k int64", "v int64", key=["k"], watermark_column="v")
PLACE = Column("place", "string", default="?")
IN_TABLES = tuple(f"objectspace.relational.{name}" for name in ("catalogue", "registry", "state_table", "unread"))
REFUSED = r"table 'stock': nothing can be written while another open handle of it has rows that are not sealed \(1\)"


def stocked(consistency: Any = "strict") -> StateTable:
    """Return a table with a row that is sealed."""
    table = StateTable(new_space(), "stock", STOCK, consistency)
    table.insert_row(("apples", 100))
    table._space.checkpoint(epoch=1)
    return table


def raising(error: Exception) -> Callable[..., NoReturn]:
    """Return what can be called with anything, and raises."""

    def _raise(*_: object) -> NoReturn:
        raise error

    return _raise


@pytest.mark.parametrize("consistency", ["blind", "trusted", "strict"])
@pytest.mark.parametrize(
    "write",
    [
        lambda table: table.insert_row(("pears", 1)),
        lambda table: table.insert_rows([("pears", 1)]),
        lambda table: table.update_row(("apples", 100), ("apples", 95)),
        lambda table: table.delete_row(("apples", 100)),
        lambda table: table.write_rows([(False, ("apples", 100))]),
        lambda table: table.write_chunk([("-", ("apples", 100)), ("+", ("apples", 95))]),
    ],
)
def test_a_write_beside_rows_that_wait_in_another_handle_is_refused(
    write: Callable[[StateTable], Any], consistency: Any
) -> None:
    first = stocked(consistency)
    second = StateTable(first._space, "stock", None, consistency)
    first.insert_row(("plums", 3))
    with pytest.raises(CheckpointProtocolError, match=REFUSED):
        write(second)
    assert list(second.operations()) == []
    first.insert_row(("figs", 4))
    first._space.checkpoint(epoch=2)
    write(second)
    with pytest.raises(CheckpointProtocolError, match=REFUSED):
        first.insert_row(("nuts", 5))
    first._space.checkpoint(epoch=3)
    first.insert_row(("nuts", 5))
    assert {("figs", 4), ("nuts", 5), ("plums", 3)} <= {*first.scan()}


def test_a_strict_handle_does_not_check_against_what_another_one_has_changed() -> None:
    first = stocked()
    second = StateTable(first._space, "stock", None, "strict")
    with pytest.raises(InconsistentOperationError):
        first.insert_row(("apples", 5))
    second.delete_row(("apples", 100))
    with pytest.raises(CheckpointProtocolError, match=REFUSED):
        first.insert_row(("apples", 5))
    first._space.checkpoint(epoch=2)
    first.insert_row(("apples", 5))
    assert list(first.scan()) == [("apples", 5)]


def test_a_schema_does_not_change_while_rows_wait_in_an_open_handle() -> None:
    first = stocked()
    space, wider = first._space, first.schema.with_column(PLACE)
    first.update_row(("apples", 100), ("apples", 90))
    with pytest.raises(CheckpointProtocolError, match=r"its schema cannot change .* seal them first, with space.check"):
        StateTable(space, "stock", wider, "strict", evolve=True)
    assert space.checkpoint(epoch=2).objects.keys() == {"stock"}
    second = StateTable(space, "stock", wider, "strict", evolve=True)
    with pytest.raises(InconsistentOperationError, match="but the table has the row"):
        second.update_row(("apples", 100, "?"), ("apples", 95, "here"))
    second.update_row(("apples", 90, "?"), ("apples", 85, "here"))
    space.checkpoint(epoch=3)
    assert list(StorageTable(space, "stock").scan()) == [("apples", 85, "here")]


def test_rows_that_wait_in_a_handle_that_nobody_has_any_more_count() -> None:
    table = stocked()
    space, wider = table._space, table.schema.with_column(PLACE)
    table.insert_row(("plums", 3))
    del table
    with pytest.raises(CheckpointProtocolError, match="its schema cannot change"):
        StateTable(space, "stock", wider, evolve=True)
    seal_tables(space, 2)
    assert list(StateTable(space, "stock", wider, evolve=True).scan()) == [("apples", 100, "?"), ("plums", 3, "?")]


def test_a_schema_that_stays_is_opened_beside_rows_that_wait() -> None:
    first = stocked()
    first.insert_row(("plums", 3))
    assert list(StateTable(first._space, "stock", STOCK, evolve=True).scan()) == [("apples", 100)]


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_handle_is_neither_copied_nor_pickled_which_would_lose_rows_that_wait(clone: Callable[[Any], Any]) -> None:
    table = StateTable(new_space(), "stock", STOCK)
    table.insert_row(("a", 1))
    with pytest.raises(TypeError, match=r"'stock'.* is neither copied nor pickled: open another .*\(space, 'stock'\)"):
        clone(table)


def test_after_a_rollback_each_handle_may_write() -> None:
    first = stocked()
    space, second = first._space, StateTable(first._space, "stock", None, "strict")
    first.insert_row(("plums", 3))
    space.rollback()
    second.insert_row(("plums", 4))
    with pytest.raises(CheckpointProtocolError, match=REFUSED):
        first.insert_row(("figs", 1))
    space.checkpoint(epoch=2)
    assert list(first.scan()) == list(second.scan()) == [("apples", 100), ("plums", 4)]


def test_handles_of_other_vnodes_write_side_by_side() -> None:
    space = new_space()
    low = StateTable(space, "t", ROUTED, vnodes=range(10))
    high = StateTable(space, "t", ROUTED, vnodes=range(10, 20))
    low.insert_row((1, 1))
    high.insert_row((11, 1))
    both = StateTable(space, "t", ROUTED)
    with pytest.raises(CheckpointProtocolError, match="table 't': nothing can be written"):
        both.insert_row((30, 1))
    wider = low.schema.with_column(PLACE)
    assert StateTable(space, "t", wider, vnodes=range(20, 30), evolve=True).schema.names == ("k", "v", "place")
    space.checkpoint(epoch=1)
    assert list(StorageTable(space, "t").scan()) == [(1, 1, "?"), (11, 1, "?")]


def test_a_handle_that_came_to_own_a_vnode_asks_who_has_rows_of_it() -> None:
    space = new_space()
    schema = TableSchema(ROUTED.columns, ["k"], vnode_column="k", watermark_column="v")
    low = StateTable(space, "t", schema, vnodes=range(10))
    high = StateTable(space, "t", schema, vnodes=range(10, 20))
    low.insert_row((1, 1))
    low.delete_row((1, 1))
    low.commit(1)
    low.update_watermark(0)
    low.update_vnodes(range(15))
    high.insert_row((11, 1))
    with pytest.raises(CheckpointProtocolError, match="table 't': nothing can be written"):
        low.insert_row((1, 1))


def test_what_came_to_nothing_and_a_watermark_refuse_nobody() -> None:
    space = new_space()
    schema = schema_of("k int64", "v int64", key=["k"], watermark_column="v")
    first, second = (StateTable(space, "t", schema, "strict") for _ in range(2))
    first.update_watermark(5)
    first.insert_row((1, 7))
    second.update_watermark(6)
    first.delete_row((1, 7))
    second.insert_row((2, 7))
    with pytest.raises(CheckpointProtocolError, match="table 't': nothing can be written"):
        first.insert_row((1, 7))
    space.checkpoint(epoch=1)
    assert (StateTable(space, "t").watermark, list(first.scan())) == (6, [(2, 7)])


@pytest.mark.parametrize("raises", [0, 1])
def test_a_watermark_that_one_handle_has_raised_holds_for_each(raises: int) -> None:
    space = new_space()
    handles = [StateTable(space, "t", TIMED) for _ in range(2)]
    by, other = handles[raises], handles[1 - raises]
    for number in range(9):
        by.insert_row((number, number))
    by.update_watermark(5)
    by.commit(1)
    assert (other.watermark, [*other.scan()], other.get_row((4,))) == (5, [*by.scan()], None)
    other.insert_row((1, 1))
    assert other.late_rows == 1
    other.insert_row((6, 10))
    other.insert_row((7, 8))
    by.update_watermark(9)
    space.checkpoint(epoch=2)
    for table in (by, other, StateTable(space, "t"), StorageTable(space, "t")):
        assert list(table.scan()) == [(6, 10)]


def test_a_watermark_whose_commit_is_interrupted_anywhere_holds_for_each_handle_at_the_next() -> None:
    for lines in count():
        space = new_space()
        first, second = (StateTable(space, "t", TIMED) for _ in range(2))
        first.insert_rows([(1, 1), (5, 5)])
        space.checkpoint(epoch=1)
        first.update_watermark(3)
        is_cut = interrupted(partial(first.commit, 2), lines, IN_TABLES)
        try:
            space.checkpoint()
        except CheckpointProtocolError:
            space.rollback()
            first.update_watermark(3)
            space.checkpoint()
        assert [[*table.scan()] for table in (first, second)] == [[(5, 5)], [(5, 5)]], lines
        if not is_cut:
            break


def test_a_watermark_is_raised_in_epochs_below_0_too() -> None:
    space = new_space()
    space.checkpoint(epoch=-10)
    table = StateTable(space, "t", TIMED)
    for watermark in (3, 6):
        table.update_watermark(watermark)
        space.checkpoint()
    assert (table.epoch, table.watermark, StateTable(space, "t").watermark) == (-8, 6, 6)


def test_late_rows_of_another_handle_are_removed_whichever_is_sealed_first() -> None:
    for place in range(2):
        space = new_space()
        handles = [StateTable(space, "t", schema_of("k int64", key=["k"], watermark_column="k")) for _ in range(2)]
        handles[place].update_watermark(5)
        handles[1 - place].insert_rows([(3,), (7,)])
        space.checkpoint(epoch=1)
        assert len(space.get_sorted_dictionary("t")) == 1


def test_a_watermark_that_waits_holds_for_a_handle_that_changed_the_schema() -> None:
    space = new_space()
    first = StateTable(space, "t", TIMED)
    first.insert_rows([(number, number) for number in range(9)])
    space.checkpoint(epoch=1)
    first.update_watermark(5)
    wider = first.schema.renamed("v", "w").widened("w", "decimal")
    second = StateTable(space, "t", wider, evolve=True)
    space.checkpoint(epoch=2)
    assert (second.watermark, [row[0] for row in second.scan()]) == (5, [5, 6, 7, 8])
    second.update_watermark(2**70)
    space.checkpoint(epoch=3)
    assert (list(second.scan()), list(first.scan()), first.watermark) == ([], [], 2**70)


def test_a_change_of_the_schema_is_that_of_each_open_handle() -> None:
    first = stocked()
    space, stored = first._space, StorageTable(first._space, "stock")
    second = StateTable(space, "stock", first.schema.with_column(PLACE).widened("n", "decimal"), evolve=True)
    second.insert_row(("pears", Decimal("1.50"), "here"))
    space.checkpoint(epoch=2)
    assert list(first.scan()) == list(second.scan()) == [("apples", 100, "?"), ("pears", Decimal("1.50"), "here")]
    assert (first.schema, first.get_row(("apples",)), repr(first)) == (
        second.schema,
        ("apples", 100, "?"),
        repr(second),
    )
    with pytest.raises(RowError, match=r"table 'stock': a row has 3 values \(item, n, place\): found \('plums', 3\)"):
        first.insert_row(("plums", 3))
    first.update_row(("apples", 100, "?"), ("apples", 90, "here"))
    space.checkpoint(epoch=3)
    assert second.get_row(("apples",)) == ("apples", 90, "here")
    assert (stored.schema.names, [*stored.scan()]) == (("item", "n"), [("apples", 100)])
    StateTable(space, "stock", second.schema.without_column("n"), evolve=True)
    assert [table.get_row(("apples",)) for table in (first, second)] == [("apples", "here")] * 2
    space.rollback(1)
    assert [(table.schema, [*table.scan()]) for table in (first, second)] == [(STOCK, [("apples", 100)])] * 2


@pytest.mark.parametrize("is_reverse", [False, True])
def test_a_scan_goes_on_behind_its_last_key_where_the_schema_changes(is_reverse: bool) -> None:
    space = new_space()
    table = StateTable(space, "t", schema_of("v int64", "k int64", key=["k"]))
    table.insert_rows([(-number, number) for number in range(9)])
    space.checkpoint(epoch=1)
    scan, unbegun = table.scan(reverse=is_reverse), table.scan(lower=(8,))
    begun = [next(scan), next(scan)]
    changed = table.schema.without_column("v").with_column(Column("w", "int64", default=7))
    StateTable(space, "t", changed, evolve=True)
    rows = [*begun, *scan]
    order = list(range(9))[:: -1 if is_reverse else 1]
    assert rows == [(-number, number) for number in order[:5]] + [(number, 7) for number in order[5:]]
    assert list(unbegun) == [(8, 7)]


def test_rows_of_other_vnodes_wait_while_the_schema_changes() -> None:
    space = new_space()
    low = StateTable(space, "t", ROUTED, "strict", vnodes=range(10))
    low.insert_rows([(1, 1), (2, 2)])
    space.checkpoint(epoch=1)
    low.insert_row((3, 3))
    low.delete_row((1, 1))
    wider = low.schema.widened("v", "decimal").with_column(PLACE)
    high = StateTable(space, "t", wider, vnodes=range(10, 20), evolve=True)
    low.update_row((3, 3, "?"), (3, Decimal("3.5"), "here"))
    low.insert_row((1, 1, "?"))
    assert (list(low.scan()), list(high.scan())) == ([(1, 1, "?"), (2, 2, "?"), (3, Decimal("3.5"), "here")], [])
    space.checkpoint(epoch=2)
    assert list(StorageTable(space, "t").scan()) == list(low.scan())
    assert low.vnodes == VnodeBitmap(range(10))


def test_a_watermark_in_a_handle_from_before_its_column_was_widened_raises_the_one_that_there_is() -> None:
    space = new_space()
    old = StateTable(space, "t", schema_of("k int64", "w int16", key=["k"], watermark_column="w"))
    old.insert_row((1, 100))
    space.checkpoint(epoch=1)
    new = StateTable(space, "t", old.schema.widened("w", "int64"), evolve=True)
    new.update_watermark(100_000)
    space.checkpoint(epoch=2)
    old.update_watermark(50)
    space.checkpoint(epoch=3)
    assert (old.watermark, new.watermark, [*old.scan()]) == (100_000, 100_000, [])
    old.update_watermark(200_000)
    space.checkpoint(epoch=4)
    assert (old.watermark, new.watermark) == (200_000, 200_000)


def test_an_idle_handle_removes_hidden_rows_of_a_later_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_table, "HIDDEN_ROWS", 2)
    space = new_space()
    old = StateTable(space, "t", schema_of("at int64", "v int64", key=["at"], watermark_column="at"))
    new = StateTable(space, "t", old.schema.with_column(Column("w", "int64", default=0)), evolve=True)
    new.insert_rows([(number, number, number) for number in range(50)])
    space.checkpoint(epoch=1)
    new.update_watermark(49)
    for epoch in range(2, 22):
        space.checkpoint(epoch=epoch)
    assert (len(space.get_sorted_dictionary("t")), old.epoch, new.epoch) == (1, 21, 21)


def test_a_watermark_column_that_another_handle_has_added_hides_rows_here_too() -> None:
    space = new_space()
    old = StateTable(space, "t", PLAIN)
    old.insert_rows([(1, 1), (2, 20)])
    space.checkpoint(epoch=1)
    new = StateTable(space, "t", TableSchema(old.schema.columns, ["k"], watermark_column="v"), evolve=True)
    new.update_watermark(10)
    space.checkpoint(epoch=2)
    old.insert_rows([(3, 3), (4, 40)])
    assert (list(old.scan()), old.get_row((1,)), old.late_rows) == ([(2, 20), (4, 40)], None, 1)
    space.checkpoint(epoch=3)
    assert list(old.scan()) == list(new.scan()) == list(StorageTable(space, "t").scan()) == [(2, 20), (4, 40)]


def test_a_change_of_the_schema_that_is_refused_changes_no_handle() -> None:
    space = new_space()
    old = StateTable(space, "t", TIMED)
    old.insert_row((1, 5))
    space.checkpoint(epoch=1)
    space.create_dictionary("$watermarks")["t"] = [["1", "no number"]]
    with pytest.raises(RowError, match="does not hold its watermark 'no number'"):
        StateTable(space, "t", old.schema.with_column(PLACE), evolve=True)
    assert (old.schema, tables(space)["t"].schema, [*old.scan()]) == (TIMED, TIMED, [(1, 5)])


@pytest.mark.parametrize("is_rollback", [False, True])
def test_a_change_of_the_schema_that_is_interrupted_anywhere_leaves_no_handle_half(
    is_rollback: bool, apart: int
) -> None:
    changed = PLAIN.without_column("v").with_column(PLACE)
    for lines in count(step=apart):
        space = new_space()
        table = StateTable(space, "t", PLAIN)
        table.insert_row((1, 1))
        space.checkpoint(epoch=1)
        evolve = partial(StateTable, space, "t", changed, evolve=True)
        if is_rollback:
            evolve()
        is_cut = interrupted(space.rollback if is_rollback else evolve, lines, IN_TABLES)
        if is_rollback:
            space.rollback()
        for row in ((2, 2), (2, "two")):
            with suppress(RowError):
                table.insert_row(row)
        try:
            space.checkpoint(epoch=2)
        except CheckpointProtocolError:
            space.rollback()
        found = StateTable(PersistedObjectSpace(space.store), "t")
        assert (table.schema, [*table.scan()]) == (found.schema, [*found.scan()]), lines
        found.schema.check_rows([*found.scan()])
        if not is_cut:
            break


def damage(space: PersistedObjectSpace, name: str, text: str) -> None:
    found = "object = (SELECT object FROM state_index WHERE name = ?)"
    space.store.database.conn.execute(f"UPDATE state_item SET value = ? WHERE {found}", (text, name))


@pytest.mark.parametrize("text", ["{broken", "7", '{"id":1}'])
@pytest.mark.parametrize("catalogue", ["$tables", "$watermarks"])
def test_a_table_that_a_rollback_cannot_read_refuses_its_own_work_only(catalogue: str, text: str) -> None:
    space = new_space()
    table, lent = StateTable(space, "t", TIMED), space.create_list("lent")
    insert = table.insert_row
    insert((4, 5))
    table.update_watermark(3)
    space.checkpoint(epoch=1)
    insert((7, 7))
    scan = table.scan()
    next(scan)
    (sound,) = (one.new for one in space.store.diff(0, 1) if (one.name, one.slot) == (catalogue, "t"))
    damage(space, catalogue, text)
    uses = (
        lambda: insert((9, 9)),
        lambda: table.insert_rows([(9, 9)]),
        lambda: table.get_row((4,)),
        lambda: list(table.scan()),
        lambda: table.watermark,
        lambda: table.schema,
        table.vacuum,
        table.forget,
    )
    for epoch in (2, 3):
        space.rollback()
        for use in uses:
            with pytest.raises(DamagedObjectError, match=re.escape(f"'{catalogue}'")):
                use()
        assert "cannot be read" in repr(table)
        lent.append(epoch)
        space.checkpoint(epoch=epoch)
    with pytest.raises(DamagedObjectError):
        next(scan)
    assert list(PersistedObjectSpace(space.store).get("lent")) == [2, 3]
    damage(space, catalogue, sound)
    space.rollback()
    assert (list(table.scan()), table.watermark, table.epoch) == ([(4, 5)], 3, 3)
    insert((9, 9))
    space.checkpoint(epoch=4)
    assert list(StorageTable(space, "t").scan()) == [(4, 5), (9, 9)]


def with_entry(space: PersistedObjectSpace, catalogue: str, entry: Any) -> None:
    """Save an entry of a table at epoch 2, and go back to what is saved."""
    space.get_or_create_dictionary(catalogue)["t"] = entry
    space.checkpoint(epoch=2)
    space.rollback()


DATED = {"id": 1, "name": "k", "type": "date", "nullable": False}


@pytest.mark.parametrize(
    ("schema", "vnodes", "part"),
    [
        (PLAIN, None, {"primary_key": [["k"]]}),
        (PLAIN, None, {"columns": [{**DATED, "default": "2020-91-01"}]}),
        (PLAIN, None, {"columns": [{**DATED, "type": "money"}]}),
        (PLAIN, None, {"columns": [{**DATED, "type": "float64"}], "distribution_key": ["k"]}),
        (ROUTED, range(8), {"vnode_column": None}),
    ],
)
def test_a_record_of_which_a_part_is_damaged_holds_up_no_rollback(schema: TableSchema, vnodes: Any, part: Any) -> None:
    space = new_space()
    table = StateTable(space, "t", schema, vnodes=vnodes)
    table.insert_row((1, 1))
    space.checkpoint(epoch=1)
    sound = space.get_dictionary("$tables")["t"]
    with_entry(space, "$tables", {**sound, "schema": {**sound["schema"], **part}})
    with pytest.raises(DamagedObjectError, match=r"'\$tables', slot 't': expected the record of a table"):
        table.get_row((1,))
    space.create_list("list")
    space.checkpoint(epoch=3)
    space.rollback(epoch=1)
    assert ([*table.scan()], table.vnodes) == ([(1, 1)], StateTable(space, "t", vnodes=vnodes).vnodes)


@pytest.mark.parametrize("entry", [{}, 7, None, "id", ["id"], {"id": "1"}])
def test_a_table_is_made_beside_a_damaged_record(entry: Any) -> None:
    space = new_space()
    for name in "ts":
        StateTable(space, name, PLAIN)
    space.get_dictionary("$tables")["t"] = entry
    StateTable(space, "new", PLAIN).insert_row((1, 1))
    space.checkpoint(epoch=1)
    assert (find_record(space, "new").id, [*StorageTable(space, "new").scan()]) == (3, [(1, 1)])


def test_a_table_of_damaged_watermarks_is_renamed_with_all_its_handles() -> None:
    space = new_space()
    tables_of_t = [StateTable(space, "t", TIMED) for _ in range(2)]
    tables_of_t[0].insert_row((1, 1))
    space.checkpoint(epoch=1)
    with_entry(space, "$watermarks", "none")
    rename_table(space, "t", "new")
    assert ([table.name for table in tables_of_t], space.get_dictionary("$watermarks")["new"]) == (["new"] * 2, "none")
    for table in tables_of_t:
        with pytest.raises(DamagedObjectError, match=r"'\$watermarks', slot 'new'"):
            table.get_row((1,))
    space.get_dictionary("$watermarks")["new"] = []
    assert [(table.name, [*table.scan()]) for table in tables_of_t] == [("new", [(1, 1)])] * 2


def test_a_table_is_whole_again_after_a_record_that_distributes_it() -> None:
    space = new_space()
    table = StateTable(space, "t", PLAIN)
    table.insert_row((1, 1))
    space.checkpoint(epoch=1)
    sound = space.get_dictionary("$tables")["t"]
    with_entry(space, "$tables", {**sound, "schema": {**sound["schema"], "distribution_key": ["k"]}})
    space.rollback(epoch=1)
    assert (table.schema, [*table.scan()]) == (PLAIN, [(1, 1)])


@pytest.mark.parametrize("schema", [ROUTED, ROUTED_AND_TIMED])
@pytest.mark.parametrize("entry", [7, "none", [7], [["zz", 1]], [[7, 1]], [["-1", 1]], [["1" + 8192 * "0", 1]]])
def test_damaged_watermarks_of_a_table_that_a_column_routes_hold_up_no_rollback(
    schema: TableSchema, entry: Any
) -> None:
    space = new_space()
    table = StateTable(space, "t", schema)
    table.insert_row((1, 1))
    space.checkpoint(epoch=1)
    with_entry(space, "$watermarks", entry)
    space.checkpoint(epoch=3)
    for use in (lambda: table.get_row((1,)), lambda: StateTable(space, "t"), lambda: StorageTable(space, "t")):
        with pytest.raises(DamagedObjectError, match=r"'\$watermarks', slot 't': expected the watermarks of a table"):
            use()
    space.rollback(epoch=1)
    assert list(table.scan()) == [(1, 1)]


def test_a_table_goes_on_without_the_damaged_watermarks_once_they_are_deleted() -> None:
    space = new_space()
    table = StateTable(space, "t", TIMED)
    table.insert_row((1, 5))
    table.update_watermark(3)
    space.checkpoint(epoch=1)
    damage(space, "$watermarks", "{broken")
    space.rollback()
    space.delete("$watermarks")
    space.checkpoint(epoch=2)
    table.insert_row((2, 2))
    space.checkpoint(epoch=3)
    assert (table.watermark, [*StateTable(PersistedObjectSpace(space.store), "t").scan()]) == (None, [*table.scan()])


@pytest.mark.parametrize("catalogue", ["$tables", "$watermarks"])
def test_damaged_entries_of_tables_stand_in_the_way_of_no_other_object(catalogue: str) -> None:
    space = new_space()
    table = StateTable(space, "t", TIMED)
    table.insert_row((4, 5))
    table.update_watermark(3)
    space.create_list("list").append(1)
    space.checkpoint(epoch=1)
    (sound,) = (one.new for one in space.store.diff(0, 1) if (one.name, one.slot) == (catalogue, "t"))
    damage(space, catalogue, "{broken")
    found, deleted = PersistedObjectSpace(space.store), []
    assert list(found.get("list")) == [1]
    found.on_delete(lambda _: deleted.append(list(found)))
    for refused in (lambda: found.delete("t"), lambda: found.create_sorted_dictionary("raw", raw=True)):
        with pytest.raises(DamagedObjectError, match=re.escape(f"'{catalogue}'")):
            refused()
    found.delete("list")
    found.create_dictionary("new")["a"] = 1
    assert deleted == [["$tables", "t", "$watermarks"]]
    found.checkpoint(epoch=2)
    damage(space, catalogue, sound)
    again = PersistedObjectSpace(space.store)
    assert list(again) == ["$tables", "t", "$watermarks", "new"]
    assert (list(StateTable(again, "t").scan()), StateTable(again, "t").watermark) == ([(4, 5)], 3)


def test_where_one_table_cannot_be_sealed_none_has_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    space = new_space()
    opened = [StateTable(space, name, PLAIN) for name in "abc"]
    space.checkpoint(epoch=1)
    for table in opened:
        table.insert_row((1, 1))
    with monkeypatch.context() as patched, pytest.raises(OSError, match="no more"):
        patched.setattr(opened[1]._rows, "put_all", raising(OSError("no more")))
        seal_tables(space, 9)
    assert [table.epoch for table in opened] == [1, 1, 1]
    opened[0].insert_row((2, 2))
    space.checkpoint(epoch=2)
    assert [table.epoch for table in opened] == [2, 2, 2]
    assert [len([*StorageTable(space, name).scan()]) for name in "abc"] == [2, 1, 1]


@pytest.mark.parametrize("change", [lambda it: it.with_column(PLACE), lambda it: it.widened("n", "decimal")])
def test_a_row_of_an_older_schema_that_is_updated_to_itself_is_not_written(change: Any) -> None:
    space = stocked()._space
    table = StateTable(space, "stock", change(STOCK), "strict", evolve=True)
    space.checkpoint(epoch=2)
    (row,) = table.scan()
    table.update_row(row, row)
    table.delete_row(row)
    table.insert_row(row)
    assert (list(table.operations()), space.checkpoint(epoch=3).slots) == ([], 0)


def test_rows_of_a_table_that_is_gone_or_has_another_name_do_not_count() -> None:
    first = stocked()
    space = first._space
    first.insert_row(("plums", 3))
    rename_table(space, "stock", "old")
    dropped = StateTable(space, "stock", STOCK)
    dropped.insert_row(("pears", 1))
    drop_table(space, "stock")
    StateTable(space, "stock", STOCK).insert_row(("figs", 2))
    with pytest.raises(CheckpointProtocolError, match="table 'old': nothing can be written"):
        StateTable(space, "old").insert_row(("nuts", 5))
    space.checkpoint(epoch=2)
    assert list(StorageTable(space, "old").scan()) == [("apples", 100), ("plums", 3)]
    assert list(StorageTable(space, "stock").scan()) == [("figs", 2)]


def test_tables_are_sealed_in_the_order_in_which_they_were_opened() -> None:
    space = new_space()
    tables = [StateTable(space, f"t{number % 7}", STOCK) for number in range(50)]
    assert registry_of(space).open() == tables


def calls_of(action: Callable[[], Any]) -> int:
    """Return how many functions of Python an action calls, and nothing that is collected in its midst."""
    found = 0

    def _count(_: Any, event: str, __: Any) -> None:
        nonlocal found
        found += event == "call"

    gc.collect()
    gc.disable()
    sys.setprofile(_count)
    try:
        action()
    finally:
        sys.setprofile(None)
        gc.enable()
    return found


@pytest.mark.parametrize(
    "action",
    [
        lambda space, table: table.insert_row((1, 1)),
        lambda space, table: (table.update_watermark(5), table.commit(9)),
        lambda space, table: StateTable(space, "new", TIMED),
        lambda space, table: StateTable(space, "t0", TIMED.with_column(PLACE), evolve=True),
        lambda space, table: space.rename("list", "other"),
        lambda space, table: rename_table(space, "t0", "other"),
        lambda space, table: space.delete("list"),
        lambda space, table: drop_table(space, "t0"),
    ],
    ids=["write", "watermark", "create", "evolve", "rename", "rename_table", "delete", "drop"],
)
def test_what_is_done_to_one_table_asks_no_other_table(action: Callable[..., Any]) -> None:
    def _calls(count: int) -> int:
        space = new_space()
        opened = [StateTable(space, f"t{number}", TIMED) for number in range(count)]
        space.create_list("list").append(1)
        space.checkpoint(epoch=1)
        for table in opened[1:]:
            table.insert_row((1, 1))
        return calls_of(partial(action, space, opened[0]))

    _calls(2)  # It makes classes that are made once.
    assert _calls(200) <= _calls(20) + 5


def test_handles_are_told_by_their_rows_whatever_became_of_the_names() -> None:
    space = new_space()
    first, second = (StateTable(space, "t", PLAIN) for _ in range(2))
    first.insert_row((1, 1))
    space.checkpoint(epoch=1)
    rename_table(space, "t", "u")
    other = StateTable(space, "t", PLAIN)
    space.rollback()
    rename_table(space, "t", "v")
    assert ([first.name, second.name], list(space)) == (["v", "v"], ["$tables", "v"])
    first.insert_row((2, 2))
    with pytest.raises(CheckpointProtocolError, match="table 'v': nothing can be written"):
        second.insert_row((3, 3))
    drop_table(space, "v")
    for dead in (first, second, other):
        with pytest.raises(ObjectNotFoundError):
            dead.get_row((2,))


def test_tables_made_after_a_rollback_are_numbered_behind_those_that_there_are() -> None:
    space = new_space()
    StateTable(space, "a", PLAIN)
    space.checkpoint(epoch=1)
    StateTable(space, "b", PLAIN)
    space.rollback()
    for name in "cd":
        StateTable(space, name, PLAIN)
    assert [find_record(space, name).id for name in "acd"] == [1, 2, 3]


def test_a_handle_of_a_table_whose_drop_is_interrupted_anywhere_shows_no_row_of_it_afterwards() -> None:
    for lines in count():
        space = new_space()
        table = StateTable(space, "t", PLAIN)
        table.insert_row((1, 1))
        is_cut = interrupted(
            partial(drop_table, space, "t"), lines, ("objectspace.hooks", "objectspace.space", *IN_TABLES)
        )
        with suppress(CheckpointProtocolError):
            space.checkpoint(epoch=1)
            assert list(table.scan()) == [(1, 1)] if "t" in space else table.is_dropped
        if table.is_dropped and not space._torn:
            with pytest.raises(ObjectNotFoundError):
                table.get_row((1,))
        if not is_cut:
            break


def test_a_checkpoint_that_is_refused_seals_no_table() -> None:
    space = new_space()
    table = StateTable(space, "t", schema_of("k int64", key=["k"]))
    table.insert_row((1,))
    space.checkpoint(epoch=1)
    writer = space.store.writer()
    space.save(writer)
    table.insert_row((2,))
    with pytest.raises(CheckpointProtocolError, match="two saves in flight"):
        space.checkpoint(epoch=2)
    assert (table.epoch, table.unsealed(None)) == (1, 1)
    writer.rollback()
    assert space.checkpoint(epoch=2).slots == 1
    assert (table.epoch, list(table.scan())) == (2, [(1,), (2,)])
