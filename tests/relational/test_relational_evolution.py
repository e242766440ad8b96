"""What a table becomes: other schemas, other names, made again; and what its handles and its changes say then."""

from __future__ import annotations

import gc
from decimal import Decimal
from pickle import dumps, loads
from typing import Any
from weakref import ref

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint import CheckpointStore, UnknownCheckpointError
from objectspace import ObjectNotFoundError, PersistedObjectSpace, VolatileObjectSpace
from objectspace.relational import (
    Chunk,
    Column,
    RowError,
    SchemaError,
    SchemaMismatchError,
    StateTable,
    StorageTable,
    TableSchema,
    drop_table,
    rename_table,
    tables,
)
from objectspace.relational.types import DataType, parse_type
from tests.relational.helpers import new_space, schema_of, space_on

TIMED = schema_of("k int64", "ts int64", "b int64", key=["k"], watermark_column="ts")
PLAIN = schema_of("k int64", "v int64", key=["k"])


@pytest.mark.parametrize("names", [["user-id"], ["first name", "@t"], ["a`b", ""], []])
def test_fields_of_any_name_are_read_again(names: list[str]) -> None:
    store = CheckpointStore(":memory:")
    struct = pa.struct([(name, pa.int64()) for name in names])
    schema = TableSchema.from_arrow(pa.schema([pa.field("k", pa.int64(), False), pa.field("s", struct)]), ["k"])
    row = (1, dict.fromkeys(names, 7))
    space = space_on(store)
    StateTable(space, "t", schema).insert_row(row)
    space.checkpoint(epoch=1)
    fresh = space_on(store)
    assert tables(fresh)["t"].schema == schema
    assert list(StateTable(fresh, "t", schema).scan()) == list(StorageTable(store, "t").scan()) == [row]


def test_a_struct_has_each_name_once() -> None:
    with pytest.raises(SchemaError, match="two fields of one name: a, a"):
        DataType("struct", fields=(("a", parse_type("int64")), ("a", parse_type("string"))))


@pytest.mark.parametrize("watermark", ["b", None])
def test_a_watermark_stays_with_its_column(watermark: str | None) -> None:
    space = new_space()
    table = StateTable(space, "t", TIMED)
    table.insert_row((1, 500, 5))
    table.update_watermark(100)
    space.checkpoint(epoch=1)
    with pytest.raises(SchemaMismatchError, match="column 'ts' has a watermark"):
        StateTable(space, "t", TableSchema(TIMED.columns, ["k"], watermark_column=watermark), evolve=True)
    assert list(StateTable(space, "t").scan()) == [(1, 500, 5)]


@pytest.mark.parametrize(("cell", "why"), [("5", "expected int16, found str '5'"), (2**15, "32768 is out of range")])
def test_a_watermark_that_its_column_does_not_hold_is_named(cell: object, why: str) -> None:
    store = CheckpointStore(":memory:")
    space = space_on(store)
    schema = schema_of("k int64", "b int16", key=["k"], watermark_column="b")
    StateTable(space, "t", schema).insert_row((1, 7))
    space.create_dictionary("$watermarks")["t"] = [["1", cell]]
    space.checkpoint(epoch=1)
    for opened in (lambda: StateTable(space, "t"), lambda: StorageTable(store, "t")):
        with pytest.raises(RowError, match=rf"table 't': 'b' \(int16\) does not hold its watermark {cell!r}: {why}"):
            opened()
    wider = StateTable(space, "t", schema.widened("b", "decimal"), evolve=True)
    assert wider.watermark == int(str(cell))


@pytest.mark.parametrize("order", ["asc", "desc", "desc nulls first", "asc nulls last"])
def test_a_commit_looks_at_no_more_rows_than_are_hidden(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = schema_of("ts int64", "id int64", key=[("ts", order), "id"], watermark_column="ts")
    table = StateTable(VolatileObjectSpace(), "t", schema)
    table.insert_rows([(n, n) for n in range(2000)])
    table.update_watermark(10)
    table.commit(1)
    decode, looked_at = table._codec.decode, []
    monkeypatch.setattr(table._codec, "decode", lambda text: (looked_at.append(text), decode(text))[1])
    table.insert_row((5000, 1))
    table.commit(2)
    assert looked_at == []
    table.update_watermark(1500)
    table.commit(3)
    stored = len(list(table._rows.between(b"", b"")))
    assert (table.vacuum(), table.vacuum(), len(list(table.scan()))) == (stored - 501, 0, 501)


@pytest.mark.parametrize(
    ("kind", "text"),
    [("decimal(38,0)", "9" * 38), ("decimal(38,18)", f"{'9' * 20}.{'9' * 18}"), ("decimal(38,2)", "1.50")],
)
def test_a_decimal_of_all_its_digits_fits(kind: str, text: str) -> None:
    schema = TableSchema([Column("d", kind)], ["d"])
    row = schema.check_row((Decimal(text),))
    assert Chunk.from_rows(schema, [("+", row)]).to_arrow().column("d").to_pylist() == [Decimal(text)]


def test_a_decimal_with_a_digit_too_many_is_refused() -> None:
    schema = TableSchema([Column("d", "decimal(38,2)")], ["d"])
    with pytest.raises(RowError, match=r"does not fit decimal\(38,2\)"):
        schema.check_row((Decimal("123456789012345678901234567.899"),))


@pytest.mark.parametrize("kind", ["decimal", "list<decimal>", "struct<a:decimal>", "list<struct<a:decimal>>"])
def test_decimals_are_rounded_for_arrow_at_any_depth(kind: str) -> None:
    def nested(value: Decimal) -> Any:
        return {"decimal": value, "list<decimal>": [value], "struct<a:decimal>": {"a": value}}.get(kind, [{"a": value}])

    schema = TableSchema([Column("k", "int64"), Column("d", kind)], ["k"])
    found = Chunk.from_rows(schema, [("+", (1, nested(Decimal("0.1234567890123456789"))))]).to_arrow()
    assert found.column("d").to_pylist() == [nested(Decimal("0.123456789012345679"))]


def test_columns_that_are_given_ids_keep_them_beside_others_without() -> None:
    space = VolatileObjectSpace()
    table = StateTable(space, "t", PLAIN)
    table.insert_row((1, 5))
    table.commit(1)
    columns = [Column("k", "int64", True, id=1), Column("x", "int64", True, id=2), Column("v", "int64", True)]
    renamed = StateTable(space, "t", TableSchema(columns, ["k"]), evolve=True)
    assert list(renamed.scan()) == [(1, 5, None)]
    assert [column.id for column in renamed.schema.columns] == [1, 2, 3]


NULLABLE = {"nullable": True}
SOURCE = TableSchema([Column("k", "int64"), Column("w", "int32", **NULLABLE)], ["k"])


def dropped_and_added() -> tuple[VolatileObjectSpace, StateTable]:
    """Return a table whose columns are not numbered from 1: v (2) was dropped, and w (3) added."""
    space = VolatileObjectSpace()
    table = StateTable(space, "t", TableSchema([Column("k", "int64"), Column("v", "int32", **NULLABLE)], ["k"]))
    table.insert_row((1, 111))
    table.commit(1)
    changed = table.schema.without_column("v").with_column(Column("w", "int32", **NULLABLE))
    table = StateTable(space, "t", changed, evolve=True)
    table.insert_row((2, 222))
    table.commit(2)
    return space, table


CHANGES: list[tuple[Any, list[Any]]] = [
    (lambda schema: schema.widened("w", "int64"), [(1, None), (2, 222)]),
    (lambda schema: schema.renamed("w", "x"), [(1, None), (2, 222)]),
    (lambda schema: schema.renamed("w", "x").renamed("x", "y"), [(1, None), (2, 222)]),
    (lambda schema: schema.with_column(Column("z", "int32", default=7)), [(1, None, 7), (2, 222, 7)]),
    (lambda schema: schema.without_column("w").with_column(Column("z", "int32", **NULLABLE)), [(1, None), (2, None)]),
    (
        lambda schema: schema.renamed("w", "v").with_column(Column("z", "bool", **NULLABLE)),
        [(1, None, None), (2, 222, None)],
    ),
    (
        lambda schema: schema.renamed("w", "x").with_column(Column("w", "int32", **NULLABLE)),
        [(1, None, None), (2, 222, None)],
    ),
    (lambda schema: TableSchema(schema.widened("w", "int64").columns, ["k"]), [(1, None), (2, 222)]),
    (lambda schema: loads(dumps(schema.renamed("w", "x"))), [(1, None), (2, 222)]),
]


@pytest.mark.parametrize(("change", "rows"), CHANGES)
@pytest.mark.parametrize("is_stored", [False, True])
def test_a_schema_that_is_derived_finds_its_own_columns(change: Any, rows: list[Any], is_stored: bool) -> None:
    space, table = dropped_and_added()
    changed = change(table.schema if is_stored else SOURCE)
    assert list(StateTable(space, "t", changed, evolve=True).scan()) == rows
    assert list(StateTable(space, "t", changed, evolve=True).scan()) == rows


def test_a_stored_column_that_is_dropped_and_added_anew_is_another_one() -> None:
    space, table = dropped_and_added()
    anew = table.schema.without_column("w").with_column(Column("w", "int32", **NULLABLE))
    with pytest.raises(SchemaMismatchError, match=r"one was dropped, and another one added\n[^$]*evolve=True"):
        StateTable(space, "t", anew)
    assert list(StateTable(space, "t", anew, evolve=True).scan()) == [(1, None), (2, None)]
    assert [column.id for column in StateTable(space, "t", anew).schema.columns] == [1, 4]


def test_a_schema_from_before_a_change_takes_no_column_that_came_since() -> None:
    space = VolatileObjectSpace()
    table = StateTable(space, "t", PLAIN)
    before = table.schema
    table = StateTable(space, "t", before.with_column(Column("w", "int64", **NULLABLE)), evolve=True)
    table.insert_row((1, 5, 9))
    table.commit(1)
    later = StateTable(space, "t", before.with_column(Column("z", "int64", **NULLABLE)), evolve=True)
    assert list(later.scan()) == [(1, 5, None)]


ADDED = Column("a", "int64", **NULLABLE)


def holding(schema: TableSchema, row: tuple[Any, ...]) -> VolatileObjectSpace:
    space = VolatileObjectSpace()
    table = StateTable(space, "t", schema)
    table.insert_row(row)
    table.commit(1)
    return space


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd"), st.booleans()), max_size=8))
def test_a_chain_of_renamed_and_added_columns_finds_each_of_them(changes: list[tuple[str, str, bool]]) -> None:
    """A pair of equal names adds a column, another one renames; the table is opened where that is asked for."""
    schema = TableSchema([Column("k", "int64"), *(Column(name, "int64", **NULLABLE) for name in "ab")], ["k"])
    space, expected = holding(schema, (1, 100, 200)), dict[str, Any](a=100, b=200)
    for old, new, is_opened in [*changes, ("", "", True)]:
        if old == new and old and new not in expected:
            schema, expected = schema.with_column(Column(new, "int64", **NULLABLE)), {**expected, new: None}
        elif old in expected and new not in expected:
            schema, expected[new] = schema.renamed(old, new), expected.pop(old)
        if is_opened:
            try:
                tables = [StateTable(space, "t", schema, evolve=True) for _ in range(2)]
            except SchemaMismatchError as error:
                assert "exchanged their names" in str(error)  # noqa: PT017
                assert list(StateTable(space, "t").scan())
                return
            assert [dict(zip(one.schema.names, *one.scan())) for one in tables] == [{"k": 1, **expected}] * 2


@pytest.mark.parametrize(
    ("change", "row"),
    [
        (lambda schema: schema.renamed("b", "c").renamed("a", "b").with_column(ADDED), (1, 100, 200, None)),
        (lambda schema: schema.without_column("b").renamed("a", "b"), (1, 100)),
        (lambda schema: schema.without_column("b").renamed("a", "c").with_column(ADDED), (1, 100, None)),
        (lambda schema: loads(dumps(schema.renamed("a", "c").with_column(ADDED))), (1, 100, 200, None)),
    ],
)
def test_a_column_takes_a_name_that_another_one_had(change: Any, row: tuple[Any, ...]) -> None:
    schema = TableSchema([Column("k", "int64"), Column("a", "int64"), Column("b", "int64")], ["k"])
    space = holding(schema, (1, 100, 200))
    for _ in range(2):
        assert list(StateTable(space, "t", change(schema), evolve=True).scan()) == [row]


def test_columns_that_exchange_their_names_are_refused() -> None:
    two = PLAIN.with_column(Column("w", "int64", **NULLABLE))
    space = holding(two, (1, 2, 3))
    exchanged = two.renamed("v", "x").renamed("w", "v").renamed("x", "w")
    with pytest.raises(SchemaMismatchError, match=r"column .w. may be .* have exchanged their names: begin"):
        StateTable(space, "t", exchanged, evolve=True)
    stored = StateTable(space, "t").schema
    StateTable(space, "t", stored.renamed("v", "x").renamed("w", "v").renamed("x", "w"), evolve=True)
    assert list(StateTable(space, "t").scan()) == [(1, 2, 3)]
    assert StateTable(space, "t").schema.names == ("k", "w", "v")


def test_a_table_in_no_state_of_a_chain_is_refused_where_it_tells_no_column() -> None:
    space = holding(PLAIN.with_column(Column("z", "int64", **NULLABLE)), (1, 2, 3))
    changed = PLAIN.renamed("v", "w").with_column(Column("v", "int64", **NULLABLE))
    with pytest.raises(SchemaMismatchError, match="column 'w' was called 'v', and the schema has another one"):
        StateTable(space, "t", changed, evolve=True)
    assert list(StateTable(space, "t").scan()) == [(1, 2, 3)]


def test_columns_of_an_unknown_chain_take_no_name_that_another_one_had() -> None:
    schema = TableSchema([Column("k", "int64"), Column("a", "int64"), Column("b", "int64")], ["k"])
    space = holding(schema, (1, 100, 200))
    changed = schema.renamed("b", "c").renamed("a", "b").with_column(ADDED)
    rebuilt = TableSchema(changed.columns, ["k"])
    for one in (rebuilt, rebuilt.with_column(Column("z", "int64", **NULLABLE))):
        with pytest.raises(SchemaMismatchError, match="column 'c' was called 'b', and the schema has another one"):
            StateTable(space, "t", one, evolve=True)
    StateTable(space, "t", changed, evolve=True)
    assert list(StateTable(space, "t", rebuilt).scan()) == [(1, 100, 200, None)]
    exchanged = schema.renamed("b", "c").renamed("a", "b").renamed("c", "a")
    with pytest.raises(SchemaMismatchError, match=r"was called .*, and the table has columns of both names"):
        StateTable(holding(schema, (1, 100, 200)), "t", TableSchema(exchanged.columns, ["k"]), evolve=True)


def test_a_column_under_two_names_of_the_table_is_refused() -> None:
    space, table = dropped_and_added()
    table = StateTable(space, "t", table.schema.with_column(Column("x", "int32", **NULLABLE)), evolve=True)
    with pytest.raises(SchemaMismatchError, match="column 'x' was called 'w', and the table has columns of both names"):
        StateTable(space, "t", SOURCE.renamed("w", "x"), evolve=True)
    with pytest.raises(SchemaError, match="former names of column 'x' are a tuple: found 'w'"):
        Column("x", "int64", former_names="w")  # type: ignore[arg-type]


def test_a_watermark_goes_with_the_rows_of_a_renamed_table() -> None:
    space = new_space()
    old = StateTable(space, "t", TIMED)
    old.insert_row((1, 500, 0))
    old.update_watermark(100)
    rename_table(space, "t", "u")
    space.checkpoint(epoch=1)
    assert StateTable(space, "u").watermark == 100
    new = StateTable(space, "t", TIMED)
    new.insert_row((7, 5, 0))
    assert (list(new.scan()), new.late_rows) == ([(7, 5, 0)], 0)


def test_the_handle_of_a_dropped_table_takes_nothing_more() -> None:
    space = new_space()
    old = StateTable(space, "t", PLAIN)
    old.insert_row((1, 1))
    drop_table(space, "t")
    new = StateTable(space, "t", PLAIN)
    for write in (lambda: old.insert_row((2, 2)), lambda: old.delete_row((1, 1)), lambda: old.insert_rows([(3, 3)])):
        with pytest.raises(ObjectNotFoundError):
            write()
    space.checkpoint(epoch=1)
    assert list(new.scan()) == []


@pytest.mark.parametrize("name", ["$tables", "$watermarks"])
def test_a_table_takes_no_name_of_what_lists_the_tables(name: str) -> None:
    space = VolatileObjectSpace()
    StateTable(space, "t", PLAIN).insert_row((1, 1))
    for name_it in (lambda: StateTable(space, name, PLAIN), lambda: rename_table(space, "t", name)):
        with pytest.raises(SchemaError, match="choose another one"):
            name_it()
    assert list(tables(space)) == ["t"]


def test_a_space_that_is_closed_with_unsealed_rows_is_let_go() -> None:
    space = VolatileObjectSpace()
    StateTable(space, "t", PLAIN).insert_row((1, 1))
    space.close()
    left = ref(space)
    del space
    gc.collect()
    assert left() is None


@pytest.mark.parametrize("epochs", [(3, 5), (9, 10)])
def test_changes_before_what_was_pruned_are_refused(epochs: tuple[int, int]) -> None:
    space = new_space()
    table = StateTable(space, "t", PLAIN)
    for epoch in range(1, 11):
        table.insert_row((epoch, epoch))
        space.checkpoint(epoch=epoch)
    space.store.prune(keep=2)
    stored = StorageTable(space.store, "t")
    with pytest.raises(UnknownCheckpointError):
        list(stored.changes(*epochs))
    assert [one.new for one in stored.changes(10, 10)] == [(10, 10)]


@pytest.mark.parametrize("before", [1, 0, -3])
def test_there_was_nothing_before_epoch_1_where_epochs_are_numbers(before: int) -> None:
    space = new_space()
    table = StateTable(space, "t", PLAIN)
    for epoch in range(1, 5):
        table.insert_row((epoch, epoch))
        space.checkpoint()
    space.store.prune(keep=2)
    assert len(list(StorageTable(space.store, "t").changes(before, 4))) == 4
    assert list(StorageTable(space.store, "t").changes(before, 0) if before < 1 else []) == []


@pytest.mark.parametrize("first", [1, 0, -1])
def test_changes_are_refused_where_epochs_below_1_were_pruned(first: int) -> None:
    space = new_space()
    space.checkpoint(epoch=-5)
    table = StateTable(space, "t", PLAIN)
    for epoch in range(-4, 4):
        table.insert_row((epoch, epoch))
        space.checkpoint(epoch=epoch)
    assert [one.new[0] for one in StorageTable(space.store, "t").changes(first, 3)] == list(range(first, 4))
    space.store.prune(keep=2)
    with pytest.raises(UnknownCheckpointError, match=f"no longer knows the state before epoch {first}:"):
        StorageTable(space.store, "t").changes(first, 3)


def test_changes_up_to_an_epoch_without_a_column_are_refused_with_what_to_do() -> None:
    space: PersistedObjectSpace = new_space()
    for epoch in (1, 2):
        StateTable(space, "t", PLAIN).insert_row((epoch, 5))
        space.checkpoint(epoch=epoch)
    StateTable(space, "t", PLAIN.with_column(Column("w", "int64", default=0)), evolve=True)
    space.checkpoint(epoch=3)
    with pytest.raises(SchemaError, match=r"'t' had no column 'w' at epoch 2, but k, v: .*epoch=2\), or .*columns="):
        StorageTable(space.store, "t").changes(2, 2)
    for one in (StorageTable(space.store, "t", epoch=2), StorageTable(space.store, "t", columns=["k", "v"])):
        assert [change.new for change in one.changes(2, 2)] == [(2, 5)]
    assert [change.new for change in StorageTable(space.store, "t").changes(2, 3)] == [(2, 5, 0)]


def test_there_are_no_changes_from_a_table_to_another_one_of_its_name() -> None:
    space: PersistedObjectSpace = new_space()
    StateTable(space, "t", PLAIN).insert_row((1, 5))
    space.checkpoint(epoch=1)
    drop_table(space, "t")
    StateTable(space, "t", schema_of("k int64", "a string", "b string", key=["k"])).insert_row((1, "x", "y"))
    space.checkpoint(epoch=2)
    with pytest.raises(SchemaMismatchError, match=r"made again with another schema.*'v': before int64"):
        list(StorageTable(space, "t").changes(2, 2))
    assert [one.new for one in StorageTable(space, "t").changes(1, 2)] == [(1, "x", "y")]


@pytest.mark.parametrize("columns", ["first last", "last first", "first zip"])
def test_columns_of_a_table_that_was_made_again_are_known_by_their_names(columns: str) -> None:
    space: PersistedObjectSpace = new_space()
    for epoch, names in ((1, "first last"), (2, columns)):
        schema = schema_of("k int64", *[f"{name} string" for name in names.split()], key=["k"])
        StateTable(space, "t", schema).insert_row((epoch, "Ada", "Lovelace"))
        space.checkpoint(epoch=epoch)
        if epoch == 1:
            drop_table(space, "t")
    if columns == "first last":
        changes = StorageTable(space, "t").changes(2, 2)
        assert [one.old or one.new for one in changes] == [(1, "Ada", "Lovelace"), (2, "Ada", "Lovelace")]
    else:
        with pytest.raises(SchemaMismatchError, match=r"'t' was dropped and made again (?s:.*) has the number that '"):
            StorageTable(space, "t").changes(2, 2)


@pytest.mark.parametrize(("before", "after"), [("kv", "k-kv"), ("kv", "kw-kv"), ("k-kv", "kv"), ("kw-kv", "kv")])
def test_a_table_that_came_to_its_columns_in_another_way_has_no_changes_from_the_former(
    before: str, after: str
) -> None:
    """Its rows are stored with other numbers of columns, so those of the former would be read as something else."""
    space: PersistedObjectSpace = new_space()
    kinds = {name: f"{name} int64" for name in "kvw"}
    for epoch, steps in ((1, before), (2, after)):
        first, *later = [schema_of(*map(kinds.get, names), key=["k"]) for names in steps.split("-")]
        table = StateTable(space, "t", first)
        for schema in later:
            table = StateTable(space, "t", schema, evolve=True)
        table.insert_rows([(1, 10), (2, 20 + epoch)])
        space.checkpoint(epoch=epoch)
        if epoch == 1:
            drop_table(space, "t")
    with pytest.raises(SchemaMismatchError, match=r"made again (?s:.*)evolved in another way"):
        list(StorageTable(space, "t").changes(2, 2))
    assert [one.new for one in StorageTable(space, "t").changes(1, 2)] == [(1, 10), (2, 22)]


def test_what_old_rows_hold_in_an_added_column_stays() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    table = StateTable(space, "t", TableSchema([Column("k", "int64")], ["k"]))
    table.insert_row((1,))
    space.checkpoint(epoch=1)
    added = Column("v", "string", default="?")
    StateTable(space, "t", table.schema.with_column(added), evolve=True)
    more = Column("w", "int64", nullable=True)
    for default in ("new", None):
        other = TableSchema([Column("k", "int64"), Column("v", "string", default=default), more], ["k"])
        with pytest.raises(SchemaMismatchError, match=r"hold '\?' in it: its default stays that"):
            StateTable(space, "t", other, evolve=True)
    table = StateTable(space, "t", TableSchema([Column("k", "int64"), added, more], ["k"]), evolve=True)
    assert table.get_row((1,)) == (1, "?", None)


@pytest.mark.parametrize(
    ("old", "new", "default", "wide"),
    [
        ("int32", "float64", 5, 5.0),
        ("int64", "decimal", 5, Decimal(5)),
        ("int16", "decimal(9,2)", 5, Decimal(5)),
        ("float32", "float64", 0.5, 0.5),
        ("list<int16>", "list<float64>", [1, None], [1.0, None]),
        ("int32", "float64", None, None),
    ],
)
@pytest.mark.parametrize("is_stored", [False, True])
def test_a_column_with_a_default_is_widened_with_it(
    old: str, new: str, default: Any, wide: Any, is_stored: bool
) -> None:
    space = VolatileObjectSpace()
    table = StateTable(space, "t", TableSchema([Column("k", "int64")], ["k"]))
    table.insert_row((1,))
    table.commit(1)
    added = Column("v", old, nullable=True, default=default)
    schema = StateTable(space, "t", table.schema.with_column(added), evolve=True).schema
    source = TableSchema([Column("k", "int64"), Column("v", new, nullable=True, default=default)], ["k"])
    table = StateTable(space, "t", schema.widened("v", new) if is_stored else source, evolve=True)
    (found,) = table.scan()
    assert repr(found[1]) == repr(table.schema.check_row((1, wide))[1])
    other = TableSchema([Column("k", "int64"), Column("v", "string", nullable=True)], ["k"])
    with pytest.raises(SchemaMismatchError, match="cannot change"):
        StateTable(space, "t", other, evolve=True)


def test_a_default_that_no_row_needs_may_go() -> None:
    space = VolatileObjectSpace()
    StateTable(space, "t", TableSchema([Column("k", "int64"), Column("v", "string", default="?")], ["k"]))
    wider = TableSchema([Column("k", "int64"), Column("v", "string"), Column("w", "int64", nullable=True)], ["k"])
    assert StateTable(space, "t", wider, evolve=True).schema == wider


@pytest.mark.parametrize(
    ("old", "new"), [("int64", "decimal(20,2)"), ("int16", "decimal(6,2)"), ("int32", "decimal(9,0)")]
)
def test_whole_numbers_become_decimals_that_hold_all_of_them(old: str, new: str) -> None:
    schema = TableSchema([Column("k", "int64"), Column("v", old)], ["k"])
    with pytest.raises(SchemaError, match="some values would not fit"):
        schema.widened("v", new)
    assert str(schema.widened("v", "decimal(38,18)").column("v").type) == "decimal(38,18)"


def test_a_decimal_that_arrow_cannot_hold_is_refused_by_column() -> None:
    schema = schema_of("k int64", "v decimal", key=["k"])
    with pytest.raises(RowError, match=r"column 'v' .*: it has too many digits"):
        Chunk(schema, ["+"], [(1, Decimal("1" * 395 + "." + "1" * 20))]).to_arrow()


def test_a_watermark_of_32_bits_is_one_rule_for_every_read() -> None:
    store = CheckpointStore(":memory:")
    space = space_on(store)
    schema = schema_of("w float32", "v int64", key=["w", "v"], watermark_column="w")
    table = StateTable(space, "t", schema)
    table.insert_row((0.1, 1))
    table.update_watermark(float(np.float32(0.1)))
    space.checkpoint(epoch=1)
    stored = StorageTable(store, "t")
    assert list(table.scan()) == list(stored.scan()) == [table.get_row((0.1, 1))] == [stored.get_row((0.1, 1))]
    assert stored.to_arrow().num_rows == 1
