"""Writers: what a space saves into, and what makes a run durable."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from inspect import CORO_CLOSED, CORO_SUSPENDED, getcoroutinestate
from threading import RLock
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import ReferenceType, ref

from checkpoint.errors import CheckpointError, UnknownCheckpointError, not_copied
from checkpoint.run import CheckpointKind, Payload, Run, reachable

if TYPE_CHECKING:
    from checkpoint.reader import Reader
    from checkpoint.store import CheckpointStore


class WriterState(StrEnum):
    """The state of a writer. ``UNKNOWN`` means that the commit failed in a way that leaves its outcome open."""

    OPEN = "open"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class ObjectReceipt:
    """What one object cost in a checkpoint: item rows, and the bytes of its rows."""

    slots: int
    bytes: int
    seconds: float

    def __add__(self, other: ObjectReceipt) -> ObjectReceipt:
        return ObjectReceipt(self.slots + other.slots, self.bytes + other.bytes, self.seconds + other.seconds)


@dataclass(frozen=True)
class Receipt:
    """What a checkpoint cost, in total and by object.

    ``slots`` counts item rows, deletions included; ``bytes`` is the payload of all rows; ``seconds`` is wall time from
    the beginning of the save to the end of the commit, or of the commit alone if the two are called separately.
    ``objects`` has what was collected of each object, by name; to a full checkpoint the store adds the slots that did
    not change, which ``objects`` does not count. Objects with the same name are added up, for example one called
    ``g['a']`` and the one under the key ``a`` in ``g``.
    """

    number: int
    epoch: int
    kind: CheckpointKind
    slots: int
    bytes: int
    seconds: float
    objects: dict[str, ObjectReceipt] = field(default_factory=dict, hash=False)


class Writer:
    """Takes the rows of one save and makes them durable on :meth:`commit`; the base of every writer.

    A writer serves one save. After :meth:`commit` or :meth:`rollback` it is spent.
    """

    def __init__(self, kind: CheckpointKind, epoch: int | None = None) -> None:
        self.kind = CheckpointKind(kind)
        self.epoch = epoch
        self.state = WriterState.OPEN
        self.receipt: Receipt | None = None
        self._run: Run | None = None
        self._base: Reader | None = None
        self._committed: Reader | None = None
        self._costs: dict[str, ObjectReceipt] = {}
        self._ending = RLock()
        self._has_begun = False
        self._commits: list[_AsyncCommit] = []

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise not_copied(self, "open another writer where one is needed: each serves one save")

    def __repr__(self) -> str:
        epoch = "" if self.epoch is None else f", epoch {self.epoch}"
        return f"<{type(self).__name__} {self.kind}{epoch} [{self.describe()}]>"

    def collect(self, run: Run, base: Reader | None, costs: Mapping[str, ObjectReceipt] | None = None) -> None:
        """Take the rows of a save.

        Args:
            run: the rows.
            base: a reader of the state that they change.
            costs: what was collected of each object, by name.

        Raises:
            CheckpointError: the writer already holds a save, or is spent.
        """
        if self.state is not WriterState.OPEN or self._run is not None:
            raise CheckpointError(f"this writer is {self.describe()}: ask for a new writer for each save")
        self._run, self._base, self._costs = run, base, dict(costs or {})

    def commit(self) -> Receipt | None:
        """Make the collected rows durable, all or nothing.

        Raises:
            CheckpointError: nothing was saved into the writer, or it is spent.

        Time: O(rows · log rows); for a full checkpoint of a store O(state).
        Dirties: one row of ``checkpoint`` and the rows of the run; those of a :class:`RunWriter` are in its run alone.
        """
        with self._ending:
            if self.state is not WriterState.OPEN or self._run is None:
                raise CheckpointError(
                    f"this writer is {self.describe()}: save a space into a new writer, then commit it"
                )
            self._has_begun = True
            self._publish(self._run)
            self.state = WriterState.COMMITTED
            self._base = None  # It would keep its runs from being dropped for as long as somebody has the writer.
            return self.receipt

    def commit_async(self) -> Coroutine[Any, Any, Receipt | None]:
        """Run :meth:`commit` in a thread of its own, so that an event loop can go on meanwhile.

        If it is cancelled, its thread may go on with the commit. The next save of the space waits for the thread and
        finds out how the commit ended; a commit that has not begun by then is taken back.
        """
        loops: list[asyncio.AbstractEventLoop] = []
        commit = self._commit_in_thread(loops)
        self._commits.append(_AsyncCommit(ref(commit), loops))  # Also one that is cancelled early.
        return commit

    async def _commit_in_thread(self, loops: list[asyncio.AbstractEventLoop]) -> Receipt | None:
        loops.append(asyncio.get_running_loop())
        return await asyncio.to_thread(self.commit)

    def is_let_go(self) -> bool:
        """Return whether :meth:`commit_async` was called and nobody can await it any more.

        It ended, or was cancelled, or its event loop is closed; if it was called several times, this holds for each
        call.
        """
        return bool(self._commits) and all(commit.is_let_go() for commit in self._commits)

    def is_awaited(self) -> bool:
        """Return whether a :meth:`commit_async` has not yet returned to its awaiter, even if its thread has ended."""
        return any(commit.is_suspended() for commit in self._commits)

    def rollback(self) -> None:
        """Give the collected edits back to their space: its next save covers them.

        It waits for a commit that is under way in another thread, for example that of :meth:`commit_async`.

        Raises:
            CheckpointError: the rows are already durable.
        """
        with self._ending:
            if self._has_begun and self.state is WriterState.OPEN:
                self.state = WriterState.UNKNOWN  # Its commit was interrupted.
            if self.is_durable():
                raise CheckpointError(
                    "this writer is committed, what was saved is durable: call space.on_saved() and go on; only"
                    " space.rollback(epoch=...) goes back to an older state"
                )
            self.state = WriterState.ROLLED_BACK
            self.settle()

    def is_durable(self) -> bool:
        """Return whether the collected rows are durable, after waiting for any commit under way in another thread."""
        with self._ending:
            return self.state is WriterState.COMMITTED

    def accepts(self, store: CheckpointStore) -> bool:
        """Return whether the rows of a space on ``store`` may go to this writer."""
        return True

    def is_newest_in(self, store: CheckpointStore, base: Reader) -> bool:
        """Return whether the collected rows are durable as the newest checkpoint of ``store``, on top of ``base``."""
        return self.is_durable()

    @property
    def number(self) -> int | None:
        """The number of the checkpoint that the rows became; ``None`` if they are none, or not yet one."""
        return None

    @property
    def committed(self) -> Reader | None:
        """A reader of what was committed, which a rollback of the store retires; ``None`` if there is none."""
        return self._committed

    def settle(self) -> None:
        """Let go of what was read and committed: it would keep its runs from being dropped."""
        self._base = self._committed = None

    def describe(self) -> str:
        """Return the state of the writer in words."""
        if self.state is WriterState.OPEN:
            return "open, with nothing saved into it" if self._run is None else "open, with a save in it"
        return str(self.state)

    def _publish(self, run: Run) -> None:
        raise CheckpointError("this writer keeps its rows nowhere: use CheckpointStore.writer() or RunWriter")


@dataclass(frozen=True)
class _AsyncCommit:
    """One call of :meth:`Writer.commit_async` and, once it has begun, the event loop that it waits in."""

    coroutine: ReferenceType[Coroutine[Any, Any, Receipt | None]]
    loops: list[asyncio.AbstractEventLoop]

    def is_suspended(self) -> bool:
        """Return whether it has begun and will return to its awaiter; a closed loop resumes nobody."""
        return self._state() == CORO_SUSPENDED and not self.loops[0].is_closed()

    def is_let_go(self) -> bool:
        """Return whether it can no longer return to anybody."""
        return self._state() == CORO_CLOSED or (self._state() == CORO_SUSPENDED and self.loops[0].is_closed())

    def _state(self) -> str:
        commit = self.coroutine()
        return CORO_CLOSED if commit is None else getcoroutinestate(commit)


class RunWriter(Writer):
    """Keeps the rows of one save as a :class:`Run`, for files and networks instead of a store.

    >>> writer = RunWriter(CheckpointKind.DIFFERENTIAL)
    """

    @property
    def run(self) -> Run:
        """The rows that were saved."""
        if self._run is None:
            raise CheckpointError(f"this writer is {self.describe()}: save a space into it first")
        return self._run

    def is_newest_in(self, store: CheckpointStore, base: Reader) -> bool:
        """Return whether the run was applied to ``store`` as its newest checkpoint, right on top of ``base``.

        Equal rows on top of anything else are another state, unless they are a whole one.
        """
        if not self.is_durable():
            return False
        with store.unchanged_since(None):
            number = store.next_number() - 1
            is_newest = store.holds(number, self.run, is_whole=True)
            if self.kind is CheckpointKind.DIFFERENTIAL:
                is_newest = is_newest and base.newest == number - 1 and not base.is_retired
            self._committed = store.reader() if is_newest else None
        return is_newest

    def _publish(self, run: Run) -> None:
        if self.kind is CheckpointKind.FULL and self._base is not None:
            self._run = overlay(self._base.image(), run)
        self.run.sort()


class CheckpointWriter(Writer):
    """Commits the rows of one save as the next checkpoint of a :class:`CheckpointStore`."""

    def __init__(self, store: CheckpointStore, kind: CheckpointKind, epoch: int | None = None) -> None:
        super().__init__(kind, epoch)
        self._store = store

    def accepts(self, store: CheckpointStore) -> bool:
        """Return whether ``store`` is the one that this writer commits to."""
        return store is self._store

    def is_durable(self) -> bool:
        """Return whether the rows are durable, asking the store itself after a commit of unknown outcome.

        Raises:
            StoreFailedError: the store cannot tell before its ``reopen()``.
        """
        with self._ending:
            if self.state is WriterState.UNKNOWN and self._run is not None:
                with self._store.unchanged_since(None):
                    self._find_out(self._run)
            return super().is_durable()

    def _find_out(self, run: Run) -> None:
        """Note how the commit has ended; from now on, a rollback retires the reader of what it has brought."""
        if not self._has_arrived(run):
            self.state = WriterState.ROLLED_BACK
            self.settle()
            return
        if self._base is not None:
            self._committed = self._reader_of_arrived()
        self.state, self._base = WriterState.COMMITTED, None

    def _reader_of_arrived(self) -> Reader:
        """Return a reader of the checkpoint, a retired one if it was merged since: somebody else has committed then."""
        try:
            return self._store.reader(self.attempted)
        except UnknownCheckpointError as error:
            reader = self._store.reader()
            reader.retire(str(error))
            return reader

    def _has_arrived(self, run: Run) -> bool:
        """Return whether the store has the rows as they were committed: on top of their base, and for their epoch.

        Somebody else may have committed equal rows with the same number since.
        """
        number = self.attempted
        if number is None or not self._store.holds(number, run) or (self._base is not None and self._base.is_retired):
            return False
        return self.epoch is None or self._store.epoch_of(number) == self.epoch

    @property
    def number(self) -> int | None:
        """The number of the checkpoint that the rows became."""
        return self.attempted if self.is_durable() else None

    @property
    def attempted(self) -> int | None:
        """The number that the store gave the rows, whether or not the commit succeeded; ``None`` if it gave none."""
        return self._run.attempt[0] if self._run is not None and self._run.attempt is not None else None

    def _publish(self, run: Run) -> None:
        try:
            with self._store.unchanged_since(self._base):
                self.receipt = replace(self._store.append(run, self.epoch), objects=self._costs)
                # A rollback retires it. Without a space, nobody would take it, and it would hold its runs.
                self._committed = None if self._base is None else self._store.reader()
        except BaseException:
            self.state = WriterState.UNKNOWN
            # Ask now, before another writer takes the number. A store that failed can tell once it is open again.
            with suppress(CheckpointError):
                self.is_durable()
            raise


def overlay(base: Run, changes: Run) -> Run:
    """Return the complete image that ``base`` becomes when ``changes`` are applied to it.

    Time: O(base + changes).
    """
    index = {row[0]: row for row in base.index} | {row[0]: row for row in changes.index}
    metadata = {row[:2]: row for row in base.metadata} | {row[:2]: row for row in changes.metadata}
    items = {row[:2]: row for row in base.items} | {row[:2]: row for row in changes.items}
    image = Run(
        CheckpointKind.FULL,
        [row for row in index.values() if row[2] is not None],
        [row for row in metadata.values() if row[2] is not None],
        [row for row in items.values() if row[2] is not None],
    )
    values: dict[int, list[Payload | None]] = defaultdict(list)
    for object_id, _, value, _ in image.items:
        values[object_id].append(value)
    live = reachable(image.index, lambda object_id: values[object_id])
    image.metadata = [row for row in image.metadata if row[0] in live]
    image.items = [row for row in image.items if row[0] in live]
    image.sort()
    return image
