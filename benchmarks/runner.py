"""Runs scenarios: every contestant in a process of its own, one repetition of each in turn (A B A B)."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson

from benchmarks.registry import DEFAULT_MODULE, Contestant, Entry, Scenario, Sizes, Step
from benchmarks.results import Case, Measurement, Outcome, Run
from benchmarks.scripts import run_script

Progress = Callable[[str], None]

LEAST_REPETITIONS = 3
"""However slow a contestant is, so many repetitions are counted: fewer have no median worth the name."""


SHARED_MEMORY = ("-shm", "lock.mdb")
"""Files through which SQLite and LMDB share memory: they mean nothing after a crash, and neither ever syncs them."""


class ContestantError(Exception):
    """A contestant failed or took too long; the message is the reason that the results give."""


@contextmanager
def folder(root: Path | None = None) -> Iterator[Path]:
    """Give a folder for the stores, on the disk of the current folder, and remove it at the end."""
    made = Path(tempfile.mkdtemp(prefix=".bench-", dir=root or "."))
    try:
        yield made.resolve()
    finally:
        shutil.rmtree(made, ignore_errors=True)


def sync_files(place: Path) -> None:
    """Write out what the kernel still holds of the files below a folder.

    Not for the process that has them open to do: closing a file there would drop the locks of SQLite on it.
    """
    for path in place.rglob("*"):
        if path.name.endswith(SHARED_MEMORY):
            continue
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue  # removed meanwhile by a thread of the contestant
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class Worker:
    """The process that holds one contestant.

    Args:
        command: what starts it.
        patience: how many seconds it may take for one answer.
    """

    def __init__(self, command: list[str], patience: float) -> None:
        self.patience = patience
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end(); a pipe that nobody reads would fill
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and return the answer.

        Raises:
            ContestantError: it failed, died or took too long; it is ended then.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(orjson.dumps(request) + b"\n")
        ready, _, _ = select.select([self._process.stdout], [], [], self.patience)
        if not ready:
            self.end()
            raise ContestantError(f"took more than {self.patience:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise ContestantError(f"its process ended: {self.end() or 'without a word'}")
        reply: dict[str, Any] = orjson.loads(line)
        if "error" in reply:
            self.end()
            raise ContestantError(reply["error"])
        return reply

    def end(self) -> str:
        """End the process and return the last line that it complained with."""
        if self._errors.closed:
            return ""
        self._process.kill()
        self._process.communicate()
        with self._errors as file:
            file.seek(0)
            return (file.read().decode(errors="replace").strip().splitlines() or [""])[-1]


class Race:
    """The contestants of one scenario at one state.

    Args:
        scenario: what is measured.
        state: the size of the state.
        place: a folder for them.
        quick: whether the small run is meant.
        module: where the scenario is declared.
        progress: is told what is being done.
    """

    def __init__(
        self, scenario: Scenario, state: int, place: Path, *, quick: bool, module: str, progress: Progress
    ) -> None:
        self.scenario, self.state, self.place, self.quick, self.module = scenario, state, place, quick, module
        self.sizes: Sizes = scenario.sizes(quick)
        self.progress = progress
        self.absent: dict[str, str] = {}
        self.workers: dict[str, Worker] = {}
        self.before: dict[str, int] = {}
        self.places: dict[str, Path] = {}

    def start(self) -> None:
        """Fill and open the state of each contestant, one after the other."""
        for contestant in self.scenario.contestants:
            reason = contestant.missing(self.state)
            if reason is None:
                self.progress(f"{self.scenario.name}: {self.state:,}, filling {contestant.name}")
                try:
                    self._start(contestant)
                except ContestantError as error:
                    reason = str(error)
            if reason is not None:
                self.absent[contestant.name] = reason

    def cases(self) -> Iterator[Case]:
        """Run each step that the state is large enough for."""
        for number, step in enumerate(self.sizes.steps):
            if self.state >= step.least_state:
                self.progress(f"{self.scenario.name}: {self.state:,}, {step.label}")
                yield self._case(number, step)

    def stop(self) -> None:
        """Close all contestants and end their processes."""
        for worker in self.workers.values():
            with suppress(ContestantError):
                worker.ask(do="close")
            worker.end()

    def _start(self, contestant: Contestant) -> None:
        place = self.places[contestant.name] = self.place / str(len(self.places))
        place.mkdir()
        command = [sys.executable, "-m", "benchmarks.worker", self.module, self.scenario.name, contestant.name]
        command += [str(place), str(self.state), "quick" if self.quick else "full"]
        try:
            filled = subprocess.run([*command, "fill"], capture_output=True, text=True, timeout=self.sizes.patience)
        except subprocess.TimeoutExpired as error:
            raise ContestantError(f"filling it took more than {self.sizes.patience:.0f} s") from error
        if filled.returncode:
            last = (filled.stderr.strip().splitlines() or [f"exit status {filled.returncode}"])[-1]
            raise ContestantError(f"filling it failed: {last}")
        # What is still to be written would disturb what is measured, and count as taken back where it is removed.
        sync_files(place)
        worker = Worker([*command, "serve"], self.sizes.patience)
        self.before[contestant.name] = worker.ask(do="open")["before"]
        self.workers[contestant.name] = worker

    def _case(self, number: int, step: Step) -> Case:
        case = Case(self.state, step.label, step.units, step.x, absent=dict(self.absent))
        measured = {name: Measurement(self.scenario.contestant(name).role) for name in self.workers}
        for repetition in range(self.sizes.repetitions + 1):
            running = [name for name, found in measured.items() if self._goes_on(found)]
            answers: dict[str, str] = {}
            for name in running:
                reply = self._ask(name, case, do="run", step=number, seed=self._seed(step, repetition))
                if reply is None:
                    continue
                # Or the next one that waits for the disk would wait for what this one has left to be written.
                sync_files(self.places[name])
                if reply["answer"]:
                    answers[name] = reply["answer"]
                if repetition:
                    measured[name].wall.append(reply["wall"])
                    measured[name].cpu.append(reply["cpu"])
                    measured[name].written.append(reply["written"])
            self._require_one_answer(step, answers)
        for name in list(self.workers):
            self._settle(name, measured[name], case)
        # Who failed on the way has fewer repetitions than the others, and no sizes.
        case.contestants = {name: found for name, found in measured.items() if found.wall and name not in case.absent}
        return case

    def _goes_on(self, found: Measurement) -> bool:
        return len(found.wall) < LEAST_REPETITIONS or sum(found.wall) < self.sizes.seconds

    def _seed(self, step: Step, repetition: int) -> str:
        return f"{self.scenario.name}/{self.state}/{step.label}/{repetition}"

    def _settle(self, name: str, found: Measurement, case: Case) -> None:
        reply = self._ask(name, case, do="settle")
        if reply is not None:
            found.written_all, found.peak, found.stored = reply["written"], reply["peak"], reply["stored"]
            found.before = self.before[name]

    def _ask(self, name: str, case: Case, **request: Any) -> dict[str, Any] | None:
        worker = self.workers.get(name)
        if worker is None:
            return None
        try:
            return worker.ask(**request)
        except ContestantError as error:
            case.absent[name] = self.absent[name] = f"failed at {case.label!r}: {error}"
            del self.workers[name]
            return None

    def _require_one_answer(self, step: Step, answers: dict[str, str]) -> None:
        if len(set(answers.values())) > 1:
            raise ContestantError(
                f"{step.label!r} at {self.state:,}: the contestants found different answers: {answers}"
            )


def run_scenario(
    scenario: Scenario,
    *,
    quick: bool,
    progress: Progress,
    module: str = DEFAULT_MODULE,
    root: Path | None = None,
    largest: int | None = None,
) -> Outcome:
    """Run one declared scenario at all its states that are not too large; the arguments are those of ``run``."""
    outcome = Outcome(scenario.name, scenario.group, scenario.title, scenario.why)
    outcome.state, outcome.unit = scenario.state, scenario.unit
    outcome.configurations = {one.name: one.configuration for one in scenario.contestants}
    started = time.perf_counter()
    states = scenario.sizes(quick).states
    too_large = [state for state in states if largest is not None and state > largest]
    if too_large:
        outcome.notes = f"States above {largest:,} were left out: {', '.join(f'{state:,}' for state in too_large)}."
    for state in states:
        if state in too_large:
            continue
        with folder(root) as place:
            race = Race(scenario, state, place, quick=quick, module=module, progress=progress)
            try:
                race.start()
                outcome.cases.extend(race.cases())
            except ContestantError as error:
                outcome.failure = str(error)
            finally:
                race.stop()
    outcome.seconds = time.perf_counter() - started
    return outcome


def run(
    entries: list[Entry],
    *,
    quick: bool,
    progress: Progress,
    module: str = DEFAULT_MODULE,
    root: Path | None = None,
    largest: int | None = None,
    keep: Callable[[Run], object] = lambda _: None,
) -> Run:
    """Run scenarios one after the other.

    Args:
        entries: what to run.
        quick: the small run, or the full one.
        progress: is told what is being done, a line at a time.
        module: where the scenarios are declared.
        root: where the stores are made for the time of the run: the disk that is measured; the current folder by
            default.
        largest: the largest state of a declared scenario; all by default.
        keep: is given the run after each scenario, so that an hour is not lost with the last of them.
    """
    found, started = Run.begin(quick, root), time.perf_counter()
    for place, entry in enumerate(entries, start=1):
        progress(f"[{place}/{len(entries)}] {entry.name}")
        if isinstance(entry, Scenario):
            outcome = run_scenario(entry, quick=quick, progress=progress, module=module, root=root, largest=largest)
        else:
            outcome = run_script(entry, quick=quick)
        found.outcomes.append(outcome)
        found.seconds = time.perf_counter() - started
        keep(found)
    return found
