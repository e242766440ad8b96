"""``bisect``: the first checkpoint at which a command fails."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from checkpoint.errors import CheckpointError
from checkpoint.fork import fork as fork_store
from checkpoint.progress import silent
from checkpoint.record import CheckpointRecord
from checkpoint.store import CheckpointStore
from checkpoint.tool import printing
from checkpoint.tool.command import cli, json_option, takes_source
from checkpoint.tool.content import State
from checkpoint.tool.contents import Contents
from checkpoint.tool.listing import require_known, takes_short_name
from checkpoint.tool.source import HeldSource, Source, find, find_epoch

STDERR = 2
"""The descriptor that the command's output goes to: that of the tool itself can be piped on."""

_NOT_RUN = (126, 127)
"""What a shell returns if it could not run a command: that says nothing about the state."""


@dataclass(frozen=True)
class _Step:
    """A checkpoint that may be tried."""

    number: int
    epoch: int
    time: str
    parent: int


_BEGINNING = _Step(0, 0, "", 0)
"""The empty state before the first checkpoint."""


@cli.command(context_settings={"ignore_unknown_options": True})
@takes_source
@click.option(
    "--good",
    help="A checkpoint at which it is known to succeed, 0 for the empty state; the oldest readable one by default.",
)
@click.option("--bad", help="A checkpoint at which it fails; the newest by default.")
@click.option("--input", "name", help="The object that the command gets as lines of JSON on standard input.")
@json_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@takes_short_name
def bisect(
    source: Source, good: str | None, bad: str | None, name: str | None, is_json: bool, command: tuple[str, ...]
) -> None:
    """Find the first checkpoint at which COMMAND fails, given the state as a fork in place of {}, or as JSON.

    The fork is a store file, or for a space a folder with a space; one is made for each trial and removed afterwards,
    but none if the command has no {}. With --input the command reads what one object holds, a line for each entry as
    `checkpoint show --format json` prints it, and nothing if there is no such object yet. A store that is being written
    is read as it was when the search began. The output of the command goes to standard error. Put -- before the
    command.

    \b
    Examples:
      checkpoint bisect state.db --input counts -- grep -q alice
      checkpoint bisect state.db -- python check.py {}
      checkpoint bisect state.db --good 3 --bad HEAD~1 -- ./check {}
    """
    if source.is_location:
        span, fork = _span_of_space(source, good, bad), _fork_of_space(source)
        _require_known(source, name, span)
        good_step, found = _search(span, _Trial(source, command, fork, name))
    else:
        with source.open() as store:
            span, held = _span(store, good, bad), HeldSource(source.path, store=store)
            _require_known(held, name, span)
            trial = _Trial(held, command, lambda step, path: fork_store(store.session, path, step.number), name)
            good_step, found = _search(span, trial)
    text = f"checkpoint {found.number}, epoch {found.epoch}, of {found.time} is the first at which the command fails"
    see = printing.command_line("diff", *source.words, good_step.number, found.number)
    fields = {"number": found.number, "epoch": found.epoch, "time": found.time, "parent": found.parent}
    printing.emit(is_json, fields, f"{text}\nsee: {see}")


def _span(store: CheckpointStore, good: str | None, bad: str | None) -> list[_Step]:
    records = [record for record in store.checkpoints() if record.run_slots is not None]
    steps = [_Step(record.number, record.epoch, record.time, record.parent or 0) for record in records]
    first = _number(find(store, good)) if good is not None else steps[0].number if steps else 0
    last = _number(find(store, bad))
    if first >= last:
        raise _no_span()
    if not first:
        steps.insert(0, _BEGINNING)
    store.reader(first or last)  # refuses one whose rows were merged
    return [step for step in steps if first <= step.number <= last]


def _number(record: CheckpointRecord | None) -> int:
    return 0 if record is None else record.number


def _require_known(source: Source, name: str | None, span: Sequence[_Step]) -> None:
    """Refuse the name of an object that exists neither at the good nor at the bad end."""
    if name is not None:
        require_known(source, name, str(span[-1].number), str(span[0].number))


def _has(source: Source, name: str, point: str) -> bool:
    return any(name in State(part.readers[0]) for part in source.parts(point))


def _no_span() -> CheckpointError:
    return CheckpointError("bisect takes a good checkpoint before a bad one: there are fewer than two")


def _span_of_space(source: Source, good: str | None, bad: str | None) -> list[_Step]:
    chain = source.chain
    first = find_epoch(chain, good) if good is not None else chain.first_epoch
    last = find_epoch(chain, bad)
    if not first < last:
        raise _no_span()
    manifests = map(chain.manifest, range(max(first, chain.first_epoch), last + 1))
    steps = [_Step(manifest.epoch, manifest.epoch, manifest.time, manifest.base) for manifest in manifests]
    return steps if first else [_BEGINNING, *steps]


Fork = Callable[[_Step, Path], object]
"""Makes a fork at a checkpoint."""


def _fork_of_space(source: Source) -> Fork:
    from checkpoint.chain import Chain, location_at
    from checkpoint.tool.copying import restore_space

    def _fork(step: _Step, path: Path) -> None:
        if not step.number:
            Chain.open_or_create(location_at(str(path)), source.chain.shards_at(step.number))
            return
        shards = source.shards([step.epoch])
        restore_space(source.chain, str(path), step.epoch, shards, (), silent, may_be_empty=True)

    return _fork


def _search(span: Sequence[_Step], succeeds: Callable[[_Step], bool]) -> tuple[_Step, _Step]:
    """Return the last step tried at which the command succeeds, and the first one at which it fails."""
    if not succeeds(span[0]):
        number = span[0].number
        raise CheckpointError(
            f"the command fails at checkpoint {number} already: give a --good one, 0 for the state before the first"
            if number
            else "the command fails at the empty state before the first checkpoint already: check the command"
        )
    if succeeds(span[-1]):
        raise CheckpointError(f"the command succeeds at checkpoint {span[-1].number}: give a --bad one")
    low, high = 0, len(span) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if succeeds(span[middle]):
            low = middle
        else:
            high = middle
    return span[low], span[high]


@dataclass(frozen=True)
class _Trial:
    """Runs a command on the state at a checkpoint.

    Args:
        source: the store or space.
        command: the command, with ``{}`` for the fork.
        fork: makes it.
        name: the object that the command reads.
    """

    source: Source
    command: tuple[str, ...]
    fork: Fork
    name: str | None

    def __call__(self, step: _Step) -> bool:
        """Return whether the command succeeds."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / "state.db"
            if any("{}" in part for part in self.command):
                self.fork(step, path)
            status = self._run(path, self._input(step, Path(folder) / "input.jsonl"))
        if status in _NOT_RUN:
            raise CheckpointError(f"the command was not run (exit status {status}): see its message above")
        click.echo(f"checkpoint {step.number}: {'fails' if status else 'succeeds'}", err=True)
        return status == 0

    def _input(self, step: _Step, path: Path) -> Path:
        """Return the file that is the standard input."""
        if self.name is None:
            return Path(os.devnull)
        point = str(step.number)
        with path.open("wb") as file:
            if _has(self.source, self.name, point):
                for row in Contents(self.source, self.name, point).rows():
                    file.write(printing.as_json(row).encode() + b"\n")
        return path

    def _run(self, path: Path, given: Path) -> int:
        try:
            with given.open("rb") as file:
                done = subprocess.run(
                    [part.replace("{}", str(path)) for part in self.command], stdout=STDERR, stdin=file, check=False
                )
        except (OSError, ValueError) as error:
            raise CheckpointError(f"the command {self.command[0]!r} cannot be run: {error}") from None
        return done.returncode
