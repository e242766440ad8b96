"""Materialised rows against a plain dictionary, and what their output adds up to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace, VolatileObjectSpace
from objectspace.operators import LocalRun, Materialize, Pipeline, col, min_, sum_
from objectspace.operators.materialize import CONFLICTS
from objectspace.relational import Chunk, Column, InconsistentOperationError, SchemaError, TableSchema

SCHEMA = TableSchema(
    [Column("k", "int64"), Column("v", "int64", nullable=True), Column("version", "int64", nullable=True)], ["k"]
)

rows = st.tuples(st.integers(0, 3), st.none() | st.integers(0, 2), st.none() | st.integers(0, 2))
chunks = st.lists(st.tuples(st.sampled_from(["+", "-", "U-", "U+"]), rows), max_size=6)


def resolved(conflict: str, op: str, present: Any, row: Any) -> Any:
    """Return what becomes of the row of a key, as the documentation says it."""
    if op == "-":
        return None
    if op == "U-":
        return None if conflict == "ignore" else present
    if present is None:
        return row
    if conflict == "ignore":
        return present
    if conflict == "update_if_newer" and (-1 if row[2] is None else row[2]) < (
        -1 if present[2] is None else present[2]
    ):
        return present
    if conflict == "update_if_not_null":
        return tuple(old if new is None else new for old, new in zip(present, row))
    return row


@pytest.mark.parametrize("conflict", [conflict for conflict in CONFLICTS if conflict != "check"])
@settings(max_examples=50, deadline=None)
@given(history=st.lists(st.one_of(chunks, st.sampled_from(["barrier", "crash"])), max_size=10))
def test_the_table_and_the_output_say_the_same(conflict: Any, history: list[Any]) -> None:
    store = CheckpointStore(":memory:")
    version = "version" if conflict == "update_if_newer" else None

    def opened() -> tuple[PersistedObjectSpace, Materialize]:
        space, view = PersistedObjectSpace(store), Materialize(SCHEMA, conflict, version)
        view.open(space, "view")
        return space, view

    space, view = opened()
    model: dict[int, Any] = {}
    downstream: dict[int, Any] = {}
    kept: tuple[dict[int, Any], dict[int, Any]] = ({}, {})
    epoch = 0
    for event in history:
        if event == "barrier":
            epoch += 1
            assert view.barrier(epoch) == []
            space.checkpoint(epoch=epoch)
            kept = dict(model), dict(downstream)
        elif event == "crash":
            space.close()
            space, view = opened()
            model, downstream = dict(kept[0]), dict(kept[1])
        else:
            for (op, row), following in zip(event, [*event[1:], ("", (None,))]):
                is_half = op == "U-" and (following[0], following[1][0]) != ("U+", row[0])
                model[row[0]] = resolved(conflict, "-" if is_half else op, model.get(row[0]), row)
            for chunk in view.process(Chunk.from_rows(SCHEMA, event)):
                for op, row in chunk.rows():
                    if op in ("-", "U-"):
                        assert downstream.pop(row[0]) == row
                    else:
                        assert row[0] not in downstream
                        downstream[row[0]] = row
        expected = {key: row for key, row in sorted(model.items()) if row is not None}
        assert {row[0]: row for row in view.scan()} == expected == dict(sorted(downstream.items()))


@pytest.mark.parametrize("conflict", ["overwrite", "update_if_newer", "update_if_not_null", "ignore"])
def test_an_update_that_changes_the_key_of_the_table_takes_its_old_row_away(conflict: Any) -> None:
    view = Materialize(SCHEMA, conflict, "version" if conflict == "update_if_newer" else None)
    view.open(VolatileObjectSpace(), "view")
    view.process(Chunk.from_rows(SCHEMA, [("+", (1, 1, 1))]))
    (changed,) = view.process(Chunk.from_rows(SCHEMA, [("U-", (1, 1, 1)), ("U+", (2, 1, 1))]))
    assert sorted(changed.rows()) == [("+", (2, 1, 1)), ("-", (1, 1, 1))]
    view.process(Chunk.from_rows(SCHEMA, [("+", (3, 0, 0)), ("U-", (3, 0, 0)), ("U+", (0, 0, 0))]))
    assert list(view.scan()) == [(0, 0, 0), (2, 1, 1)]


def test_a_checked_view_refuses_what_contradicts_it_and_applies_nothing() -> None:
    view = Materialize(SCHEMA, "check")
    view.open(VolatileObjectSpace(), "view")
    view.process(Chunk.from_rows(SCHEMA, [("+", (1, 1, 1))]))
    with pytest.raises(InconsistentOperationError, match="view/table"):
        view.process(Chunk.from_rows(SCHEMA, [("+", (2, 2, 2)), ("+", (1, 5, 5))]))
    assert list(view.scan()) == [(1, 1, 1)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"conflict": "replace"}, "expected one of overwrite"),
        ({"conflict": "update_if_newer"}, "name their columns with version_column="),
        ({"version_column": "nothing"}, "no column 'nothing'"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Materialize(SCHEMA, **arguments)


HANDED_OVER: list[list[Any]] = [
    [("-", (2, "y")), ("U-", (1, "x")), ("U+", (1, "y"))],
    [("U-", (1, "x")), ("U+", (1, "y")), ("U-", (2, "y")), ("U+", (2, "x"))],
    [("U-", (1, "x")), ("U+", (1, "z")), ("-", (1, "z")), ("+", (3, "x"))],
]


@pytest.mark.parametrize("conflict", [None, "check"])
@pytest.mark.parametrize("changes", HANDED_OVER)
def test_a_key_goes_from_one_row_to_another_in_one_epoch(changes: list[Any], conflict: str | None) -> None:
    pipeline = Pipeline()
    people = pipeline.source("people", {"id": "int64", "name": "string"}, key=["id"])
    people.materialize("by_name", key=["name"], conflict=conflict)
    people.materialize("by_id")
    run = pipeline.run_local([{"people": [(1, "x"), (2, "y")]}, {"people": changes}])
    assert sorted(run.rows("by_name")) == sorted(run.rows("by_id"))


def test_a_key_goes_to_a_row_of_a_later_chunk_of_the_epoch() -> None:
    """The two sides of a join give their changes one after the other."""
    pipeline = Pipeline()
    left, right = (
        pipeline.source(name, {"id": "int64", "v": "string"}, key=["id"]).select("v", **{name: "id"})
        for name in ("l", "r")
    )
    left.join(right, on="v").materialize("by_value", key=["v"], conflict="check")
    run = pipeline.run_local(
        [{"l": [(1, "a")], "r": [(1, "a")]}, {"l": [("-", (1, "a")), ("+", (2, "a"))]}, {"r": [("-", (1, "a"))]}]
    )
    assert run.rows("by_value") == []
    run.step({"r": [("+", (7, "a"))]})
    assert [set(map(str, row)) for row in run.rows("by_value")] == [{"a", "2", "7"}]


@pytest.mark.parametrize("key", [None, ["k"]])
@pytest.mark.parametrize("before", [[], [(1, "z")]])
def test_rows_of_one_key_count_in_their_order_also_where_the_key_is_named_again(key: Any, before: list[Any]) -> None:
    for batch, left in (([(1, "a"), ("-", (1, None))], []), ([("-", (1, None)), (1, "b")], [(1, "b")])):
        pipeline = Pipeline()
        rows = pipeline.source("rows", {"k": "int64", "w": "string?"}, key=["k"])
        rows.materialize("t", key=key, conflict="overwrite")
        assert pipeline.run_local([{"rows": before}, {"rows": batch}]).rows("t") == left


@pytest.mark.parametrize("source_key", [[], ["k"], ["id"]])
@pytest.mark.parametrize(("conflict", "left"), [("overwrite", (1, 1, 2)), ("ignore", (2, 1, 9))])
def test_rows_count_in_the_order_in_which_they_came(source_key: Any, conflict: str, left: Any) -> None:
    pipeline = Pipeline()
    rows = pipeline.source("rows", {"id": "int64", "k": "int64", "v": "int64"}, key=source_key)
    rows.materialize("t", key=["k"], conflict=conflict)
    assert [row[:3] for row in pipeline.run_local([{"rows": [(2, 1, 9), (1, 1, 2)]}]).rows("t")] == [left]


@pytest.mark.parametrize("conflict", [None, "overwrite", "ignore", "update_if_newer", "update_if_not_null"])
def test_which_row_of_a_join_stays_does_not_depend_on_what_is_in_memory(conflict: str | None) -> None:
    def made() -> Pipeline:
        pipeline = Pipeline()
        left = pipeline.source("left", {"id": "int64", "k": "string"}, key=["id"])
        right = pipeline.source("right", {"rid": "int64", "k": "string", "v": "int64?"}, key=["rid"])
        version = "v" if conflict == "update_if_newer" else None
        left.join(right, on="k").materialize("t", key=["k"], conflict=conflict, version=version)
        return pipeline

    found = []
    for recovers in (False, True):
        store = CheckpointStore(":memory:")
        run = LocalRun(made(), PersistedObjectSpace(store))
        for rows in ([(2, "x", None)], [(1, "x", None)], [(3, "x", None)]):
            run.step({"right": rows})
        if recovers:
            run.space.close()
            run = LocalRun(made(), PersistedObjectSpace(store))
        run.step({"left": [(7, "x")]})
        found.append(run.rows("t"))
    assert found[0] == found[1]
    assert len(found[0]) == 1


ORDERS: dict[str, Any] = {"id": "int64", "k": "int64", "v": "int64?"}
SHAPES: dict[str, Any] = {
    "groups": lambda groups: groups,
    "some": lambda groups: groups.filter(col("least") > 0).select("k", "least"),
    "sums": lambda groups: groups.select("k", twice=col("total") * 2),
}


def totals(shape: str, key: list[str] | None) -> Pipeline:
    pipeline = Pipeline()
    orders = pipeline.source("orders", ORDERS, key=["id"])
    SHAPES[shape](orders.group_by("k").agg(total=sum_("v"), least=min_("v"))).materialize("t", key)
    return pipeline


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=30, deadline=None)
@given(steps=st.lists(st.dictionaries(st.integers(0, 4), st.none() | st.tuples(st.integers(0, 2), st.integers(0, 2)))))
def test_behind_an_aggregation_a_table_that_is_not_read_holds_the_same(shape: str, steps: list[Any]) -> None:
    """With a key that is named the table is read as ever."""
    runs = [LocalRun(totals(shape, key), PersistedObjectSpace(CheckpointStore(":memory:"))) for key in (None, ["k"])]
    trusts = [one._graph.operators[one.pipeline.materialized("t")]._trusts for one in runs]  # type: ignore[attr-defined]
    assert trusts == [True, False]
    there: dict[int, Any] = {}
    for step in steps:
        gone = [("-", there.pop(number)) for number in step if number in there]
        there |= {number: (number, *row) for number, row in step.items() if row is not None}
        batch = {"orders": gone + [("+", there[number]) for number in step if number in there]}
        for run in runs:
            run.step(batch)
    assert runs[0].rows("t") == runs[1].rows("t")
    told = [[(epoch, chunk.rows()) for epoch, chunk in run.changes("t")] for run in runs]
    assert told[0] == told[1]


@pytest.mark.parametrize("conflict", [None, "ignore", "check"])
def test_a_version_comes_with_a_rule_that_goes_by_it(conflict: Any) -> None:
    rows = Pipeline().source("rows", {"k": "int64", "v": "int64"}, key=["k"])
    with pytest.raises(
        SchemaError, match=f"'t'.*version= is for conflict='update_if_newer' or .* conflict={conflict!r}"
    ):
        rows.materialize("t", conflict=conflict, version="v")


def test_null_keeps_the_stored_value_of_a_row_that_is_not_older() -> None:
    pipeline = Pipeline()
    rows = pipeline.source("rows", {"k": "int64", "v": "int64", "a": "int64?"}, key=["k"])
    rows.materialize("t", conflict="update_if_not_null", version="v")
    news = [(1, 5, 50), (1, 4, 40), (1, 6, None), (2, 1, None)]
    with pipeline.run_local([{"rows": [row]} for row in news]) as run:
        assert run.rows("t") == [(1, 6, 50), (2, 1, None)]


def test_a_version_is_asked_for_by_the_name_of_its_argument() -> None:
    rows = Pipeline().source("rows", {"k": "int64"}, key=["k"])
    with pytest.raises(SchemaError, match="in a pipeline with version="):
        rows.materialize("t", conflict="update_if_newer")
