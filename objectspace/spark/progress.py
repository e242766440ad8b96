"""What an epoch took: rows, dirty slots, bytes and milliseconds, in all and by operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import orjson

from checkpoint.chain import Manifest

PHASES = ("receive_ms", "open_ms", "process_ms", "hand_over_ms", "save_ms")
"""What a task does, in order; for an operator, the sums over its shards."""

_MARK = "operator/"


@dataclass(frozen=True)
class OperatorProgress:
    """What one operator did in an epoch.

    Args:
        name: its name.
        rows_in: the changes that reached it.
        rows_out: the changes that left it and what follows it.
        slots: the dirty slots that it wrote.
        bytes: the bytes of their keys and values.
        ms: how many milliseconds its action took; 0 if it had nothing to do, or ran in the tasks of another one.
        phases: the milliseconds of its tasks by phase, summed over the shards.
    """

    name: str
    rows_in: int = 0
    rows_out: int = 0
    slots: int = 0
    bytes: int = 0
    ms: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class EpochProgress:
    """What an epoch did.

    Args:
        epoch: its number.
        batch: the number of its micro-batch.
        query: the id of the streaming query, as ``QueryProgressEvent.progress.id`` has it.
        time: when it was published, ISO 8601 in UTC.
        rows: the rows that the sources brought.
        slots: the dirty slots that were written.
        bytes: the bytes of their keys and values.
        file_bytes: the bytes of the run files.
        ms: how many milliseconds it took from the micro-batch to the manifest.
        operators: what each operator did.
        in_driver: whether the driver worked it itself, without tasks.
        input_bytes: the bytes of these rows as Arrow has them.
    """

    epoch: int
    batch: int
    query: str
    time: str
    rows: int
    slots: int
    bytes: int
    file_bytes: int
    ms: float
    operators: tuple[OperatorProgress, ...] = ()
    in_driver: bool = False
    input_bytes: int = 0

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """Return what a manifest says of its epoch."""
        figures = manifest.metrics
        names = list(dict.fromkeys(name.rpartition("/")[0] for name in figures if name.startswith(_MARK)))
        return cls(
            manifest.epoch,
            manifest.source.batch,
            manifest.source.query,
            manifest.time,
            int(figures.get("rows", 0)),
            manifest.slots,
            manifest.bytes,
            manifest.file_bytes,
            round(figures.get("seconds", 0.0) * 1000, 3),
            tuple(_operator(manifest, name) for name in names),
            bool(figures.get("driver")),
            int(figures.get("input_bytes", 0)),
        )

    @property
    def json(self) -> str:
        """The progress as JSON, as the events of Spark's ``StreamingQueryListener`` have it."""
        return orjson.dumps(asdict(self)).decode()

    def __str__(self) -> str:
        """Return one line for the log."""
        slowest = max(self.operators, key=lambda one: one.ms, default=None)
        most = f", of which {slowest.name} {slowest.ms:.0f}" if slowest is not None else ""
        return (
            f"epoch {self.epoch} (batch {self.batch}): {self.rows:,} rows, {self.slots:,} dirty slots, {self.bytes:,}"
            f" bytes, {self.ms:.0f} ms{most}"
        )


def figures_of(operator: str, figures: Mapping[str, float]) -> dict[str, float]:
    """Return figures of an operator under the names that they have in a manifest."""
    return {f"{_MARK}{operator}/{name}": round(value, 3) for name, value in figures.items()}


def _operator(manifest: Manifest, mark: str) -> OperatorProgress:
    name = mark.removeprefix(_MARK)
    found: dict[str, Any] = {
        key.rpartition("/")[2]: value for key, value in manifest.metrics.items() if key.rpartition("/")[0] == mark
    }
    runs = [run for run in manifest.runs if run.operator == name]
    return OperatorProgress(
        name,
        int(found.get("rows_in", 0)),
        int(found.get("rows_out", 0)),
        sum(run.slots for run in runs),
        sum(run.bytes for run in runs),
        found.get("ms", 0.0),
        {phase: found[phase] for phase in PHASES if phase in found},
    )
