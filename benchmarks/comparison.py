"""Tells a regression from noise: two runs, maybe of two commits on one machine, case by case.

Our times are set against those of the rivals of the same repetition, which a busy machine slows as much: what is
compared is the ratio, in one run and in the other. The interval is a bootstrap of the ratio of the two medians. A case
counts as slower or faster only where the whole interval lies outside of the band of what is worth acting on.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.figures import Spread, interval
from benchmarks.report import case_label, inverse
from benchmarks.results import PAGE_BYTES, Case, Outcome, Run
from benchmarks.scripts import ratios_in
from benchmarks.timing import table

Verdict = Literal["slower", "faster", "same", "more bytes", "fewer bytes", "only in one"]

BAND = 0.10
"""A change of time by less than this is not worth acting on."""

BYTE_BAND = 0.50
"""A change of bytes by less than this is the kernel's: what it writes in the midst of a repetition counts twice."""

BYTE_SLACK = 4 * PAGE_BYTES
"""So many bytes more or less are the alignment of a file."""


@dataclass(frozen=True)
class Change:
    """What became of one case.

    Args:
        scenario: the name of the scenario.
        case: the case, and what is compared in it.
        verdict: what it comes to.
        ratio: new over old; 1 is no change.
        low, high: the interval of the ratio.
        beside: the rivals that it was paired with; empty where there were none, and the machine is not taken out.
    """

    scenario: str
    case: str
    verdict: Verdict
    ratio: float = 1.0
    low: float = 1.0
    high: float = 1.0
    beside: tuple[str, ...] = ()

    @property
    def is_regression(self) -> bool:
        """Whether it should stop a merge."""
        return self.verdict in ("slower", "more bytes")


def compare(old: Run, new: Run, band: float = BAND) -> list[Change]:
    """Return what became of each case, regressions first, the worst of them first.

    Raises:
        ValueError: one run is quick and the other full: their cases are not the same work.
    """
    if old.quick != new.quick:
        raise ValueError("one run is quick and the other full: compare runs of one size")
    before = {outcome.name: outcome for outcome in old.outcomes}
    after = {outcome.name: outcome for outcome in new.outcomes}
    found = [Change(name, "the scenario", "only in one") for name in sorted(before.keys() ^ after.keys())]
    for name in before.keys() & after.keys():
        found.extend(_cases(before[name], after[name], band))
        found.extend(_tables(before[name], after[name], band))
    return sorted(found, key=lambda one: (not one.is_regression, -one.ratio, one.scenario, one.case))


def _cases(old: Outcome, new: Outcome, band: float) -> Iterator[Change]:
    before = {(case.state, case.label): case for case in old.cases}
    after = {(case.state, case.label): case for case in new.cases}
    for key in dict.fromkeys([*before, *after]):
        label = case_label(new, after[key]) if key in after else case_label(old, before[key])
        pair = before.get(key), after.get(key)
        if pair[0] is None or pair[1] is None or pair[0].ours() is None or pair[1].ours() is None:
            yield Change(new.name, label, "only in one")
            continue
        yield _times(new.name, label, pair[0], pair[1], band)
        yield _bytes(new.name, label, pair[0], pair[1])


def _times(name: str, label: str, old: Case, new: Case, band: float) -> Change:
    rivals = [one for one in old.contestants if _keeps_up(old, one) and _keeps_up(new, one)]
    samples = [relative(old, rivals), relative(new, rivals)]

    def change(drawn: Sequence[Sequence[float]]) -> float:
        return statistics.median(drawn[1]) - statistics.median(drawn[0])

    ratio, (low, high) = math.exp(change(samples)), (math.exp(edge) for edge in interval(samples, change))
    return Change(name, label, judge(low, high, band), ratio, low, high, tuple(rivals))


def _keeps_up(case: Case, rival: str) -> bool:
    """Tell whether a rival has as many repetitions as we: one that was slow, and so stopped early, pairs with few."""
    found, ours = case.contestants.get(rival), case.ours()
    return found is not None and found.role == "rival" and ours is not None and len(found.wall) >= len(ours[1].wall)


def relative(case: Case, rivals: Sequence[str]) -> list[float]:
    """Return the logarithm of our time over the geometric mean of the rivals', for each repetition."""
    ours = case.ours()
    if ours is None:
        return []
    logs = [[math.log(seconds) for seconds in case.contestants[name].wall] for name in rivals]
    return [
        math.log(seconds) - (statistics.fmean(log[n] for log in logs) if logs else 0.0)
        for n, seconds in enumerate(ours[1].wall)
    ]


def judge(low: float, high: float, band: float) -> Verdict:
    """Return the verdict over the interval of a ratio of times.

    >>> judge(1.15, 1.5, 0.1), judge(0.9, 1.9, 0.1), judge(1.04, 1.06, 0.1), judge(0.6, 0.8, 0.1)
    ('slower', 'same', 'same', 'faster')
    """
    if low > 1 + band:
        return "slower"
    if high < 1 / (1 + band):
        return "faster"
    return "same"


def _bytes(name: str, label: str, old: Case, new: Case) -> Change:
    """Compare the bytes of a repetition on average: there is no spread to speak of, but now and then a page more."""
    before, after = ((found[1].written_each if found else 0.0) for found in (old.ours(), new.ours()))
    ratio = (after + BYTE_SLACK) / (before + BYTE_SLACK)
    more, fewer = ratio > 1 + BYTE_BAND, ratio < 1 / (1 + BYTE_BAND)
    verdict: Verdict = "more bytes" if more else "fewer bytes" if fewer else "same"
    return Change(name, f"{label}, bytes written", verdict, ratio, ratio, ratio)


def _tables(old: Outcome, new: Outcome, band: float) -> Iterator[Change]:
    before, after = _ratios(old), _ratios(new)
    for key in before.keys() & after.keys():
        was, now = before[key], after[key]
        # Only the least and the greatest are known: the interval of the quotient is the widest that they allow.
        ratio, low, high = now.median / was.median, now.least / was.greatest, now.greatest / was.least
        yield Change(new.name, ": ".join(key), judge(low, high, band), ratio, low, high, (key[-1],))


def _ratios(outcome: Outcome) -> dict[tuple[str, str, str], Spread]:
    return {
        (one.title, label, column): ratio if outcome.better == "less" else inverse(ratio)
        for one in outcome.tables
        for (label, column), ratio in ratios_in(one).items()
    }


def describe(changes: Sequence[Change]) -> str:
    """Return the changes as Markdown; those that stayed the same are only counted."""
    rows = [
        (
            one.scenario,
            one.case,
            one.verdict,
            *(("", "") if one.verdict == "only in one" else (f"{one.ratio:.2f}", f"{one.low:.2f}-{one.high:.2f}")),
            ", ".join(one.beside) or "nobody",
        )
        for one in changes
        if one.verdict != "same"
    ]
    same = sum(one.verdict == "same" for one in changes)
    title = f"{len(rows)} changes, {same} cases the same"
    if not rows:
        return f"### {title}\n"
    return table(title, ("scenario", "case", "verdict", "new / old", "interval, 99 %", "paired with"), rows)
