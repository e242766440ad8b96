"""``top``: a live view of a store or a space that is being written."""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

import click

from checkpoint.tool import printing
from checkpoint.tool.command import NumberRange, cli, json_option, takes_source
from checkpoint.tool.content import State
from checkpoint.tool.key_values import whole
from checkpoint.tool.source import Source, query

_RECENT = 60
"""How many of the newest checkpoints the rates are taken over."""

_SHARD = "Shard"

_HOT = 10
"""How many of the newest checkpoints say which objects are hot."""


@dataclass(frozen=True)
class _Step:
    """What is known of one checkpoint or epoch."""

    epoch: int
    time: str
    bytes: int
    slots: int


@dataclass
class _Look:
    """What was seen at one moment; the lengths of shards are not known without reading them."""

    steps: list[_Step]
    lengths: Counter[str]
    kinds: dict[str, str]
    hot: Counter[str]


@cli.command()
@takes_source
@click.option(
    "--interval", type=NumberRange(0, 86_400), default=1.0, show_default=True, help="Seconds between two looks."
)
@click.option("--count", type=click.IntRange(0), default=0, help="How many times to look; 0 until interrupted.")
@click.option("--objects", "most", type=click.IntRange(0), default=10, show_default=True, help="How many to list.")
@json_option
def top(source: Source, interval: float, count: int, most: int, is_json: bool) -> None:
    """Watch a store while it is written: checkpoints and bytes per second, the hottest objects, growth.

    An object of a store that grew and did not shrink in five looks is called out: it "only grows". For a space the
    busiest shards are listed, with the slots that lie in the runs of each.

    \b
    Examples:
      checkpoint top state.db
      checkpoint top state.db --count 1 --json
    """
    seen: dict[str, list[int]] = {}
    looks = 0
    try:
        while True:
            looks += 1
            found = _look_at_space(source) if source.is_location else _look_at_store(source)
            for name in found.lengths:
                seen.setdefault(name, []).append(found.lengths[name])
            if is_json:
                click.echo(printing.as_json(_fields(found, seen, most)))
            else:
                if looks > 1 and sys.stdout.isatty():
                    click.clear()
                click.echo("\n".join(_lines(found, seen, most)))
            sys.stdout.flush()
            if looks == count:
                return
            time.sleep(interval)
            source = Source(source.path, source.operator, source.shard)
    except KeyboardInterrupt:
        return


def _look_at_store(source: Source) -> _Look:
    with source.open() as store:
        records = store.checkpoints()[-_RECENT:]
        state = State(store.reader())
        last = records[-1].number if records else 0
        statement = "SELECT object, count(*) FROM state_item WHERE checkpoint > ? AND checkpoint IN"
        statement += " (SELECT number FROM checkpoint) GROUP BY object"
        names = {row[0]: name for name, row in state.index.items()}
        hot: Counter[str] = Counter()
        for object_id, slots in query(store, statement, last - _HOT):
            hot[whole(names.get(object_id, "(owned objects)"))] += slots
        return _Look(
            [_Step(record.epoch, record.time, record.bytes, record.slots) for record in records],
            Counter({name: state.length(name) for name in state.listed()}),
            {name: state.kind_of(name) for name in state.listed()},
            hot,
        )


def _look_at_space(source: Source) -> _Look:
    chain = source.chain
    manifests = list(chain.manifests(max(0, chain.epoch - _RECENT)))
    shards = {*source.shards(manifest.epoch for manifest in manifests)}
    look = _Look([], Counter(), {}, Counter())
    for manifest in manifests:
        runs = [run for run in manifest.runs if (run.operator, run.shard) in shards]
        size, slots = sum(run.bytes for run in runs), sum(run.slots for run in runs)
        look.steps.append(_Step(manifest.epoch, manifest.time, size, slots))
        if manifest.epoch > chain.epoch - _HOT:
            for run in runs:
                look.hot[f"{run.operator}/{run.shard}"] += run.slots
    for operator, shard in source.shards():
        name = f"{operator}/{shard}"
        lineage = chain.lineage(operator, shard) if chain.epoch else ()
        look.lengths[name], look.kinds[name] = sum(run.slots for run in lineage), _SHARD
    return look


def _busiest(look: _Look, most: int) -> list[str]:
    return sorted(look.lengths, key=lambda name: (-look.hot[name], -look.lengths[name], name))[:most]


def _lines(look: _Look, seen: dict[str, list[int]], most: int) -> list[str]:
    table: list[list[Any]] = [
        [name, look.kinds[name], look.lengths[name], look.hot[name], "only grows" if _grows(look, seen, name) else ""]
        for name in _busiest(look, most)
    ]
    sizes = printing.sparkline([step.bytes for step in look.steps])
    length = "slots in its runs" if _SHARD in look.kinds.values() else "length"
    header = ["name", "kind", length, f"slots in the last {_HOT}", ""]
    return [_sentence(look.steps), f"bytes a checkpoint: {sizes}", "", *printing.table(header, table)]


def _fields(look: _Look, seen: dict[str, list[int]], most: int) -> dict[str, Any]:
    seconds, size = _span(look.steps)
    rates = (
        {"checkpoints_a_second": (len(look.steps) - 1) / seconds, "bytes_a_second": size / seconds} if seconds else {}
    )
    objects = []
    for name in _busiest(look, most):
        fields = {"name": name, "kind": look.kinds[name], "length": look.lengths[name], "recent_slots": look.hot[name]}
        if look.kinds[name] == _SHARD:
            fields["run_slots"] = fields.pop("length")
        else:
            fields["only_grows"] = _grows(look, seen, name)
        objects.append(fields)
    return {"epoch": look.steps[-1].epoch if look.steps else None, **rates, "objects": objects}


def _sentence(steps: list[_Step]) -> str:
    if len(steps) < 2:
        return printing.count(len(steps), "checkpoint")
    seconds, size = _span(steps)
    number = len(steps) - 1
    rate = f"{number / seconds:,.1f} checkpoints and {size / seconds:,.0f} bytes a second" if seconds > 0 else "at once"
    return f"epoch {steps[-1].epoch}; over the last {printing.count(number, 'checkpoint')}: {rate}"


def _span(steps: list[_Step]) -> tuple[float, int]:
    """Return the seconds from the first to the last step, and the bytes written in them."""
    if len(steps) < 2:
        return 0.0, 0
    seconds = (datetime.fromisoformat(steps[-1].time) - datetime.fromisoformat(steps[0].time)).total_seconds()
    return max(0.0, seconds), sum(step.bytes for step in steps[1:])


def _grows(look: _Look, seen: dict[str, list[int]], name: str) -> bool:
    """Return whether the length of an object never shrank over at least five looks, and grew."""
    lengths = seen[name]
    if look.kinds[name] == _SHARD:
        return False
    steps = [after - before for before, after in pairwise(lengths)]
    return len(lengths) >= 5 and min(steps) >= 0 and lengths[-1] > lengths[0]
