"""The catalogue of the tables of a space: listing, dropping and renaming, as tables and as objects."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from checkpoint import CheckpointStore
from objectspace import NameInUseError, ObjectNotFoundError, ObjectSpace, PersistedObjectSpace
from objectspace.errors import CheckpointProtocolError
from objectspace.relational import (
    Column,
    RowError,
    SchemaMismatchError,
    StateTable,
    StorageTable,
    TableSchema,
    VnodeNotOwnedError,
    drop_table,
    rename_table,
    tables,
)
from tests.objects.interruptions import interrupted
from tests.relational.helpers import new_space, schema_of, space_on

ORDERS = schema_of("a int64", "b int64", "c int64", key=["a"])


def test_tables_are_listed_dropped_and_made_again() -> None:
    space = new_space()
    for name in ("b", "a"):
        StateTable(space, name, ORDERS).insert_row((1, 1, 1))
    assert [(record.name, record.id) for record in tables(space).values()] == [("b", 1), ("a", 2)]
    assert tables(space)["a"].schema == ORDERS
    drop_table(space, "b")
    assert list(tables(space)) == ["a"]
    assert "b" not in space
    assert list(StateTable(space, "b", ORDERS).scan()) == []
    space.checkpoint(epoch=1)
    assert list(tables(space.at(epoch=1))) == ["a", "b"]
    with pytest.raises(SchemaMismatchError, match="no table 'c'"):
        drop_table(space, "c")


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_table_whose_rows_were_deleted_as_an_object_is_gone(is_stored: bool) -> None:
    space = new_space()
    for name in ("a", "b"):
        StateTable(space, name, ORDERS).insert_row((1, 1, 1))
    if is_stored:
        space.checkpoint(epoch=1)
    space.delete("a")
    assert list(tables(space)) == ["b"]
    with pytest.raises(SchemaMismatchError, match="no table 'a'"):
        StateTable(space, "a")
    other = schema_of("x string", key=["x"])
    StateTable(space, "a", other).insert_row(("new",))
    space.checkpoint(epoch=2)
    assert list(StateTable(space_on(space.store), "a", other).scan()) == [("new",)]


MADE: dict[str, Callable[[ObjectSpace], Any]] = {
    "list": lambda space: space.create_list("a").append(5),
    "dictionary": lambda space: space.create_sorted_dictionary("a").update({"k": 1}),
    "raw": lambda space: space.create_sorted_dictionary("a", raw=True).update({b"k": "v"}),
    "renamed": lambda space: (space.create_sorted_dictionary("b", raw=True), space.rename("b", "a")),
}


def gone(space: ObjectSpace) -> None:
    space.delete("a")


def renamed(space: ObjectSpace) -> None:
    space.rename("a", "elsewhere")


def renamed_without_entries(space: ObjectSpace, name: str, new_name: str) -> None:
    """Rename a table as an earlier version did, which left what the catalogues hold of it under the old name."""
    space.rename(name, new_name)
    for entries in (space.get_dictionary(one) for one in ("$tables", "$watermarks") if one in space):
        if new_name in entries:
            entries[name] = entries.pop(new_name)


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("leave", [gone, renamed])
def test_an_object_that_has_the_name_of_a_table_that_is_gone_is_no_table(
    leave: Callable[[ObjectSpace], None], made: str
) -> None:
    space = new_space()
    StateTable(space, "a", ORDERS).insert_row((1, 1, 1))
    space.checkpoint(epoch=1)
    leave(space)
    MADE[made](space)
    space.checkpoint(epoch=2)
    assert list(tables(space)) == ["elsewhere"] * (leave is renamed)
    for call in (drop_table, lambda *given: rename_table(*given, "b"), StateTable, StorageTable):
        with pytest.raises(SchemaMismatchError, match="no table 'a'"):
            call(space, "a")
    assert "a" in space
    assert list(StorageTable(space, "a", epoch=1).scan()) == [(1, 1, 1)]


def test_what_an_earlier_version_has_left_of_a_table_is_told_by_the_kind_of_the_object() -> None:
    space = new_space()
    StateTable(space, "a", ORDERS)
    record = space.get_dictionary("$tables").pop("a")
    space.delete("a")
    MADE["list"](space)
    space.get_dictionary("$tables")["a"] = record
    space.checkpoint(epoch=1)
    assert tables(space) == {}
    with pytest.raises(SchemaMismatchError, match="no table 'a'"):
        StorageTable(space, "a")


def test_tables_that_swap_their_names_as_objects_keep_their_own_columns_and_watermarks() -> None:
    space = new_space()
    schema = TableSchema([Column("x", "int64"), Column("y", "string")], ["x"], watermark_column="x")
    first, second = StateTable(space, "a", schema), StateTable(space, "b", schema_of("p int64", "q string", key=["p"]))
    first.insert_rows([(1, "one"), (5, "five")])
    first.update_watermark(3)
    second.insert_row((2, "two"))
    space.checkpoint(epoch=1)
    for name, new_name in (("a", "t"), ("b", "u"), ("t", "b"), ("u", "a")):
        space.rename(name, new_name)
    assert (first.name, second.name) == ("b", "a")
    second.insert_row((1, "new"))
    space.checkpoint(epoch=2)
    again = space_on(space.store)
    assert list(tables(again)) == ["b", "a"]
    assert [list(StateTable(again, name).scan()) for name in "ab"] == [[(1, "new"), (2, "two")], [(5, "five")]]
    assert StateTable(again, "b", schema).watermark == 3


def test_a_table_that_an_earlier_version_has_renamed_as_an_object_is_the_table_again_under_its_name() -> None:
    space = new_space()
    StateTable(space, "a", ORDERS).insert_row((1, 1, 1))
    space.checkpoint(epoch=1)
    renamed_without_entries(space, "a", "elsewhere")
    with pytest.raises(NameInUseError, match=r"that no object has: 'a'; .* space\.rename\('elsewhere', 'a'\), or go"):
        StateTable(space, "elsewhere", ORDERS)
    space.rename("elsewhere", "a")
    assert list(StateTable(space, "a", ORDERS).scan()) == [(1, 1, 1)]


DDL: dict[str, Callable[[ObjectSpace], object]] = {
    "rename": lambda space: rename_table(space, "t", "u"),
    "rename as an object": lambda space: space.rename("t", "u"),
    "create": lambda space: StateTable(space, "u", ORDERS),
}


@pytest.mark.parametrize("name", DDL)
def test_a_table_that_was_renamed_or_created_by_half_is_not_saved(name: str, at_scale: bool, apart: int) -> None:
    saved = 0
    for line in count(step=1 if at_scale else 5 * apart):
        space = new_space()
        StateTable(space, "t", ORDERS).insert_row((1, 1, 1))
        space.checkpoint(epoch=1)
        if not interrupted(lambda: DDL[name](space), line):  # noqa: B023
            break
        with suppress(CheckpointProtocolError):
            space.checkpoint(epoch=2)
            saved += 1
        again = space_on(space.store)
        assert {one for one in again if not one.startswith("$")} == set(tables(again))
        assert [list(StateTable(again, one).scan()) for one in tables(again)] in ([[(1, 1, 1)]], [[(1, 1, 1)], []])
    assert 0 < saved < line


def test_a_first_table_that_was_opened_by_half_leaves_the_next_ones_in_order() -> None:
    for line in count():
        space = new_space()
        is_over = not interrupted(lambda: StateTable(space, "t", ORDERS), line, where=_registers)  # noqa: B023
        space.rollback()
        table = StateTable(space, "t", ORDERS)
        space.checkpoint(epoch=1)
        table.insert_row((1, 1, 1))
        space.rollback()
        rename_table(space, "t", "u")
        space.checkpoint(epoch=2)
        assert (list(table.scan()), table.name, list(StorageTable(space, "u").scan())) == ([], "u", [])
        if is_over:
            break
    assert line > 5


def _registers(frame: Any) -> bool:
    return frame.f_code.co_name == "registry_of" or frame.f_code.co_name.startswith(("on_", "ask_"))


@pytest.mark.parametrize("is_rolled_back", [False, True])
def test_the_number_of_a_table_follows_from_what_is_stored(is_rolled_back: bool) -> None:
    space = new_space()
    for name in ("a", "b"):
        StateTable(space, name, ORDERS)
    drop_table(space, "b")
    space.checkpoint(epoch=1)
    if is_rolled_back:
        space.rollback()
    StateTable(space, "c", ORDERS)
    assert [(name, table.id) for name, table in tables(space).items()] == [("a", 1), ("c", 2)]


def test_rows_without_a_schema_are_no_table_until_they_are_deleted() -> None:
    space = new_space()
    StateTable(space, "t", ORDERS).insert_row((1, 1, 1))
    space.checkpoint(epoch=1)
    space.delete("$tables")
    with pytest.raises(
        NameInUseError, match=r"'t' is a raw .* '\$tables' has no entry of it, .* by space.delete\('t'\)"
    ):
        StateTable(space, "t", ORDERS)
    space.delete("t")
    assert list(StateTable(space, "t", ORDERS).scan()) == []


@pytest.mark.parametrize("end", ["rollback", "drop", "delete"])
def test_a_table_that_is_gone_gives_no_rows_that_were_not_sealed(end: str) -> None:
    space = new_space()
    table = StateTable(space, "a", ORDERS)
    table.insert_row((1, 1, 1))
    ends = {"rollback": space.rollback, "drop": lambda: drop_table(space, "a"), "delete": lambda: space.delete("a")}
    ends[end]()
    for read in (table.get_row, table.exists):
        with pytest.raises(ObjectNotFoundError, match="table 'a' no longer exists"):
            read((1,))


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_table_is_renamed_with_its_schema_and_watermarks(is_stored: bool) -> None:
    space = new_space()
    schema = TableSchema(ORDERS.columns, ["a"], watermark_column="a")
    table = StateTable(space, "old", schema)
    table.insert_rows([(1, 1, 1), (5, 5, 5)])
    table.update_watermark(3)
    table.commit(1)
    if is_stored:
        space.checkpoint(epoch=1)
    StateTable(space, "other", ORDERS)
    with pytest.raises(ValueError, match="'other'"):
        rename_table(space, "old", "other")
    rename_table(space, "old", "new")
    with pytest.raises(SchemaMismatchError, match="no table 'old'"):
        rename_table(space, "old", "newer")
    assert sorted(tables(space)) == ["new", "other"]
    space.checkpoint(epoch=2)
    found = StateTable(space_on(space.store), "new", schema)
    assert (list(found.scan()), found.watermark) == ([(5, 5, 5)], 3)


def test_a_table_takes_nothing_over_that_waits_under_its_new_name() -> None:
    space = new_space()
    schema = TableSchema(ORDERS.columns, ["a"], watermark_column="a")
    former, table = StateTable(space, "b", schema), StateTable(space, "a", schema)
    former.update_watermark(900)
    table.insert_row((1, 1, 1))
    space.checkpoint(epoch=1)
    renamed_without_entries(space, "b", "old")
    rename_table(space, "a", "b")
    space.checkpoint(epoch=2)
    found = StateTable(space_on(space.store), "b", schema)
    assert (list(found.scan()), found.watermark, found.vacuum()) == ([(1, 1, 1)], None, 0)


def test_a_table_renamed_as_an_object_takes_no_columns_of_another_one() -> None:
    space = new_space()
    StateTable(space, "b", ORDERS).insert_row((1, 1, 1))
    StateTable(space, "c", TableSchema([Column("x", "int64")], ["x"])).insert_row((7,))
    space.checkpoint(epoch=1)
    renamed_without_entries(space, "b", "former")
    with pytest.raises(NameInUseError, match=r"'c' is a .* of another one wait under 'b' .* by rename_table\(\)"):
        space.rename("c", "b")
    rename_table(space, "c", "b")
    assert list(StateTable(space, "b").scan()) == [(7,)]
    space.checkpoint(epoch=2)
    with pytest.raises(NameInUseError, match="'former' is a raw sorted dictionary"):
        StateTable(space_on(space.store), "former", ORDERS)


def test_a_table_that_is_open_has_its_new_name_at_once() -> None:
    space = new_space()
    by_vnode = TableSchema(ORDERS.columns, ["a"], distribution_key=["a"])
    table = StateTable(space, "t", by_vnode, "strict", vnodes=[])
    others = StateTable(space, "t", by_vnode), StateTable(space, "next", ORDERS)
    rename_table(space, "t", "t2")
    StateTable(space, "t", ORDERS)
    assert [table.name, *(other.name for other in others)] == ["t2", "t2", "next"]
    assert repr(table).startswith("StateTable('t2', ")
    with pytest.raises(RowError, match="table 't2': "):
        table.insert_row((1,))
    with pytest.raises(VnodeNotOwnedError, match="table 't2'"):
        table.insert_row((1, 1, 1))
    others[0].insert_row((2, 2, 2))
    space.checkpoint(epoch=1)
    assert list(StateTable(space_on(space.store), "t2").scan()) == [(2, 2, 2)]


def test_a_rollback_over_a_renaming_takes_the_handles_back() -> None:
    space = new_space()
    other = TableSchema([Column("a", "int64"), Column("text", "string")], ["a"])
    StateTable(space, "t", ORDERS).insert_row((1, 1, 1))
    StateTable(space, "next", other).insert_row((1, "one"))
    space.checkpoint(epoch=1)
    rename_table(space, "t", "old")
    rename_table(space, "next", "t")
    handle = StateTable(space, "t")
    assert list(handle.scan()) == [(1, "one")]
    space.checkpoint(epoch=2)
    space.rollback(epoch=1)
    assert (handle.name, [column.name for column in handle.schema.columns]) == ("next", ["a", "text"])
    handle.insert_row((2, "two"))
    space.checkpoint(epoch=3)
    assert list(StateTable(space, "t").scan()) == [(1, 1, 1)]
    assert list(StateTable(space, "next").scan()) == list(handle.scan()) == [(1, "one"), (2, "two")]


@pytest.mark.parametrize("rename", [rename_table, lambda space, *names: space.rename(*names)])
def test_an_error_of_who_is_told_that_a_table_was_renamed_leaves_the_space_whole(rename: Any) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    table = StateTable(space, "t", ORDERS)
    table.insert_row((1, 2, 3))

    def _fail(*_: str) -> None:
        raise LookupError("mine")

    space.on_rename(_fail)
    with pytest.raises(LookupError, match="mine"):
        rename(space, "t", "u")
    table.insert_row((2, 2, 3))
    space.checkpoint()
    assert (table.name, list(tables(PersistedObjectSpace(space.store)))) == ("u", ["u"])
