"""What tasks hand over: changes that come from several are in one order, whatever their keys are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint import FencedError
from checkpoint.chain import location_at
from objectspace import VolatileObjectSpace
from objectspace.operators import Materialize, Pipeline, col
from objectspace.operators.chunks import moved_apart
from objectspace.operators.net import net_changes
from objectspace.relational import Chunk, Column, TableSchema
from objectspace.spark.handover import carried, fits, from_bytes, settled, settled_for, to_bytes, write_parcel
from tests.operators.spellings import SPELLINGS


@pytest.mark.parametrize("kind", SPELLINGS)
def test_several_inserts_of_one_key_are_in_one_order(kind: str) -> None:
    schema = TableSchema([Column("k", kind), Column("v", "int64")], ["k"])
    one, other = (SPELLINGS[kind][3] * 2)[:2]
    rows = [("+", (SPELLINGS[kind][1][0], 1)), ("+", (one, 2)), ("-", (other, 2)), ("+", (other, 3)), ("+", (one, 1))]
    found = [settled(Chunk.from_rows(schema, given)) for given in (rows, rows[::-1])]
    assert [[(op, row[1]) for op, row in chunk.rows()] for chunk in found] == [[("+", 1), ("+", 1), ("+", 3)]] * 2


PAIRS = TableSchema([Column("k", "int64"), Column("v", "float64", nullable=True)], ["k"])
ROWS = st.tuples(st.integers(0, 3), st.sampled_from([None, 0.0, -0.0, float("nan"), 1.0]))
CHANGES = st.one_of(
    st.tuples(st.sampled_from(["+", "-", "U-", "U+"]), ROWS).map(lambda change: [change]),
    st.tuples(ROWS, ROWS).map(lambda pair: [("U-", pair[0]), ("U+", (pair[0][0], pair[1][1]))]),
)


def spelt_once(value: Any) -> str:
    return repr(0.0 if value == 0 else value)


def net_of(changes: list[Any], key: int, spelt: Callable[[Any], str]) -> Counter[tuple[str, str]]:
    """Return how many rows of a key come, or go, more often than they go, or come, by the spelling of their value."""
    net: Counter[str] = Counter()
    for op, (its_key, value) in changes:
        net[spelt(value)] += (its_key == key) * (1 if op in ("+", "U+") else -1)
    return Counter({("+" if number > 0 else "-", value): abs(number) for value, number in net.items() if number})


@given(st.lists(CHANGES, max_size=6))
def test_changes_that_cancel_are_dropped_and_the_others_stay(changes: list[list[Any]]) -> None:
    given_ = [change for part in changes for change in part]
    found = net_changes(Chunk.from_rows(PAIRS, given_))
    for key in range(4):
        # Where more is said than that one row takes the place of another, equal ones cancel in any spelling.
        spelt = repr if net_of(given_, key, repr).total() <= 2 else spelt_once
        assert net_of(found, key, spelt) == net_of(given_, key, spelt)
        ops = [op for op, row in found if row[0] == key]
        assert ops == sorted(ops, key="-+".index)


def test_decimals_of_any_scale_are_handed_over_as_they_are() -> None:
    schema = TableSchema([Column("k", "int64"), Column("d", "decimal", nullable=True), Column("t", "date")], ["k"])
    texts = ["1.3333333333333333333333333333333333333", "12345678901234567890123.5", "0.00", "NaN"]
    values = [*map(Decimal, texts), None]
    chunk = Chunk.from_rows(schema, [("+", (k, value, date(2026, 1, 1))) for k, value in enumerate(values)])
    found = from_bytes(to_bytes(chunk), schema)
    assert repr(found.rows()) == repr(chunk.rows())
    assert found.schema == schema
    assert len(from_bytes(to_bytes(Chunk(schema, [], [])), schema)) == 0


def test_decimals_of_no_fixed_scale_are_carried_inside_of_others() -> None:
    schema = TableSchema(
        [
            Column("k", "int64"),
            Column("l", "list<decimal>", True),
            Column("s", "struct<a:int64, b:list<decimal>>", True),
        ],
        ["k"],
    )
    long = Decimal("1." + "3" * 30)
    rows = [
        ("+", (1, [long, None], {"a": 1, "b": [Decimal(10) ** 30]})),
        ("+", (2, None, None)),
        ("+", (3, [], {"a": None, "b": None})),
    ]
    assert from_bytes(to_bytes(Chunk.from_rows(schema, rows)), schema).rows() == rows


SCALED = TableSchema(
    [
        Column("k", "int64"),
        Column("d", "decimal(10,2)", True),
        Column("l", "list<decimal(10,2)>", True),
        Column("s", "struct<a:decimal(10,2), b:decimal>", True),
    ],
    ["k"],
)


@pytest.mark.parametrize("names", [["k", "d"], ["k", "d", "l", "s"]])
def test_decimals_of_a_scale_keep_the_zeros_that_they_have(names: list[str]) -> None:
    schema = TableSchema([SCALED.column(name) for name in names], ["k"])
    texts = ["4", "4.00", "4.5", "-0.00", "1E+2"]
    values = [(Decimal(text), [Decimal(text), None], {"a": Decimal(text), "b": Decimal(text)}) for text in texts]
    rows = [(0, None, None, None), *((k, *value) for k, value in enumerate(values, 1))]
    chunk = Chunk.from_rows(schema, [("+", row[: len(names)]) for row in rows])
    for found in (from_bytes(to_bytes(chunk), schema), carried(chunk)):
        assert repr(found.rows()) == repr(chunk.rows())


@pytest.mark.parametrize("names", [["k", "d"], ["k", "d", "l", "s"]])
def test_a_file_of_an_earlier_version_is_read(names: list[str]) -> None:
    schema = TableSchema([SCALED.column(name) for name in names], ["k"])
    kinds = ["int64", "decimal(10,2)", "list<decimal(10,2)>", "struct<a:decimal(10,2), b:string>"]
    columns = [Column(name, kind, True) for name, kind in zip(names, kinds)]
    rows = [(1, Decimal("4.00"), [Decimal("1.50")], {"a": Decimal("2.00"), "b": "3.0"}), (2, None, None, None)]
    batch = Chunk.from_rows(TableSchema(columns), [("+", row[: len(names)]) for row in rows]).to_arrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    found = from_bytes(sink.getvalue().to_pybytes(), schema)
    shown = (1, Decimal("4.00"), [Decimal("1.50")], {"a": Decimal("2.00"), "b": Decimal("3.0")})
    assert repr(found.values) == repr([shown[: len(names)], rows[1][: len(names)]])


@pytest.mark.parametrize("kind", [*SPELLINGS, "list<decimal(10,2)>", "struct<a:decimal,b:list<time>>"])
def test_a_file_fits_the_columns_that_it_was_made_of(kind: str, tmp_path: Path) -> None:
    columns, location = [Column("k", "int64"), Column("v", kind, True), Column("w", "bool")], location_at(tmp_path)
    parcel = write_parcel(location, 1, 1, 0, Chunk(TableSchema(columns), [], []))
    assert fits(location, parcel, TableSchema(columns))
    others = [columns[::-1], columns[:2], [*columns[:2], Column("x", "bool")], [*columns[:2], Column("w", "int16")]]
    assert not any(fits(location, parcel, TableSchema(other)) for other in others)


def test_no_other_folder_is_made_for_a_file_where_that_of_the_space_is_gone(tmp_path: Path) -> None:
    gone = location_at(tmp_path / "space")
    with pytest.raises(FencedError, match=r"the folder is gone: .* put it back"):
        write_parcel(gone, 1, 1, 0, Chunk(SCALED, [], []))
    assert not (tmp_path / "space").exists()


NAMED = TableSchema(
    [Column("id", "int64"), Column("name", "string", nullable=True), Column("v", "int64", nullable=True)], ["id"]
)


@pytest.mark.parametrize(
    ("conflict", "version", "update", "expected"),
    [
        ("update_if_not_null", None, [("U-", (1, "a", 5)), ("U+", (1, None, 6))], (1, "a", 6)),
        ("update_if_newer", "v", [("U-", (1, "old", 3)), ("U+", (1, "late", 4))], (1, "a", 5)),
        ("update_if_newer", "v", [("U+", (1, "new", 9)), ("U-", (1, "a", 5))], (1, "new", 9)),
        ("ignore", None, [("U-", (1, "a", 5)), ("U+", (1, "b", 6))], (1, "b", 6)),
    ],
)
def test_an_update_meets_the_rules_of_a_conflict_as_one(
    conflict: Any, version: str | None, update: list[Any], expected: Any
) -> None:
    table = Materialize(NAMED, conflict, version)
    table.open(VolatileObjectSpace(), "t")
    for epoch, rows in enumerate([[("+", (1, "a", 5))], update], 1):
        table.process(settled(Chunk.from_rows(NAMED, rows)))
        table.barrier(epoch)
    assert list(table.scan()) == [expected]


def kept(conflict: Any, version: str | None, *epochs: list[Any]) -> list[Any]:
    """Return the rows of a table after some epochs, each of which came in an order that means nothing."""
    table = Materialize(NAMED, conflict, version, hears_all=True)
    table.open(VolatileObjectSpace(), "t")
    for epoch, rows in enumerate(epochs, 1):
        table.process(settled_for(table, moved_apart(Chunk.from_rows(NAMED, rows))))
        table.barrier(epoch)
    return list(table.scan())


@pytest.mark.parametrize(
    ("conflict", "version"),
    [("overwrite", None), ("ignore", None), ("update_if_newer", "v"), ("update_if_not_null", None)],
)
@pytest.mark.parametrize(
    ("stored", "changes", "expected"),
    [
        ([(1, "a", 5)], [("+", (1, "b", 6)), ("-", (1, "b", 6))], []),
        ([(1, "b", 6)], [("+", (1, "b", 6)), ("-", (1, "b", 6))], [(1, "b", 6)]),
        ([], [("+", (1, "b", 6)), ("-", (1, "b", 6))], []),
        ([(1, "a", 5)], [("+", (1, None, None)), ("-", (1, None, None))], [(1, None, None)]),
        ([], [("U-", (1, "b", 6)), ("U+", (1, "b", 6))], [(1, "b", 6)]),
        ([(1, "a", 5)], [("U-", (1, "b", 6)), ("U+", (1, "b", 6))], [(1, "b", 6)]),
    ],
)
def test_changes_that_cancel_take_a_row_along_that_they_do_not_tell_of(
    conflict: Any, version: str | None, stored: list[Any], changes: list[Any], expected: list[Any]
) -> None:
    before = [("+", row) for row in [*stored, (2, "other", 1)]]
    if conflict == "update_if_not_null" and stored == [(1, "a", 5)]:
        expected = [changes[0][1]]  # What is stored may be put together of several rows, one of which was put again.
    for given_ in (changes, changes[::-1]):
        assert kept(conflict, version, before, given_) == [*expected, (2, "other", 1)]


def test_a_table_that_does_not_hear_all_keeps_its_row_where_changes_cancel() -> None:
    pipeline = Pipeline()
    source = pipeline.source("s", NAMED)
    source.materialize("direct", ["id"], conflict="overwrite")
    source.materialize("by name", ["name"], conflict="overwrite")
    source.filter(col("v") > 0).materialize("filtered", ["id"], conflict="overwrite")
    left = {}
    for name, node in pipeline.results.items():
        assert node.make is not None
        table: Any = node.make()
        table.open(VolatileObjectSpace(), "t")
        table.process(Chunk.from_rows(NAMED, [("+", (1, "a", 7))]))
        table.process(settled_for(table, Chunk.from_rows(NAMED, [("+", (1, "a", 9)), ("-", (1, "a", 9))])))
        left[name] = list(table.scan())
    assert left == {"direct": [], "by name": [(1, "a", 7)], "filtered": [(1, "a", 7)]}


NAMES = st.sampled_from(["a", "b", None])
STEPS = st.lists(st.tuples(st.sampled_from(["put", "remove", "move"]), st.integers(1, 3), NAMES), max_size=8)


def messages(rows: dict[int, Any], steps: list[Any]) -> list[list[Any]]:
    """Return what a feed says of some steps, each the changes of one message, and take the steps in ``rows``."""
    found = []
    for step, key, name in steps:
        old, other = rows.get(key), key % 3 + 1
        if step == "put":
            rows[key] = (key, name, 1)
            found.append([("+", rows[key])] if old is None else [("U-", old), ("U+", rows[key])])
        elif old is not None and step == "remove":
            found.append([("-", rows.pop(key))])
        elif old is not None and other not in rows:
            rows[other] = (other, *rows.pop(key)[1:])
            found.append([("U-", old), ("U+", rows[other])])
    return found


@given(
    st.lists(STEPS, max_size=4), st.sampled_from(["overwrite", "update_if_newer"]), st.randoms(use_true_random=False)
)
def test_a_feed_without_gaps_gives_its_rows_in_any_order(epochs: list[Any], conflict: Any, chance: Random) -> None:
    table = Materialize(NAMED, conflict, "v" if conflict == "update_if_newer" else None, hears_all=True)
    rows: dict[int, Any] = {}
    table.open(VolatileObjectSpace(), "t")
    for epoch, steps in enumerate(epochs, 1):
        said = messages(rows, steps)
        chance.shuffle(said)
        chunk = moved_apart(Chunk.from_rows(NAMED, [change for message in said for change in message]))
        changes = chunk.rows()
        chance.shuffle(changes)
        table.process(settled_for(table, Chunk.from_rows(NAMED, changes)))
        table.barrier(epoch)
        assert list(table.scan()) == [rows[key] for key in sorted(rows)]


@pytest.mark.parametrize(("conflict", "version"), [("update_if_newer", "v"), ("update_if_not_null", None)])
def test_a_new_row_of_a_key_that_an_update_has_left_is_no_update(conflict: Any, version: str | None) -> None:
    moves = [("U-", (1, "a", 5)), ("U+", (9, "a", 5)), ("+", (1, None, 3))]
    goes = [("-", (1, "a", 5)), ("U+", (1, None, 3)), ("U-", (1, "b", 7)), ("+", (1, "b", 7))]
    assert kept(conflict, version, [("+", (1, "a", 5))], moves) == [(1, None, 3), (9, "a", 5)]
    assert kept(conflict, version, [("+", (1, "a", 5))], goes) == [(1, None, 3)]


def test_halves_without_the_other_are_a_row_that_goes_or_comes() -> None:
    rows = [("U+", (2, "b", 2)), ("U-", (1, "a", 1)), ("-", (3, "c", 3)), ("+", (3, "d", 4))]
    found = settled(Chunk.from_rows(NAMED, rows)).rows()
    assert sorted(found) == [("+", (2, "b", 2)), ("+", (3, "d", 4)), ("-", (1, "a", 1)), ("-", (3, "c", 3))]
