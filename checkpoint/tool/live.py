"""``top``: a live view of a store that is being written."""

from __future__ import annotations

import sys
import time
from itertools import pairwise
from typing import Any

import click

from checkpoint.record import CheckpointRecord
from checkpoint.tool import printing
from checkpoint.tool.command import cli, takes_source
from checkpoint.tool.content import State
from checkpoint.tool.source import Source, query


@cli.command()
@takes_source
@click.option("--interval", type=float, default=1.0, show_default=True, help="Seconds between two looks.")
@click.option("--count", type=int, default=0, help="Look so many times; until interrupted by default.")
@click.option("--objects", "most", type=int, default=10, show_default=True, help="How many objects to list.")
def top(source: Source, interval: float, count: int, most: int) -> None:
    """Watch a store while it is written: checkpoints and bytes a second, the objects that change most, what grows.

    \b
    checkpoint top state.db
    checkpoint top state.db --count 1
    """
    seen: dict[str, list[int]] = {}
    looks = 0
    try:
        while True:
            looks += 1
            lines = _look(source, seen, most)
            if looks > 1 and sys.stdout.isatty():
                click.clear()
            click.echo("\n".join(lines))
            if looks == count:
                return
            time.sleep(interval)
    except KeyboardInterrupt:
        return


def _look(source: Source, seen: dict[str, list[int]], most: int) -> list[str]:
    with source.open() as store:
        records = store.checkpoints()[-60:]
        state = State(store.reader())
        last = records[-1].number if records else 0
        statement = "SELECT object, count(*) FROM state_item WHERE checkpoint > ? GROUP BY object"
        hot = dict(query(store, statement, last - 10))
        lengths = {name: state.length(name) for name in state.index}
        kinds = {name: state.kind_of(name) for name in state.index}
    for name, length in lengths.items():
        seen.setdefault(name, []).append(length)
    lines = [_rates(records), f"bytes a checkpoint: {printing.sparkline([record.bytes for record in records])}", ""]
    ids = {name: row[0] for name, row in state.index.items()}
    busy = sorted(lengths, key=lambda name: (-hot.get(ids[name], 0), -lengths[name], name))[:most]
    table: list[list[Any]] = [
        [name, kinds[name], lengths[name], hot.get(ids[name], 0), "only grows" if _grows(seen[name]) else ""]
        for name in busy
    ]
    return [*lines, *printing.table(["name", "kind", "length", "slots in the last 10", ""], table)]


def _rates(records: list[CheckpointRecord]) -> str:
    if len(records) < 2:
        return f"{len(records)} checkpoints"
    from datetime import datetime

    seconds = (datetime.fromisoformat(records[-1].time) - datetime.fromisoformat(records[0].time)).total_seconds()
    size, number = sum(record.bytes for record in records[1:]), len(records) - 1
    rate = f"{number / seconds:.1f} checkpoints and {size / seconds:,.0f} bytes a second" if seconds > 0 else "at once"
    return f"epoch {records[-1].epoch}, checkpoint {records[-1].number}; over the last {number}: {rate}"


def _grows(lengths: list[int]) -> bool:
    """Tell whether a length never shrank over at least five looks, and grew."""
    steps = [after - before for before, after in pairwise(lengths)]
    return len(lengths) >= 5 and min(steps) >= 0 and lengths[-1] > lengths[0]
