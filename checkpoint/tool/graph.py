"""The graph of ``log``: a column for each line of checkpoints, the newest at the top, as git draws branches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from checkpoint.errors import CheckpointError
from checkpoint.record import CheckpointRecord
from checkpoint.run import CheckpointKind
from checkpoint.store import CheckpointStore
from checkpoint.tool import printing

if TYPE_CHECKING:
    from checkpoint.chain import Manifest

FULL, DIFFERENTIAL, PASSING = "◆", "●", "│"

_WIDEST = 32
"""How many shards get a column of their own."""


@dataclass
class _Line:
    """The checkpoints of one file."""

    title: str
    records: dict[int, CheckpointRecord]
    origin: dict[str, Any] | None
    rollbacks: list[dict[str, Any]] = field(default_factory=list)

    @cached_property
    def newest(self) -> int:
        """The number of the newest checkpoint."""
        return max(self.records, default=0)

    @cached_property
    def oldest(self) -> int:
        """The number of the oldest one."""
        return min(self.records, default=0)


def of_store(store: CheckpointStore, others: Sequence[str], limit: int) -> Iterator[str]:
    """Yield the lines of the graph of a store, beside others and what it was forked from.

    Args:
        store: the store.
        others: the paths of others.
        limit: how many checkpoints to draw at most; 0 for all.

    Raises:
        CheckpointError: one of the others is not a store.
    """
    lines = [_line_of(store, Path(store.path).name)]
    for path in others:
        if not Path(path).is_file():
            raise CheckpointError(f"{path} is no store file: --with takes the path of one")
        with CheckpointStore(path, read_only=True) as other:
            lines.append(_line_of(other, path))
    origin = lines[0].origin
    if origin and not others and Path(str(origin["path"])).is_file():
        # What it was made from may have been replaced by anything since.
        with suppress(CheckpointError), CheckpointStore(str(origin["path"]), read_only=True) as other:
            lines.append(_line_of(other, str(origin["path"])))
    yield from _drawn(lines, limit)


def _line_of(store: CheckpointStore, title: str) -> _Line:
    records = {record.number: record for record in store.checkpoints()}
    return _Line(title, records, _setting(store, "forked_from", dict), _setting(store, "rollbacks", list) or [])


def _setting(store: CheckpointStore, key: str, kind: type) -> Any:
    """Return a setting that is JSON; None if it is not what it should be, since it only informs."""
    try:
        found = orjson.loads(store.setting(key) or "null")
    except (orjson.JSONDecodeError, TypeError):
        return None
    return found if isinstance(found, kind) else None


def _drawn(lines: list[_Line], limit: int) -> Iterator[str]:
    """Yield the lines of the graph: what several files share is drawn once, in the column of the first of them."""
    joints = [_joint(lines, place) for place in range(len(lines))]
    heads = ", ".join(f"{line.title} ({PASSING} {place + 1})" for place, line in enumerate(lines))
    if len(lines) > 1:
        yield f"columns: {heads}"
    drawn = 0
    for number in range(max((line.newest for line in lines), default=0), 0, -1):
        for place, line in enumerate(lines):
            record = line.records.get(number)
            if record is None or (place and number <= joints[place][1]):
                continue
            if limit and drawn == limit:
                yield "older ones: --limit 0 shows all"
                return
            drawn += 1
            yield from _rollbacks_onto(line, number, _lanes(lines, joints, number, place, PASSING))
            mark = FULL if record.kind is CheckpointKind.FULL or number == line.oldest else DIFFERENTIAL
            yield f"{_lanes(lines, joints, number, place, mark)}  {_described(record)}{_names(lines, number, place)}"
        yield from _forks_from(lines, joints, number - 1)
    yield from _origin(lines)


def _joint(lines: list[_Line], place: int) -> tuple[int, int]:
    """Return which line before it a line shares checkpoints with, and the newest that they share; (0, 0) for none."""
    found = (0, 0)
    for other in range(place):
        shared = lines[place].records.keys() & lines[other].records.keys()
        same = [n for n in shared if _identity(lines[place].records[n]) == _identity(lines[other].records[n])]
        if same and max(same) > found[1]:
            found = other, max(same)
    return found


def _identity(record: CheckpointRecord) -> tuple[int, str, str]:
    return record.epoch, record.time, record.digest


def _lanes(lines: list[_Line], joints: list[tuple[int, int]], number: int, marked: int, mark: str) -> str:
    """Return the columns at a checkpoint, one of which is marked."""
    cells = []
    for place, line in enumerate(lines):
        is_there = joints[place][1] < number <= line.newest
        cells.append(mark if place == marked else PASSING if is_there else " ")
    return " ".join(cells).rstrip()


def _forks_from(lines: list[_Line], joints: list[tuple[int, int]], number: int) -> Iterator[str]:
    """Yield a line for each column that begins at a checkpoint."""
    for place in range(len(lines) - 1, 0, -1):
        other, joint = joints[place]
        if joint == number and number:
            cells = [PASSING if joints[one][1] < number + 1 <= lines[one].newest else " " for one in range(place)]
            cells[other] = "├"
            gap = ["─" if one >= other else " " for one in range(place)]
            row = "".join(
                (cell if one <= other else "─") + fill for one, (cell, fill) in enumerate(zip(cells, gap, strict=True))
            )
            yield f"{row}╯"


def _described(record: CheckpointRecord) -> str:
    pruned = "" if record.run_slots is not None else ", merged"
    return (
        f"{record.number}  epoch {record.epoch}  {record.time}  {record.kind.value},"
        f" {printing.count(record.slots, 'slot')}, {printing.count(record.bytes, 'byte')}{pruned}"
    )


def _names(lines: list[_Line], number: int, place: int) -> str:
    """Return the files whose newest checkpoint this is."""
    record = lines[place].records[number]
    found = [
        line.title for line in lines if line.newest == number and _identity(line.records[number]) == _identity(record)
    ]
    return f"  ({', '.join(found)})" if found else ""


def _rollbacks_onto(line: _Line, number: int, lanes: str) -> Iterator[str]:
    for entry in reversed(line.rollbacks):
        if isinstance(entry, dict) and entry.get("to") == number:
            yield f"{lanes}  x rolled back {entry.get('time')}: checkpoints {number + 1} to {entry.get('from')} dropped"


def _origin(lines: list[_Line]) -> Iterator[str]:
    for line in lines:
        if line.origin:
            path, number, epoch = (line.origin.get(key) for key in ("path", "number", "epoch"))
            yield f"{line.title} was forked from {_near(path)} at checkpoint {number}, epoch {epoch}"


def _near(path: object) -> str:
    """Return a path as one would type it: relative if it lies below the current folder."""
    relative = os.path.relpath(str(path))
    return str(path) if relative.startswith("..") else relative


def of_space(manifests: Sequence[Manifest], shards: Sequence[tuple[str, int]]) -> Iterator[str]:
    """Yield the lines of the graph of a space: a row for each epoch, a column for each shard.

    Args:
        manifests: the epochs to draw, newest first.
        shards: the shards to draw.
    """
    columns = list(shards[:_WIDEST])
    operators = sorted({operator for operator, _ in columns})
    for operator in operators:
        places = [place + 1 for place, (name, _) in enumerate(columns) if name == operator]
        yield f"columns {places[0]} to {places[-1]}: {operator}, shards {columns[places[0] - 1][1]} to" + (
            f" {columns[places[-1] - 1][1]}"
        )
    if len(shards) > len(columns):
        yield f"{len(shards) - len(columns)} more shards: choose with --operator and --shard"
    chosen = set(shards)
    for manifest in manifests:
        runs = {place: run for run in manifest.runs if (place := (run.operator, run.shard)) in chosen}
        cells = [_mark(manifest, shard, runs[shard].kind if shard in runs else None) for shard in columns]
        slots, size = sum(run.slots for run in runs.values()), sum(run.bytes for run in runs.values())
        yield (
            f"{' '.join(cells)}  epoch {manifest.epoch}  {manifest.time}  {printing.count(slots, 'slot')},"
            f" {printing.count(size, 'byte')}; query {manifest.source.query}, batch {manifest.source.batch}"
        )


def _mark(manifest: Manifest, shard: tuple[str, int], kind: CheckpointKind | None) -> str:
    if kind is not None:
        return FULL if kind is CheckpointKind.FULL else DIFFERENTIAL
    begins = manifest.lineage.get(shard[0], [])
    return PASSING if shard[1] < len(begins) and begins[shard[1]] else " "
