"""For tests of your own operators: run them through every crash point, and hold them to a budget of dirty slots.

An operator is anything with ``open(space, name)`` that keeps its state in objects of the space. The tests give it
events: an operator with ``on_next`` takes each as a value; one with ``process`` and ``barrier`` takes each as a chunk,
or as a pair of a side and a chunk; and an event that is a function is called with the operator, whatever that is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from checkpoint import CheckpointStore, Receipt
from objectspace.space import PersistedObjectSpace

POINTS = ("before the save", "after the save", "after a failed commit", "after the commit", "after a checkpoint")
"""Where each epoch is cut off."""

SURVIVED = ("a failed commit", "a commit of unknown outcome")
"""What each epoch survives in one process."""


class _Plan(NamedTuple):
    """Where a run is disturbed: the epoch, and one of :data:`POINTS` or :data:`SURVIVED`."""

    epoch: int
    point: str


class _Crash(Exception):
    """The process ends here."""


def crash_everywhere(
    make: Callable[[], Any],
    events: Sequence[Any],
    *,
    events_per_epoch: int = 1,
    max_dirty_per_event: int | None = None,
    name: str = "operator",
) -> int:
    """Run an operator through every crash point, and compare each run with the one that nothing disturbed.

    Each epoch is cut off before its save, after it, after a commit that failed, after the commit, and after the
    checkpoint; the operator is opened again, and the events since the last checkpoint are given again. And each epoch
    meets a commit that fails, and one whose outcome is not known, without a restart. Every time, all epochs must give
    the same output, and the objects of the space must end with the same contents.

    Args:
        make: returns a new operator.
        events: the events.
        events_per_epoch: after how many events a checkpoint is taken.
        max_dirty_per_event: how many items an event may dirty, each with a checkpoint of its own; no limit by default.
            What ``open`` creates does not count, nor do metadata rows such as lengths.
        name: the name to open the operator under.

    Returns:
        how many disturbed runs there were.

    Raises:
        AssertionError: a run differs, or an event dirtied too much; the message says where and what.

    Time: O(epochs²) runs of an epoch.

    >>> from objectspace.operators.events import Buffer
    >>> crash_everywhere(lambda: Buffer(count=2), [1, 2, 3], max_dirty_per_event=1)
    21
    """
    epochs = [events[start : start + events_per_epoch] for start in range(0, len(events), events_per_epoch)]
    clean = _Run(make, epochs, name)
    clean.play(None)
    if max_dirty_per_event is not None:
        _Run(make, [[event] for event in events], name).play(None, max_dirty_per_event)
    plans = [_Plan(epoch, point) for epoch in range(1, len(epochs) + 1) for point in (*POINTS, *SURVIVED)]
    for plan in plans:
        run = _Run(make, epochs, name)
        run.play(plan)
        _compare(plan, clean, run)
    return len(plans)


class _Run:
    """One run over all epochs; epoch 0 is that of the opening."""

    def __init__(self, make: Callable[[], Any], epochs: list[Sequence[Any]], name: str) -> None:
        self._make, self._epochs, self._name = make, epochs, name
        self._store = CheckpointStore(":memory:")
        self.outputs: dict[int, list[Any]] = {}

    def play(self, plan: _Plan | None, max_dirty: int | None = None) -> None:
        """Run to the end, disturbed where the plan says so, and keep what came out and what the space holds."""
        self._open()
        try:
            self._go_on(0, plan, max_dirty)
        except _Crash:
            self._space.close()
            records = self._store.checkpoints()
            self._open()
            self._go_on(records[-1].epoch if records else 0, None, None)
        self.contents = {name: _plain(self._space.get(name)) for name in sorted(self._space)}

    def _open(self) -> None:
        self._space = PersistedObjectSpace(self._store)
        self._operator = self._make()
        self._operator.open(self._space, self._name)

    def _go_on(self, done: int, plan: _Plan | None, max_dirty: int | None) -> None:
        for epoch in range(done, len(self._epochs) + 1):
            events = self._epochs[epoch - 1] if epoch else ()
            out = [value for event in events for value in _give(self._operator, event)]
            out += self._operator.barrier(epoch + 1) if hasattr(self._operator, "barrier") else []
            self.outputs[epoch] = [_shown(value) for value in out]
            point = plan.point if plan is not None and plan.epoch == epoch else ""
            receipt = self._checkpoint(epoch + 1, point)
            if receipt is not None and max_dirty is not None and epoch:
                _check_budget(epoch, receipt, max_dirty)

    def _checkpoint(self, epoch: int, point: str) -> Receipt | None:
        """Take the checkpoint of an epoch, disturbed at a point."""
        space = self._space
        if point == "before the save":
            raise _Crash
        if point in ("", "after a checkpoint"):
            receipt = space.checkpoint(epoch=epoch)
            if point:
                raise _Crash
            return receipt
        writer = self._store.writer(epoch=epoch)
        space.save(writer)
        if point in ("after a failed commit", "a failed commit"):
            writer.rollback()
        elif point != "after the save":
            writer.commit()
        if point.startswith("after"):
            raise _Crash
        # After a commit of unknown outcome the space is not told: the next save finds out.
        return space.checkpoint(epoch=epoch) if point == "a failed commit" else None


def _give(operator: Any, event: Any) -> list[Any]:
    if callable(event):
        return list(event(operator) or ())
    if hasattr(operator, "on_next"):
        return list(operator.on_next(event))
    if isinstance(event, tuple):
        side, chunk = event
        return list(operator.process(chunk, side=side))
    return list(operator.process(event))


def _shown(value: Any) -> Any:
    """Return an output as something that compares: a chunk by its rows."""
    return value.rows() if hasattr(value, "rows") else value


def _plain(target: Any) -> Any:
    """Return the contents of an object."""
    if hasattr(target, "copy"):
        return target.copy()
    return target.value if hasattr(target, "value") else list(target)


def _compare(plan: _Plan, clean: _Run, run: _Run) -> None:
    where = f"epoch {plan.epoch}, disturbed {'by ' if plan.point in SURVIVED else ''}{plan.point}"
    for epoch, expected in clean.outputs.items():
        found = run.outputs.get(epoch)
        assert found == expected, f"{where}: epoch {epoch} gave {found!r:.500}, and {expected!r:.500} undisturbed"
    for name in sorted(clean.contents.keys() | run.contents.keys()):
        ours, theirs = repr(run.contents.get(name)), repr(clean.contents.get(name))
        assert ours == theirs, f"{where}: {name!r} ends as {ours:.500}, and as {theirs:.500} undisturbed"


def _check_budget(event: int, receipt: Receipt, allowed: int) -> None:
    if receipt.slots > allowed:
        culprits = sorted(receipt.objects.items(), key=lambda item: -item[1].slots)
        named = ", ".join(f"{name!r} {cost.slots}" for name, cost in culprits if cost.slots)
        raise AssertionError(f"event {event} dirtied {receipt.slots} items, and may dirty {allowed}: {named}")
