"""Medians, ratios and intervals against their definitions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.figures import Spread, interval, percentile, quantity, ratios

TIMES = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=50)


@given(TIMES)
def test_a_spread_is_the_median_between_the_extremes(values: list[float]) -> None:
    found = Spread.of(values)
    assert found.least <= found.median <= found.greatest
    assert {found.least, found.greatest} <= set(values)


@given(TIMES, TIMES)
def test_ratios_are_of_the_repetitions_that_both_have(ours: list[float], theirs: list[float]) -> None:
    found = ratios(ours, theirs)
    assert len(found) == min(len(ours), len(theirs))
    assert all(math.isclose(ratio * b, a) for ratio, a, b in zip(found, ours, theirs))


@given(TIMES, st.floats(0.01, 1.0))
def test_a_percentile_has_its_share_at_or_below_it(values: list[float], share: float) -> None:
    found = percentile(values, share)
    at_or_below = sum(value <= found for value in values)
    assert at_or_below >= share * len(values) - 1e-6
    assert sum(value < found for value in values) < share * len(values) + 1e-6


def median_of_first(samples: Sequence[Sequence[float]]) -> float:
    return statistics.median(samples[0])


def test_an_interval_holds_the_median_narrows_with_the_sample_and_is_the_same_each_time() -> None:
    few, many = [float(number % 10) for number in range(10)], [float(number % 10) for number in range(1_000)]
    wide, narrow = (interval([values], median_of_first) for values in (few, many))
    assert wide[0] <= 4.5 <= wide[1]
    assert narrow[0] <= 4.5 <= narrow[1]
    assert narrow[1] - narrow[0] < wide[1] - wide[0]
    assert interval([few], median_of_first) == wide
    assert interval([[2.0] * 5], median_of_first) == (2.0, 2.0)


@given(st.floats(1e-8, 1e4))
def test_a_quantity_of_seconds_reads_back_within_one_percent(value: float) -> None:
    number, unit = quantity(value, "s").split()
    scale = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit]
    assert math.isclose(float(number.replace(",", "")) * scale, value, rel_tol=0.01)
