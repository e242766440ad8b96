"""What a command works on: a store file or the shards of a space at a location, as of some checkpoints."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from checkpoint.address import local_path
from checkpoint.errors import CheckpointError, UnknownCheckpointError
from checkpoint.lock import WriterLock
from checkpoint.reader import Reader
from checkpoint.record import CheckpointRecord
from checkpoint.store import CheckpointStore

if TYPE_CHECKING:
    from checkpoint.chain import Chain, Lineage

EMPTY = "0"
"""The name of the empty state before the first checkpoint."""

_ALL = 10**9
"""A history that keeps every run of a temporary copy."""


@dataclass(frozen=True)
class OpenStore:
    """One store with its state at the checkpoints that were asked for.

    Args:
        store: the store; for a shard, a temporary copy.
        readers: the state at each checkpoint.
        operator: of a space, the operator.
        shard: of a space, the number of the shard.
        is_only: whether there is no other part to tell it apart from.
    """

    store: CheckpointStore
    readers: tuple[Reader, ...]
    operator: str | None = None
    shard: int | None = None
    is_only: bool = True

    @property
    def title(self) -> str:
        """What output calls the part; nothing for one that stands alone."""
        return "" if self.is_only else f"{self.operator}/{self.shard}"


@dataclass(frozen=True)
class Source:
    """Where the state lies.

    Args:
        path: a store file, a folder with a space, or an fsspec URL of one.
        operator: of a space, the operator whose state is meant; all by default.
        shard: of a space, the number of the shard; all by default.
    """

    path: str
    operator: str | None = None
    shard: int | None = None

    @property
    def words(self) -> list[str]:
        """What names it on a command line, with the options of a space."""
        operator = [] if self.operator is None else ["--operator", self.operator]
        return [self.path, *operator, *([] if self.shard is None else ["--shard", str(self.shard)])]

    @cached_property
    def is_location(self) -> bool:
        """Whether this is a space of shards rather than one file."""
        return local_path(self.path) is None or Path(self.path).is_dir()

    @contextmanager
    def open(self) -> Iterator[CheckpointStore]:
        """Open the store for reading; a shard is copied into a temporary folder.

        Raises:
            CheckpointError: there is nothing that can be read, or there are several shards.
        """
        if self.is_location:
            with self._only_shard() as store:
                yield store
            return
        self.require_file()
        with CheckpointStore(self.path, read_only=True) as store:
            yield store

    @contextmanager
    def open_to_write(self) -> Iterator[CheckpointStore]:
        """Open the store file for writing.

        Raises:
            CheckpointError: this is a space, whose shards only a pipeline writes; or the file cannot be written.
        """
        self.require_file()
        with CheckpointStore(self.path) as store:
            yield store

    def parts(self, *points: str | None) -> Iterator[OpenStore]:
        """Yield the store, or each chosen shard of a space, with the state at some checkpoints. One is open at a time.

        Args:
            points: the names of the checkpoints, the newest for None.

        Raises:
            CheckpointError: there is nothing that can be read, or no such checkpoint.
        """
        if not self.is_location:
            with self.open() as store:
                yield OpenStore(store, tuple(reader_at(store, point) for point in points))
            return
        chain = self.chain
        epochs = [find_epoch(chain, point) for point in points]
        shards = self.shards(epochs)
        for operator, shard in shards:
            with _copy_of(chain, operator, shard, epochs) as part:
                yield replace(part, is_only=len(shards) == 1)

    def shards(self, epochs: Iterable[int] = ()) -> list[tuple[str, int]]:
        """Return the operator and number of each chosen shard that a space has at any of some epochs.

        Args:
            epochs: the epochs, the newest if none is given; the number of shards may have changed between them.

        Raises:
            CheckpointError: there is no such operator or shard.
        """
        chain = self.chain
        counts = [(chain.shards_at(epoch), epoch) for epoch in epochs if epoch]
        count, epoch = max(counts, default=(chain.shards, chain.epoch))
        names: list[str] = [] if chain.newest is None else sorted(chain.newest.lineage)
        if self.operator is not None and self.operator not in names:
            near = get_close_matches(self.operator, names, 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise CheckpointError(
                f"{self.path}: there is no operator {self.operator!r}: {hint}it has {', '.join(names) or 'none yet'}"
            )
        if self.shard is not None and not 0 <= self.shard < count:
            at = f" at epoch {epoch}" if epoch else ""
            raise CheckpointError(f"{self.path} has no shard {self.shard}: it has {count}{at}, counted from 0")
        numbers = range(count) if self.shard is None else [self.shard]
        return [(name, number) for name in names if self.operator in (None, name) for number in numbers]

    @property
    def chain(self) -> Chain:
        """The space at the location.

        Raises:
            CheckpointError: there is none.
        """
        return self._opened[0]

    def require_kept(self) -> None:
        """Refuse to go on if epochs that were being read went: what is missing is then no damage.

        Raises:
            UnknownCheckpointError: epochs were collected since the space was opened.
        """
        if "_opened" not in vars(self):
            return
        chain, begun = self._opened
        first = chain.newest_view().first_epoch
        if first > begun:
            raise UnknownCheckpointError(
                f"{self.path}: the epochs before {first} were collected while they were read: run it again"
            )

    @cached_property
    def _opened(self) -> tuple[Chain, int]:
        """The space, and its first epoch when it was opened: the chain itself learns later which have gone."""
        try:
            from checkpoint.chain import Chain, location_at
        except ImportError as error:
            raise CheckpointError(str(error)) from None
        chain = Chain.open(location_at(self.path))
        return chain, chain.first_epoch

    @contextmanager
    def _only_shard(self) -> Iterator[CheckpointStore]:
        shards = self.shards()
        if len(shards) != 1:
            raise CheckpointError(
                f"{self.path} has {len(shards)} shards of {len({name for name, _ in shards})} operators:"
                " name one with --shard and --operator"
            )
        for part in self.parts(None):
            yield part.store

    def require_file(self, instead: str = "restore it into a file first") -> None:
        """Refuse anything but a store file.

        Args:
            instead: what to do if this is a space, which only a pipeline writes.

        Raises:
            CheckpointError: there is none, it is empty, or this is a folder or a space.
        """
        if self.is_location:
            url = self.chain.location.url  # A folder that holds no space is refused here.
            raise CheckpointError(f"{url} is a space of shards, which only a pipeline writes: {instead}")
        if "\0" in self.path or not Path(self.path).exists():
            raise _no_file(self.path)
        if Path(self.path).stat().st_size == 0:
            raise CheckpointError(f"{self.path} is empty: not a store")


def _no_file(path: str) -> CheckpointError:
    if "\0" not in path and Path(path).is_symlink():
        return CheckpointError(f"{path!r} is a link to {os.readlink(path)!r}, which does not exist: give another path")
    folder, name = Path(path).parent, Path(path).name
    others = [one.name for one in folder.iterdir()] if "\0" not in path and folder.is_dir() else []
    near = get_close_matches(name, others, 1)
    hint = f"did you mean {str(folder / near[0])!r}?" if near else "give the path of a store, or of a space"
    return CheckpointError(f"{path!r} does not exist: {hint}")


@dataclass(frozen=True)
class HeldSource(Source):
    """A store file that stays open: everything is read from one snapshot, whatever its writer merges meanwhile.

    Args:
        store: the store, opened for reading; the caller closes it.
    """

    store: CheckpointStore = field(kw_only=True)

    @contextmanager
    def open(self) -> Iterator[CheckpointStore]:
        """Yield the store."""
        yield self.store


@contextmanager
def _copy_of(chain: Chain, operator: str, shard: int, epochs: list[int]) -> Iterator[OpenStore]:
    """Open temporary copies of a shard: one for all epochs of a lineage, another where a new one begins."""
    lineages = [_lineage(chain, operator, shard, epoch) for epoch in epochs]
    with TemporaryDirectory() as folder, ExitStack() as stack:
        stores: dict[str, CheckpointStore] = {}
        for lineage in sorted(lineages, key=len):
            begin = _beginning(lineage)
            if begin not in stores:
                path = Path(folder) / f"{len(stores)}.db"
                stores[begin] = stack.enter_context(CheckpointStore(path, durability="normal", history=_ALL))
            fold_in(stores[begin], chain, lineage)
        readers = [
            stores[_beginning(lineage)].reader(epoch=lineage[-1].epoch) if lineage else stores[""].reader()
            for lineage in lineages
        ]
        newest = _beginning(lineages[-1]) if lineages else ""
        yield OpenStore(stores[newest], tuple(readers), operator, shard)


def _beginning(lineage: Lineage) -> str:
    """Return the file that a lineage begins with: for one epoch that may be a division, and later an image."""
    return lineage[0].file if lineage else ""


def _lineage(chain: Chain, operator: str, shard: int, epoch: int) -> Lineage:
    return chain.lineage(operator, shard, epoch) if epoch else ()


def fold_in(store: CheckpointStore, chain: Chain, lineage: Lineage) -> None:
    """Bring a copy of a shard to the end of a lineage.

    Raises:
        CorruptStoreError: a run file is missing or damaged.
    """
    from checkpoint.chain import catch_up

    if not catch_up(store, chain.location, lineage):
        raise CheckpointError(f"{chain.location.url}: the runs of a shard changed while they were read: try again")


@contextmanager
def folded(chain: Chain, steps: Lineage) -> Iterator[CheckpointStore]:
    """Yield a store with the state of a shard that some runs make up, in a temporary folder."""
    with TemporaryDirectory() as folder, CheckpointStore(Path(folder) / "copy.db", durability="normal") as store:
        fold_in(store, chain, steps)
        yield store


def find_epoch(chain: Chain, text: str | None) -> int:
    """Return the epoch of a space that a text names; 0 for the empty state before the first.

    Raises:
        UnknownCheckpointError: there is no such epoch.
    """
    text = "HEAD" if text is None else text
    if text == EMPTY:
        return 0
    if (back := steps_back(text)) is not None:
        epoch = chain.epoch - back
        if chain.epoch == back == 0:
            return 0
    elif _NUMBER.fullmatch(text):
        epoch = int(text.lstrip("@"))
    else:
        raise UnknownCheckpointError(f"{text!r} names no epoch: give its number, @EPOCH, HEAD or HEAD~2")
    if not chain.first_epoch <= epoch <= chain.epoch:
        known = f"there are {chain.first_epoch} to {chain.epoch}" if chain.epoch else "there are none yet"
        raise UnknownCheckpointError(f"{chain.location.url} has no epoch {text}: {known}; see `checkpoint log`")
    return epoch


def steps_back(text: str) -> int | None:
    """Return how many checkpoints before the newest one a text names; None if it names one otherwise.

    >>> steps_back("HEAD"), steps_back("HEAD~"), steps_back("HEAD~2"), steps_back("7")
    (0, 1, 2, None)
    """
    matched = _HEAD.fullmatch(text)
    return None if matched is None else int(matched[1] or "1") if matched[1] is not None else 0


def names_checkpoint(text: str) -> bool:
    """Return whether a text has the form of a checkpoint's name.

    >>> names_checkpoint("@70"), names_checkpoint("HEAD~1"), names_checkpoint("counts")
    (True, True, False)
    """
    return _HEAD.fullmatch(text) is not None or _NUMBER.fullmatch(text) is not None


_HEAD = re.compile(r"HEAD(?:~(\d{0,18}))?", re.ASCII)
_NUMBER = re.compile(r"(?:@-?)?\d{1,19}", re.ASCII)


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
    if text == EMPTY or (not records and text == "HEAD"):
        return None
    if (back := steps_back(text)) is not None:
        found = records[-1 - back] if back < len(records) else None
    elif _NUMBER.fullmatch(text):
        number = int(text.lstrip("@"))
        found = next((r for r in records if (r.epoch if text.startswith("@") else r.number) == number), None)
    else:
        raise UnknownCheckpointError(f"{text!r} names no checkpoint: give a number, @EPOCH, HEAD or HEAD~2")
    if found is None:
        raise UnknownCheckpointError(f"{store.path} has no checkpoint {text}: {_known(records)}; see `checkpoint log`")
    return found


def _known(records: list[CheckpointRecord]) -> str:
    if not records:
        return "there are none yet"
    first, last = records[0], records[-1]
    return f"there are {first.number} to {last.number}, of epochs {first.epoch} to {last.epoch}"


def reader_at(store: CheckpointStore, text: str | None) -> Reader:
    """Return the state at the checkpoint that a text names.

    Raises:
        UnknownCheckpointError: there is none, or its rows were merged.
    """
    record = find(store, text)
    return store.reader(record.number) if record is not None else Reader(store.session, ())


def query(store: CheckpointStore, statement: str, *parameters: object) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a SELECT, fetched page by page.

    Not through ``store.database``: that imports pandas if it is installed, a hundred MiB for nothing.
    """
    with store.session.cursor(statement, parameters) as fetch:
        while page := fetch(Reader.PAGE_ROWS):
            yield from page


def remove_unused(path: str) -> None:
    """Remove a new store into which nobody has saved; one that somebody else has made meanwhile stays."""
    try:
        lock = WriterLock(Path(path))
    except CheckpointError:
        return
    try:
        with CheckpointStore(path, read_only=True) as store:
            is_used = bool(store.checkpoints())
    except CheckpointError:
        is_used = False  # It had not become a store yet.
    if not is_used:
        remove_store(path)
    lock.release()


def remove_store(path: str) -> None:
    """Remove a store that could not be completed, with everything that lies beside it."""
    for end in ("", "-wal", "-shm", ".lock", ".owner"):
        Path(path + end).unlink(missing_ok=True)
