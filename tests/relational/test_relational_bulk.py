"""Many rows at once give what one after the other gives: keys, texts, reads and writes."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from unittest.mock import patch
from zoneinfo import ZoneInfo

import pyarrow  # noqa: F401 -- loaded, it encodes the keys of many rows
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectspace import ObjectNotFoundError
from objectspace.relational import (
    Column,
    Kind,
    MemTable,
    Operation,
    RowError,
    StateTable,
    TableSchema,
    state_table,
)
from objectspace.relational.bulk import MANY_ROWS
from objectspace.relational.key_space import KeySpace
from objectspace.relational.rows import RowCodec
from objectspace.relational.types import parse_type
from objectspace.relational.values import BadValue, checker, form_test
from tests.relational.helpers import new_space, schema_of
from tests.relational.samples import ORDERS, VALUES

SCHEMA = TableSchema([Column("a", "int16"), Column("b", "string", nullable=True), Column("v", "int64")], ["a", "b"])


@pytest.mark.parametrize("kind", VALUES)
@settings(max_examples=20)
@given(data=st.data())
def test_keys_and_texts_are_the_same(kind: str, data: st.DataObject) -> None:
    order, other = data.draw(st.sampled_from(ORDERS)), data.draw(st.sampled_from([[], ["s"], ["s", "n"]]))
    columns = [Column("k", kind, nullable=True), Column("s", "string", nullable=True), Column("n", "int64")]
    schema = TableSchema(columns, [f"k {order}", *other])
    texts = st.none() | st.sampled_from(["", "],[", "a\x00", "é", "],[1,"])
    rows = data.draw(st.lists(st.tuples(st.none() | VALUES[kind], texts, VALUES["int64"]), max_size=4))
    checked = schema.check_rows(rows)
    keys, codec = KeySpace("t", schema), RowCodec(schema)
    assert repr(checked) == repr([schema.check_row(row) for row in rows])
    expected = list(map(keys.of_row, checked))
    assert keys.of_rows(checked) == expected
    assert keys.of_rows(list(checked) * MANY_ROWS) == expected * MANY_ROWS, "as blocks of Arrow columns"
    assert keys.keys(list(map(schema.key_of, checked))) == expected
    assert codec.encode_all(checked) == list(map(codec.encode, checked))


def test_values_that_nobody_has_checked_are_encoded_or_refused_as_one_by_one() -> None:
    encode = TableSchema([Column("k", "int16")], ["k"]).encode_keys
    assert encode([(True,)] * MANY_ROWS) == encode([(True,)]) * MANY_ROWS
    with pytest.raises(OverflowError):
        encode([(2**15,)] * MANY_ROWS)


@pytest.mark.parametrize("name", ["pyarrow", "numpy"])
def test_without_arrow_keys_are_the_same(name: str) -> None:
    schema, rows = TableSchema([Column("k", "int64")], ["k"]), [(number,) for number in range(MANY_ROWS)]
    expected = schema.encode_keys(rows)
    with patch.dict(sys.modules, {name: None}):  # type: ignore[dict-item]
        assert schema.encode_keys(rows) == expected


ODD = st.sampled_from(
    [
        *(2**15, -(2**31) - 1, 2**63, True, "\ud800", "a\ud800é", "é\n", "7", b"7", 1e39, 0.1, None),
        *map(Decimal, ["1E+6144", "1E+6145", "1E-6144", "1E-6145", "0E-9999", "NaN", "-Infinity", "-0.00", "1.0000"]),
        Decimal((0, (1,) * 7000, -6500)),
        Decimal((0, (1,) * 13000, -12900)),
        datetime(2026, 1, 1, fold=1),
        datetime(2026, 1, 1, tzinfo=UTC, fold=1),
        datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Vienna")),
        time(1, fold=1),
        time(1, tzinfo=UTC),
        date(2026, 1, 1),
    ]
)


@pytest.mark.parametrize("kind", VALUES)
@given(value=ODD | st.one_of(*VALUES.values()))
def test_what_is_found_in_form_at_a_glance_is_what_the_check_returns(kind: str, value: Any) -> None:
    (test, test_all), found = form_test([(parse_type(kind), False)]), None
    with suppress(BadValue):
        found = value if value is None else checker(parse_type(kind))(value)
    assert test_all([(value,)]) == test((value,))
    if test((value,)):
        assert (type(found), repr(found)) == (type(value), repr(value))


@pytest.mark.parametrize("kind", ["decimal", "decimal(9,3)", "string", "timestamptz", "time"])
def test_common_values_are_found_in_form_at_a_glance(kind: str) -> None:
    values = {"string": "Müller", "time": time(12, 30), "timestamptz": datetime(2026, 1, 1, tzinfo=UTC)}
    assert form_test([(parse_type(kind), False)])[0]((values.get(kind, Decimal("-1.250")),))


ROWS = st.tuples(st.integers(0, 3), st.sampled_from([None, "", "x"]), st.integers(0, 2))


@settings(max_examples=60)
@given(epochs=st.lists(st.tuples(st.lists(st.tuples(st.booleans(), ROWS), max_size=8), st.booleans()), max_size=4))
def test_reads_and_writes_are_the_same(epochs: list[Any]) -> None:
    space, model = new_space(), {}
    table = StateTable(space, "t", SCHEMA)
    keys = [(a, b) for a in range(4) for b in (None, "", "x")]
    for epoch, (changes, is_sealed) in enumerate(epochs, 1):
        found = table.write_rows(changes)
        assert found == [SCHEMA.key_encoder.encode(row[:2]) for _, row in changes]
        for comes, row in changes:
            model.pop(row[:2], None)
            if comes:
                model[row[:2]] = row
        assert table.get_rows(keys) == [model.get(key) for key in keys] == [table.get_row(key) for key in keys]
        assert table.scan_all([(a,) for a in range(4)]) == [list(table.scan(prefix=(a,))) for a in range(4)]
        bounds: list[Any] = [(None, ("",)), (("",), ("w",)), (("x",), None), (("x",), ("",))]
        within = [list(table.scan((a,), *bound)) for a, bound in enumerate(bounds)]
        assert table.scan_all([(a,) for a in range(4)], bounds) == within
        if is_sealed:
            space.checkpoint(epoch=epoch)
    assert sorted(map(repr, table.scan())) == sorted(map(repr, model.values()))


STEPS = st.tuples(
    st.sampled_from(["insert", "insert", "insert", "many", "delete", "update", "get", "scan", "seal", "forget"]), ROWS
)


@pytest.mark.parametrize("most", [1, 3, 4096])
@settings(max_examples=60)
@given(steps=st.lists(STEPS, max_size=25))
def test_rows_that_wait_to_be_encoded_are_there(most: int, steps: list[tuple[str, Any]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_table, "_MOST_WAITING", most)
        space, model = new_space(), {}
        table = StateTable(space, "t", SCHEMA)
        space.checkpoint(epoch=1)
        sealed = dict(model)
        for what, row in steps:
            key, other = row[:2], (*row[:2], 7)
            if what == "insert":
                table.insert_row(row)
                model[key] = row
            elif what == "many":
                table.insert_rows([row, other])
                model[key] = other
            elif what == "delete":
                table.delete_row(row)
                model.pop(key, None)
            elif what == "update":
                table.update_row(row, other)
                model[key] = other
            elif what == "get":
                assert table.get_row(key) == model.get(key)
                assert table.exists(key) == (key in model)
            elif what == "scan":
                assert sorted(map(repr, table.scan())) == sorted(map(repr, model.values()))
            elif what == "seal":
                space.checkpoint(epoch=table.epoch + 1)
                sealed = dict(model)
            else:
                space.rollback()
                model = dict(sealed)
        assert sorted(map(repr, table.scan())) == sorted(map(repr, model.values()))


def test_threads_that_scan_when_the_writer_is_done_see_each_row_once() -> None:
    table = StateTable(new_space(), "t", SCHEMA)
    expected: list[Any] = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            for part in range(8):
                list(table.scan())
                rows = [(number, "x", 1) for number in range(part, 800, 8)]
                table.insert_rows(rows)
                expected += rows
                for found in pool.map(lambda _: list(table.scan()), range(4)):
                    assert found == sorted(expected)
    finally:
        sys.setswitchinterval(interval)


def test_a_key_that_an_interruption_has_left_alone_is_no_row() -> None:
    table = MemTable()
    table.insert(b"b", "row")
    assert list(table.between(b"", b"")) == [(b"b", Operation(Kind.INSERT, None, "row"))]
    table._unsorted += [b"a", b"b"]  # What is noted before the operation, and what was sorted in but not taken away.
    assert [key for key, _ in table.between(b"", b"")] == [b"b"]


@pytest.mark.parametrize("consistency", ["strict", "trusted", "blind"])
@pytest.mark.parametrize("in_one", [False, True])
def test_operations_that_come_together_have_the_net_effect_of_single_ones(consistency: Any, in_one: bool) -> None:
    alone, together = MemTable(consistency), MemTable(consistency)
    alone.delete(b"a", 1)
    alone.insert(b"a", 2)
    alone.insert(b"b", 3)
    alone.delete(b"b", 3)
    alone.delete(b"c", 4)
    alone.insert(b"d", 5)
    with together.all_or_nothing(lambda: None) if in_one else nullcontext():
        together.write_all(
            [b"a", b"a", b"b", b"b", b"c", b"d"], [1, None, None, 3, 4, None], [None, 2, 3, None, None, 5]
        )
    assert list(together.items()) == list(alone.items())


def test_a_list_is_stored_as_it_was_when_it_came() -> None:
    table = StateTable(new_space(), "t", TableSchema([Column("k", "int64"), Column("l", "list<int64>")], ["k"]))
    values = [1]
    table.insert_row((1, values))
    values.append(2)
    assert table.get_row((1,)) == (1, [1])


def test_a_table_that_is_gone_takes_no_row_that_would_wait() -> None:
    space = new_space()
    space.checkpoint()
    table = StateTable(space, "t", SCHEMA)
    table.insert_row((1, "a", 1))
    space.rollback()
    with pytest.raises(ObjectNotFoundError):
        table.insert_row((1, "a", 1))


def test_a_row_that_does_not_fit_leaves_nothing() -> None:
    table = StateTable(new_space(), "t", SCHEMA)
    for write in (table.insert_rows, lambda rows: table.write_rows([(True, row) for row in rows])):
        with pytest.raises(RowError, match="table 't': column 'v'"):
            write([(1, "x", 1), (2, "x", "one")])
    with pytest.raises(RowError, match="table 't': a key has 2 values"):
        table.get_rows([(1,)])
    assert list(table.scan()) == []


def test_many_keys_are_any_that_can_be_iterated() -> None:
    table = StateTable(new_space(), "t", SCHEMA)
    rows = [(1, "x", 1), (2, "x", 2)]
    table.insert_rows(rows)
    keys = {row[:2]: row for row in rows}
    assert table.get_rows(key for key in keys) == table.get_rows(keys) == rows
    with pytest.raises(RowError, match="table 't': a key is a tuple of values"):
        table.get_rows("ab")  # type: ignore[arg-type]


@pytest.mark.parametrize("consistency", ["strict", "trusted"])
def test_tables_that_check_take_many_rows_too(consistency: Any) -> None:
    space = new_space()
    table = StateTable(space, "t", SCHEMA, consistency)
    table.write_rows([(True, (1, "x", 1)), (False, (1, "x", 1)), (True, (1, "x", 2))])
    table.insert_rows([(2, None, 5)])
    space.checkpoint(epoch=1)
    table.write_rows([(False, (2, None, 5))])
    assert table.scan_all([(1,), (2,)]) == [[(1, "x", 2)], []]


def test_many_scans_show_no_rows_below_a_watermark_on_a_column_that_does_not_lead_the_key() -> None:
    table = StateTable(new_space(), "t", schema_of("k int64", "t int64", key=["k"], watermark_column="t"))
    table.insert_rows([(1, 5), (2, 50), (3, 7)])
    table.update_watermark(10)
    table.commit(1)
    assert table.scan_all([(), (1,)]) == [[(2, 50)], []]


@pytest.mark.parametrize("consistency", ["strict", "trusted"])
def test_operations_that_cancelled_others_are_taken_back_with_their_block(consistency: Any) -> None:
    table = MemTable(consistency)
    table.insert(b"a", 1)
    table.delete(b"b", 2)
    table.update(b"c", 3, 4)
    before = list(table.items())
    assert [key for key, _ in table.between(b"", b"")] == [b"a", b"b", b"c"]
    with pytest.raises(LookupError), table.all_or_nothing(lambda: None):
        table.delete(b"a", 1)
        table.insert(b"b", 2)
        table.update(b"c", 4, 3)
        table.insert(b"d", 5)
        assert [key for key, _ in table.items()] == [b"d"]
        raise LookupError
    assert list(table.items()) == list(table.between(b"", b"")) == before


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_of_a_table_without_a_key_shows_its_one_row_once(reverse: bool) -> None:
    table = StateTable(new_space(), "t", TableSchema([Column("v", "int64")], []))
    table.insert_row((1,))
    rows = table.scan(reverse=reverse)
    assert next(rows) == (1,)
    table.commit(1)
    assert list(rows) == []
    assert list(table.scan(reverse=reverse)) == [(1,)]
