"""``python -m benchmarks``: list the scenarios, run them, make the page, compare two runs."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import comparison, report, results
from benchmarks.page import PAGE, write_page
from benchmarks.registry import DEFAULT_MODULE, Scenario, load, select
from benchmarks.results import Run
from benchmarks.runner import Progress, run
from benchmarks.timing import table

_INTERRUPTED, _TERMINATED = 130, 143
"""The exit statuses after Ctrl-C, and after a signal to end, as shells have them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says and return the exit status."""
    chosen = parser().parse_args(arguments)
    try:
        return COMMANDS[chosen.command or "list"](chosen)
    except (LookupError, ValueError, OSError) as error:
        print(f"python -m benchmarks: {error.args[0] if isinstance(error, LookupError) else error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _INTERRUPTED


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = found.add_subparsers(dest="command", metavar="COMMAND")
    listing = commands.add_parser("list", help="list the scenarios, and who cannot take part here (the default)")
    running = commands.add_parser("run", help="run one scenario, a group or all, and keep the results")
    running.add_argument("names", nargs="*", metavar="NAME", help="scenarios or groups; all by default")
    running.add_argument("--quick", action="store_true", help="small sizes: all scenarios in less than ten minutes")
    running.add_argument("--json", action="store_true", help="print the results as JSON, not as tables")
    running.add_argument("--output", type=Path, default=results.FOLDER, help="the folder of the results")
    running.add_argument("--root", type=Path, help="the disk to measure: stores are made in this folder")
    running.add_argument("--largest", type=int, help="leave out larger states, to save time and disk")
    page = commands.add_parser("page", help="make the page of the docs, with its plots")
    page.add_argument("results", nargs="*", type=Path, help="results, also several; the newest full run by default")
    page.add_argument("--output", type=Path, default=PAGE, help="the file of the page")
    comparing = commands.add_parser("compare", help="tell a regression from noise; exit status 1 for a regression")
    comparing.add_argument("old", type=Path, help="results before")
    comparing.add_argument("new", type=Path, help="results after, of the same machine")
    comparing.add_argument("--band", type=float, default=comparison.BAND, help="what is not worth acting on: 0.10")
    for command in (listing, running):
        command.add_argument("--module", default=DEFAULT_MODULE, help="where the scenarios are declared")
    found.set_defaults(module=DEFAULT_MODULE)
    return found


def list_scenarios(chosen: argparse.Namespace) -> int:
    """Print the scenarios."""
    rows = []
    for entry in load(chosen.module).values():
        if isinstance(entry, Scenario):
            missing = [f"{one.name} ({reason})" for one in entry.contestants if (reason := one.missing())]
            beside = str(len(entry.contestants) - 1)
        else:
            missing, beside = [reason] if (reason := entry.missing()) else [], "a script"
        rows.append((entry.name, entry.group, entry.title, beside, "; ".join(missing)))
    print(table("Scenarios", ("name", "group", "what", "beside", "cannot take part here"), rows))
    print("python -m benchmarks run --quick NAME runs one; python -m benchmarks --help says what else there is.")
    return 0


def run_scenarios(chosen: argparse.Namespace) -> int:
    """Run scenarios, keep the results and print them."""
    entries = select(load(chosen.module), chosen.names)
    chosen.output.mkdir(parents=True, exist_ok=True)  # Now: not after hours, when there is something to keep.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))  # So that the stores are removed.
    keep = partial(Run.save, folder=chosen.output)
    found = run(
        entries,
        quick=chosen.quick,
        progress=printed(),
        module=chosen.module,
        root=chosen.root,
        largest=chosen.largest,
        keep=keep,
    )
    path = found.save(chosen.output)
    sys.stdout.write(found.to_json().decode() if chosen.json else report.text(found))
    print(f"kept in {path}", file=sys.stderr)
    return 0 if all(outcome.failure is None for outcome in found.outcomes) else 1


def printed() -> Progress:
    """Return what prints the progress, with the minutes since the start."""
    started = time.monotonic()

    def show(line: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - started), 60)
        print(f"{minutes:3}:{seconds:02} {line}", file=sys.stderr, flush=True)

    return show


def make_page(chosen: argparse.Namespace) -> int:
    """Make the page of the docs."""
    sources = chosen.results or [results.newest()]
    found = results.joined([Run.read(source) for source in sources])
    for path in write_page(found, ", ".join(map(_shown, sources)), chosen.output):
        print(path)
    return 0


def _shown(path: Path) -> str:
    root = Path(__file__).resolve().parents[1]
    return str(path.resolve().relative_to(root)) if path.resolve().is_relative_to(root) else path.name


def compare_runs(chosen: argparse.Namespace) -> int:
    """Compare two runs."""
    old, new = Run.read(chosen.old), Run.read(chosen.new)
    changes = comparison.compare(old, new, chosen.band)
    if _conditions(old) != _conditions(new):
        print("The machine, its disk or Python is not the same: what differs may be theirs.\n")
    print(comparison.describe(changes))
    return int(any(change.is_regression for change in changes))


def _conditions(run: Run) -> list[Any]:
    """Return what two runs must have in common."""
    return [run.machine["cpu"], run.machine["disk"], run.versions.get("Python")]


COMMANDS = {"list": list_scenarios, "run": run_scenarios, "page": make_page, "compare": compare_runs}

if __name__ == "__main__":
    sys.exit(main())
