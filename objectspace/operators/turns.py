"""The runs that take turns on a space: what they have done to it, who feeds operators that are new, and who is at work.

What such operators have in the midst of being fed is no state of theirs, and only a rollback takes it away. So it is
known of the space, also when the run that feeds them is there no more.

In the midst of an epoch the space holds a part of its batch. So nothing is saved then but by the run itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from objectspace.errors import CheckpointProtocolError
from objectspace.space import ObjectSpace


class Turns:
    """What the runs on one space must know of each other.

    ``epochs`` is how many of them any run has made durable.
    """

    def __init__(self) -> None:
        self.epochs = 0
        self._drops = 0
        self._epoch: int | None = None
        self._feeder: object = None
        self._fed: list[str] = []

    @property
    def last(self) -> tuple[int, int]:
        """What tells whether a run has made an epoch durable, or dropped state of which others may have handles."""
        return self.epochs, self._drops

    def made_epoch(self) -> None:
        """Note that a run has made an epoch durable."""
        self.epochs += 1

    def dropped(self) -> None:
        """Note that a run has dropped state."""
        self._drops += 1

    @contextmanager
    def in_epoch(self, epoch: int) -> Iterator[None]:
        """Have all saves and all other runs refused while a run processes an epoch."""
        self._epoch = epoch
        try:
            yield
        finally:
            self._epoch = None

    def begin_feeding(self, run: object, names: Iterable[str]) -> None:
        """Note what stands for the run that feeds some operators what came before them; it may be noted again."""
        self._feeder, self._fed = run, list(names)

    def end_feeding(self) -> None:
        """Note that they have all that came before them, or that it was rolled back."""
        self._feeder, self._fed = None, []

    def is_feeder(self, run: object) -> bool:
        """Tell whether it is this run that feeds operators."""
        return self._feeder is run

    @property
    def is_feeding(self) -> bool:
        """Whether a run feeds operators."""
        return self._feeder is not None

    def refuse_in_epoch(self, what: str) -> None:
        """Refuse what cannot be right in the midst of an epoch, also where its own run asks.

        Raises:
            CheckpointProtocolError: a run processes one.
        """
        if self._epoch is not None:
            raise CheckpointProtocolError(
                f"{what} while a run processes epoch {self._epoch}, of which the space holds a part: write into the"
                " space without saving, for the checkpoint of that run saves it; all else waits until it has returned"
            )

    def refuse_beside(self, what: str, run: object = None) -> None:
        """Refuse what cannot be right in the midst of an epoch, or while a run feeds operators, unless it asks itself.

        Raises:
            CheckpointProtocolError: a run processes an epoch, or another one feeds operators.
        """
        self.refuse_in_epoch(what)
        if self._feeder is not None and self._feeder is not run:
            raise CheckpointProtocolError(
                f"{what} while operators that are new, {', '.join(map(repr, self._fed))}, have only a part of the"
                " batches that came before them: end that with replay() and finish_replay() of their run, or go back"
                " with space.rollback(), and replay from batch 1"
            )

    def refuse_save(self) -> int:
        """Refuse a save in the midst of an epoch or a replay: what is fed would be fed once more after a recovery."""
        self.refuse_beside("nothing can be saved")
        return 0  # It has sealed nothing.


_turns: WeakKeyDictionary[ObjectSpace, Turns] = WeakKeyDictionary()


def turns_on(space: ObjectSpace) -> Turns:
    """Return the turns on a space, which asks them before each save; a rollback ends the feeding."""
    found = _turns.get(space)
    if found is None:
        found = _turns[space] = Turns()
        space.ask_at_save(found.refuse_save)
        space.on_rollback(found.end_feeding)
    return found
