"""Runs of an operator over all its events, cut off or disturbed around its checkpoints."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, SupportsIndex

from checkpoint import CheckpointStore, Receipt
from objectspace.persisted import PersistedObjectSpace
from objectspace.testing.subjects import Make, given, listed

POINTS = ("before the save", "after the save", "after a failed commit", "after the commit", "after a checkpoint")
"""Where each epoch is cut off."""

SURVIVED = ("a failed commit", "a commit of unknown outcome")
"""What each epoch survives in one process."""

Contents = dict[str, Any]
"""What the objects of a space hold, by their names."""


class Plan(NamedTuple):
    """Where a run is disturbed: the epoch, one of :data:`POINTS` or :data:`SURVIVED`, and how many times."""

    epoch: int
    point: str
    times: int = 1

    def __str__(self) -> str:
        again = ", and there again" if self.times > 1 else ""
        return f"epoch {self.epoch}, disturbed {'by ' if self.point in SURVIVED else ''}{self.point}{again}"


class Crash(Exception):
    """The process ends here."""


class History:
    """The events of an operator, epoch by epoch.

    Args:
        make: makes the operator.
        events: the events.
        events_per_epoch: how many there are in an epoch.
        name: the name that the operator is opened under.

    Raises:
        ValueError: an epoch has no event.
    """

    def __init__(self, make: Make, events: Sequence[Any], events_per_epoch: int, name: str) -> None:
        if not isinstance(events_per_epoch, SupportsIndex) or events_per_epoch < 1:
            raise ValueError(f"events_per_epoch is {events_per_epoch}: expected a whole number from 1")
        self.make, self.name = make, name
        numbered = list(enumerate(events, 1))
        self.epochs = [numbered[start : start + events_per_epoch] for start in range(0, len(events), events_per_epoch)]

    def opened(self, space: PersistedObjectSpace) -> Any:
        """Return a new operator, opened on a space."""
        operator = self.make()
        operator.open(space, self.name)
        return operator

    def play(self, operator: Any, epoch: int) -> list[Any]:
        """Give an operator the events of an epoch and its barrier, and return what comes out; epoch 0 has none."""
        events = self.epochs[epoch - 1] if epoch else []
        out = [value for number, event in events for value in given(operator, _own(event), number)]
        if hasattr(operator, "barrier"):
            out += listed(f"the barrier of {type(operator).__name__}", operator.barrier(epoch + 1))
        chunks = [value for value in out if hasattr(value, "rows")]
        return [value for value in out if not hasattr(value, "rows")] + _net(chunks)


class Run:
    """A run over some epochs; epoch 0 is the opening, and the checkpoint of epoch n has the number n + 1."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.outputs: dict[int, list[Any]] = {}

    def open(self, store: CheckpointStore) -> None:
        """Open space and operator on a store."""
        self.store = store
        self.space = PersistedObjectSpace(store)
        self.operator = self.history.opened(self.space)

    def durable(self) -> int:
        """Return the last epoch that is durable, or -1 if there is none."""
        records = self.store.checkpoints()
        return records[-1].epoch - 1 if records else -1

    def held(self) -> Contents:
        """Return what the objects of the space hold."""
        return {name: _plain(self.space.get(name)) for name in sorted(self.space)}


class Undisturbed(Run):
    """The run that nothing disturbs, with the contents of the store after each epoch.

    Args:
        history: the events.
        check: called with each epoch but the first and its receipt.
        keeps_images: whether to keep an image of the store after each epoch, too.
    """

    def __init__(
        self,
        history: History,
        check: Callable[[int, Receipt], None] | None = None,
        *,
        keeps_images: bool = False,
    ) -> None:
        super().__init__(history)
        self.contents: list[Contents] = []
        self.images: list[bytes] = [b""]
        with CheckpointStore(":memory:") as store:
            self.open(store)
            for epoch in range(len(history.epochs) + 1):
                self._epoch(epoch, check)
                if keeps_images:
                    self.images.append(self.store.database.conn.serialize())

    def _epoch(self, epoch: int, check: Callable[[int, Receipt], None] | None) -> None:
        self.outputs[epoch] = self.history.play(self.operator, epoch)
        receipt = self.space.checkpoint(epoch=epoch + 1)
        if check is not None and epoch:
            check(epoch, receipt)
        self.contents.append(self.held())


class Disturbed(Run):
    """A run that is cut off, recovers and continues to the end; or that survives what disturbs it.

    Args:
        history: the events.
        plan: where it is disturbed.
    """

    def __init__(self, history: History, plan: Plan) -> None:
        super().__init__(history)
        self._plan, self._left = plan, plan.times
        with CheckpointStore(":memory:") as store:
            self.open(store)
            done = 0
            while done <= len(history.epochs):
                try:
                    self._epoch(done)
                    done += 1
                except Crash:
                    self.space.close()
                    self.open(store)
                    done = self.durable() + 1
            self.found = self.held()

    def _epoch(self, epoch: int) -> None:
        self.outputs[epoch] = self.history.play(self.operator, epoch)
        is_planned = epoch == self._plan.epoch and self._left > 0
        self._left -= is_planned
        self._checkpoint(epoch + 1, self._plan.point if is_planned else "")

    def _checkpoint(self, epoch: int, point: str) -> None:
        """Take the checkpoint of an epoch, disturbed at a point."""
        if point == "before the save":
            raise Crash
        if point in ("", "after a checkpoint"):
            self.space.checkpoint(epoch=epoch)
            if point:
                raise Crash
            return
        writer = self.store.writer(epoch=epoch)
        self.space.save(writer)
        if point in ("after a failed commit", "a failed commit"):
            writer.rollback()
        elif point != "after the save":
            writer.commit()
        if point.startswith("after"):
            raise Crash
        # After a commit of unknown outcome the space is not told: the next save finds out.
        if point == "a failed commit":
            self.space.checkpoint(epoch=epoch)


def compare(where: str, clean: Undisturbed, run: Any, contents: Contents) -> None:
    """Compare a disturbed run with the undisturbed one.

    Args:
        where: where it was disturbed.
        clean: the undisturbed run.
        run: the other one.
        contents: what the undisturbed run held where the other one ended.

    Raises:
        AssertionError: they differ.
    """
    for epoch, found in sorted(run.outputs.items()):
        ours, theirs = text_of(found), text_of(clean.outputs[epoch])
        if ours != theirs:
            raise AssertionError(f"{where}: epoch {epoch} gave {ours:.500}, and {theirs:.500} undisturbed")
    for name in sorted(contents.keys() | run.found.keys()):
        ours, theirs = text_of(run.found.get(name)), text_of(contents.get(name))
        if ours != theirs:
            raise AssertionError(f"{where}: {name!r} ends as {ours:.500}, and as {theirs:.500} undisturbed")


def _own(event: Any) -> Any:
    """Return an event that nobody else has: an operator may keep it, and change what it keeps."""
    if type(event) is tuple:
        return tuple(map(_own, event))
    # A chunk does not change; all runs share what cannot be copied, such as an open file.
    if callable(event) or hasattr(event, "rows"):
        return event
    try:
        return copy.deepcopy(event)
    except (TypeError, copy.Error):
        return event


def _is_array(value: Any) -> bool:
    return hasattr(value, "tolist") and hasattr(value, "dtype")


def text_of(value: Any) -> str:
    """Return a value as text that is the same for the same values: sets in one order, arrays in full.

    >>> text_of([{8, 0}, float("nan")]) == text_of([{0, 8}, float("nan")])
    True
    """
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}({', '.join(sorted(map(text_of, value)))})"
    if type(value) is list:
        return f"[{', '.join(map(text_of, value))}]"
    if type(value) is tuple:
        return f"({', '.join(map(text_of, value))}{',' if len(value) == 1 else ''})"
    if type(value) is dict:
        return "{" + ", ".join(f"{text_of(key)}: {text_of(one)}" for key, one in value.items()) + "}"
    if _is_array(value):
        return f"{type(value).__name__}({value.dtype}, {value.tolist()!r})"
    return repr(value)


def check_budget(event: int, receipt: Receipt, allowed: int) -> None:
    """Refuse an event that dirtied too many items.

    Raises:
        AssertionError: it did; the message names the objects.
    """
    if receipt.slots > allowed:
        culprits = sorted(receipt.objects.items(), key=lambda item: -item[1].slots)
        named = ", ".join(f"{name!r} {cost.slots}" for name, cost in culprits if cost.slots)
        raise AssertionError(f"event {event} dirtied {receipt.slots} items, and may dirty {allowed}: {named}")


def _net(chunks: Sequence[Any]) -> list[Any]:
    """Return what the chunks of an epoch add up to: the order in which rows come out is not part of the output."""
    rows: dict[str, Any] = {}
    count: Counter[str] = Counter()
    for op, row in (change for chunk in chunks for change in chunk.rows()):
        rows[repr(row)] = row
        count[repr(row)] += 1 if op in ("+", "U+") else -1
    changes = ((("+" if number > 0 else "-", rows[text]), abs(number)) for text, number in sorted(count.items()))
    return [change for change, times in changes for _ in range(times)]


def _plain(target: Any) -> Any:
    """Return the contents of an object."""
    if hasattr(target, "copy"):
        return target.copy()
    return target.value if hasattr(target, "value") else list(target)
