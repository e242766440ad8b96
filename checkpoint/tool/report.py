"""``report``: what a page about a store or a space tells, collected from its rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import click

from checkpoint.errors import UnknownCheckpointError
from checkpoint.record import CheckpointRecord
from checkpoint.run import CheckpointKind
from checkpoint.store import CheckpointStore
from checkpoint.tool import printing
from checkpoint.tool.command import (
    Address,
    cli,
    json_option,
    replacing,
    require_folder,
    require_replaceable,
    takes_source,
)
from checkpoint.tool.content import State
from checkpoint.tool.key_values import whole
from checkpoint.tool.listing import Listed, list_of, merge_listed
from checkpoint.tool.source import OpenStore, Source, query

FIXED = frozenset({"Array", "Tensor", "Value"})
"""The kinds that keep the number of slots they were made with: they are rewritten, and do not grow."""

COLUMNS = 60
"""How many checkpoints the heat map shows at most."""

SAMPLES = 12
"""The number of checkpoints at which lengths are looked at."""


@dataclass(frozen=True)
class Step:
    """One checkpoint or epoch.

    Args:
        number: its number.
        epoch: its epoch.
        kind: full, differential, or mixed if the shards of a space differ.
        time: when it was made.
        slots: how many slots it wrote.
        bytes: their bytes.
    """

    number: int
    epoch: int
    kind: str
    time: str
    slots: int
    bytes: int


@dataclass(frozen=True)
class LengthHistory:
    """How the length of an object changed.

    Args:
        name: the object.
        points: epoch and length, oldest first.
        rate: the growth per checkpoint.
    """

    name: str
    points: list[tuple[int, int]]
    rate: float

    @property
    def only_grows(self) -> bool:
        """Whether the length was looked at five times or more, never fell, and mostly rose."""
        steps = [after[1] - before[1] for before, after in pairwise(self.points)]
        return len(steps) >= 4 and min(steps) >= 0 and sum(step > 0 for step in steps) >= len(self.points) // 2


@dataclass
class Facts:
    """What a page tells.

    Args:
        title: the store.
        steps: its checkpoints, oldest first.
        objects: its objects, the largest first.
        churn: slots written and deleted, by object and epoch.
        epochs: the epochs of the churn, oldest first.
        lengths: the length of each object at some epochs, oldest first.
        runs: how many runs are live.
    """

    title: str
    steps: list[Step]
    objects: list[Listed] = field(default_factory=list)
    churn: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    epochs: list[int] = field(default_factory=list)
    lengths: dict[str, dict[int, int]] = field(default_factory=dict)
    runs: int = 0

    def growth(self) -> list[LengthHistory]:
        """Return the objects whose length changed, the fastest first."""
        found = []
        for name, by_epoch in self.lengths.items():
            points = sorted(by_epoch.items())
            if len(set(by_epoch.values())) > 1:
                (first, before), (last, after) = points[0], points[-1]
                between = sum(first < step.epoch <= last for step in self.steps) or 1
                found.append(LengthHistory(name, points, (after - before) / between))
        return sorted(found, key=lambda one: -one.rate)

    def unbounded(self) -> list[str]:
        """Return the collections that grew again and again and never shrank nor deleted a slot."""
        kinds = {one.name: one.kind for one in self.objects}
        return [
            one.name
            for one in self.growth()
            if one.only_grows
            and kinds.get(one.name) not in FIXED
            and not any(deleted for _, deleted in self.churn.get(one.name, {}).values())
        ]


@cli.command()
@takes_source
@click.argument("target", type=Address(dir_okay=False))
@json_option
def report(source: Source, target: str, is_json: bool) -> None:
    """Write a page about a store: what checkpoints cost over time, which objects are large, which change, which grow.

    The page is one HTML file that works offline, also on a phone, light or dark: bytes and slots of each checkpoint, a
    treemap of the objects, a heat map of what changes, growth with the collections that only grow, full against
    differential cost, and tables that can be sorted.

    \b
    Examples:
      checkpoint report state.db report.html
      checkpoint report s3://bucket/state report.html
    """
    from checkpoint.tool.page import BEGINNING, page_of

    require_folder(target)
    require_replaceable(target, BEGINNING)
    facts = collect(source)
    page = page_of(facts).encode(errors="replace")  # a path need not be text
    with replacing(Path(target)) as file:
        file.write(page)
    size = len(page)
    fields = {"target": target, "bytes": size, "only_grow": facts.unbounded()}
    printing.emit(is_json, fields, f"{target}: {printing.size(size)}")


def collect(source: Source) -> Facts:
    """Return what there is to tell about a store or a space."""
    facts = Facts(source.path, list(_steps(source)))
    churn_epochs: set[int] = set()
    for part in source.parts(None):
        prefix = f"{part.operator}: " if part.operator else ""
        facts.runs += len(part.readers[0].runs)
        merge_listed(facts.objects, list_of(part))
        state = State(part.readers[0])
        records = part.store.checkpoints()
        _add_churn(facts, part, state, prefix, records, churn_epochs)
        _add_lengths(facts, part, state, prefix, records)
    for one in facts.objects:
        one.name = f"{one.operator}: {one.name}" if one.operator else one.name
    facts.objects.sort(key=lambda one: (-one.bytes, one.name))
    facts.epochs = sorted(churn_epochs)[-COLUMNS:]
    return facts


def _steps(source: Source) -> Iterator[Step]:
    if not source.is_location:
        with source.open() as store:
            for r in store.checkpoints():
                yield Step(r.number, r.epoch, r.kind.value, r.time, r.slots, r.bytes)
        return
    manifests = list(source.chain.manifests())
    shards = {*source.shards(manifest.epoch for manifest in manifests)}
    for manifest in manifests:
        runs = [run for run in manifest.runs if (run.operator, run.shard) in shards]
        kinds = {run.kind.value for run in runs} or {"differential"}
        kind = kinds.pop() if len(kinds) == 1 else "mixed"
        sizes = sum(run.slots for run in runs), sum(run.bytes for run in runs)
        yield Step(manifest.epoch, manifest.epoch, kind, manifest.time, *sizes)


def _add_churn(
    facts: Facts, part: OpenStore, state: State, prefix: str, records: list[CheckpointRecord], epochs: set[int]
) -> None:
    """Add the slots that the newest differential checkpoints wrote, as far as their rows are still there.

    A full one writes every slot, even those that have not changed.
    """
    first = facts.steps[0].epoch if facts.steps else 0
    changing = [
        r for r in records if r.run_slots is not None and r.kind is CheckpointKind.DIFFERENTIAL and r.epoch >= first
    ]
    recent = {r.number: r.epoch for r in changing[-COLUMNS:]}
    names = {**dict(query(part.store, "SELECT object, name FROM state_index")), **_names(state)}
    numbers = ",".join(map(str, recent)) or "-1"
    rows = query(
        part.store,
        "SELECT checkpoint, object, sum(value IS NOT NULL), sum(value IS NULL) FROM state_item"
        f" WHERE checkpoint IN ({numbers}) GROUP BY checkpoint, object",
    )
    epochs.update(recent.values())
    for number, object_id, written, deleted in rows:
        name = prefix + whole(names.get(object_id, "(owned objects)"))
        cells = facts.churn.setdefault(name, {})
        before = cells.get(recent[number], (0, 0))
        cells[recent[number]] = before[0] + written, before[1] + deleted


def _names(state: State) -> dict[int, str]:
    return {row[0]: name for name, row in state.index.items()}


def _add_lengths(facts: Facts, part: OpenStore, state: State, prefix: str, records: list[CheckpointRecord]) -> None:
    """Add the length of each object at some epochs: the same for all shards, even if a shard did not change."""
    readable = [record for record in records if record.run_slots is not None]
    epochs = [step.epoch for step in facts.steps] if part.operator else [record.epoch for record in readable]
    step = -(-len(epochs) // SAMPLES) or 1
    for epoch in epochs[::-1][::step][::-1]:
        record = next((one for one in reversed(readable) if one.epoch <= epoch), None)
        then = None if record is None else _state_at(part.store, record.number)
        for name in state.listed():
            found = facts.lengths.setdefault(prefix + name, {})
            found[epoch] = found.get(epoch, 0) + (then.length(name) if then is not None and name in then else 0)


def _state_at(store: CheckpointStore, number: int) -> State | None:
    try:
        return State(store.reader(number))
    except UnknownCheckpointError:
        return None
