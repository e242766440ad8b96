"""The runs that take turns on a space: what they have done to it, which one feeds new operators, and which is at work.

What new operators hold while they are being fed is not their state yet, and only a rollback removes it. So this is
recorded for the space, even if the run that feeds them no longer exists.

In the middle of an epoch the space holds a part of its batch. So only the run itself may save then; and after an epoch
that has failed nothing is saved until a rollback has taken back what the space holds of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from enum import Enum, auto
from threading import RLock, get_ident
from time import sleep
from types import TracebackType
from weakref import WeakKeyDictionary, ref

from objectspace.errors import CheckpointProtocolError
from objectspace.space import ObjectSpace


class _Stage(Enum):
    """How far a run has come with an epoch."""

    AT_WORK = auto()
    SAVING = auto()
    FAILED = auto()


_Block = tuple[int, "ref[_InOneThread]"]
"""A thread, and the block of :meth:`Turns.in_one_thread` that it is in: one that is gone was left."""

_AtWork = dict[str, _Block]
"""The block that a thread is in, if any, under the one key that there is: who comes first puts it there."""


class Turns:
    """What the runs on one space must know about each other.

    ``epochs`` is how many epochs the runs have made durable.
    """

    def __init__(self) -> None:
        self.epochs = 0
        self._at_work: _AtWork = {}
        self._drops = self._saves = 0
        self._epoch: int | None = None
        self._stage = _Stage.AT_WORK
        self._feeder: object = None
        self._fed: list[str] = []

    @property
    def last(self) -> tuple[int, int]:
        """A value that changes when a run saves an epoch, or drops state of which others may have handles."""
        return self._saves, self._drops

    def made_epoch(self) -> None:
        """Note that a run has made an epoch durable."""
        self.epochs += 1

    def dropped(self) -> None:
        """Note that a run has dropped state."""
        self._drops += 1

    def in_one_thread(self, what: str, *, waits: bool = False) -> AbstractContextManager[None]:
        """Have a block refused while another thread is in such a block of any run, instead of waiting for it.

        A block within one of the same thread, such as in a function that an epoch calls, is not refused by this.

        Args:
            what: what is refused, in words.
            waits: whether to wait all the same, since nobody else stays in such a block: all of them are refused there.

        Raises:
            CheckpointProtocolError: another thread is in such a block.
        """
        return _InOneThread(self, self._at_work, what, waits=waits)

    def in_epoch(self, epoch: int) -> AbstractContextManager[None]:
        """Have all saves and all other runs refused while a run processes an epoch; if it fails, also afterwards."""
        return _InEpoch(self, epoch)

    def begin_epoch(self, epoch: int) -> None:
        """Note that a run processes an epoch from now on."""
        self._stage, self._epoch = _Stage.AT_WORK, epoch

    def end_epoch(self) -> None:
        """Note that it has done so."""
        self._epoch = None

    def let_save(self) -> None:
        """Note that the run has processed its epoch, and saves it.

        From now on all others must open their operators again, as the epoch may become durable, and an interruption
        keep the run from saying so.
        """
        self._saves += 1
        self._stage = _Stage.SAVING

    def fail(self) -> None:
        """Note that the epoch of a run, if any, has failed; this is noted twice, as either may be interrupted."""
        self._stage = _Stage.FAILED

    def went_back(self) -> None:
        """Note that the space was rolled back; a run in the middle of an epoch is still in it."""
        self.end_feeding()
        if self._stage is _Stage.FAILED:
            self._epoch = None

    def begin_feeding(self, run: object, names: Iterable[str]) -> None:
        """Note the token of the run that feeds some operators what came before them; it may be noted again."""
        self._feeder, self._fed = run, list(names)

    def end_feeding(self) -> None:
        """Note that they have all that came before them, or that it was rolled back."""
        self._feeder, self._fed = None, []

    def is_feeder(self, run: object) -> bool:
        """Return whether it is this run that feeds operators."""
        return self._feeder is run

    @property
    def is_feeding(self) -> bool:
        """Whether a run feeds operators."""
        return self._feeder is not None

    def refuse_in_epoch(self, what: str) -> None:
        """Refuse what cannot be right in the middle of an epoch, even if its own run asks.

        Raises:
            CheckpointProtocolError: a run is processing an epoch.
        """
        if self._epoch is not None and self._stage is not _Stage.FAILED:
            raise CheckpointProtocolError(
                f"{what} while a run processes epoch {self._epoch}, of which the space holds a part: write into the"
                " space without saving, as the checkpoint of that run saves it; all else waits until it has returned"
            )

    def refuse_failed(self, what: str) -> None:
        """Refuse what cannot be right on what a failed epoch has left.

        Raises:
            CheckpointProtocolError: there is such an epoch.
        """
        if self._epoch is not None and self._stage is _Stage.FAILED:
            raise CheckpointProtocolError(
                f"{what}: a run has failed in epoch {self._epoch}, of which the space holds a part, as the rollback"
                " that undoes it did not finish: call space.rollback(), and give the batch again"
            )

    def refuse_beside(self, what: str, run: object = None) -> None:
        """Refuse what cannot be right in the middle of an epoch, or while a run feeds operators, unless that run asks.

        Raises:
            CheckpointProtocolError: a run is processing an epoch or has left a part of one, or another run is feeding
                operators.
        """
        self.refuse_in_epoch(what)
        self.refuse_failed(what)
        if self._feeder is not None and self._feeder is not run:
            raise CheckpointProtocolError(
                f"{what} while new operators, {', '.join(map(repr, self._fed))}, have only a part of the"
                " batches that came before them: end that with replay() and finish_replay() of their run, or go back"
                " with space.rollback(), and replay from batch 1"
            )

    def refuse_save(self) -> None:
        """Refuse a save in the middle of an epoch or a replay: what is fed would be fed once more after a recovery."""
        if self._epoch is None or self._stage is not _Stage.SAVING:
            self.refuse_beside("nothing can be saved")


class _InOneThread:
    """The block of :meth:`Turns.in_one_thread`; a class for the same reason as :class:`_InEpoch`."""

    def __init__(self, turns: Turns, at_work: _AtWork, what: str, *, waits: bool) -> None:
        self._turns, self._at_work, self._what, self._waits = turns, at_work, what, waits
        self._is_outermost = False

    def __enter__(self) -> None:
        mine = get_ident(), ref(self)
        while (held := self._at_work.setdefault(_THREAD, mine)) is not mine:
            thread, block = held
            if block() is None:
                self._forget(held)
            elif thread == mine[0]:
                return
            else:
                self._refuse()
        self._is_outermost = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._is_outermost:
            del self._at_work[_THREAD]

    def _forget(self, held: _Block) -> None:
        """Forget a block that was left, and that Ctrl-C kept from saying so."""
        if _FORGETTING.acquire(blocking=False):
            try:
                if self._at_work.get(_THREAD) is held:
                    del self._at_work[_THREAD]
            finally:
                _FORGETTING.release()

    def _refuse(self) -> None:
        if self._waits:
            sleep(_POLL_SECONDS)
            return
        self._turns.refuse_in_epoch(self._what)
        raise CheckpointProtocolError(
            f"{self._what} while another thread changes it with a run: all else waits until that has returned"
        )


class _InEpoch:
    """The block of :meth:`Turns.in_epoch`.

    This is a class because a generator would not do: if Ctrl-C keeps it from hearing that its block was left, it is
    closed only once the interruption is no longer referenced, perhaps in the middle of a later epoch.
    """

    def __init__(self, turns: Turns, epoch: int) -> None:
        self._turns, self._epoch = turns, epoch

    def __enter__(self) -> None:
        self._turns.begin_epoch(self._epoch)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self._turns.end_epoch()
        else:
            self._turns.fail()


_turns: WeakKeyDictionary[ObjectSpace, Turns] = WeakKeyDictionary()

_FORGETTING = RLock()
"""What is held while a block is forgotten, so that no other thread's goes in its place."""

_THREAD = "thread"

_POLL_SECONDS = 0.001


def turns_on(space: ObjectSpace) -> Turns:
    """Return the turns on a space, which asks them before each save and tells them of rollbacks."""
    found = _turns.get(space)
    if found is None:
        made = Turns()
        space.ask_before_save(made.refuse_save)
        space.on_rollback(made.went_back)
        found = _turns.setdefault(space, made)  # Two threads may open the first runs at once.
    return found
