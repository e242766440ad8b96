"""The runs that take turns on a space: whose epoch was the last one, and who feeds operators that are new.

What such operators have in the midst of being fed is no state of theirs, and only a rollback takes it away. So it is
known of the space, also when the run that feeds them is there no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from objectspace.errors import CheckpointProtocolError
from objectspace.space import ObjectSpace


class Turns:
    """What the runs on one space must know of each other.

    ``last`` is what the last epoch of any of them is known by.
    """

    def __init__(self) -> None:
        self.last = object()
        self._feeder: object = None
        self._fed: list[str] = []

    def made_epoch(self) -> object:
        """Note that a run has made an epoch durable, and return what it is known by."""
        self.last = object()
        return self.last

    def begin_feeding(self, run: object, names: Iterable[str]) -> None:
        """Note what stands for the run that feeds some operators what came before them; it may be noted again."""
        self._feeder, self._fed = run, list(names)

    def end_feeding(self) -> None:
        """Note that they have all that came before them, or that it was rolled back."""
        self._feeder, self._fed = None, []

    def refuse_beside(self, what: str, run: object = None) -> None:
        """Refuse what cannot be right while a run feeds operators, unless it asks itself.

        Raises:
            CheckpointProtocolError: another run feeds some.
        """
        if self._feeder is not None and self._feeder is not run:
            raise CheckpointProtocolError(
                f"{what} while operators that are new, {', '.join(map(repr, self._fed))}, have only a part of the"
                " batches that came before them: end that with replay() and finish_replay() of their run, or go back"
                " with space.rollback(), and replay from batch 1"
            )

    def refuse_save(self) -> int:
        """Refuse a save while a run feeds operators: opened again, they would be fed the same batches once more."""
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
