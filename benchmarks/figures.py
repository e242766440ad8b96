"""Figures of repeated measurements: medians with their spread, paired ratios with their interval."""

from __future__ import annotations

import math
import random
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

RESAMPLES = 2_000
SCALES = {"G": 1e9, "M": 1e6, "k": 1e3, "": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


@dataclass(frozen=True)
class Spread:
    """A median with the least and the greatest.

    >>> str(Spread.of([3.0, 1.0, 2.0]))
    '2.00 (1.00-3.00)'
    """

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of values."""
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f}-{self.greatest:.2f})"


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return the ratio of each pair of repetitions, as far as both go.

    >>> ratios([2.0, 3.0], [1.0, 2.0, 4.0])
    [2.0, 1.5]
    """
    return [a / b for a, b in zip(ours, theirs)]


def interval(
    samples: Sequence[Sequence[float]],
    statistic: Callable[[Sequence[Sequence[float]]], float],
    confidence: float = 0.99,
    seed: int = 1,
) -> tuple[float, float]:
    """Return the bootstrap interval of a statistic of independent samples.

    Args:
        samples: the samples; each is drawn from with replacement, by itself.
        statistic: what is computed of the drawn samples.
        confidence: how much of the distribution the interval holds.
        seed: of the draws, so that the same figures give the same interval.
    """
    chance = random.Random(seed)
    found = sorted(statistic([chance.choices(one, k=len(one)) for one in samples]) for _ in range(RESAMPLES))
    outside = (1 - confidence) / 2
    return found[int(outside * RESAMPLES)], found[min(RESAMPLES - 1, math.ceil((1 - outside) * RESAMPLES) - 1)]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share of the values lies (nearest rank).

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.99), percentile([1.0, 2.0, 3.0, 4.0], 0.5)
    (4.0, 2.0)
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def quantity(value: float, unit: str) -> str:
    """Return a figure with three digits in a fitting unit.

    >>> quantity(0.0000123, "s"), quantity(2_500_000, "B"), quantity(81.4, "B"), quantity(0, "B")
    ('12.3 us', '2.50 MB', '81.4 B', '0 B')
    """
    if not value:
        return f"0 {unit}"
    scales = [(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")] if unit == "B" else [(1.0, ""), (1e-3, "m"), (1e-6, "u")]
    smallest = (1.0, "") if unit == "B" else (1e-9, "n")
    scale, prefix = next(((scale, prefix) for scale, prefix in scales if value >= scale * 0.9995), smallest)
    scaled = value / scale
    digits = 0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2
    return f"{scaled:,.{digits}f} {prefix}{unit}"


def measured(text: str) -> tuple[float, str] | None:
    """Return what a figure with its unit says, in seconds or bytes; None for another text.

    >>> measured("1,200 ms"), measured("15 kB"), measured("0 B"), measured("")
    ((1.2, 's'), (15000.0, 'B'), (0.0, 'B'), None)
    """
    found = re.fullmatch(r"([\d,]*\.?\d+) ([GMkmun]?)(s|B)", text)
    return (float(found[1].replace(",", "")) * SCALES[found[2]], found[3]) if found else None
