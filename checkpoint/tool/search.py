"""``bisect``: the first checkpoint at which a command fails."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from checkpoint.errors import CheckpointError
from checkpoint.store import CheckpointStore
from checkpoint.tool import printing
from checkpoint.tool.command import cli, json_option, takes_source
from checkpoint.tool.source import Source, find, find_epoch

STDERR = 2
"""The descriptor to which the output of the command goes: that of the tool itself can be piped on."""

_NOT_RUN = (126, 127)
"""What a shell returns where it could not run a command: that says nothing about the state."""


@dataclass(frozen=True)
class _Step:
    """A checkpoint that may be tried."""

    number: int
    epoch: int
    time: str
    parent: int


@cli.command(context_settings={"ignore_unknown_options": True})
@takes_source
@click.option("--good", help="A checkpoint at which it is known to succeed; the oldest that can be read by default.")
@click.option("--bad", help="One at which it fails; the newest by default.")
@json_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def bisect(source: Source, good: str | None, bad: str | None, is_json: bool, command: tuple[str, ...]) -> None:
    """Find the first checkpoint at which COMMAND fails, given the state as a fork in place of {}.

    The fork is a store file, of a space a folder with a space; it is made anew for each trial and removed afterwards.
    The output of the command goes to standard error. Put -- before it. What the command is given as JSON is up to it:
    `checkpoint show {} NAME --format json` prints it.

    \b
    Examples:
      checkpoint bisect state.db -- python check.py {}
      checkpoint bisect state.db -- sh -c 'checkpoint show {} counts --format json | grep -q alice'
      checkpoint bisect state.db --good 3 --bad HEAD~1 -- ./check {}
    """
    if source.is_location:
        found = _bisect_space(source, good, bad, command)
    else:
        with source.open() as store:
            span = _span(store, good, bad)
            found = _search(span, lambda step, path: store.fork(path, step.epoch), command)
    text = f"checkpoint {found.number}, epoch {found.epoch}, of {found.time} is the first at which the command fails"
    see = f"checkpoint diff {source.path} {found.parent} {found.number}"
    fields = {"number": found.number, "epoch": found.epoch, "time": found.time, "parent": found.parent}
    printing.emit(is_json, fields, f"{text}\nsee: {see}")


def _span(store: CheckpointStore, good: str | None, bad: str | None) -> list[_Step]:
    records = [record for record in store.checkpoints() if record.run_slots is not None]
    first = find(store, good) if good is not None else next(iter(records), None)
    last = find(store, bad)
    if first is None or last is None or first.number >= last.number:
        raise _no_span()
    store.reader(first.number)  # refuses one whose rows were merged
    return [
        _Step(record.number, record.epoch, record.time, record.parent or 0)
        for record in records
        if first.number <= record.number <= last.number
    ]


def _no_span() -> CheckpointError:
    return CheckpointError("bisect takes a good checkpoint before a bad one: there are not two of them")


def _bisect_space(source: Source, good: str | None, bad: str | None, command: tuple[str, ...]) -> _Step:
    from checkpoint.tool.copying import restore_space

    chain = source.chain
    first = find_epoch(chain, good) if good is not None else chain.first_epoch
    last = find_epoch(chain, bad)
    if not 0 < first < last:
        raise _no_span()
    span = [_Step(m.epoch, m.epoch, m.time, m.base) for m in chain.manifests(first - 1) if m.epoch <= last]
    return _search(
        span,
        lambda step, path: restore_space(chain, str(path), step.epoch, source.shards(), (), lambda done, total: None),
        command,
    )


Fork = Callable[[_Step, Path], object]


def _search(span: Sequence[_Step], fork: Fork, command: tuple[str, ...]) -> _Step:
    if not _succeeds(span[0], fork, command):
        raise CheckpointError(f"the command fails at checkpoint {span[0].number} already: give a --good one")
    if _succeeds(span[-1], fork, command):
        raise CheckpointError(f"the command succeeds at checkpoint {span[-1].number}: give a --bad one")
    low, high = 0, len(span) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if _succeeds(span[middle], fork, command):
            low = middle
        else:
            high = middle
    return span[high]


def _succeeds(step: _Step, fork: Fork, command: tuple[str, ...]) -> bool:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"
        fork(step, path)
        try:
            done = subprocess.run(
                [part.replace("{}", str(path)) for part in command],
                stdout=STDERR,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except (OSError, ValueError) as error:
            raise CheckpointError(f"the command {command[0]!r} cannot be run: {error}") from None
    if done.returncode in _NOT_RUN:
        raise CheckpointError(f"the command was not run (exit status {done.returncode}): see its message above")
    click.echo(f"checkpoint {step.number}: {'fails' if done.returncode else 'succeeds'}", err=True)
    return done.returncode == 0
