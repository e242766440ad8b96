"""Dedup, Filter, Project and Union, beside plain Python; and what operators refuse."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectspace.operators import (
    AggCall,
    Dedup,
    ExpressionError,
    Filter,
    HashAgg,
    Pipeline,
    Project,
    SimpleAgg,
    Union,
    agg_plan,
    avg,
    col,
)
from objectspace.relational import (
    Chunk,
    EpochError,
    InconsistentOperationError,
    RowError,
    SchemaError,
    StorageTable,
)
from tests.operators.agg_oracle import Log, Running, materialize, permuted
from tests.relational.helpers import schema_of

SCHEMA = schema_of("k string", "f float64", "v int64", "id int64", key=["id"])


def make_row(key: int, randomness: random.Random) -> Any:
    return (randomness.choice([None, "a", "b"]), randomness.choice([0.0, -0.0, 1.5]), randomness.randrange(4), key)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_dedup_gives_the_first_row_of_each_key(seed: int) -> None:
    results = []
    for salt in range(2):
        randomness, order = random.Random(seed), random.Random(seed + salt)
        running = Running(lambda: Dedup(SCHEMA, key=["k", "f"]))
        log = Log(make_row, randomness)
        expected: dict[Any, Any] = {}
        for _ in range(3):
            changes = log.epoch(6, append_only=True)
            for _, row in changes:
                expected.setdefault(row[:2], row)
            if randomness.random() < 0.3:
                running.feed(changes)
                running.recover()
            running.run(permuted(changes, order), chunk_size=4)
        assert sorted(running.rows(), key=repr) == sorted(expected.values(), key=repr)
        results.append((repr(running.rows()), running.stored()))
    assert results[0] == results[1]


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_filter_and_project_give_what_a_batch_gives(seed: int) -> None:
    randomness = random.Random(seed)
    keep = Filter(SCHEMA, randomness.choice([("v", ">", 1), lambda v, k: v > 1, [("v", ">", 1), ("v", "!=", 7)]]))
    project = Project(SCHEMA, {"id": "id", "v": "v", "double": ("float64", lambda f: None if f is None else 2 * f)})
    log = Log(make_row, randomness)
    kept: dict[bytes, Any] = {}
    shown: dict[bytes, Any] = {}
    for _ in range(4):
        for chunk in keep.process(Chunk.from_rows(SCHEMA, log.epoch(20))):
            materialize(keep.schema, kept, chunk.rows())
            for projected in project.process(chunk):
                materialize(project.schema, shown, projected.rows())
    rows = [row for row in log.rows.values() if row[2] > 1]
    assert {row[3]: row for row in kept.values()} == {row[3]: row for row in rows}
    assert sorted(shown.values()) == sorted((row[3], row[2], 2 * row[1]) for row in rows)


def test_a_projection_with_another_key_splits_pairs() -> None:
    project = Project(SCHEMA, ["v", "k"], key=["v"])
    chunk = Chunk.from_rows(SCHEMA, [("U-", ("a", 0.0, 1, 7)), ("U+", ("b", 0.0, 2, 7))])
    assert project.process(chunk)[0].rows() == [("-", (1, "a")), ("+", (2, "b"))]
    with pytest.raises(SchemaError, match="stream key column 'id' is not in the output"):
        Project(SCHEMA, ["v"])


def test_conditions() -> None:
    def passes(predicate: Any, row: Any) -> bool:
        return Filter(SCHEMA, predicate).process(Chunk.from_rows(SCHEMA, [("+", row)])) != []

    row = ("a", None, 3, 1)
    assert passes(("k", "in", ["a", "b"]), row)
    assert passes(("f", "is null"), row)
    assert not passes(("f", "is not null"), row)
    assert not passes(("f", "<", 1.0), row), "NULL compares with nothing"
    assert not passes(("k", "=", None), row)
    for wrong in (("k", "like", "a"), ("nothing", "=", 1), "k = 1", ("k", "=")):
        with pytest.raises(SchemaError):
            Filter(SCHEMA, wrong)  # type: ignore[arg-type]
    with pytest.raises(ExpressionError, match=r"failed for f=None: TypeError.*may be None"):
        passes(lambda f: f > 1, row)


def test_union_of_streams_with_the_same_keys() -> None:
    union = Union(SCHEMA, inputs=["left", "right"], tag="source")
    rows = [("+", ("a", 1.0, 2, 3))]
    found = [union.process(Chunk.from_rows(SCHEMA, rows), side=side)[0].rows() for side in union.sides]
    assert found == [[("+", ("a", 1.0, 2, 3, 0))], [("+", ("a", 1.0, 2, 3, 1))]]
    assert [name for name, _ in union.schema.primary_key] == ["id", "source"]
    with pytest.raises(ValueError, match="there is no side 'middle'"):
        union.process(Chunk.from_rows(SCHEMA, rows), side="middle")


def test_a_union_gives_the_least_watermark_of_all_inputs() -> None:
    union = Union(SCHEMA)
    given = [union.watermark("v", value, f"input{side}") for value, side in ((5, 0), (3, 1), (4, 1), (4, 0), (9, 1))]
    assert given == [[], [("v", 3)], [("v", 4)], [], [("v", 5)]]


# What is refused ------------------------------------------------------------------------------------------------------


def test_append_only_operators_take_a_chunk_whole_or_not() -> None:
    chunk = Chunk.from_rows(SCHEMA, [("+", ("a", 0.0, 1, 1)), ("-", ("a", 0.0, 1, 1))])
    for operator in (Dedup(SCHEMA, ["k"]), HashAgg(SCHEMA, ["k"], [AggCall("min", "v")], append_only=True)):
        running = Running(lambda found=operator: found)  # type: ignore[misc]
        with pytest.raises(InconsistentOperationError, match="takes an append-only input: found -"):
            running.operator.process(chunk)
        assert running.barrier() == []


def test_a_function_that_fails_leaves_the_chunk_untaken() -> None:
    running = Running(lambda: HashAgg(SCHEMA, ["k"], [AggCall("count"), AggCall("count", filter=lambda f: f > 1)]))
    with pytest.raises(ExpressionError):
        running.feed([("+", ("a", 2.0, 1, 1)), ("+", ("a", None, 1, 2))])
    assert running.barrier() == []


@pytest.mark.parametrize(
    ("call", "changes", "why"),
    [
        (AggCall("count"), [("-", ("a", 0.0, 1, 1))], "retracted than came: after a source .* put materialize"),
        (AggCall("min", "v"), [("+", ("a", 0.0, 1, 1))] * 2, "must tell rows apart.* put materialize"),
        (AggCall("count", "v", distinct=True), [("-", ("a", 0.0, 1, 1)), ("+", ("a", 0.0, 2, 2))], "more often"),
    ],
)
def test_inconsistent_changes_are_refused_and_write_nothing(call: AggCall, changes: Any, why: str) -> None:
    running = Running(lambda: HashAgg(SCHEMA, ["k"], [call]))
    running.feed([*changes, ("+", ("b", 0.0, 5, 9))])
    with pytest.raises(InconsistentOperationError, match=why):
        running.operator.barrier(1)
    running.space.checkpoint(epoch=1)
    assert not any(running.stored().values())


@pytest.mark.parametrize(
    ("calls", "wrong"),
    [
        ([AggCall("count"), AggCall("sum", "v")], ("-", ("b", 0.0, 5, 7))),
        ([AggCall("count"), AggCall("sum", "v")], ("+", ("a", 0.0, 2**63 - 1, 7))),
        ([AggCall("avg", "v"), AggCall("min", "v")], ("+", ("a", 0.0, 2**63 - 1, 7))),
        ([AggCall("min", "v"), AggCall("array_agg", "v")], ("-", ("b", 0.0, 5, 7))),
        ([AggCall("count", "v", distinct=True), AggCall("sum", "v", distinct=True)], ("-", ("b", 0.0, 5, 7))),
        ([AggCall("array_agg", "v", distinct=True), AggCall("sum", "v")], ("-", ("b", 0.0, 5, 7))),
    ],
)
@pytest.mark.parametrize("group", [["k"], ["f"]])
def test_a_barrier_that_was_refused_can_be_tried_again(calls: list[AggCall], wrong: Any, group: list[str]) -> None:
    outcomes = []
    for is_refused in (False, True):
        running = Running(lambda: HashAgg(SCHEMA, group, calls))
        out = running.run([("+", ("a", 0.0, 1, 1)), ("+", ("c", 1.5, 3, 2))])
        running.feed([("+", ("a", 0.0, 1, 3)), ("+", ("d", -0.0, 4, 4)), ("-", ("c", 1.5, 3, 2))])
        if is_refused:
            surplus = [("-", ("b", 0.0, 5, number)) for number in range(10, 14)] if wrong[0] == "-" else []
            running.refuse([wrong, *surplus])
        outcomes.append((repr(out + running.barrier()), running.stored()))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("make", [lambda: HashAgg(SCHEMA, ["k"], [AggCall("sum", "v")]), lambda: Dedup(SCHEMA, ["k"])])
def test_a_barrier_of_an_epoch_that_is_over_loses_nothing(make: Any) -> None:
    running = Running(make)
    running.run([])
    running.feed([("+", ("a", 0.0, 5, 1))])
    with pytest.raises(EpochError, match="epoch 1 is not after epoch 1"):
        running.operator.barrier(1)
    assert len(running.barrier()) == 1


def test_a_sum_that_no_int64_holds_is_refused() -> None:
    running = Running(lambda: SimpleAgg(SCHEMA, [AggCall("sum", "v"), AggCall("variance", "v")]))
    rows = [("+", ("a", 0.0, 2**62, number)) for number in range(3)]
    running.feed(rows)
    advice = "correct or leave out rows in the source, or add up a cast to decimal in a pipeline that starts at another"
    with pytest.raises(RowError, match=rf"AggCall\('sum', 'v'\) of group of all rows is .* holds: {advice} store"):
        running.operator.barrier(1)
    running.recover()
    assert running.run(rows[:1]) == [("+", (2**62, None))]
    running.recover()
    assert running.run([("+", ("a", 0.0, 2**62 - 2, 7))]) == [("U-", (2**62, None)), ("U+", (2**63 - 2, 2.0))]


SUM = AggCall("sum", "v")


@pytest.mark.parametrize(
    ("group", "calls"),
    [
        ([], [SUM]),
        (["k"], [SUM]),
        (["k"], [SUM, AggCall("max", "v")]),
        (["k"], [SUM, AggCall("array_agg", "v")]),
        (["k"], [AggCall("sum", "v", distinct=True)]),
    ],
    ids=str,
)
@pytest.mark.parametrize("sign", ["", "-"])
def test_a_sum_that_no_decimal_of_a_scale_holds_is_refused(group: list[str], calls: list[AggCall], sign: str) -> None:
    schema = schema_of("k string", "v decimal(38,1)", "id int64", key=["id"])
    most, surplus = Decimal(f"{sign}{'9' * 37}.9"), ("a", Decimal(f"{sign}0.1"), 2)
    running = Running(lambda: HashAgg(schema, group, calls) if group else SimpleAgg(schema, calls))
    running.feed([("+", ("a", most, 1)), ("+", surplus)])
    said = rf"of group .* is {sign}10{{37}}, which no decimal\(38,1\) holds: correct or leave out rows in the source$"
    with pytest.raises(RowError, match=rf"AggCall\('sum', 'v'.*\) {said}"):
        running.operator.barrier(1)
    running.feed([("-", surplus)])
    ((_, row),) = running.barrier()
    assert row[len(group)] == most


@pytest.mark.parametrize("calls", [[SUM], [SUM, AggCall("array_agg", "v")]], ids=str)
def test_a_stored_sum_out_of_range_can_be_brought_back(monkeypatch: pytest.MonkeyPatch, calls: list[AggCall]) -> None:
    schema = schema_of("k string", "v decimal(38,0)", "id int64", key=["id"])
    most = Decimal("9" * 38)
    with monkeypatch.context() as unchecked:
        unchecked.setattr(agg_plan, "sum_bounds", lambda kind: None)
        running = Running(lambda: HashAgg(schema, ["k"], calls))
        running.run([("+", ("a", most, 1)), ("+", ("a", most, 2))])
    running.recover()
    *_, (op, row) = running.run([("-", ("a", most, 2))])
    assert (op, row[1]) == ("U+", most)
    running.recover()
    with pytest.raises(RowError, match=r"group k='a' is 1999999\d+8, which no decimal\(38,0\) holds"):
        running.run([("+", ("a", most, 2))])


@pytest.mark.parametrize(
    ("arguments", "options", "why"),
    [
        (("median", "v"), {}, "there is no call 'median'"),
        (("sum",), {}, "sum takes 1 to 1 columns"),
        (("count",), {"distinct": True}, "count with distinct takes a column"),
        (("sum", 5), {}, "sum takes names of columns: found 5"),
        (("sum", 5, 6), {}, "sum takes names of columns: found 5"),
        (("string_agg", "k"), {"delimiter": 5}, "string_agg takes text as its delimiter: found 5"),
        (("string_agg", "k"), {"delimiter": None}, "string_agg takes text as its delimiter: found None"),
        (("array_agg", "v"), {"order_by": [col("v")]}, r"order_by= takes columns, .*: found \[Expression\(v\)\]"),
        (("array_agg", "v"), {"order_by": col("v")}, r"order_by= takes columns, .*: found Expression\(v\)"),
    ],
)
def test_calls_without_meaning_are_refused(arguments: Any, options: Any, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        AggCall(*arguments, **options)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (AggCall("sum", "k"), "column 'k' is string"),
        (AggCall("sum", "nothing"), "there is no column 'nothing'"),
        (AggCall("array_agg", "v", distinct=True, order_by=["id"]), "the order can only be by 'v'"),
        (AggCall("string_agg", "k", "k", distinct=True), "pass delimiter="),
        (AggCall("count", filter=("nothing", ">", 1)), "there is no column 'nothing'"),
    ],
)
def test_calls_that_do_not_fit_their_input_are_refused(call: AggCall, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        SimpleAgg(SCHEMA, [call])


# Details of groups ----------------------------------------------------------------------------------------------------


def test_a_call_is_a_value_except_for_a_function_that_filters() -> None:
    def _is_large(v: int) -> bool:
        return v > 5

    for filter in (None, ("v", ">", 5), [("v", ">", 5)], _is_large, col("v") > 5):
        one, other = (AggCall("sum", "v", order_by=["v"], filter=filter) for _ in range(2))
        assert one == other
        assert len({one, other, AggCall("sum", "v", filter=lambda v: v > 5)}) == 2
    assert AggCall("count") != AggCall("count", name="n") != "count"
    large, also_large, larger = (AggCall("sum", "v", filter=col("v") > number) for number in (5, 5, 6))
    assert large == also_large != larger
    with pytest.raises(AttributeError):
        AggCall("count").name = "n"  # type: ignore[misc]
    assert AggCall("count").renamed("n", None) == AggCall("count", name="n")


def test_equal_values_are_one_group_in_one_form() -> None:
    running = Running(lambda: HashAgg(SCHEMA, ["f"], [AggCall("count"), AggCall("min", "f")]))
    nan = float("nan")
    running.run([("+", ("a", value, 0, number)) for number, value in enumerate([-0.0, 0.0, nan, float("nan"), None])])
    assert repr(running.rows()) == "[(None, 1, None), (0.0, 2, 0.0), (nan, 2, nan)]"
    assert running.run([("+", ("a", nan, 0, 9)), ("-", ("a", nan, 0, 9))]) == []


def test_names_of_columns_may_clash() -> None:
    schema = schema_of("count int64", "sum_v int64", "v int64", "rows_0 int64", key=["rows_0"])
    calls = [AggCall("count"), AggCall("sum", "v"), AggCall("sum", "v"), AggCall("count", "v", distinct=True)]
    running = Running(lambda: HashAgg(schema, ["count", "sum_v", "rows_0"], calls))
    assert running.run([("+", (1, 2, 3, 4))]) == [("+", (1, 2, 4, 1, 3, 3, 1))]
    assert running.operator.schema.names == ("count", "sum_v", "rows_0", "count_2", "sum_v_2", "sum_v_3", "count_v")


def test_the_estimate_of_a_sketch_is_near_and_does_not_depend_on_order() -> None:
    pytest.importorskip("datasketches", reason="not run: datasketches has no wheels for this Python")
    schema = schema_of("v int64", "id int64", key=["id"])
    rows = [("+", (number % 5000, number)) for number in range(20_000)]
    found = []
    for order in (rows, rows[::-1]):
        running = Running(lambda: SimpleAgg(schema, [AggCall("approx_count_distinct", "v")], append_only=True))
        running.run(order[:10_000] if order is rows else rows[9_999::-1])
        running.recover()
        running.run(order[10_000:] if order is rows else rows[:9_999:-1])
        found.append((running.rows(), running.stored()))
    assert found[0] == found[1]
    ((estimate,),) = found[0][0]
    assert abs(estimate - 5000) < 0.05 * 5000


def test_a_barrier_writes_one_row_a_touched_group() -> None:
    calls = [AggCall("count"), AggCall("sum", "v"), AggCall("avg", "f")]
    running = Running(lambda: HashAgg(SCHEMA, ["k"], calls))
    running.run([("+", (f"k{number % 100}", 1.0, number, number)) for number in range(1000)])
    running.feed([("+", ("k1", 1.0, 5, 2000)), ("+", ("k1", 1.0, 6, 2001)), ("+", ("k2", 1.0, 7, 2002))])
    running.operator.barrier(2)
    receipt = running.space.checkpoint(epoch=2)
    assert receipt.objects["op/HashAggState"].slots == 2
    assert running.operator.process(Chunk(SCHEMA, [], [])) == []


def test_an_average_of_decimals_has_a_place_in_arrow() -> None:
    pipeline = Pipeline()
    prices = pipeline.source("prices", {"id": "int64", "d": "decimal(10,2)"}, key=["id"])
    prices.agg(mean=avg("d")).materialize("mean")
    run = pipeline.run_local([{"prices": [(1, Decimal("1.00")), (2, Decimal("1.00")), (3, Decimal("2.00"))]}])
    assert run.rows("mean") == [(Decimal("1.333333333333333333"),)]
    table = StorageTable(run.space.store, "mean/table").to_arrow()
    assert table["mean"].to_pylist() == [Decimal("1.333333333333333333")]
