"""Storage tables: one epoch whatever comes later, projections, SQL's ranges, Arrow in every direction, changes."""

from __future__ import annotations

import math
import re
import sqlite3
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

from checkpoint import CheckpointKind, CheckpointStore, UnknownCheckpointError
from objectspace import DamagedObjectError, PersistedObjectSpace
from objectspace.relational import (
    Chunk,
    Column,
    InconsistentOperationError,
    RowError,
    SchemaError,
    SchemaMismatchError,
    StateTable,
    StorageTable,
    TableSchema,
    compacted,
    rename_table,
    tables,
)
from objectspace.relational.keys_arrow import encode_keys
from objectspace.relational.values import nearest_float32
from tests.relational.helpers import new_space, schema_of
from tests.relational.samples import EXAMPLES

PEOPLE = schema_of("a int64", "b int64", "c string", key=["a", "b desc"])


def committed(*epochs: list[Any], schema: Any = PEOPLE, **options: Any) -> Any:
    space = new_space(**options)
    table = StateTable(space, "t", schema)
    for epoch, changes in enumerate(epochs, 1):
        table.write_chunk(changes)
        space.checkpoint(epoch=epoch)
    return space


ROWS = [("+", (1, b, f"r{b}")) for b in (1, 5, 9)] + [("+", (1, None, "null")), ("+", (None, 2, "none"))]


def test_an_epoch_stays_what_it_was() -> None:
    space = committed([("+", (1, 1, "a"))], [("-", (1, 1, "a")), ("+", (2, 2, "b"))])
    first, second = StorageTable(space, "t", epoch=1), StorageTable(space.store, "t")
    table = StateTable(space, "t")
    for epoch in range(3, 40):
        table.insert_row((3, epoch, "c"))
        space.checkpoint(epoch=epoch)
    assert list(first.scan()) == [(1, 1, "a")]
    assert first.get_row((1, 1)) == (1, 1, "a")
    assert list(second.scan()) == [(2, 2, "b")]
    assert (first.epoch, second.epoch) == (1, 2)
    assert len(list(StorageTable(space, "t").scan())) == 38


def test_columns_can_be_chosen_and_repeated() -> None:
    table = StorageTable(committed(ROWS), "t", columns=["c", "a", "c"])
    assert table.get_row((1, 5)) == ("r5", 1, "r5")
    assert next(table.scan(prefix=(1,))) == ("r9", 1, "r9")
    with pytest.raises(SchemaError, match="table 't': there is no column 'z': the columns are a, b, c"):
        StorageTable(committed(ROWS), "t", columns=["z"])


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"prefix": (1,)}, [9, 5, 1, None]),
        ({"prefix": (1,), "lower": (5,)}, [9, 5]),
        ({"prefix": (1,), "lower": (5,), "inclusive": (False, True)}, [9]),
        ({"prefix": (1,), "upper": (5,)}, [5, 1]),
        ({"prefix": (1,), "upper": (5,), "reverse": True}, [1, 5]),
        ({"prefix": (1,), "lower": (2,), "upper": (8,)}, [5]),
        ({"prefix": (1,), "lower": (8,), "upper": (2,)}, []),
        ({"prefix": (1,), "lower": (None,)}, []),
        ({"prefix": (1, None)}, [None]),
        ({"prefix": (None,)}, [2]),
        ({"lower": (0,)}, [9, 5, 1, None]),
        ({}, [2, 9, 5, 1, None]),
    ],
)
def test_ranges_are_those_of_sql(bounds: Any, expected: list[Any]) -> None:
    assert [row[1] for row in StorageTable(committed(ROWS), "t").scan(**bounds)] == expected


PAIRS = [(a, b) for a in (None, 1, 2) for b in (None, 1, 2)]


@pytest.mark.parametrize("bound", [pair for pair in PAIRS if pair[0] is not None], ids=str)
@pytest.mark.parametrize(("side", "sign"), [("lower", ">"), ("upper", "<")])
@pytest.mark.parametrize("closed", [False, True])
def test_bounds_of_two_columns_compare_as_rows_of_sql_do(bound: Any, side: str, sign: str, closed: bool) -> None:
    schema = schema_of("a int64", "b int64", key=["a", "b"])
    space = committed([("+", pair) for pair in PAIRS], schema=schema)
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a, b)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", PAIRS)
    expected = connection.execute(f"SELECT * FROM t WHERE (a, b) {sign}{'=' * closed} (?, ?) ORDER BY a, b", bound)
    found = StorageTable(space, "t").scan(**{side: bound}, inclusive=(closed, closed))
    assert list(found) == expected.fetchall()


def test_a_bound_with_nan_or_a_32_bit_float_leaves_out_what_a_null_behind_it_decides() -> None:
    schema = schema_of("a float32", "b int64", key=["a", "b"])
    near = nearest_float32(0.1)
    space = committed([("+", (a, b)) for a in (near, math.nan) for b in (None, 1, 9)], schema=schema)
    table = StorageTable(space, "t")
    assert list(table.scan(upper=(0.1, 5))) == [(near, 1)]
    assert [b for _, b in table.scan(lower=(0.2,), upper=(math.nan, 5))] == [1]
    assert [b for _, b in table.scan(lower=(math.nan, 5))] == [9]


def test_a_range_over_different_directions_is_refused() -> None:
    with pytest.raises(RowError, match="ascending and descending"):
        StorageTable(committed(ROWS), "t").scan(lower=(1, 1))


def test_what_does_not_exist_is_refused() -> None:
    space = committed(ROWS)
    with pytest.raises(
        SchemaMismatchError, match=r"no table 'u' at epoch 1 of :memory:: tables\(space\.at\(1\)\) lists"
    ):
        StorageTable(space, "u")
    assert [*tables(space.at(1))] == ["t"]
    with pytest.raises(UnknownCheckpointError):
        StorageTable(space, "t", epoch=9)
    with pytest.raises(
        SchemaMismatchError, match=r"no table 't' in :memory:, where no epoch .*: space\.checkpoint\(\)"
    ):
        StorageTable(CheckpointStore(":memory:"), "t")


def test_a_store_that_is_read_only_has_tables(tmp_path: Any) -> None:
    with PersistedObjectSpace.open(tmp_path / "state.db") as space:
        table = StateTable(space, "t", PEOPLE)
        table.insert_row((1, 1, "a"))
        table.commit(1)
        space.checkpoint(epoch=1)
    with CheckpointStore(tmp_path / "state.db", read_only=True) as store:
        assert list(StorageTable(store, "t", epoch=1).scan()) == [(1, 1, "a")]


# Arrow ----------------------------------------------------------------------------------------------------------------


def every_type() -> Any:
    kinds = ["decimal(5,2)" if kind == "decimal" else kind for kind in EXAMPLES]
    schema = schema_of("k int64", *(f"c{place} {kind}" for place, kind in enumerate(kinds)), key=["k desc"])
    rows = [("+", (1, *EXAMPLES.values())), ("+", (2, *[None] * len(EXAMPLES))), ("+", (3, *EXAMPLES.values()))]
    return committed(rows, schema=schema), schema


NO_ROWS = Chunk(PEOPLE, [], [])


@pytest.mark.parametrize(
    ("library", "extra", "use"),
    [
        ("pyarrow", "arrow", PEOPLE.to_arrow),
        ("pyarrow", "arrow", lambda: TableSchema.from_arrow(pa.schema([]))),
        ("pyarrow", "arrow", NO_ROWS.to_arrow),
        ("pyarrow", "arrow", lambda: Chunk.from_arrow(pa.table({}))),
        ("pyarrow", "arrow", lambda: Chunk.from_pandas(pd.DataFrame())),
        ("pyarrow", "arrow", lambda: StorageTable(committed(ROWS), "t").__arrow_c_stream__()),
        ("pandas", "spark", NO_ROWS.to_pandas),
        ("pandas", "spark", lambda: StorageTable(committed(ROWS), "t").to_pandas()),
    ],
)
def test_what_is_missing_is_named_with_the_extra_that_brings_it(
    library: str, extra: str, use: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=rf"takes {library}, .*pip install 'objectspace\[{extra}\]'"):
        use()


def test_every_type_goes_to_arrow_and_back() -> None:
    space, schema = every_type()
    table = StorageTable(space, "t")
    found = table.to_arrow()
    found.validate(full=True)
    assert found.schema == schema.to_arrow()
    rows = [tuple(row.values()) for row in found.to_pylist()]
    assert rows == list(table.scan())
    assert Chunk.from_arrow(found, schema).rows() == [("+", row) for row in table.scan()]
    assert table.to_pandas()["k"].tolist() == [3, 2, 1]


def test_batches_are_as_large_as_wanted() -> None:
    space = committed([("+", (1, b, "x")) for b in range(100)])
    table = StorageTable(space, "t", columns=["b"])
    batches = list(table.to_batches(batch_rows=30))
    assert [batch.num_rows for batch in batches] == [30, 30, 30, 10]
    assert pa.Table.from_batches(batches)["b"].to_pylist() == list(range(99, -1, -1))
    assert StorageTable(space, "t", columns=[]).to_arrow().num_columns == 0


def test_arrow_readers_read_a_table_by_itself() -> None:
    space, _ = every_type()
    table = StorageTable(space, "t", columns=["k", "c3", "c7", "c10"])
    assert pa.table(table).to_pylist() == table.to_arrow().to_pylist()
    assert pa.RecordBatchReader.from_stream(table).read_all().num_rows == 3


def test_a_value_that_arrow_cannot_hold_is_named() -> None:
    from decimal import Decimal

    space = committed([("+", (1, Decimal("NaN")))], schema=schema_of("k int64", "d decimal", key=["k"]))
    with pytest.raises(RowError, match="column 'd'"):
        StorageTable(space, "t").to_arrow()


def test_floats_without_a_number_and_early_dates_go_to_arrow() -> None:
    schema = schema_of("k int64", "f float64", "d date", key=["k"])
    rows = [("+", (1, float("inf"), date(1, 1, 1))), ("+", (2, 1.5, date(9999, 12, 31))), ("+", (3, None, None))]
    found = StorageTable(committed(rows, schema=schema), "t").to_arrow()
    assert found["f"].to_pylist() == [float("inf"), 1.5, None]
    assert found["d"].to_pylist() == [date(1, 1, 1), date(9999, 12, 31), None]


# Changes --------------------------------------------------------------------------------------------------------------


def changes(space: Any, first: int, last: int, **options: Any) -> list[Any]:
    found = StorageTable(space, "t", **options).changes(first, last)
    return [(kind.value, *(row for row in (old, new) if row is not None)) for kind, old, new in found]


def test_changes_are_net_and_in_key_order() -> None:
    space = committed(
        [("+", (1, 1, "a")), ("+", (2, 2, "b"))],
        [("+", (3, 3, "c")), ("-", (2, 2, "b"))],
        [("-", (3, 3, "c")), ("U-", (1, 1, "a")), ("U+", (1, 1, "z"))],
        [("+", (2, 2, "b"))],
    )
    assert changes(space, 1, 1) == [("insert", (1, 1, "a")), ("insert", (2, 2, "b"))]
    assert changes(space, 2, 3) == [("update", (1, 1, "a"), (1, 1, "z")), ("delete", (2, 2, "b"))]
    assert changes(space, 2, 4) == [("update", (1, 1, "a"), (1, 1, "z"))]
    assert changes(space, 2, 4, columns=["a", "b"]) == []
    assert changes(space, 4, 4, columns=["c"]) == [("insert", ("b",))]
    with pytest.raises(RowError, match="after"):
        changes(space, 3, 2)
    with pytest.raises(UnknownCheckpointError, match="no epoch 9"):
        changes(space, 1, 9)


def test_changes_go_over_a_complete_image() -> None:
    space = committed([("+", (1, 1, "a")), ("+", (2, 2, "b")), ("+", (3, 3, "c"))])
    table = StateTable(space, "t")
    for epoch, kind in ((2, CheckpointKind.FULL), (3, CheckpointKind.DIFFERENTIAL)):
        table.delete_row((epoch, epoch, "abc"[epoch - 1]))
        space.checkpoint(epoch=epoch, kind=kind)
    assert changes(space, 2, 2) == [("delete", (2, 2, "b"))]
    assert changes(space, 3, 3) == [("delete", (3, 3, "c"))]
    assert changes(space, 2, 3) == [("delete", (2, 2, "b")), ("delete", (3, 3, "c"))]


def test_changes_go_over_runs_that_were_merged() -> None:
    space = committed([("+", (1, 1, "a")), ("+", (2, 2, "b")), ("+", (3, 3, "c"))])
    table, held = StateTable(space, "t"), space.at(1)
    for epoch in (2, 3):
        table.delete_row((epoch, epoch, "abc"[epoch - 1]))
        space.checkpoint(epoch=epoch)
    space.store.compact()
    assert changes(space, 2, 3) == [("delete", (2, 2, "b")), ("delete", (3, 3, "c"))]
    held.close()


def test_a_complete_image_from_elsewhere_deletes_what_it_lacks() -> None:
    before = [("+", (1, 1, "a")), ("+", (2, 2, "b"))]
    space, other = committed(before), committed(before, [("-", (1, 1, "a")), ("+", (3, 3, "c"))])
    space.store.apply(other.store.reader().image(), 2)
    assert changes(space, 2, 2) == [("delete", (1, 1, "a")), ("insert", (3, 3, "c"))]


def test_changes_go_over_a_change_of_schema() -> None:
    space = committed([("+", (1, 1, "a")), ("+", (2, 2, "b"))])
    table = StateTable(space, "t")
    wider = table.schema.with_column(Column("d", "int64", default=0))
    table = StateTable(space, "t", wider, evolve=True)
    table.update_row((2, 2, "b", 0), (2, 2, "b", 5))
    table.insert_row((1, 1, "a", 0))
    space.checkpoint(epoch=2)
    assert changes(space, 2, 2) == [("update", (2, 2, "b", 0), (2, 2, "b", 5))]


def test_changes_are_those_of_the_schema_at_their_end_whatever_a_reader_was_opened_at() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    table = StateTable(space, "t", TableSchema([Column("k", "int64"), Column("v", "float32")], ["k"]))
    table.insert_row((1, 0.5))
    space.checkpoint(epoch=1)
    reader = StorageTable(space.store, "t")
    table = StateTable(space, "t", table.schema.widened("v", "float64"), evolve=True)
    for epoch, value in enumerate([0.1, 0.10000000001], start=2):
        table.insert_row((1, value))
        space.checkpoint(epoch=epoch)
    assert [change.new for change in reader.changes(3, 3)] == [(1, 0.10000000001)]
    other = table.schema.without_column("v").with_column(Column("v", "string", default=""))
    StateTable(space, "t", other, evolve=True).insert_row((1, "x"))
    space.checkpoint(epoch=4)
    assert [change.new for change in reader.changes(4, 4)] == [(1, "x")]


def test_what_a_watermark_has_come_to_hide_does_not_go_and_is_what_a_row_was_before() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    columns = [Column("k", "int64"), Column("at", "int64")]
    table = StateTable(space, "t", TableSchema(columns, ["k"], watermark_column="at"))
    for row in [(1, 1), (2, 1), (3, 1), (4, 9)]:
        table.insert_row(row)
    space.checkpoint(epoch=1)
    table.update_row((1, 1), (1, 9))
    table.delete_row((2, 1))
    table.update_watermark(5)
    space.checkpoint(epoch=2)
    table.insert_row((3, 8))
    space.checkpoint(epoch=3)
    assert changes(space, 2, 2) == [("update", (1, 1), (1, 9))]
    assert changes(space, 3, 3) == [("insert", (3, 8))]
    assert changes(space, 1, 2) == [("insert", (1, 9)), ("insert", (4, 9))]


def test_a_value_that_is_equal_in_sql_is_stored_and_is_no_change() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    columns = [Column("k", "int64"), Column("d", "decimal"), Column("f", "float64")]
    table = StateTable(space, "t", TableSchema(columns, ["k"]))
    for epoch, row in enumerate([(1, Decimal("1.0"), 0.0), (1, Decimal("1.00"), -0.0)], start=1):
        table.insert_row(row)
        space.checkpoint(epoch=epoch)
    assert repr(list(StorageTable(space.store, "t").scan())) == "[(1, Decimal('1.00'), -0.0)]"
    assert changes(space, 2, 2) == []


def test_changes_of_merged_epochs_are_refused() -> None:
    space = committed(*([("+", (1, epoch, "a"))] for epoch in range(40)), history=2)
    assert changes(space, 40, 40) == [("insert", (1, 39, "a"))]
    with pytest.raises(UnknownCheckpointError):
        changes(space, 3, 5)


# Chunks ---------------------------------------------------------------------------------------------------------------


def test_a_chunk_goes_to_arrow_and_pandas_and_back() -> None:
    chunk = Chunk.from_rows(PEOPLE, [("U-", (1, 2, "a")), ("U+", (1, 2, None)), ("-", (5, None, "b"), True)])
    batch = chunk.to_arrow()
    assert batch.schema.names == ["op", "a", "b", "c"]
    assert Chunk.from_arrow(batch, PEOPLE) == chunk
    assert Chunk.from_arrow(batch).rows() == chunk.rows()
    whole = Chunk.from_rows(PEOPLE, [("+", (1, 2, "a"))])
    assert Chunk.from_pandas(whole.to_pandas(), PEOPLE) == whole
    assert Chunk.from_rows(PEOPLE, []).to_arrow().num_rows == 0


def test_whole_numbers_come_back_from_pandas_where_some_are_missing() -> None:
    kinds = ["int64", "int16", "list<int64>", "struct<a:int64,b:list<int32>,c:string>", "float64", "bool"]
    columns = [Column(f"c{place}", kind, nullable=True) for place, kind in enumerate(kinds)]
    schema = TableSchema([Column("k", "int64"), *columns], ["k"])
    rows = [(1, 2**53, 7, [1, None], {"a": 1, "b": [None, 2], "c": "x"}, 2.0, True), (2, *[None] * len(kinds))]
    chunk = Chunk.from_rows(schema, [("+", row) for row in rows])
    again = Chunk.from_pandas(chunk.to_pandas(), schema)
    assert again.rows() == chunk.rows()
    assert [type(value) for value in again.values[0]] == [type(value) for value in chunk.values[0]]
    for number in (5.5, 2.0**60):
        with pytest.raises(RowError, match=r"column 'c0' \(int64\): expected int64, found float"):
            Chunk.from_pandas(pd.DataFrame({"k": [1, 2], "c0": [number, None]}), TableSchema(schema.columns[:2], ["k"]))


def test_a_chunk_of_other_data_is_refused() -> None:
    with pytest.raises(SchemaError, match="column 'b' is missing"):
        Chunk.from_arrow(pa.table({"a": [1]}), PEOPLE)
    for op in ("?", ["+"], {"a": "+"}):
        with pytest.raises(RowError, match=r"the operation .* of the row a=1, b=2: expected one of"):
            Chunk.from_arrow(pa.table({"op": [op], "a": [1], "b": [2], "c": ["x"]}), PEOPLE)
    for data, row in (({"op": ["+", "?"], "a": [1, 2]}, " of the row a=2"), ({"op": ["?"]}, "")):
        with pytest.raises(RowError, match=rf"the operation '\?'{row}: expected one of"):
            Chunk.from_arrow(pa.table(data))
    with pytest.raises(
        RowError, match="expected Arrow data with columns, found a Int64Array: pass a table, a batch or"
    ):
        Chunk.from_arrow(pa.array([1]))
    with pytest.raises(SchemaError, match="no match"):
        Chunk.from_arrow(pa.table({"a": pa.array([1], pa.duration("s"))}))


def test_arguments_of_a_chunk_that_are_swapped_are_refused() -> None:
    frame = pd.DataFrame({"a": [1], "b": [1], "c": ["x"]})
    table, made = pa.Table.from_pandas(frame), "expected a TableSchema, found a"
    for call, arguments, told in (
        (
            Chunk.from_rows,
            ([("+", (1, 1, "x"))], PEOPLE),
            f"from_rows takes the schema first, then the .*: {made} list",
        ),
        (Chunk.from_arrow, (PEOPLE, table), f"from_arrow takes the data first, then the schema: {made} Table"),
        (Chunk.from_pandas, (PEOPLE, frame), f"from_pandas takes the data frame first, then the .*: {made} DataFrame"),
        (Chunk.from_pandas, (PEOPLE,), "expected a data frame of pandas, found a TableSchema"),
        (Chunk.from_pandas, (table, PEOPLE), "expected a data frame of pandas, found a Table: from_arrow takes Arrow"),
    ):
        with pytest.raises((RowError, SchemaError), match=told):
            call(*arguments)  # type: ignore[operator]


def test_a_column_called_as_that_of_the_operations_is_refused_unless_they_get_another_name() -> None:
    chunk = Chunk.from_rows(TableSchema([Column("op", "string")]), [("-", ("+",))])
    for give in (chunk.to_arrow, chunk.to_pandas):
        with pytest.raises(
            SchemaError, match=r"rows have a column 'op', as that of the operations is called: give another op_col"
        ):
            give()
    batch = chunk.to_arrow(op_column="did")
    assert Chunk.from_arrow(batch, op_column="did").rows() == chunk.rows()


@pytest.mark.parametrize("twice", ["a", "c", "op", "more"])
def test_a_column_that_is_there_twice_is_refused_if_it_is_used(twice: str) -> None:
    given = {"op": ["+"], "a": [1], "b": [2], "c": ["x"], "more": [5]}
    names = [*given, twice]
    data = pa.Table.from_arrays([pa.array(given[name]) for name in names], names=names)
    if twice == "more":
        assert Chunk.from_arrow(data, PEOPLE).rows() == [("+", (1, 2, "x"))]
        return
    told = f"column {twice!r} is there more than once: the data has op, a, b, c, more, {twice}; drop or rename"
    with pytest.raises(SchemaError, match=told):
        Chunk.from_arrow(data, PEOPLE)
    with pytest.raises(SchemaError, match="more than once" if twice == "op" else "twice"):
        Chunk.from_arrow(data)


FAR = 253_402_300_800
"""The first second of the year 10000, from 1970 on."""


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo", "+05:30"])
def test_an_instant_that_fits_is_taken_whatever_zone_its_column_names(zone: str) -> None:
    times = pa.array([-62_135_596_800, FAR - 1], pa.timestamp("s", zone))
    moments = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)]
    structs = pa.StructArray.from_arrays([times], ["a"])
    table = pa.table({"k": times, "s": structs, "l": pa.ListArray.from_arrays([0, 1, 2], times)})
    chunk = Chunk.from_arrow(table, schema_of("k timestamptz", "s struct<a:timestamptz>", "l list<timestamptz>"))
    assert list(chunk.values) == [(moment, {"a": moment}, [moment]) for moment in moments]
    assert Chunk.from_arrow(pa.table({"k": times.dictionary_encode()})).values == [(moment,) for moment in moments]
    views = pa.ListViewArray.from_arrays(pa.array([1, 0], pa.int32()), pa.array([1, 2], pa.int32()), times)
    assert Chunk.from_arrow(pa.table({"l": views})).values == [([moments[1]],), (moments,)]


@pytest.mark.parametrize(
    ("number", "kind", "shown"),
    [
        (FAR * 10**6, pa.timestamp("us"), "10000-01-01 00:00:00.000000 is out of range: expected the years 1"),
        (FAR, pa.timestamp("s", "Asia/Tokyo"), "10000-01-01 00:00:00Z is out of range"),
        (2**62, pa.timestamp("ms"), "4611686018427387904> is out of range"),
        (2_932_897, pa.date32(), "10000-01-01 is out of range"),
        (-FAR * 1000, pa.date64(), "-6060-01-02 is out of range"),
        (1001, pa.timestamp("ns"), "1970-01-01 00:00:00.000001001 has nanoseconds: Python has microseconds; round"),
        (1001, pa.time64("ns"), "00:00:00.000001001 has nanoseconds"),
        (86_400, pa.time32("s"), "86400> is out of range: expected 0 to 24 hours"),
        (-1, pa.time64("us"), "-1> is out of range"),
        (2**62, pa.duration("s"), "4611686018427387904 is out of range: expected fewer than 10\\*\\*9 days"),
    ],
    ids=str,
)
def test_a_time_that_python_has_not_is_refused_by_column_and_value(number: int, kind: pa.DataType, shown: str) -> None:
    bad = pa.array([None, 0, number], kind)
    lists, structs = pa.ListArray.from_arrays([0, 3, 3, 3], bad), pa.StructArray.from_arrays([bad], ["a"])
    views = pa.ListViewArray.from_arrays(pa.array([0, 0, 2], pa.int32()), pa.array([1, 2, 1], pa.int32()), bad)
    nested = pa.ListArray.from_arrays([0, 1, 2, 3], structs)
    maps = pa.MapArray.from_arrays([0, 1, 2, 3], ["a"] * 3, bad)
    coded = pa.DictionaryArray.from_arrays(pa.array([2, 0, 1]), structs)
    # Arrow makes no runs of such a time of day.
    runs = [] if pa.types.is_time(kind) else [pa.RunEndEncodedArray.from_arrays([1, 2, 3], bad)]
    for values in (bad, bad.dictionary_encode(), lists, structs, nested, views, maps, coded, *runs):
        schema = TableSchema([Column("k", "int16"), Column("v", "int64", nullable=True)], ["v"])
        table = pa.table({"k": [1, 2, 3], "v": values})
        with pytest.raises(RowError, match=f"^column 'v': .*{shown}"):
            Chunk.from_arrow(table, schema)
        with pytest.raises(RowError, match=f"^key column 'v' .*{shown}"):
            encode_keys(schema, table)
        assert len(Chunk.from_arrow(table, TableSchema(schema.columns[:1]))) == 3


def test_whole_microseconds_are_taken_and_a_text_that_is_none_is_refused() -> None:
    for kind in (pa.time64("ns"), pa.timestamp("ns"), pa.timestamp("ns", "Asia/Tokyo")):
        found = Chunk.from_arrow(pa.table({"k": pa.array([1000, 2000], kind)}))
        assert [row[0].microsecond for row in found.values] == [1, 2]
    text = pa.array([b"a", None, b"\xff"]).view(pa.string())
    view = pa.array([b"a", None, b"\xff"], pa.binary_view()).view(pa.string_view())
    json = pa.ExtensionArray.from_storage(pa.json_(), text)
    for values in (text, view, pa.ListArray.from_arrays([0, 1, 2, 3], view), json):
        for column, table in (("c", {"c": values}), ("op", {"op": values, "c": ["x"] * 3})):
            with pytest.raises(RowError, match=rf"^column '{column}': b'\\xff' is not UTF-8: decode it, or use a"):
                Chunk.from_arrow(pa.table({"a": [1, 2, 3], "b": [1, 2, 3], **table}), PEOPLE)


@pytest.mark.parametrize(
    ("kind", "values", "arrow"),
    [
        ("struct<a:int64>", [{"a": 1}, None], None),
        ("list<int64>", [[1, None], None], None),
        ("list<int64>", [[1, None], None], pa.list_view(pa.int64())),
        ("string", ["x", None], pa.string_view()),
        ("struct<a:list<time>>", [{"a": [time(1), None]}, None], pa.struct([("a", pa.list_view(pa.time32("s")))])),
        ("list<time>", [[time(1), None], None], pa.list_(pa.time64("ns"), 2)),
    ],
    ids=str,
)
def test_a_dictionary_or_runs_of_any_values_are_taken(kind: str, values: list[Any], arrow: pa.DataType | None) -> None:
    array, schema = pa.array(values, arrow), schema_of(f"v {kind}")
    coded = pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 0]), array)[1:]
    for found in (coded, pa.chunked_array([coded[:1], coded[1:]]), coded[:0]):
        want = [(values[0],), (None,), (values[0],)][: len(found)]
        assert Chunk.from_arrow(pa.table({"v": found}), schema).values == want
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], array)[1:]
    assert Chunk.from_arrow(pa.table({"v": runs}), schema).values == [(values[0],), (None,)]


@pytest.mark.parametrize(
    "values", [[2**70, 1], [1, "a"], ["\ud800"], [object()]], ids=["far", "mixed", "half", "other"]
)
def test_a_data_frame_that_arrow_does_not_take_is_refused_by_column(values: list[Any]) -> None:
    frame = pd.DataFrame({"k": range(len(values)), "v": pd.Series(values, dtype=object)})
    for schema in (None, TableSchema([Column("k", "int64"), Column("v", "decimal")], ["k"])):
        with pytest.raises(RowError, match=r"^column 'v': "):
            Chunk.from_pandas(frame, schema)


def test_a_change_in_a_column_that_is_not_read_is_no_change_of_a_row_with_nan(tmp_path: Path) -> None:
    schema = TableSchema([Column("k", "int64"), Column("f", "float64"), Column("other", "int64")], ["k"])
    with PersistedObjectSpace.open(tmp_path / "state.db") as space:
        table = StateTable(space, "t", schema)
        for epoch in (1, 2):
            table.insert_row((1, math.nan, epoch))
            space.checkpoint(epoch=epoch)
        assert list(StorageTable(space.store, "t", ["k", "f"]).changes(2, 2)) == []
        assert len(list(StorageTable(space.store, "t").changes(2, 2))) == 1


def test_a_bound_without_a_column_is_none(tmp_path: Path) -> None:
    with PersistedObjectSpace.open(tmp_path / "state.db") as space:
        table = StateTable(space, "t", TableSchema([Column("k", "int64")], ["k"]))
        table.insert_rows([(1,), (2,)])
        space.checkpoint()
        stored = StorageTable(space.store, "t")
        for bounds in ({"lower": ()}, {"upper": ()}, {"lower": (), "upper": ()}):
            for inclusive in product([False, True], repeat=2):
                found = [list(one.scan(**bounds, inclusive=inclusive)) for one in (stored, table)]
                assert found == [[(1,), (2,)]] * 2


@pytest.mark.parametrize("inclusive", [True, (True,), "ab", (True, True, True)])
def test_an_inclusive_that_is_no_pair_is_refused_in_words(inclusive: Any) -> None:
    space = committed([("+", (1, 2, "x"))])
    for table in (StateTable(space, "t"), StorageTable(space, "t")):
        with pytest.raises(RowError, match="table 't': inclusive is a pair"):
            table.scan(lower=(1,), inclusive=inclusive)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"prefix": (1, 2, 3)}, r"the prefix has at most 2 values \(a, b\): found \(1, 2, 3\)"),
        ({"prefix": "x"}, r"the prefix is a tuple of values \(a, b\): found 'x'"),
        ({"lower": (1, 2, 3)}, r"lower has at most 2 values \(a, b\): found"),
        (
            {"prefix": (1,), "lower": (1, 2)},
            r"lower has at most 1 value \(b\), which the prefix leaves of the key: found",
        ),
        ({"prefix": (1,), "upper": "x"}, r"upper is a tuple of values \(b\): found 'x'"),
        (
            {"prefix": (1, 2), "upper": (1,)},
            r"upper has no values after a prefix of the whole key \(a, b\): found \(1,\)",
        ),
    ],
)
def test_values_beyond_the_key_are_refused_with_how_many_fit(options: Any, told: str) -> None:
    space = committed([("+", (1, 2, "x"))])
    for table in (StateTable(space, "t"), StorageTable(space, "t")):
        with pytest.raises(RowError, match=f"^table 't': {told}"):
            table.scan(**options)
        with pytest.raises(RowError, match=r"^table 't': a key has 2 values \(a, b\): found \(1,\)"):
            table.get_row((1,))


def test_what_gives_no_batches_and_no_columns_is_refused_in_words() -> None:
    space = committed([("+", (1, 2, "x"))])
    for rows in (0, -1, 1.5):
        with pytest.raises(ValueError, match=r"table 't': batch_rows is .*: expected a number of rows from 1"):
            StorageTable(space, "t").to_batches(rows)  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match=r"table 't': columns are names, such as \['ab'\]: found 'ab'"):
        StorageTable(space, "t", columns="ab")


def test_changes_over_a_renaming_begin_with_nothing() -> None:
    space = committed([("+", (1, 2, "x"))])
    rename_table(space, "t", "u")
    StateTable(space, "u").insert_row((3, 4, "y"))
    space.checkpoint(epoch=2)
    StateTable(space, "u").insert_row((5, 6, "z"))
    space.checkpoint(epoch=3)
    kinds = [(one.kind.value, one.new[0]) for one in StorageTable(space, "u").changes(2, 2)]
    assert kinds == [("insert", 1), ("insert", 3)]
    assert [one.new for one in StorageTable(space, "u").changes(2, 2, "t")] == [(3, 4, "y")]
    assert [one.new[0] for one in StorageTable(space, "u").changes(3, 3)] == [5]


def test_the_column_with_the_watermark_stays(tmp_path: Path) -> None:
    schema = TableSchema([Column("k", "int64"), Column("at", "int64")], ["k"], watermark_column="at")
    with PersistedObjectSpace.open(tmp_path / "state.db") as space:
        StateTable(space, "t", schema)
        with pytest.raises(SchemaMismatchError, match="'at' has a watermark"):
            StateTable(space, "t", TableSchema([schema.columns[0]], ["k"]), evolve=True)


# Changes that lost their other half -----------------------------------------------------------------------------------


def test_what_follows_itself_goes_from_the_first_delete_to_the_last_insert() -> None:
    schema = schema_of("k int64", "v int64", key=["k"])

    def _net(*ops: Any) -> list[Any]:
        chunk = Chunk.from_rows(schema, [(op, (1, value)) for op, value in ops])
        with pytest.raises(InconsistentOperationError, match="two inserts or two deletes"):
            chunk.compact()
        return [(op, row[1]) for op, row in chunk.compact(strict=False).rows()]

    assert _net(("-", 1), ("-", 2)) == [("-", 1)]
    assert _net(("+", 1), ("+", 2)) == [("+", 2)]
    assert _net(("-", 1), ("-", 2), ("+", 3), ("+", 4)) == [("U-", 1), ("U+", 4)]


def test_what_cannot_be_compacted_is_refused_in_words() -> None:
    chunk = Chunk.from_rows(schema_of("k int64", key=["k"]), [("+", (1,))])
    with pytest.raises(ValueError, match="form is 'x': expected one of retract, upsert"):
        chunk.compact(form="x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no chunks to compact: pass at least one"):
        compacted([])
    assert compacted([Chunk(chunk.schema, [], [])]).rows() == []


def test_halves_of_different_updates_make_no_pair() -> None:
    log = [("U-", (1, 0)), ("U+", (1, 5)), ("-", (1, 5)), ("+", (2, 5)), ("U-", (2, 5)), ("U+", (2, 7))]
    schema = TableSchema([Column("k", "int64"), Column("v", "int64")], ["k"])
    assert Chunk.from_rows(schema, log).without_noops().rows() == [("-", (1, 0)), ("+", (2, 7))]
    shown = [(*log[0], True), (*log[1], False), (*log[4], False), (*log[5], True)]
    assert Chunk.from_rows(schema, shown).rows() == [("-", (1, 0)), ("+", (2, 7))]
    whole = [(*log[0], True), (*log[1], True), (*log[4], False)]
    assert Chunk.from_rows(schema, whole).rows() == log[:2]


# Epochs between checkpoints -------------------------------------------------------------------------------------------


def test_an_epoch_between_two_checkpoints_is_read_as_the_earlier_one_left_it() -> None:
    space = new_space()
    table = StateTable(space, "t", TableSchema([Column("k", "int64")], ["k"]))
    for epoch in (2, 10):
        table.insert_row((epoch,))
        space.checkpoint(epoch=epoch)
    found = {epoch: list(StorageTable(space, "t", epoch=epoch).scan()) for epoch in (2, 5, 9, 10)}
    assert found == {2: [(2,)], 5: [(2,)], 9: [(2,)], 10: [(2,), (10,)]}
    for epoch in (1, 11):
        with pytest.raises(UnknownCheckpointError, match=f"no epoch {epoch}"):
            StorageTable(space, "t", epoch=epoch)
    with pytest.raises(RowError, match="whole numbers"):
        list(StorageTable(space, "t").changes(None, 5))  # type: ignore[arg-type]


@pytest.mark.parametrize("first", [1, 100])
def test_epochs_that_were_let_go_of_behind_one_that_somebody_reads_are_not_read_as_that_one(first: int) -> None:
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    table = StateTable(space, "t", schema_of("k int64", key=["k"]))
    for epoch in range(first, first + 10):
        table.insert_row((epoch,))
        space.checkpoint(epoch=epoch)
    held = StorageTable(store, "t", epoch=first + 2)
    store.prune(keep=2)
    assert [record.epoch - first for record in store.checkpoints()] == [2, 8, 9]
    assert [row[0] - first for row in held.scan()] == [0, 1, 2]
    for epoch in range(first + 3, first + 8):
        with pytest.raises(UnknownCheckpointError, match=f"has no epoch {epoch}: it has epochs {first + 2} to"):
            StorageTable(store, "t", epoch=epoch)
        with pytest.raises(UnknownCheckpointError, match=f"no longer knows the state before epoch {epoch + 1}:"):
            held.changes(epoch + 1, first + 9)
        with pytest.raises(UnknownCheckpointError, match=f"has no epoch {epoch}"):
            held.changes(first + 3, epoch)
    assert [change.new for change in held.changes(first + 3, first + 8)] == [(first + n,) for n in range(3, 9)]
    assert [change.new for change in held.changes(first + 9, first + 9)] == [(first + 9,)]


# Damage ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("found", ["{broken", "7", '"s"', "{}", "[0,9],[0,9]", b"\xff"])
def test_a_row_that_cannot_be_read_is_told_with_its_table_and_key_and_can_be_deleted(found: str | bytes) -> None:
    space = new_space()
    table = StateTable(space, "t", schema_of("k int64", "v int64", key=["k"]))
    table.insert_rows([(1, 2), (3, 4), (5, 6)])
    space.checkpoint()
    rows = space.get_sorted_dictionary("t")
    key = list(rows)[1]
    rows[key] = found
    space.checkpoint()
    stored = StorageTable(space, "t")
    reads: list[Callable[[], Any]] = [
        lambda: table.get_row((3,)),
        lambda: table.get_rows([(1,), (3,)]),
        lambda: list(table.scan()),
        lambda: table.scan_all([()]),
        lambda: stored.get_row((3,)),
        lambda: list(stored.scan()),
        lambda: list(stored.changes(1, 2)),
        stored.to_arrow,
    ]
    words = map(re.escape, (f"table 't', the row of the encoded key {key!r}: ", f"found {found!r}", "delete this row"))
    told = ".*".join(words)
    for read in reads:
        with pytest.raises(DamagedObjectError, match=told):
            read()
    assert table.get_row((1,)) == (1, 2)
    space.get_sorted_dictionary("t").pop(key)
    assert list(table.scan()) == [(1, 2), (5, 6)]


def test_a_row_that_lost_its_end_is_not_completed_by_its_neighbour() -> None:
    space = new_space()
    table = StateTable(space, "t", schema_of("k int64", "v string", key=["k"]))
    table.insert_rows([(1, "a"), (2, "b"), (3, "c")])
    space.checkpoint()
    rows = space.get_sorted_dictionary("t")
    state = int(next(iter(rows.values()))[1])
    for key, text in zip(list(rows), (f'[{state},1,"x', f'y"],[{state},2,"z"]'), strict=False):
        rows[key] = text  # Joined by a comma they are two rows.
    space.checkpoint()
    stored = StorageTable(space, "t")
    for read in (lambda: table.get_rows([(1,), (2,)]), lambda: list(table.scan()), lambda: list(stored.scan())):
        with pytest.raises(DamagedObjectError, match=re.escape(f"found '[{state},1,\"x'")):
            read()
