"""Distributed tables: vnodes lead the keys, rows stay with their owner, and scans merge. Watermarks, by vnode too."""

from __future__ import annotations

import random
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from objectspace.relational import (
    PlanNode,
    RowError,
    SchemaError,
    StateTable,
    StorageTable,
    VnodeBitmap,
    VnodeNotOwnedError,
    WatermarkIndex,
    assign_vnodes,
    plan_tables,
)
from objectspace.relational.vnodes import column_hasher, hasher
from tests.relational.helpers import new_space, schema_of
from tests.relational.samples import VALUES, type_of

ROUTED = schema_of("k string", "n int64", "v int64", key=["n desc", "k"], distribution_key=["k"])


def rows_of(count: int) -> list[tuple[str, int, int]]:
    chance = random.Random(count)
    return [(f"key {number}", chance.randrange(20), number) for number in range(count)]


def in_order(rows: Any) -> list[Any]:
    return sorted(rows, key=lambda row: (-row[1], row[0]))


def test_a_vnode_is_the_hash_that_spark_computes() -> None:
    vnode = hasher([type_of("string")])
    assert [vnode(("UA",)), vnode((None,))] == [0xF8, 42 >> 56]
    pair = hasher([type_of("string"), type_of("int32")])
    assert 0 <= pair(("a", -1)) < 256
    assert pair(("a", None)) == hasher([type_of("string")])(("a",))
    assert hasher([type_of("date")])((date(1970, 1, 2),)) == hasher([type_of("int64")])((1,))


def test_it_agrees_with_the_shards_of_spark() -> None:
    from objectspace.operators.division.vnodes import vnode_of

    vnode = hasher([type_of("string"), type_of("int64"), type_of("binary")])
    for key in [("a", 1, b"x"), ("", -1, b""), (None, 2**62, b"\x00"), ("é", None, None)]:
        assert vnode(key) == vnode_of(*key)


HASHED = ["string", "binary", "bool", "int16", "int32", "int64", "date", "time", "timestamp", "timestamptz"]


@given(st.data())
def test_whole_columns_have_the_vnodes_of_their_rows(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(HASHED), min_size=1, max_size=3))
    kinds = [type_of(name) for name in names]
    values = [VALUES[name] if data.draw(st.booleans()) else st.none() | VALUES[name] for name in names]
    rows = data.draw(st.lists(st.tuples(*values), max_size=8))
    columns = [[row[place] for row in rows] for place in range(len(names))]
    assert column_hasher(kinds)(columns) == list(map(hasher(kinds), rows))


def test_scans_of_all_vnodes_merge_in_key_order() -> None:
    space = new_space()
    table = StateTable(space, "t", ROUTED)
    rows = rows_of(300)
    table.write_chunk(("+", row) for row in rows[:200])
    space.checkpoint(epoch=1)
    table.write_chunk(("+", row) for row in rows[200:])
    assert list(table.scan()) == in_order(rows)
    assert list(table.scan(reverse=True)) == in_order(rows)[::-1]
    assert list(table.scan(lower=(10,), upper=(5,))) == in_order(row for row in rows if 5 <= row[1] <= 10)
    assert table.get_row((rows[7][1], "key 7")) == rows[7]
    storage = StorageTable(space, "t", epoch=1)
    assert list(storage.scan()) == in_order(rows[:200])
    assert list(storage.scan(reverse=True)) == in_order(rows[:200])[::-1]
    assert list(map(tuple, (row.values() for row in storage.to_arrow().to_pylist()))) == in_order(rows[:200])
    assert storage.get_row((rows[7][1], "key 7")) == rows[7]


def test_rows_of_others_are_refused_and_ownership_moves_without_rewriting() -> None:
    space = new_space()
    whole = StateTable(space, "t", ROUTED)
    whole.write_chunk(("+", row) for row in rows_of(50))
    space.checkpoint(epoch=1)
    low, high = StateTable(space, "t", vnodes=range(128)), StateTable(space, "t", vnodes=range(128, 256))
    assert in_order([*low.scan(), *high.scan()]) == in_order(rows_of(50))
    foreign = next(high.scan())
    for action in (
        lambda: low.insert_row(foreign),
        lambda: low.get_row((foreign[1], foreign[0])),
        lambda: low.write_chunk([("-", foreign)]),
        lambda: low.scan(vnode=200),
    ):
        with pytest.raises(VnodeNotOwnedError, match="owns vnodes 0-127"):
            action()
    low.insert_row(next(row for row in rows_of(50) if row in list(low.scan())))
    with pytest.raises(VnodeNotOwnedError, match="right after a commit"):
        low.update_vnodes(range(256))
    space.checkpoint(epoch=2)
    assert low.update_vnodes(range(256))
    assert not high.update_vnodes(range(128, 130))
    assert low.get_row((foreign[1], foreign[0])) == foreign
    assert space.checkpoint(epoch=3).slots == 0


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"distribution_key": ["v"]}, "must be in the primary key"),
        ({"vnode_column": "k"}, "whole numbers"),
        ({"vnode_column": "n", "distribution_key": ["k"]}, "not both"),
        ({"watermark_column": "z"}, "no column 'z'"),
    ],
)
def test_roles_that_make_no_sense_are_refused(roles: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        schema_of("k string", "n int64", "v int64", key=["n desc", "k"], **roles)


def test_one_column_that_distributes_may_be_given_alone() -> None:
    schemas = [schema_of("k string", key=["k"], distribution_key=given) for given in ("k", ["k"])]
    assert schemas[0] == schemas[1]


def test_only_some_types_can_distribute() -> None:
    schema = schema_of("k float64", key=["k"], distribution_key=["k"])
    with pytest.raises(SchemaError, match="cannot be distributed by a float64"):
        StateTable(new_space(), "t", schema)
    with pytest.raises(ValueError, match="not distributed"):
        StateTable(new_space(), "t", schema_of("k int64", key=["k"]), vnodes=[1])


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_assignments_are_even_and_move_little(sequence: list[int]) -> None:
    owned: list[VnodeBitmap] = []
    for workers in sequence:
        before, owned = owned, assign_vnodes(workers, owned)
        assert sorted(vnode for bitmap in owned for vnode in bitmap) == list(range(256))
        assert max(map(len, owned)) - min(map(len, owned)) <= 1
        kept = sum(len([vnode for vnode in old if vnode in new]) for old, new in zip(before, owned))
        most = sum(min(len(old), len(new)) for old, new in zip(before, owned))
        assert kept == most


def test_bad_assignments_are_refused() -> None:
    with pytest.raises(ValueError, match="workers"):
        assign_vnodes(0)
    with pytest.raises(ValueError, match="vnode"):
        VnodeBitmap([-1])
    with pytest.raises(ValueError, match="worker 1 owned vnodes 3-4, which one before it owned too"):
        assign_vnodes(2, [VnodeBitmap(range(5)), VnodeBitmap(range(3, 256))])
    with pytest.raises(ValueError, match="worker 0 owned vnodes 16-19: expected 0 to 15"):
        assign_vnodes(2, [VnodeBitmap(range(10, 20))], vnode_count=16)


# Watermarks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [["a", "b"], ["a desc", "b"], ["a nulls_last", "b"], ["b", "a"], ["b"]], ids=str)
@pytest.mark.parametrize("routed", [False, True])
def test_one_rule_hides_rows_from_every_read(key: list[str], routed: bool) -> None:
    key = [part.replace("nulls_last", "asc nulls last") for part in key]
    roles = {"distribution_key": ["b"]} if routed else {}
    schema = schema_of("a int64", "b int64", "v int64", key=key, watermark_column="a", **roles)
    space = new_space()
    table = StateTable(space, "t", schema, "strict")
    rows = [(None if number % 7 == 0 else number % 10, number, 0) for number in range(60)]
    table.write_chunk(("+", row) for row in rows[:50])
    space.checkpoint(epoch=1)
    whole = list(table.scan())
    table.write_chunk(("+", row) for row in rows[50:])
    table.update_watermark(4)
    assert len(list(table.scan())) == 60
    space.checkpoint(epoch=2)
    alive = [row for row in rows if row[0] is None or row[0] >= 4]
    for found in (table.scan(), StorageTable(space, "t").scan()):
        assert sorted(found, key=str) == sorted(alive, key=str)
    assert list(StorageTable(space, "t", epoch=1).scan()) == whole
    assert list(table.scan(reverse=True)) == list(table.scan())[::-1]
    for row in rows:
        wanted = row if row in alive else None
        assert table.get_row(schema.key_of(row)) == wanted
        assert StorageTable(space, "t").get_row(schema.key_of(row)) == wanted
    late = table.late_rows
    table.insert_row((1, 99, 0))
    table.delete_row((2, 98, 0))
    assert (table.late_rows - late, table.exists(schema.key_of((1, 99, 0)))) == (2, False)
    table.vacuum()
    space.checkpoint(epoch=3)
    reader = space.store.reader()
    ids = {name: object_id for object_id, name, _, _ in reader.index()}
    assert reader.count(ids["t"]) == len(alive)
    assert [kind for kind, _, _ in StorageTable(space, "t").changes(3, 3)] == []


def test_a_watermark_only_grows_and_survives_a_crash() -> None:
    space = new_space()
    schema = schema_of("a date", "v int64", key=["a"], watermark_column="a")
    table = StateTable(space, "t", schema)
    for day in range(1, 10):
        table.insert_row((date(2020, 1, day), day))
    table.update_watermark(date(2020, 1, 5))
    space.checkpoint(epoch=1)
    table.update_watermark(date(2020, 1, 2))
    space.checkpoint(epoch=2)
    assert table.watermark == date(2020, 1, 5)
    table.update_watermark(date(2020, 1, 8))
    space.rollback()
    assert table.watermark == date(2020, 1, 5)
    assert [row[1] for row in StateTable(space, "t").scan()] == [5, 6, 7, 8, 9]
    for bad in (None, "2020-01-01", 5):
        with pytest.raises(RowError, match="watermark"):
            table.update_watermark(bad)
    with pytest.raises(RowError, match="no watermark column"):
        StateTable(space, "u", schema_of("a int64", key=["a"])).update_watermark(1)


def test_a_watermark_does_not_go_backwards_before_its_commit_either() -> None:
    space = new_space()
    table = StateTable(space, "t", schema_of("a int64", key=["a"], watermark_column="a"))
    table.write_chunk(("+", (number,)) for number in (1, 4, 7))
    table.update_watermark(5)
    table.update_watermark(3)
    space.checkpoint(epoch=1)
    assert (table.watermark, list(table.scan())) == (5, [(7,)])


def test_an_update_across_the_watermark_is_its_visible_half() -> None:
    table = StateTable(new_space(), "t", schema_of("k int64", "a int64", key=["k"], watermark_column="a"), "strict")
    table.write_chunk([("+", (1, 1)), ("+", (2, 9))])
    table.update_watermark(5)
    table.commit(1)
    table.update_row((1, 1), (1, 7))
    table.update_row((2, 9), (2, 3))
    assert list(table.scan()) == [(1, 7)]
    table.commit(2)
    assert list(table.scan()) == [(1, 7)]


def test_watermarks_belong_to_vnodes() -> None:
    space = new_space()
    schema = schema_of("n int32", "a int64", key=["n", "a"], vnode_column="n", watermark_column="a")
    one, two = (StateTable(space, "t", schema, vnodes=owned) for owned in ([0], [1]))
    for table, vnode in ((one, 0), (two, 1)):
        table.write_chunk(("+", (vnode, value)) for value in range(4))
    one.update_watermark(2)
    space.checkpoint(epoch=1)
    assert list(two.scan()) == [(1, value) for value in range(4)]
    one.update_vnodes([0, 1])
    assert list(one.scan()) == [(0, 2), (0, 3), *((1, value) for value in range(4))]
    assert sorted(StorageTable(space, "t").scan()) == list(one.scan())


def test_a_storage_table_reads_every_vnode_that_a_column_names() -> None:
    space = new_space()
    schema = schema_of("n int32", "a int64", key=["n", "a"], vnode_column="n", watermark_column="a")
    table = StateTable(space, "t", schema, vnodes=[5, 300, 9_000, 32_767])
    rows = [(n, a) for n in (5, 300, 9_000, 32_767) for a in range(3)]
    table.insert_rows(rows)
    space.checkpoint(epoch=1)
    stored = StorageTable(space, "t")
    assert list(stored.scan()) == list(table.scan()) == rows
    assert [stored.get_row((300, 1)), stored.get_row((301, 1))] == [(300, 1), None]
    assert [list(stored.scan(prefix=(n,), lower=(2,))) for n in (9_000, 9_001)] == [[(9_000, 2)], []]
    table.update_watermark(1)
    table.delete_row((300, 1))
    table.delete_row((300, 2))
    space.checkpoint(epoch=2)
    assert list(StorageTable(space, "t").scan()) == [(n, a) for n, a in rows if n != 300 and a]
    assert [change.old for change in stored.changes(2, 2)] == [(300, 1), (300, 2)]


def test_a_state_table_that_owns_all_has_every_vnode_that_rows_lie_in() -> None:
    space = new_space()
    schema = schema_of("n int32", "a int64", key=["n", "a"], vnode_column="n", watermark_column="a")
    rows = [(n, 5) for n in (5, 255, 256, 300, 32_767)]
    StateTable(space, "t", schema, vnodes=range(32_768)).insert_rows(rows)
    space.checkpoint(epoch=1)
    table = StateTable(space, "t")
    assert (list(table.scan()), table.get_row((300, 5))) == (rows, (300, 5))
    table.delete_row((300, 5))
    table.update_watermark(5)
    space.checkpoint(epoch=2)
    table = StateTable(space, "t")
    assert list(table.scan()) == list(StorageTable(space, "t").scan()) == [row for row in rows if row[0] != 300]
    space.rollback(epoch=1)
    assert list(table.scan()) == rows
    with pytest.raises(VnodeNotOwnedError, match="vnode 301, and this instance owns vnodes 0-256, 300, 32767"):
        table.insert_row((301, 9))


def test_a_vnode_column_out_of_its_limits_is_refused_by_table() -> None:
    schema = schema_of("n int32", key=["n"], vnode_column="n")
    table = StateTable(new_space(), "t", schema)
    for vnode in (32_768, -1, None):
        with pytest.raises(RowError, match=f"table 't': the vnode column 'n' holds {vnode}: expected .* 0 to 32767"):
            table.insert_row((vnode,))
        with pytest.raises(RowError, match=f"^table 't': the vnode column 'n' holds {vnode}"):
            table.get_rows([(vnode,)])


@pytest.mark.parametrize("vnodes", ["ab", 5, b"ab", ["a"], [1.5], [32_768], VnodeBitmap.from_bits(1 << 40_000)])
def test_vnodes_of_something_else_are_refused_in_words(vnodes: Any) -> None:
    with pytest.raises(ValueError, match="found"):
        StateTable(new_space(), "t", ROUTED, vnodes=vnodes)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.sets(st.integers(0, 5)), st.integers(0, 99))),
    st.integers(0, 5),
    st.integers(1, 9),
)
def test_the_index_gives_the_newest_watermark_of_a_vnode(writes: list[Any], vnode: int, epoch: int) -> None:
    index = WatermarkIndex()
    for written, vnodes, watermark in writes:
        index.write(written, VnodeBitmap(vnodes), watermark)
    found = [(written, place, mark) for place, (written, vnodes, mark) in enumerate(writes) if vnode in vnodes]
    newest = max((entry for entry in found if entry[0] <= epoch), default=(0, 0, None))
    assert index.read(vnode, epoch) == newest[2]
    stored = index.to_json(lambda value: value)
    assert WatermarkIndex.from_json(stored, lambda cell: cell).read(vnode) == max(found, default=(0, 0, None))[2]


# Plans ----------------------------------------------------------------------------------------------------------------


def test_names_of_a_plan_are_paths_and_stay_where_users_give_them() -> None:
    scan = PlanNode("Scan", ("State",))
    plan = PlanNode("Join", ("Left", "Right"), (scan, PlanNode("Scan", ("State",), name="orders")))
    assert [table.name for table in plan_tables(plan)] == [
        "Join/Left",
        "Join/Right",
        "Join/Scan.0/State",
        "orders/State",
    ]
    with pytest.raises(SchemaError, match="two tables"):
        plan_tables(PlanNode("Join", (), (PlanNode("A", ("t",), name="x"), PlanNode("B", ("t",), name="x"))))


def test_the_watermarks_of_vnodes_that_are_gained_hide_their_rows_at_once() -> None:
    space = new_space()
    schema = schema_of("n int64", "t int64", key=["n", "t"], vnode_column="n", watermark_column="t")
    low, high = (StateTable(space, "t", schema, vnodes=vnodes) for vnodes in (range(4), range(4, 8)))
    low.insert_rows([(1, 5), (1, 50)])
    high.insert_rows([(6, 5), (6, 50)])
    space.checkpoint(epoch=1)
    high.update_watermark(10)
    space.checkpoint(epoch=2)
    assert (list(low.scan()), list(high.scan())) == ([(1, 5), (1, 50)], [(6, 50)])
    high.update_vnodes(range(7, 8))
    assert low.update_vnodes(range(7))
    assert list(low.scan()) == [(1, 5), (1, 50), (6, 50)]
    assert low.get_row((6, 5)) is None


@pytest.mark.parametrize("gained", [False, True])
def test_a_watermark_that_waits_goes_only_to_vnodes_that_were_owned_when_it_came(gained: bool) -> None:
    space = new_space()
    schema = schema_of("n int64", "t int64", key=["n", "t"], vnode_column="n", watermark_column="t")
    table = StateTable(space, "t", schema, vnodes=range(4))
    other = StateTable(space, "t", schema, vnodes=range(4, 8))
    table.insert_rows([(1, 5)])
    other.insert_rows([(6, 5)])
    space.checkpoint(epoch=1)
    table.update_watermark(10)
    other.update_vnodes([7])
    table.update_vnodes(range(7) if gained else range(2))
    space.checkpoint(epoch=2)
    assert list(table.scan()) == ([(1, 5), (6, 5)] if gained else [])
