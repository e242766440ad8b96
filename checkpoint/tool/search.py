"""``bisect``: the first checkpoint at which a command fails."""

from __future__ import annotations

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from checkpoint.errors import CheckpointError
from checkpoint.record import CheckpointRecord
from checkpoint.store import CheckpointStore
from checkpoint.tool.command import cli, takes_source
from checkpoint.tool.source import Source, find

STDERR = 2
"""The descriptor to which the output of the command goes: that of the tool itself can be piped on."""


@cli.command(context_settings={"ignore_unknown_options": True})
@takes_source
@click.option("--good", help="A checkpoint at which it is known to succeed; the oldest by default.")
@click.option("--bad", help="One at which it fails; the newest by default.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def bisect(source: Source, good: str | None, bad: str | None, command: tuple[str, ...]) -> None:
    """Find the first checkpoint at which COMMAND fails, given the state as a store file in place of {}.

    \b
    checkpoint bisect state.db -- python check.py {}
    checkpoint bisect state.db -- sh -c 'checkpoint show {} counts --format json | grep -q alice'
    """
    with source.open() as store:
        records = store.checkpoints()
        first, last = (find(store, text) for text in (good or str(records[0].number) if records else None, bad))
        if first is None or last is None or first.number >= last.number:
            raise CheckpointError("bisect takes a good checkpoint before a bad one: there are not two of them")
        span = [record for record in records if first.number <= record.number <= last.number]
        found = _search(store, span, command)
    click.echo(
        f"checkpoint {found.number}, epoch {found.epoch}, of {found.time} is the first at which the command fails"
    )
    click.echo(f"see: checkpoint diff {source.path} {found.parent or 0} {found.number}")


def _search(store: CheckpointStore, span: list[CheckpointRecord], command: tuple[str, ...]) -> CheckpointRecord:
    if not _succeeds(store, span[0], command):
        raise CheckpointError(f"the command fails at checkpoint {span[0].number} already: give a --good one")
    if _succeeds(store, span[-1], command):
        raise CheckpointError(f"the command succeeds at checkpoint {span[-1].number}: give a --bad one")
    low, high = 0, len(span) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if _succeeds(store, span[middle], command):
            low = middle
        else:
            high = middle
    return span[high]


def _succeeds(store: CheckpointStore, record: CheckpointRecord, command: tuple[str, ...]) -> bool:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"
        store.fork(path, record.epoch)
        done = subprocess.run(
            [part.replace("{}", str(path)) for part in command],
            stdout=STDERR,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    click.echo(f"checkpoint {record.number}: {'fails' if done.returncode else 'succeeds'}", err=True)
    return done.returncode == 0
