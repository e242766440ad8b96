"""What a command works on: a store file, or one shard of a space at a location, as of a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from checkpoint.errors import CheckpointError, UnknownCheckpointError
from checkpoint.reader import Reader
from checkpoint.record import CheckpointRecord
from checkpoint.store import CheckpointStore

if TYPE_CHECKING:
    from checkpoint.chain import Chain


@dataclass(frozen=True)
class Source:
    """Where the state lies.

    Args:
        path: a store file, a folder with a space, or an fsspec URL of one.
        operator: of a space, the operator whose state is meant; the only one by default.
        shard: of a space, the number of the shard.
    """

    path: str
    operator: str | None = None
    shard: int = 0

    @property
    def is_location(self) -> bool:
        """Whether this is a space of shards rather than one file."""
        return "://" in self.path or Path(self.path).is_dir()

    @contextmanager
    def open(self) -> Iterator[CheckpointStore]:
        """Open the store for reading; of a shard a copy is made in a temporary folder.

        Raises:
            CheckpointError: there is nothing that can be read.
        """
        if self.is_location:
            with self._open_shard() as store:
                yield store
            return
        if not Path(self.path).exists():
            raise CheckpointError(f"{self.path} does not exist: give the path of a store, or of a space")
        with CheckpointStore(self.path, read_only=True) as store:
            yield store

    @contextmanager
    def open_to_write(self) -> Iterator[CheckpointStore]:
        """Open the store file for writing.

        Raises:
            CheckpointError: this is a space, whose shards only a pipeline writes; or the file cannot be written.
        """
        if self.is_location:
            raise CheckpointError(
                f"{self.path} is a space of shards, which only a pipeline writes: restore it into a file first"
            )
        if not Path(self.path).exists():
            raise CheckpointError(f"{self.path} does not exist: give the path of a store")
        with CheckpointStore(self.path) as store:
            yield store

    @contextmanager
    def _open_shard(self) -> Iterator[CheckpointStore]:
        from checkpoint.chain import open_cache

        chain = self.chain()
        with TemporaryDirectory() as folder:
            plan = chain.operator_plan(self._operator(), None, cache=folder)
            if not 0 <= self.shard < chain.shards:
                raise CheckpointError(f"{self.path} has no shard {self.shard}: it has {chain.shards}, counted from 0")
            with open_cache(plan, self.shard) as store:
                yield store

    def chain(self) -> Chain:
        """Return the space at the location.

        Raises:
            CheckpointError: there is none.
        """
        from checkpoint.chain import Chain, location_at

        return Chain.open(location_at(self.path))

    def _operator(self) -> str:
        newest = self.chain().newest
        names: list[str] = [] if newest is None else sorted({run.operator for run in newest.runs})
        wanted = names[0] if self.operator is None and len(names) == 1 else self.operator
        if wanted is None or wanted not in names:
            what = "name one with --operator" if wanted is None else f"there is no operator {wanted!r}"
            raise CheckpointError(f"{self.path}: {what}; it has {', '.join(names) or 'none yet'}")
        return wanted


def find(store: CheckpointStore, text: str | None) -> CheckpointRecord | None:
    """Return the checkpoint that a text names; ``None`` for the empty state before the first.

    Args:
        store: the store.
        text: a number, ``@EPOCH``, ``HEAD`` or ``HEAD~2``; 0 for the empty state; the newest by default.

    Raises:
        UnknownCheckpointError: there is no such checkpoint.
    """
    records = store.checkpoints()
    text = "HEAD" if text is None else text
    if text == "0" or (not records and text == "HEAD"):
        return None
    if matched := re.fullmatch(r"HEAD(?:~(\d+))?", text):
        back = int(matched[1] or 0)
        found = records[-1 - back] if back < len(records) else None
    elif re.fullmatch(r"@?\d+", text):
        number = int(text.lstrip("@"))
        found = next((r for r in records if (r.epoch if text.startswith("@") else r.number) == number), None)
    else:
        raise UnknownCheckpointError(f"{text!r} names no checkpoint: give a number, @EPOCH, HEAD or HEAD~2")
    if found is None:
        known = f"{records[0].number} to {records[-1].number}" if records else "none yet"
        raise UnknownCheckpointError(f"{store.path} has no checkpoint {text}: there are {known}; see `checkpoint log`")
    return found


def reader_at(store: CheckpointStore, text: str | None) -> Reader:
    """Return the state at the checkpoint that a text names.

    Raises:
        UnknownCheckpointError: there is none, or its rows were merged.
    """
    record = find(store, text)
    return store.reader(0 if record is None else record.number)


def query(store: CheckpointStore, statement: str, *parameters: object) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a SELECT, fetched page by page.

    Not through ``store.database``: that brings in pandas where it is installed, a hundred MiB for nothing.
    """
    with store._session.cursor(statement, parameters) as fetch:
        while page := fetch(Reader.PAGE_ROWS):
            yield from page
