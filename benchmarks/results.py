"""The results of a run: what was measured, where, with what; as JSON under ``benchmarks/results/``."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import orjson

from benchmarks.figures import Spread, ratios

FORMAT = 1
PAGE_BYTES = 4096
"""What the kernel writes at least."""

FOLDER = Path(__file__).parent / "results"
VERSIONS_OF = (
    *("objectspace", "orjson", "sortedcontainers", "xxhash", "pyarrow", "numpy", "pandas", "pyspark"),
    *("rocksdict", "lmdb", "ZODB", "BTrees", "diskcache", "sqlitedict", "bytewax", "quixstreams", "matplotlib"),
)


@dataclass
class Measurement:
    """What one contestant did in one case.

    Args:
        role: as of the contestant.
        wall: seconds of each repetition.
        cpu: seconds of all its threads, of each repetition.
        written: bytes of each repetition, as the kernel counts them.
        written_all: bytes of the whole step: warm-up, preparations and background threads included.
        peak: the most memory of the process so far, in bytes.
        before: its memory before anything was opened.
        stored: what its files take on the disk at the end.
    """

    role: str
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    written_all: int = 0
    peak: int = 0
    before: int = 0
    stored: int = 0

    @property
    def written_each(self) -> float:
        """Bytes written in a repetition, on average: the warm-up has written too."""
        return self.written_all / (len(self.wall) + 1)


@dataclass
class Case:
    """One step at one state.

    Args:
        state: the size of the state.
        label, units, x: as of the step.
        contestants: who did it, by name.
        absent: who did not, with the reason.
    """

    state: int
    label: str
    units: int
    x: int | None = None
    contestants: dict[str, Measurement] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def ours(self) -> tuple[str, Measurement] | None:
        """Return our contestant, where it took part."""
        found = [(name, one) for name, one in self.contestants.items() if one.role == "ours" and one.wall]
        return found[0] if found else None

    def ratios(self) -> dict[str, Spread]:
        """Return how much longer we took than each rival and floor, repetition by repetition."""
        ours = self.ours()
        return {
            name: Spread.of(ratios(ours[1].wall, other.wall))
            for name, other in self.contestants.items()
            if ours and other.role in ("rival", "floor") and other.wall
        }

    def byte_ratios(self) -> dict[str, float]:
        """Return how many times the bytes of each rival we write; not of those that write less than a page."""
        ours = self.ours()
        found = {name: other for name, other in self.contestants.items() if other.role == "rival" and other.wall}
        return {
            name: ours[1].written_each / other.written_each
            for name, other in found.items()
            if ours and min(ours[1].written_each, other.written_each) >= PAGE_BYTES
        }


@dataclass
class Table:
    """A table that a script printed."""

    title: str
    header: list[str]
    rows: list[list[str]]


@dataclass
class Outcome:
    """One scenario of a run: the cases of a declared one, or the tables of a script.

    ``made`` says when and where it was measured, where that is not said of all.
    """

    name: str
    group: str
    title: str
    why: str
    seconds: float = 0.0
    state: str = ""
    unit: str = ""
    better: str = "less"
    configurations: dict[str, str] = field(default_factory=dict)
    cases: list[Case] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    notes: str = ""
    failure: str | None = None
    made: str = ""


@dataclass
class Run:
    """Everything that one call of the harness measured."""

    quick: bool
    started: str
    commit: str
    machine: dict[str, Any]
    versions: dict[str, str]
    outcomes: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0
    format: int = FORMAT

    @classmethod
    def begin(cls, quick: bool, root: Path | None = None) -> Run:
        """Return a run that starts now, on this machine, with its stores in the folder ``root``."""
        started = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(quick, started, commit(), machine(root or Path.cwd()), versions())

    def to_json(self) -> bytes:
        """Return the run as JSON."""
        return orjson.dumps(asdict(self)) + b"\n"

    @classmethod
    def from_json(cls, text: bytes) -> Run:
        """Return the run that was written as JSON.

        Raises:
            ValueError: it is no result, or one of another format.
        """
        found = orjson.loads(text)
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise ValueError(f"expected results of format {FORMAT}: run the benchmark again")
        outcomes = [_outcome(one) for one in found.pop("outcomes")]
        return cls(**found, outcomes=outcomes)

    @classmethod
    def read(cls, path: Path) -> Run:
        """Return the run in a file.

        Raises:
            ValueError: it is no result, or one of another format; the message names the file.
        """
        try:
            return cls.from_json(path.read_bytes())
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: {error}") from error

    def save(self, folder: Path = FOLDER) -> Path:
        """Write the run below a folder, under its size, day and commit, and return the file."""
        folder.mkdir(parents=True, exist_ok=True)
        when = re.sub(r"\D", "", self.started)[:14]
        path = folder / f"{'quick' if self.quick else 'full'}-{when}-{self.commit.removesuffix(' changed')[:10]}.json"
        path.write_bytes(self.to_json())
        return path


def _outcome(found: dict[str, Any]) -> Outcome:
    cases = [
        Case(**{**case, "contestants": {name: Measurement(**one) for name, one in case["contestants"].items()}})
        for case in found.pop("cases")
    ]
    tables = [Table(**table) for table in found.pop("tables")]
    return Outcome(**found, cases=cases, tables=tables)


def joined(runs: Sequence[Run]) -> Run:
    """Return several runs as one, with the newest outcome of each scenario: so a run may be made in parts.

    They may be of different machines: a ratio is always of two that ran beside each other. A scenario that only quick
    runs have stands among those of full runs, and its title says so.
    """
    first, *others = sorted(runs, key=lambda run: (not run.quick, run.started))
    is_mixed = len({run.quick for run in runs}) > 1
    outcomes: dict[str, Outcome] = {}
    for run in (first, *others):
        for outcome in run.outcomes:
            title = f"{outcome.title} (small sizes)" if run.quick and is_mixed else outcome.title
            outcomes[outcome.name] = replace(outcome, title=title, made=_made(run) if others else "")
    commits = ", ".join(dict.fromkeys(run.commit for run in (first, *others)))
    seconds = sum(outcome.seconds for outcome in outcomes.values())
    # The newest full run says what it was made with.
    newest_run = (first, *others)[-1]
    return replace(newest_run, commit=commits, outcomes=list(outcomes.values()), seconds=seconds)


def _made(run: Run) -> str:
    """Return when and where a run was made, in short."""
    where = f"{run.machine['system']}, {run.machine['cpu']}, {run.machine['cores']} cores"
    return f"Measured {run.started[:10]} at commit `{run.commit[:10]}`: {where}."


def newest(folder: Path = FOLDER) -> Path:
    """Return the newest results of a folder, a full run before a quick one.

    Raises:
        FileNotFoundError: there are none.
    """
    found = sorted(folder.glob("full-*.json")) or sorted(folder.glob("quick-*.json"))
    if not found:
        raise FileNotFoundError(f"no results in {folder}: run python -m benchmarks run first")
    return found[-1]


def commit() -> str:
    """Return the commit of the code, with `` changed`` where files differ from it."""
    try:
        git = ["git", "-C", str(Path(__file__).parent)]
        name = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        status = [*git, "status", "--porcelain", "--untracked-files=no"]
        changed = subprocess.run(status, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{name} changed" if changed else name


def machine(root: Path) -> dict[str, Any]:
    """Return what the machine is, as far as figures depend on it; ``root`` lies on the disk that is measured."""
    information = _text("/proc/cpuinfo"), _text("/proc/meminfo")
    model = re.search(r"model name\s*:\s*(.*)", information[0])
    memory = re.search(r"MemTotal:\s+(\d+)", information[1])
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": model[1].strip() if model else platform.processor(),
        "cores": os.cpu_count(),
        "memory": int(memory[1]) * 1024 if memory else 0,
        "disk": _file_system(root.resolve()),
        "load": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    """Return the versions of what is installed."""
    found = {"Python": platform.python_version(), "SQLite": sqlite3.sqlite_version}
    for name in VERSIONS_OF:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _file_system(path: Path) -> str:
    mounts = [line.split()[1:3] for line in _text("/proc/mounts").splitlines()]
    fitting = [(len(point), kind) for point, kind in mounts if path.is_relative_to(point)]
    return max(fitting)[1] if fitting else "unknown"
