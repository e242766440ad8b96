"""State of earlier versions, which computed by other rules: refused where it would be wrong, used where it is right."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.operators import (
    LocalRun,
    Pipeline,
    PipelineChangedError,
    Stream,
    builder,
    call,
    catalogue,
    coalesce,
    col,
    count,
    joining,
    sum_,
)
from objectspace.operators.rules import BRANCHES, DOUBLES, FLOAT32, FULL_JOIN_WATERMARK, SESSIONS, Made

ROWS = {"id": "int64", "f": "float32", "d": "decimal(10,2)?", "i": "int64"}
Build = Callable[[Stream], Stream]


def counted(build: Build) -> Pipeline:
    pipeline = Pipeline()
    build(pipeline.source("rows", ROWS, key=["id"])).agg(n=count()).materialize("counted")
    return pipeline


def stored_by_an_earlier_version(build: Build, **noted: str) -> CheckpointStore:
    store = CheckpointStore(":memory:")
    with pytest.MonkeyPatch.context() as patch:
        for module in (builder, joining):
            patch.setattr(module, "made_by_rules", lambda make: Made(make()))
        patch.setattr(catalogue, "_beside_fingerprint", lambda node: noted)
        counted(build).run_local([{"rows": [(1, 0.5, None, 2)]}], store)
    return store


def joined(rows: Stream) -> Stream:
    other = rows.select("id", other=col("f").cast("float64"), g="f")
    return rows.join(other.filter(col("other") > 0), on="id", where=col("f") >= col("other"))


def joined_in_time(rows: Stream) -> Stream:
    left, right = (rows.watermark("i", delay).window("i", 4, 2) for delay in (0, 1))
    return left.join(right, on="window_start", how="full").group_by("id").agg(m=count())


@pytest.mark.parametrize(
    ("build", "rule"),
    [
        (lambda rows: rows.filter(col("f") > 0.1), FLOAT32),
        (lambda rows: rows.group_by("id").agg(m=count(filter=("f", ">", 0.1))), FLOAT32),
        (lambda rows: rows.filter(lambda row: row.f > 0.1), FLOAT32),
        (lambda rows: rows.select("id", double=col("f") * 2), FLOAT32),
        (joined, FLOAT32),
        (lambda rows: rows.filter(coalesce(col("d"), 0.5) > 0.1), BRANCHES),
        (lambda rows: rows.group_by("id").agg(m=count(filter=("i", "in", [2, 2.0**53]))), DOUBLES),
        (joined_in_time, FULL_JOIN_WATERMARK),
        (lambda rows: rows.watermark("i", 0).sessions("i", 5), SESSIONS),
    ],
)
def test_state_that_would_be_wrong_is_refused_with_the_rule(build: Build, rule: str) -> None:
    store = stored_by_an_earlier_version(build)
    with pytest.raises(PipelineChangedError, match=f"an earlier version stored it, whose rules differed .*{rule}"):
        counted(build).run_local([], store)
    noted = stored_by_an_earlier_version(build, python="3.11")
    with pytest.raises(PipelineChangedError) as error:
        counted(build).run_local([], noted)
    assert (rule in str(error.value)) == (rule == SESSIONS), "that version knew the others"
    run = counted(build).run_local([{"rows": [(1, 0.5, None, 2)]}], store, drop_changed=True)
    assert run.rows("counted") == [(1,)]
    assert counted(build).run_local([], store).step({"rows": [("-", (1, 0.5, None, 2))]})


@pytest.mark.parametrize(
    "build",
    [
        lambda rows: rows.select("f", "id").filter(col("id") > 0.5),
        lambda rows: rows.group_by("f").agg(total=sum_("f")),
        lambda rows: rows.filter(coalesce(col("d"), 1) > 0),
        lambda rows: rows.group_by("id").agg(m=count(filter=[("i", ">", 1.5), ("d", "is null")])),
        lambda rows: rows.join(rows.select(other="id", g="f"), on=[("id", "other")]),
    ],
)
def test_state_that_is_right_goes_on(build: Build) -> None:
    run = counted(build).run_local([], stored_by_an_earlier_version(build))
    run.step({"rows": [("-", (1, 0.5, None, 2))]})
    assert run.rows("counted") == [(0,)]


def doubled(kind: str) -> Build:
    """Rows of which a number is shown as text, which its type decides and the text of its expression does not say."""
    shown = call(lambda i: 2 * i, kind, "i", nullable=False).cast("string")
    return lambda rows: rows.select("id", shown=shown).group_by("shown").agg(m=count())


def test_a_nested_call_whose_results_have_another_type_is_refused() -> None:
    store = CheckpointStore(":memory:")
    counted(doubled("int64")).run_local([{"rows": [(1, 0.5, None, 2)]}], store)
    counted(doubled("int64")).run_local([], store)
    with pytest.raises(PipelineChangedError, match=r"calls functions whose results had other types: now .*as float"):
        counted(doubled("float64")).run_local([], store)
    run = counted(doubled("float64")).run_local([{"rows": [(1, 0.5, None, 2)]}], store, drop_changed=True)
    assert run.rows("counted") == [(1,)]


def texts(*kinds: str) -> Pipeline:
    """A pipeline in which each of these types decides a column of one result."""
    pipeline = Pipeline()
    shown = {f"c{at}": call(abs, kind, "i").cast("string") for at, kind in enumerate(kinds)}
    pipeline.source("rows", ROWS, key=["id"]).select("id", **shown).group_by(*shown).agg(n=count()).materialize("shown")
    return pipeline


@pytest.mark.parametrize(
    "later", [("int64", "float64", "float64"), ("float64", "int64", "int64"), ("int64", "int64", "float64")]
)
def test_types_of_nested_calls_are_compared_where_they_stand(later: tuple[str, ...]) -> None:
    store = CheckpointStore(":memory:")
    texts("int64", "float64", "int64").run_local([{"rows": [(1, 0.5, None, 2)]}], store)
    with pytest.raises(PipelineChangedError, match="had other types"):
        texts(*later).run_local([], store)
    assert texts("int64", "float64", "int64").run_local([], store).rows("shown") == [("2", "2.0", "2", 1)]


def twins(*kinds: str) -> Pipeline:
    """A pipeline with a result for each of these types, between which only the type differs."""
    pipeline = Pipeline()
    rows = pipeline.source("rows", ROWS, key=["id"])
    for kind in kinds:
        shown = rows.select("id", shown=call(abs, kind, "i").cast("string"))
        shown.group_by("shown").agg(n=count()).materialize(f"as_{kind}")
    return pipeline


def test_operators_between_which_only_the_type_of_a_call_differs_keep_their_own_state() -> None:
    store, batches = CheckpointStore(":memory:"), [{"rows": [(1, 0.5, None, 2)]}]
    twins("int64", "float64").run_local(batches, store)
    run = twins("float64", "int64").run_local([], store)
    assert [run.rows(f"as_{kind}") for kind in ("int64", "float64")] == [[("2", 1)], [("2.0", 1)]]
    run = twins("decimal", "float64").run_local(batches, store, drop_changed=True)
    assert [run.rows(f"as_{kind}") for kind in ("decimal", "float64")] == [[("2", 1)], [("2.0", 1)]]


def test_a_run_that_was_rolled_back_drops_no_state_of_calls_that_it_never_dropped() -> None:
    batches, space = [{"rows": [(1, 0.5, None, 2)]}], PersistedObjectSpace.open(":memory:")
    counted(doubled("int64")).run_local(batches, space)
    counted(doubled("float64")).run_local(batches, space, drop_changed=True)
    run = LocalRun(counted(doubled("decimal")), space, drop_changed=True)
    space.rollback(epoch=1)
    with pytest.raises(PipelineChangedError, match="had other types"):
        run.replay(batches[0], 1)
    assert counted(doubled("int64")).run_local([], space).rows("counted") == [(1,)]


def test_a_version_that_stored_no_types_of_calls_is_believed() -> None:
    store = stored_by_an_earlier_version(doubled("int64"))
    counted(doubled("float64")).run_local([], store)
    assert "calls" not in dict(PersistedObjectSpace(store).get_dictionary("$operators"))["counted"]


def test_state_of_another_python_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(":memory:")
    with monkeypatch.context() as patch:
        patch.setattr(catalogue, "_python", lambda: "3.9")
        counted(lambda rows: rows.filter(lambda row: row.f > 0.1)).run_local([{"rows": [(1, 0.5, None, 2)]}], store)
    with pytest.raises(PipelineChangedError, match=r"Python 3\.9 stored them, and this is 3\.\d") as refused:
        counted(lambda rows: rows.filter(lambda row: row.f > 0.2)).run_local([], store)
    assert "whose rules differed" not in str(refused.value)


def test_another_python_is_not_the_reason_where_no_function_is_known_by_its_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = CheckpointStore(":memory:")
    with monkeypatch.context() as patch:
        patch.setattr(catalogue, "_python", lambda: "3.9")
        counted(lambda rows: rows.filter(col("i").cast("string") != "#1")).run_local(
            [{"rows": [(1, 0.5, None, 2)]}], store
        )
    with pytest.raises(PipelineChangedError, match="now has other inputs") as refused:
        counted(lambda rows: rows.filter(col("i").cast("string") != "#2")).run_local([], store)
    assert "Python" not in str(refused.value)
