"""The results as Markdown: tables of each scenario, and where we lose and win, the losses first."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.figures import Spread, percentile, quantity
from benchmarks.results import Case, Measurement, Outcome, Run
from benchmarks.scripts import is_series, ratios_in
from benchmarks.timing import table

EVEN_FROM = 30
"""From so many repetitions on a table shows percentiles too."""


@dataclass(frozen=True)
class Standing:
    """How we stand beside one rival in one case.

    Args:
        scenario: the name of the scenario.
        case: what was done.
        rival: beside whom.
        ratio: how many times as long as the rival we take.
    """

    scenario: str
    case: str
    rival: str
    ratio: Spread

    @property
    def is_loss(self) -> bool:
        """Whether we took longer in the median."""
        return self.ratio.median > 1

    @property
    def is_clear(self) -> bool:
        """Whether every repetition says the same."""
        return self.ratio.least > 1 or self.ratio.greatest < 1


def standings(outcome: Outcome) -> list[Standing]:
    """Return how we stand beside each rival in each case of a scenario; floors are no rivals."""
    found = []
    for case in outcome.cases:
        label = case_label(outcome, case)
        for name, ratio in case.ratios().items():
            if case.contestants[name].role == "rival":
                found.append(Standing(outcome.name, label, name, ratio))
    for one in outcome.tables:
        for (label, column), ratio in ratios_in(one).items():
            less = ratio if outcome.better == "less" else inverse(ratio)
            found.append(Standing(outcome.name, label, f"{one.title}: {column}", less))
    return found


def byte_standings(outcome: Outcome) -> list[Standing]:
    """Return how many times the bytes of each rival we write in each case of a scenario."""
    return [
        Standing(outcome.name, case_label(outcome, case), name, Spread(ratio, ratio, ratio))
        for case in outcome.cases
        for name, ratio in case.byte_ratios().items()
    ]


def inverse(ratio: Spread) -> Spread:
    """Return one over a ratio."""
    return Spread(1 / ratio.median, 1 / ratio.greatest, 1 / ratio.least)


def case_label(outcome: Outcome, case: Case) -> str:
    """Return what a case is called: its state too, where there are several."""
    several = len({one.state for one in outcome.cases}) > 1
    return f"{case.label} ({case.state:,} {outcome.state})" if several else case.label


def worst(outcome: Outcome) -> float:
    """Return the greatest ratio of a scenario; 0 where nothing is compared."""
    return max((one.ratio.median for one in standings(outcome)), default=0.0)


def losses_first(run: Run) -> list[Outcome]:
    """Return the scenarios in order: the one with the worst ratio first."""
    return sorted(run.outcomes, key=worst, reverse=True)


def times(value: float) -> str:
    """Return a ratio as people read it.

    >>> times(2.345), times(0.5), times(123.4)
    ('2.3', '0.50', '123')
    """
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def losing(run: Run, is_loss: bool) -> str:
    """Return the table of the rivals that are faster somewhere, worst first; or of those that we beat, best first."""
    found = _extremes([one for outcome in run.outcomes for one in standings(outcome)], is_loss)
    rows = [
        (
            f"[{one.scenario}](#{one.scenario})",
            one.rival,
            f"{count} of {among}",
            _times_as_long(one.ratio),
            one.case,
            _clear(one),
        )
        for one, count, among in found
        if count
    ]
    title, most = ("Where we lose", "at worst") if is_loss else ("Where we win", "at best")
    header = ("scenario", "beside", "in cases", f"{most}, times as long (min-max)", "there", "every repetition")
    return table(title, header, rows)


def writing(run: Run, is_loss: bool) -> str:
    """Return the table of the rivals that write fewer bytes somewhere, worst first; or of those that write more."""
    found = _extremes([one for outcome in run.outcomes for one in byte_standings(outcome)], is_loss)
    rows = [
        (f"[{one.scenario}](#{one.scenario})", one.rival, f"{count} of {among}", times(one.ratio.median), one.case)
        for one, count, among in found
        if count
    ]
    title, most = ("Where we write more", "at worst") if is_loss else ("Where we write less", "at best")
    return table(title, ("scenario", "beside", "in cases", f"{most}, times as many bytes", "there"), rows)


def _extremes(among: Sequence[Standing], is_loss: bool) -> list[tuple[Standing, int, int]]:
    """Return the extreme case of each scenario and rival, with how many cases are lost or won, and of how many."""
    groups: dict[tuple[str, str], list[Standing]] = {}
    for one in among:
        groups.setdefault((one.scenario, one.rival), []).append(one)
    extreme = max if is_loss else min
    found = [
        (extreme(group, key=lambda one: one.ratio.median), sum(one.is_loss is is_loss for one in group), len(group))
        for group in groups.values()
    ]
    return sorted(found, key=lambda row: row[0].ratio.median, reverse=is_loss)


def _clear(one: Standing) -> str:
    return "yes" if one.is_clear else "no"


def scenario_tables(outcome: Outcome, *, series: bool = True) -> Iterator[str]:
    """Yield the tables of one scenario, those of every micro-batch only where they are asked for."""
    for case in outcome.cases:
        yield case_table(outcome, case)
    for one in outcome.tables:
        if series or not is_series(one):
            yield table(one.title, one.header, one.rows)


def case_table(outcome: Outcome, case: Case) -> str:
    """Return the table of one case: a row a contestant, those that did not take part at the end."""
    ratios = case.ratios()
    is_even = any(len(one.wall) >= EVEN_FROM for one in case.contestants.values())
    header = [
        "",
        f"time a {outcome.unit} (min-max)",
        "we take, times as long (min-max)",
        "CPU",
        "written",
        "on disk",
        "memory",
    ]
    rows = []
    for name, one in case.contestants.items():
        ratio = ratios.get(name)
        shown = _times_as_long(ratio) if ratio else "" if one.role == "part" else "1"
        row = [f"**{name}**" if one.role == "ours" else name, _wall(one, case.units), shown, *_costs(one, case.units)]
        rows.append(row + ([_percentiles(one)] if is_even else []))
    rows += [[name, f"not run: {reason}", *[""] * (len(header) - 2 + is_even)] for name, reason in case.absent.items()]
    if is_even:
        header.append("99th percentile / median, greatest / median")
    return table(case_label(outcome, case), header, rows)


def _times_as_long(ratio: Spread) -> str:
    return f"{times(ratio.median)} ({times(ratio.least)}-{times(ratio.greatest)})"


def _wall(one: Measurement, units: int) -> str:
    middle, least, greatest = (
        quantity(value / units, "s") for value in (statistics.median(one.wall), min(one.wall), max(one.wall))
    )
    return f"{middle} ({least}-{greatest})"


def _costs(one: Measurement, units: int) -> list[str]:
    return [
        quantity(statistics.median(one.cpu) / units, "s"),
        quantity(one.written_each / units, "B"),
        quantity(one.stored, "B"),
        f"{quantity(one.peak, 'B')}, {quantity(one.before, 'B')} before",
    ]


def _percentiles(one: Measurement) -> str:
    median = statistics.median(one.wall)
    return f"{times(percentile(one.wall, 0.99) / median)}, {times(max(one.wall) / median)}"


def conditions(run: Run) -> str:
    """Return where and with what a run was made."""
    machine, versions = run.machine, ", ".join(f"{name} {version}" for name, version in run.versions.items())
    size = "the quick sizes, which only show that everything runs" if run.quick else "the full sizes"
    is_mixed = any(outcome.made for outcome in run.outcomes)
    parts = "That is the newest part; each section says when, at which commit and where it was measured.\n"
    return (
        f"Measured {run.started} at commit `{run.commit}` with {size}, in {run.seconds / 60:.0f} minutes.\n"
        f"{machine['system']}, {machine['cpu']}, {machine['cores']} cores, {quantity(machine['memory'], 'B')} of"
        f" memory, stores on {machine['disk']}; load at the start {machine['load']}.\n{versions}.\n"
        f"{parts if is_mixed else ''}"
    )


def absences(outcomes: Sequence[Outcome]) -> list[tuple[str, str, str]]:
    """Return who did not take part where, with the reason; whole scenarios that failed too."""
    found: dict[tuple[str, str, str], None] = {}
    for outcome in outcomes:
        if outcome.failure:
            found[outcome.name, "the scenario", outcome.failure] = None
        for case in outcome.cases:
            for name, reason in case.absent.items():
                found[outcome.name, name, reason] = None
    return list(found)


def text(run: Run) -> str:
    """Return a whole run as Markdown, without plots."""
    parts = [conditions(run)]
    for outcome in losses_first(run):
        parts.append(f"## {outcome.name}\n\n{outcome.title}. {outcome.why}\n")
        parts.extend(scenario_tables(outcome))
        if outcome.notes:
            parts.append(f"{outcome.notes}\n")
    parts += [losing(run, True), writing(run, True), losing(run, False), writing(run, False)]
    missing = absences(run.outcomes)
    if missing:
        parts.append(table("Not run", ("scenario", "who", "why"), missing))
    return "\n".join(parts)
