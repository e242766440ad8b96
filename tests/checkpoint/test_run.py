"""Runs by themselves: their order, their bytes and their digest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint import Run
from checkpoint.run import item_bytes, measure
from checkpoint.store import CheckpointStore
from tests.checkpoint.store_helpers import DIFFERENTIAL

slots = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False).filter(lambda number: not number.is_integer()),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.binary(max_size=8),
)
payloads = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=8), st.binary(max_size=8))
rows = st.dictionaries(
    st.tuples(st.integers(1, 3), slots), st.tuples(payloads, st.none() | st.integers(0, 9)), max_size=9
)


def run_with(items: dict[Any, Any]) -> Run:
    return Run(DIFFERENTIAL, items=[(*key, *rest) for key, rest in items.items()])


def stored_bytes(value: Any) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, int):
        return (value.bit_length() + 8) // 8
    return 0 if value is None else 8 if isinstance(value, float) else len(value)


@given(rows)
def test_bytes_are_those_of_slots_and_values_as_stored(items: dict[Any, Any]) -> None:
    run = run_with(items)
    assert run.bytes == sum(stored_bytes(slot) + stored_bytes(value) for (_, slot), (value, _) in items.items())
    assert run.bytes == sum(item_bytes([row]) for row in run.items)


@given(rows, st.randoms(use_true_random=False))
def test_a_store_keeps_rows_in_the_order_in_which_runs_sort_them(items: dict[Any, Any], rng: Any) -> None:
    run = run_with(items)
    digest = run.digest()
    ordered = list(run.items)
    rng.shuffle(run.items)
    store = CheckpointStore(":memory:")
    store.append(run)
    statement = "SELECT object, slot, value, rank FROM stored_item ORDER BY object, slot"
    assert store.database.execute(statement).fetchall() == ordered == run.items
    assert store.checkpoints()[0].digest == digest == run.digest()
    assert store.verify() == 1


@given(rows, rows)
def test_different_rows_have_different_digests(one: dict[Any, Any], other: dict[Any, Any]) -> None:
    def typed(items: dict[Any, Any]) -> set[str]:
        return {repr(row) for row in items.items()}

    assert (run_with(one).digest() == run_with(other).digest()) == (typed(one) == typed(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1, float("inf"), "0", None), (1, float("-inf"), "0", None)),
        ((1, "x'00'", "0", None), (1, b"\x00", "0", None)),
        ((1, 1, "ab", None), (1, 1, b"\xab", None)),
        ((1, 1, "1", None), (1, 1, None, 1)),
    ],
)
def test_rows_that_look_alike_have_different_digests(one: Any, other: Any) -> None:
    assert measure([], [], [one]).digest != measure([], [], [other]).digest


def test_the_digest_does_not_depend_on_how_rows_are_chunked() -> None:
    items = [(1, slot, str(slot), None) for slot in range(10_000)]
    assert measure([], [], iter(items)) == measure([], [], items)
    assert measure([], [], items).slots == 10_000
    moved = measure([(1, "a", "Array", "{}")], [], [])
    assert moved.digest != measure([], [], [(1, "a", "Array", "{}")]).digest  # type: ignore[list-item]
