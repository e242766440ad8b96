"""The persisted object space: the three steps that make changes to objects durable."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn
from weakref import WeakSet, WeakValueDictionary

from checkpoint import (
    CheckpointError,
    CheckpointKind,
    CheckpointStore,
    EpochTypeError,
    ObjectReceipt,
    Reader,
    Receipt,
    Run,
    UnknownCheckpointError,
    Writer,
    WriterState,
)
from checkpoint.errors import not_copied
from checkpoint.process import collecting_seldom
from checkpoint.session import Durability
from objectspace.errors import CheckpointProtocolError
from objectspace.flight import Flight, current_task
from objectspace.held_slots import HeldSlots
from objectspace.objects.base import PersistedObject
from objectspace.objects.torn import Torn, under_way
from objectspace.objects.variants import BY_NAME, is_cold, is_dead, refuse_dead
from objectspace.space import CACHE_SLOTS, Entry, ObjectSpace, checked_cache_slots, refuse_closed, refuse_unstored

FORMER_IDS = 64
"""How many of its former ids a handle remembers, to find its object again after a rollback."""

_UNSHARED = BY_NAME + 1
"""What ``sys.getrefcount`` returns for a handle that only its table and a local name refer to."""


class PersistedObjectSpace(ObjectSpace):
    """An object space on a :class:`~checkpoint.CheckpointStore`.

    The three steps of a checkpoint are :meth:`save`, which collects what is dirty, ``writer.commit()``, which makes it
    durable, and :meth:`on_saved`, which drops what was collected. Edits in between stay dirty for the next save; a
    commit that failed loses nothing, because the next save covers it. :meth:`checkpoint` does all three.

    One thread at a time may change objects or save; other threads may read objects that nobody is changing, but an
    iteration of theirs may end with a RuntimeError when a checkpoint is acknowledged. A rollback or a close changes all
    objects: meanwhile no other thread may read. The commit may run in a thread of its own.

    Args:
        store: the store; many spaces may read it, but only one at a time may write.
        cache_slots: how many clean slots to keep in memory; a large one counts as several, one for each 256 bytes that
            the values of its object have on average.

    >>> from checkpoint import CheckpointStore
    >>> space = PersistedObjectSpace(CheckpointStore(":memory:"))
    >>> array = space.create_array("foo", 8, default=0)
    >>> array[3] = 42
    >>> space.checkpoint().slots
    8
    >>> array[3] = 43
    >>> space.checkpoint().slots
    1
    """

    _reader: Reader
    _stored_index: dict[int, Entry]

    def __init__(self, store: CheckpointStore, *, cache_slots: int = CACHE_SLOTS, _at: Reader | None = None) -> None:
        super().__init__(cache_slots)
        if not isinstance(store, CheckpointStore):
            raise TypeError(
                f"a space stands on a CheckpointStore, not on a {type(store).__name__}: use"
                " PersistedObjectSpace.open(path), or PersistedObjectSpace(CheckpointStore(path))"
            )
        self._store = store
        self._lent: WeakValueDictionary[int, PersistedObject] = WeakValueDictionary()
        self._owns_store = False
        self._read_only = _at is not None or store.read_only
        self._dirty: dict[int, PersistedObject] = {}
        self._held = HeldSlots(cache_slots)
        self._index_dirty: set[int] = set()
        self._flight: Flight | None = None
        self._is_settled_early = False
        """Whether a save that was refused has found the one before it durable, which was not acknowledged yet."""
        self._owed: WeakSet[Any] = WeakSet()
        """The tasks whose saves those of other tasks have found durable, before they could acknowledge them."""
        self._at_epoch: int | None = None
        reader = _at or store.reader()
        self._take_over(reader, _index_of(reader), {})

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        cache_slots: int = CACHE_SLOTS,
        durability: Durability = "full",
        read_only: bool = False,
        history: int | None = None,
    ) -> PersistedObjectSpace:
        """Open the space in a store file, creating it if it does not exist; :meth:`close` closes the file too.

        Args:
            path: the file.
            cache_slots: how many clean slots it keeps in memory.
            durability: what a commit waits for: see :class:`~checkpoint.CheckpointStore`.
            read_only: whether nothing can be changed.
            history: how many of the newest checkpoints stay readable: see :class:`~checkpoint.CheckpointStore`.
        """
        cache_slots = checked_cache_slots(cache_slots)
        store = CheckpointStore(path, durability=durability, read_only=read_only, history=history)
        try:
            space = cls(store, cache_slots=cache_slots)
        except BaseException:
            store.close()  # so that whoever repairs it is not kept out
            raise
        space._owns_store = True
        return space

    @property
    def store(self) -> CheckpointStore:
        """The store of the space."""
        return self._store

    @property
    def read_only(self) -> bool:
        """Whether nothing can be changed: the space is that of an earlier epoch, or its store is read-only."""
        return self._read_only

    @property
    def last_epoch(self) -> int:
        """The last epoch that is stored, or 0 if there is none."""
        return self._store.next_epoch() - 1

    @collecting_seldom()
    def save(self, writer: Writer) -> None:
        """Collect what is dirty into ``writer`` and open a new page of edits.

        Raises:
            CheckpointProtocolError: another save is in flight: commit or roll back its writer first; or this is the
                middle of an edit, in a signal handler or a method of a key: go back with rollback() after it.
            UnencodableValueError: a value cannot be stored; nothing was collected, and the edits stay.

        The epoch of the checkpoint is never earlier than the last one that a table has sealed.

        Time: O(dirty slots · log dirty slots), and O(1) for each live handle of a list, dictionary, set, queue or
        stack: a change that was not noted is looked for.
        """
        if not isinstance(writer, Writer):
            raise TypeError(
                f"save() takes a writer, not a {type(writer).__name__}: ask the store with space.store.writer()"
            )
        if not writer.accepts(self._store):
            raise CheckpointProtocolError("this writer belongs to another store: ask for one with space.store.writer()")
        self._begin_save()
        self._use_sealed_epoch(writer)
        started = time.perf_counter()
        run = Run(writer.kind)
        noted, index = dict(self._dirty), self._dirty_entries()
        with self.in_one_piece():
            costs = self._collect_all(noted, run)
        saved = list(noted.values())
        is_as_noted = self._dirty == noted and self._dirty_entries() == index
        if not is_as_noted:  # Code of a value has made edits, which are for the next save.
            saved = [target for object_id, target in noted.items() if self._dirty.get(object_id) is target]
            index = {object_id: entry if object_id in self._entries else None for object_id, entry in index.items()}
        run.index = [row for object_id in sorted(index) if (row := self._index_row(object_id, index[object_id]))]
        writer.collect(run, self._reader, costs)
        self._torn = Torn.WITHIN
        for target in saved:
            target._turn()
            if _can_slip(target):
                self._lent[target._id] = target
        if is_as_noted:
            self._dirty, self._index_dirty = {}, set()
        else:
            self._keep_later(noted, index)
        self._flight, self._is_settled_early = Flight(writer, saved, index, started), False
        if self._flight.task is not None:
            self._owed.discard(self._flight.task)
        self._torn = Torn.NO

    def _dirty_entries(self) -> dict[int, Entry | None]:
        return {object_id: self._entries.get(object_id) for object_id in self._index_dirty}

    def _keep_later(self, noted: dict[int, PersistedObject], index: dict[int, Entry | None]) -> None:
        """Keep for the next save what was noted since this one began, by code of the values that it has saved."""
        self._dirty = {one: target for one, target in self._dirty.items() if one not in noted}
        self._index_dirty = {
            one for one in self._index_dirty if one not in index or self._entries.get(one) != index[one]
        }

    def _use_sealed_epoch(self, writer: Writer) -> None:
        """Give the checkpoint the epoch that was sealed if it would otherwise have an earlier one."""
        sealed = self._last_sealed()
        if writer.epoch is None and sealed >= self._store.next_epoch():
            writer.epoch = sealed
        if sealed and writer.epoch is not None and writer.epoch < sealed:
            raise CheckpointProtocolError(
                f"the writer is for epoch {writer.epoch}, and rows were sealed for epoch {sealed}: ask for a writer of"
                f" epoch {sealed} or later"
            )

    def on_saved(self) -> None:
        """Acknowledge the last save, whose writer has committed.

        Raises:
            CheckpointProtocolError: nothing was saved, its writer has not committed, or this is the middle of an edit.
        """
        self._usable()
        self._refuse_amid_edit("an acknowledgement")
        flight, task = self._flight, current_task()
        if task is not None and task in self._owed:
            self._owed.discard(task)
        elif flight is not None and flight.writer.is_newest_in(self._store, self._reader):
            self._settle(durable=True)
        elif flight is None and self._is_settled_early:
            self._is_settled_early = False
        else:
            raise self._not_saved(flight)

    def _not_saved(self, flight: Flight | None) -> CheckpointProtocolError:
        if flight is None:
            return CheckpointProtocolError(
                "on_saved() without a save: call save(writer), writer.commit(), then on_saved()"
            )
        writer = flight.writer
        if writer.state is WriterState.COMMITTED:
            return CheckpointProtocolError(
                "on_saved() before the rows were applied: the writer is committed, but the newest checkpoint of"
                f" {self._store.path} is not its run on top of what this space has read; apply the run to the store as"
                " its next checkpoint, or drop the edits with rollback()"
            )
        return CheckpointProtocolError(
            f"on_saved() before the commit: the writer is {writer.describe()}; call writer.commit() first"
        )

    @collecting_seldom()
    def checkpoint(self, epoch: int | None = None, kind: CheckpointKind = CheckpointKind.DIFFERENTIAL) -> Receipt:
        """Save, commit and acknowledge in one step.

        Args:
            epoch: the epoch that the checkpoint seals; one more than the last by default.
            kind: what changed, or a complete image.

        Returns:
            the receipt: slots, bytes and seconds, in total and by object.

        Time: O(dirty slots · log dirty slots), whatever the size of the state, and as in :meth:`save` O(1) for each
        live handle of some kinds; each open relational table is asked.
        """
        self._usable()
        if self._barriers:
            self._begin_save()  # Whatever refuses the save must do so before an epoch is sealed.
            sealed = self._last_sealed()
            epoch = max(self._store.next_epoch(), sealed) if epoch is None else epoch
            with self.in_one_piece():
                for seal in self._barriers:
                    seal(epoch)
        writer = self._store.writer(kind, epoch)
        try:
            self.save(writer)
            flight = self._flight
            assert flight is not None
            committed = writer.commit()
        except BaseException:
            if writer.state is WriterState.OPEN:
                with suppress(CheckpointError):  # If the commit has ended, that is found out later.
                    writer.rollback()
            raise
        assert committed is not None
        receipt = replace(committed, seconds=time.perf_counter() - flight.started)
        self._settle(durable=True)
        return receipt

    def rollback(self, epoch: int | None = None) -> None:
        """Drop what is not committed; with an epoch, also every checkpoint after it.

        A handle continues with what is stored of its object, under whatever name. It refuses work if nothing is stored,
        or if another object has taken its place that is of another kind or was created with other options. If the
        object had more than 32 items and was cleared since, only a handle from before the clearing finds it: get any
        other one again.

        If a rollback fails or is interrupted, nothing can be saved until another rollback completes.

        Raises:
            CheckpointProtocolError: this is the middle of an edit, in a signal handler or a method of a key.
            UnknownCheckpointError: no checkpoint has this epoch, or it was merged; nothing has changed then.
            EpochTypeError: the epoch is not a 64-bit int; nothing has changed then.

        Time: O(objects and open tables) in memory. Dirties: nothing; with an epoch, what came after it goes.
        """
        self._usable()
        self._will_change()
        self._refuse_amid_edit("a rollback")
        with self._torn_by_failure():
            self._end_flight()
            if epoch is not None:
                self._truncate_after(epoch)
        self._is_settled_early, self._owed = False, WeakSet()
        self._drop_edits()
        for forget in list(self._rollbacks):
            forget()
        self._torn = Torn.NO  # Before this, the objects are at the last checkpoint, but layers above may not be.

    @contextmanager
    def _torn_by_failure(self) -> Iterator[None]:
        """What was to be dropped is not saved if dropping it fails, unless no checkpoint has the epoch."""
        before = self._torn
        try:
            yield
        except (UnknownCheckpointError, EpochTypeError):
            self._torn = before
            raise
        except BaseException:
            self._torn = max(before, Torn.WITHIN)
            raise

    def _end_flight(self) -> None:
        """Find out how the save in flight has ended, if there is one, and take back what was not committed."""
        if self._flight is not None and self._flight.is_pending():
            with suppress(CheckpointError):  # A commit that was under way may have ended.
                self._flight.writer.rollback()
        if self._torn and self._flight is not None:
            durable = self._flight.writer.is_newest_in(self._store, self._reader)
            self._note_what_is_stored(self._flight, durable)
            self._flight = None  # What is in memory is dropped in any case.
        self._resolve()

    def _truncate_after(self, epoch: int) -> None:
        """Drop the checkpoints after an epoch; from then on the space is torn until what is in memory has followed."""
        newest = self._store.reader(epoch=epoch).newest
        self._torn = max(self._torn, Torn.WITHIN)
        self._store.truncate_after(newest)

    def at(self, epoch: int) -> PersistedObjectSpace:
        """Return a read-only space as of an epoch.

        Raises:
            UnknownCheckpointError: no checkpoint has this epoch, or it was merged.
            EpochTypeError: the epoch is not a 64-bit int.
        """
        self._usable()
        if epoch is None:
            raise EpochTypeError("epoch is None: expected an int; the space itself shows what is newest")
        found = PersistedObjectSpace(self._store, cache_slots=self.cache_slots, _at=self._store.reader(epoch=epoch))
        found._at_epoch = epoch
        return found

    def close(self) -> None:
        """Close the space, and the store if :meth:`open` opened it; nothing is saved. May be called twice.

        A store that was passed to the space stays open, and its file locked, until its own ``close()``.
        """
        self._closed = True
        for handle in list(self._handles.values()):  # Also those that an interrupted call has left.
            self._kill(handle, refuse_closed)
        self._reader = self._reader.of_nothing()  # What it has shown may be dropped now.
        if self._owns_store:
            self._store.close()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        instead = "open the store where it is needed, by its path; a copy of the store is made by fork()"
        raise not_copied(self, instead)

    def __repr__(self) -> str:
        name, path = type(self).__name__, self._store.path
        if self._closed:
            return f"<{name} {path!r} [closed]>"
        if not self._store.session.is_open:
            return f"<{name} {path!r} [its store is closed]>"
        if self._reader.is_retired:
            return f"<{name} {path!r} [the checkpoint that it shows no longer exists]>"
        shown = [self._shown_state(), self._shown_count(), *(["read-only"] if self._read_only else [])]
        return f"{name}({', '.join([repr(path), *shown])})"

    def _shown_state(self) -> str:
        """Return what is shown of the state, without a question to the store, which may be busy."""
        number = self._reader.newest
        if not number:
            return "no checkpoint yet"
        if self._at_epoch is not None:
            return f"epoch {self._at_epoch}"
        return f"epoch {self.last_epoch}" if number == self._store.next_number() - 1 else f"checkpoint {number}"

    def reader(self) -> Reader:
        """Return the reader of the last acknowledged state.

        Raises:
            CheckpointProtocolError: the space is closed; iterators that were kept from before come here as well.
        """
        if self._closed:
            self._usable()
        return self._reader

    def _lend(self, handle: PersistedObject) -> None:
        if isinstance(handle, list | dict):
            self._lent[handle._id] = handle

    def touch(self, target: PersistedObject) -> None:
        """Note that an object is about to change."""
        if target._id not in self._dirty:
            self._will_change()
            refuse_dead(target)
            if is_cold(target) and not isinstance(target, dict):  # A dictionary keeps what is put into it.
                raise CheckpointProtocolError(
                    f"{target._describe()}: this method dates from before a rollback; nothing was changed: look it up"
                    " again"
                )
            self._dirty[target._id] = target

    def _kill(self, handle: PersistedObject, refusal: Callable[[Any], None]) -> None:
        self._dirty.pop(handle._id, None)  # First: what refuses all work cannot be saved.
        super()._kill(handle, refusal)
        self.account(handle, 0)
        self._held.drop(handle._id)

    def check_mutations(self) -> list[tuple[str, Any]]:
        """Return (name, slot) of every value in memory that was changed in place, which no checkpoint will save.

        Assign such a value to its slot again to make it an edit. What C code has written into a list counts as well, so
        lists are compared with the store. Time: O(slots in memory).
        """
        self._usable()
        for handle in () if self._read_only or self._flight else list(self._all_handles()):
            if handle._id not in self._dirty and handle._has_slipped():
                self._note_slip(handle)
        return super().check_mutations()

    def renumber(self, target: PersistedObject) -> None:
        """Give an object a new id, under which nothing is stored: its old rows are out of reach."""
        with self.in_one_piece(), self.mutex:  # Another thread may be making room.
            self._dirty.pop(target._id, None)
            held, lent = self._held.take_out(target._id), self._lent.pop(target._id, None)
            if target._id in self._stored_index or (self._flight is not None and target._id in self._flight.index):
                target._former = (*target._former, target._id)[-FORMER_IDS:]
            super().renumber(target)
            self._held.put_back(target._id, held)
            if lent is not None:
                self._lent[target._id] = lent
            self.touch(target)

    def account(self, target: PersistedObject, slots: int | None = None) -> None:
        """Note how many slots an object now holds in memory, large ones as several.

        Those of an owned object count as its owner's.

        Args:
            target: the object.
            slots: how many slots to note instead.
        """
        with self.mutex:
            self._held.note(target, target._held() * target._weight if slots is None else slots)

    def make_room(self) -> None:
        """Drop clean slots if too many are in memory: those that no caller can be in the middle of using."""
        if self._held.is_crowded:
            self._evict(gently=True)

    def _check(self) -> None:
        """Assert every invariant of the space and of each object in memory."""
        assert {name: self._entries[object_id][0] for name, object_id in self._ids.items()} == {n: n for n in self._ids}
        assert self._entries.keys() == set(self._ids.values())
        assert self._handles.keys() <= self._entries.keys()
        assert all(object_id < self._next_id for object_id in self._entries)
        self._held.check()
        assert all(target._id == object_id and not is_dead(target) for object_id, target in self._dirty.items())
        assert all(lent._id == known_as or is_dead(lent) for known_as, lent in self._lent.items())
        for handle in self._all_handles():
            handle._check()

    def _take_over(self, reader: Reader, stored: dict[int, Entry], handles: dict[int, PersistedObject]) -> None:
        """Take over the index from the store, and the handles of what is in it; objects are read when touched."""
        self._reader, entries = reader, dict(stored)
        ids = {entry[0]: object_id for object_id, entry in entries.items()}
        # An id in the index is never given out again, whatever the store says about the next one.
        self._next_id = max(self._next_id, int(self._store.next_object_id()), *(found + 1 for found in entries))
        # All at once and last, so that a rollback that is interrupted before this can be repeated.
        self._stored_index, self._entries, self._ids, self._handles = stored, entries, ids, handles

    def check_save(self) -> None:
        """Refuse what :meth:`save` would refuse before it collects anything: for layers above, before an epoch.

        Raises:
            CheckpointProtocolError: another save is in flight, somebody else has saved into the store, something was
                interrupted halfway, or this is the middle of an edit.
            CheckpointError: the space is read-only.
        """
        self._settle_flight()

    def _begin_save(self) -> None:
        self._settle_flight()
        with self.in_one_piece(), self.mutex:  # Another thread may be bringing slots into memory.
            self._find_slipped()

    def _settle_flight(self) -> None:
        """Find out how the last save has ended, and refuse what cannot follow it."""
        self._usable()
        self._will_change()
        self._refuse_amid_edit("a checkpoint")
        self._require_whole()
        if self._flight is not None and self._flight.is_abandoned():
            with suppress(CheckpointError):  # Its commit may have ended, or is ending now in its thread.
                self._flight.writer.rollback()
        self._refuse_second()
        self._resolve()
        # If another space rolled back, the number of what this one has read may by now be that of another checkpoint.
        if self._reader.is_retired or self._reader.newest != self._store.next_number() - 1:
            raise CheckpointProtocolError(
                f"{self._store.path} has moved on since this space read it: somebody else has saved into it; pick that"
                " up with rollback(), and let one space write at a time"
            )
        self._may_be_refused()

    def _refuse_second(self) -> None:
        """Refuse a save while the one in flight may still commit, or whoever awaits its commit does not know yet."""
        if self._flight is None:
            return
        if self._flight.is_pending():
            raise CheckpointProtocolError(
                "two saves in flight: commit the writer of the first save, await its commit if that is under way, or"
                " roll it back"
            )
        # Whoever awaits a commit that has failed has nothing to acknowledge, so nothing comes in between.
        if self._flight.writer.is_awaited() and self._flight.writer.is_durable():
            raise CheckpointProtocolError(
                "two saves in flight: the commit of the first save has made it durable, but has not returned to its"
                " awaiter: await it, or call space.on_saved() if nobody will; then save again"
            )

    def _find_slipped(self) -> None:
        """Note what a bound method, kept from before a save, or C code has changed without being noted.

        Only objects that this space has saved can have lent out a method. C code may write into what is a list or a
        dictionary at any time; a list that an object owns is checked until only its owner holds it at a save.
        """
        for target in list(self._dirty.values()):
            if target._is_astray():
                target._note_slip()
        slipped = [handle for handle in self._lent.values() if handle._has_slipped()]
        for handle in slipped:
            if handle._id not in self._dirty and not is_dead(handle):
                self._note_slip(handle)
        del slipped  # It would be one more reference to them.
        self._take_back([handle._id for handle in self._lent.values() if handle._owner is not None])

    def _take_back(self, owned: Sequence[int]) -> None:
        """Stop checking those lists that only their owners hold."""
        for object_id in owned:
            handle = self._lent.get(object_id)
            if isinstance(handle, list) and sys.getrefcount(handle) <= _UNSHARED:
                del self._lent[object_id]

    def _note_slip(self, handle: PersistedObject) -> None:
        handle._wake()
        self.touch(handle)
        handle._note_slip()

    def _collect_all(self, noted: dict[int, PersistedObject], run: Run) -> dict[str, ObjectReceipt]:
        costs: dict[str, ObjectReceipt] = {}
        for object_id, target in noted.items():
            if self._dirty.get(object_id) is target:  # Else code of a value has deleted it, or cleared it.
                cost, same = self._collect(target, run), costs.get(target._name)
                costs[target._name] = cost if same is None else same + cost
        return costs

    def _collect(self, target: PersistedObject, run: Run) -> ObjectReceipt:
        started = time.perf_counter()
        object_id = target._id
        target._require_whole()
        items = target._rows()
        metadata = [(object_id, key, value) for key, value in target._metadata_rows()]
        size = run.add(metadata, items)
        if items:
            target._weigh(len(items), size)
        return ObjectReceipt(len(items), size, time.perf_counter() - started)

    def _index_row(self, object_id: int, entry: Entry | None) -> Any:
        stored = self._stored_index.get(object_id)
        if entry == stored:
            return None
        if entry is None:
            assert stored is not None
            return object_id, stored[0], None, None
        return object_id, *entry

    def _resolve(self) -> None:
        """Find out how the save in flight ended, and settle it."""
        if self._flight is not None:
            flight = self._flight
            durable = flight.writer.is_newest_in(self._store, self._reader)
            self._settle(durable)
            # The save that asks may yet be refused, and then the acknowledgement of this one is still to come.
            self._is_settled_early = durable
            if durable and flight.task is not None and flight.task is not current_task():
                # That task hears of its commit only later, as behind asyncio.shield() and asyncio.wait_for().
                self._owed.add(flight.task)

    def _settle(self, durable: bool) -> None:
        """Drop the save in flight, or take it back; if what is stored now cannot be read, it stays in flight."""
        self._require_whole()
        flight = self._flight
        assert flight is not None
        reader = self._reader_of(flight.writer) if durable else self._reader
        with self.mutex:  # Another thread that reads meanwhile takes what it brings into memory for clean.
            self._settle_as_read_by(reader, flight, durable)

    def _settle_as_read_by(self, reader: Reader, flight: Flight, durable: bool) -> None:
        self._note_what_is_stored(flight, durable)
        self._torn, self._flight = Torn.WITHIN, None
        for target in flight.objects:
            if not is_dead(target):
                target._settle(durable)
                if not durable:
                    self._dirty[target._id] = target
        if durable:
            self._reader = reader
            flight.writer.settle()
            while flight.objects:
                target = flight.objects.pop()
                if not is_dead(target):
                    self.account(target)
            self._held.saved(self.cache_slots)
            if self._held.is_crowded:
                self._evict(gently=False)
        else:
            self._index_dirty |= flight.index.keys()
        self._torn = Torn.NO

    def _note_what_is_stored(self, flight: Flight, durable: bool) -> None:
        """Note which objects are stored, now that it is known how a save has ended; it may be noted twice."""
        for object_id, entry in flight.index.items() if durable else ():
            if entry is None:
                self._stored_index.pop(object_id, None)
            else:
                self._stored_index[object_id] = entry
        if not durable:
            lost = {object_id for object_id, entry in flight.index.items() if entry is not None}
            lost -= self._stored_index.keys()
            for target in flight.objects:  # Another space may store something under an id that was never stored here.
                target._former = tuple(object_id for object_id in target._former if object_id not in lost)

    def _reader_of(self, writer: Writer) -> Reader:
        """Return the reader of what a writer has committed, without any later checkpoint of somebody else.

        If somebody has rolled back to before it, the reader is retired, and shows that the store has moved on.
        """
        committed = writer.committed
        return self._store.reader() if committed is None else committed

    def _require_whole(self) -> None:
        """Refuse to save what an interruption has left half done."""
        if self._torn:
            raise CheckpointProtocolError(
                "a save, its acknowledgement, a rollback or an edit was interrupted partway (by Ctrl-C, lack of"
                " memory, or an error), or edits that belong together are still under way (in_one_piece(), a barrier):"
                f" none of what is in memory will be saved into {self._store.path}; ask again after them, or else go"
                " back to the last checkpoint with rollback()"
            )

    def _refuse_amid_edit(self, asked: str) -> None:
        """Refuse what would change the notes of an edit in its midst, since the edit goes on with what it has read.

        The error is raised into that edit, and would pass for a refusal that has changed nothing: so the space is torn.
        One that is raised into a read is an interruption like any other.
        """
        found = under_way(self)
        if found is None:
            return
        if not found.is_edit:
            raise CheckpointProtocolError(
                f"{found.what}: {asked} was asked for by a signal handler while slots are read into memory; nothing was"
                " done: ask for it after the read; a signal handler should only set a flag"
            )
        self._torn = Torn.CUT
        raise CheckpointProtocolError(
            f"{found.what}: {asked} was asked for in the middle of an edit, by a signal handler, or by __hash__, __eq__"
            " or __lt__ of a key; nothing was done, and the edit may be cut in two: go back to the last checkpoint"
            " with rollback() now, and ask for this after an edit; a signal handler should only set a flag"
        )

    def _evict(self, *, gently: bool) -> None:
        with self.mutex:
            self._held.shrink(self._handles, self._dirty, self.cache_slots, gently=gently)

    def _drop_edits(self) -> None:
        """Take all objects back to what is stored; the space is torn until layers above have followed."""
        self._torn = Torn.WITHIN
        self._dirty, self._index_dirty = {}, set()
        known: dict[int, PersistedObject] = {}
        self._reader = self._store.reader()
        stored = _index_of(self._reader)
        for known_as, handle in list(self._handles.items()):
            if is_dead(handle):
                continue  # Its deletion was interrupted.
            object_id = self._stored_id(handle, known_as, stored)
            if object_id is None:
                self._kill(handle, refuse_unstored)
                continue
            handle._id = object_id
            handle._torn = Torn.NO
            handle._forget()
            handle._accounted = 0
            handle._rename(stored[object_id][0])
            known[object_id] = handle
        self._held = HeldSlots(self.cache_slots)
        self._lent = WeakValueDictionary({lent._id: lent for lent in self._lent.values() if not is_dead(lent)})
        self._take_over(self._reader, stored, known)

    def _stored_id(self, handle: PersistedObject, known_as: int, stored: dict[int, Entry]) -> int | None:
        """Return the id under which the object of a handle is stored, or None if it is not.

        An id under which it was never stored may belong to an object of another space, and a difference to a fork may
        have put another object in its place: one of another kind, or created with other options.
        """
        ids = (*handle._former, known_as) if known_as in self._stored_index else handle._former
        same = (handle.kind, handle._codec)
        return next((one for one in reversed(ids) if one in stored and stored[one][1:] == same), None)

    def _will_change(self) -> None:
        if self._read_only:
            raise CheckpointError("this space is read-only: open the store for writing, or fork it")

    def _index_changed(self, object_id: int) -> None:
        self._index_dirty.add(object_id)
        handle = self._handles.get(object_id)
        if handle is not None and handle._fresh:
            self._dirty[object_id] = handle


def _can_slip(target: PersistedObject) -> bool:
    """Return whether an object is of a kind that may change without being noted."""
    return type(target)._has_slipped is not PersistedObject._has_slipped


def _index_of(reader: Reader) -> dict[int, Entry]:
    """Return what objects are stored."""
    return {object_id: (name, kind or "", codec or "{}") for object_id, name, kind, codec in reader.index()}
