"""Where an epoch is worked: in tasks of Spark, or by the driver itself if that is quicker.

An epoch that changes little takes Spark longer to plan and hand out than to work. So if the last epochs had no more
rows than Arrow moves at once, and changed few slots, the driver fetches the rows of the next one, and works its shards
one after the other, in spaces that it keeps open. The files, the manifest and their order are the same: only where the
work is done differs. This is only for what the library itself does; users' code runs in tasks, where it can neither end
nor block the driver.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from checkpoint.chain import EpochPlan
from objectspace.operators import Node
from objectspace.operators.fingerprints import names_function

DRIVER_ROWS = 200_000
"""How many rows an epoch may have for the driver to work it: fetched in Arrow's form they cost little."""

MOST_SLOTS = 20_000
"""How many slots it may have changed: these cost Python's time, and the tasks have that of several processes."""

MOST_INPUT_BYTES = 8 << 20
"""How many bytes they may have: the driver holds them in memory, and as many of each partition if far more come."""

MOST_STATE_BYTES, MOST_HELD_BYTES = 4 << 20, 16 << 20
"""How large the run files of all shards may be together: the driver reads them once, in the middle of a micro-batch.

As long as it keeps the shards open, they may grow as large as the second figure.
"""

TRIAL = 2
"""How many epochs are worked in tasks first; the first one starts processes, so it says nothing of the others."""

FIRST_PAUSE, PAUSE = 16, 256
"""For how many epochs the driver leaves the work to tasks once they were quicker: at first, and at most."""

FIRST_STREAK, STREAK = 16, 256
"""After so many epochs in a row the driver lets tasks try again: what they took in a young query says little."""

HEAD_START = 2.0
"""How much longer the tasks may have worked than their action took: what is held open need not be read again."""

_GROWTH = 4
"""From how many times as many rows on, plus a thousand, nothing is known any more of what tasks would take."""

_ALIKE = 2
"""An epoch of at most so many times as many rows can be compared."""


def runs_code_of_users(nodes: Iterable[Node]) -> bool:
    """Return whether operators are users' own, or call users' functions."""
    return any(_is_of_user(node) for node in nodes if node.make is not None)


def _is_of_user(node: Node) -> bool:
    assert node.make is not None
    is_own = type(node.make()).__module__.startswith("objectspace.") and node.label != "Apply"
    # What a sink calls is called by the driver anyway, when the epoch is published.
    return not is_own or (node.label != "Sink" and names_function(node.structure))


class Placement:
    """Decides epoch by epoch, from what the last ones took.

    Args:
        most_rows: how many rows an epoch may have to be worked by the driver; 0 for none.
    """

    def __init__(self, most_rows: int) -> None:
        self._most_rows = most_rows
        self._trials, self._pause, self._losses = 0, 0, 0
        self._next_pause, self._is_excused = FIRST_PAUSE, False
        self._streak, self._most_streak = 0, FIRST_STREAK
        self._rows, self._row_bytes, self._slots = 0, 0.0, 0
        self._task_rows, self._task_ms, self._is_light = 0, 0.0, False

    @property
    def most_rows(self) -> int:
        """How many rows of a micro-batch are fetched from each of its partitions, at most.

        No more than so many times those of the last epoch of tasks, and no more than have room in memory.
        """
        room = MOST_INPUT_BYTES / self._row_bytes if self._row_bytes else self._most_rows
        return int(min(self._most_rows, _GROWTH * self._task_rows + 1_000, room))

    def is_in_driver(self, plan: EpochPlan, *, is_held: bool = False) -> bool:
        """Return whether the driver is to work the next epoch.

        Args:
            plan: the plan of the epoch.
            is_held: whether the driver has its shards open.
        """
        if self._pause:
            self._pause -= 1
            return False
        if not self._most_rows or self._trials < TRIAL or not self._is_light:
            return False
        if self._rows > self.most_rows or self._slots > MOST_SLOTS:
            return False
        return _state_bytes(plan) <= (MOST_HELD_BYTES if is_held else MOST_STATE_BYTES)

    def worked_in_tasks(self, rows: int, slots: int, ms: float, work_ms: float, input_bytes: int) -> None:
        """Note an epoch of tasks.

        Args:
            rows: the rows of its sources.
            slots: the slots that it has changed.
            ms: how many milliseconds its actions took.
            work_ms: how long the tasks worked, all together.
            input_bytes: the bytes of these rows.
        """
        self._trials += 1
        self._streak = 0
        self._task_rows = rows
        self._task_ms, self._is_light = ms, work_ms <= HEAD_START * ms
        self._note_rows(rows, slots, input_bytes)

    def worked_in_driver(self, rows: int, slots: int, ms: float, input_bytes: int) -> None:
        """Note an epoch of the driver: if two in a row took longer than tasks did, tasks get the next ones.

        An epoch of many more rows than theirs says nothing of that, nor does one that has to open the shards. But if
        the driver opens them again and again without being quicker in between, that is what it takes.
        """
        self._note_rows(rows, slots, input_bytes)
        self._streak += 1
        if self._streak == self._most_streak:
            self._trials, self._most_streak, self._next_pause = 0, STREAK, FIRST_PAUSE
        if rows > _ALIKE * self._task_rows:
            return
        if ms <= self._task_ms:
            self._losses, self._is_excused = 0, False
        elif self._streak == 1 and not self._is_excused:
            self._is_excused = True
        else:
            self._losses += 1
        if self._losses == 2:
            self.failed()

    def _note_rows(self, rows: int, slots: int, input_bytes: int) -> None:
        self._rows, self._slots = rows, slots
        if rows:
            self._row_bytes = input_bytes / rows

    def failed(self) -> None:
        """Note that the driver could not work an epoch, or not as quickly."""
        self._losses, self._streak, self._is_excused, self._pause = 0, 0, False, self._next_pause
        self._next_pause = min(2 * self._pause, PAUSE)


def _state_bytes(plan: EpochPlan) -> float:
    """Return the bytes of all run files; infinity for a division, which says nothing of its rows."""
    lineages = (lineage for one in plan.operators.values() for lineage in one.lineages)
    return sum(math.inf if run.is_division else run.file_bytes for lineage in lineages for run in lineage)
