"""Where an epoch is worked: in tasks of Spark, or by the driver itself where that is quicker.

An epoch of few rows takes Spark longer to plan and to hand out than to work. So where the rows of the last epochs were
few, the driver fetches those of the next one, and works its shards one after the other, in spaces that it keeps open.
The files, the manifest and their order are the same: only where the work is done differs. It is for what the library
does alone; code of users runs in tasks, where it can neither end nor block the driver.
"""

from __future__ import annotations

from collections.abc import Iterable

from checkpoint.chain import EpochPlan
from objectspace.operators import Node
from objectspace.operators.fingerprints import names_function

DRIVER_ROWS = 2_000
"""How many rows an epoch may have to be worked by the driver."""

MOST_STATE_BYTES = 4 << 20
"""How large the run files of all shards may be together: the driver reads them once, in the middle of a micro-batch."""

TRIAL = 2
"""How many epochs are worked in tasks first; the first one starts processes and tells nothing of the others."""

PAUSE = 256
"""For how many epochs the driver leaves the work to tasks, once that was quicker."""

HEAD_START = 2.0
"""How much longer the tasks may have worked than their action took: what is held open need not be read again."""

_GROWTH = 4
"""From how many times as many rows on nothing is known any more of what tasks would take."""


def runs_code_of_users(nodes: Iterable[Node]) -> bool:
    """Tell whether operators are of users, or call their functions."""
    return any(_is_of_user(node) for node in nodes if node.make is not None)


def _is_of_user(node: Node) -> bool:
    assert node.make is not None
    is_own = type(node.make()).__module__.startswith("objectspace.") and node.label != "Apply"
    # What a sink calls is called by the driver anyway, when the epoch is published.
    return not is_own or (node.label != "Sink" and names_function(node.structure))


class Placement:
    """Decides epoch by epoch, by what the last ones took.

    Args:
        most_rows: how many rows an epoch may have to be worked by the driver; 0 for none.
    """

    def __init__(self, most_rows: int) -> None:
        self._most_rows = most_rows
        self._trials, self._pause, self._losses = 0, 0, 0
        self._rows = 0
        self._task_rows, self._task_ms, self._is_light = 0, 0.0, False

    @property
    def most_rows(self) -> int:
        """How many rows of a micro-batch are fetched from each of its partitions, at most."""
        return self._most_rows

    def is_in_driver(self, plan: EpochPlan) -> bool:
        """Tell whether the driver is to work the next epoch."""
        if self._pause:
            self._pause -= 1
            return False
        if not self._most_rows or self._trials < TRIAL or not self._is_light:
            return False
        is_known = self._rows <= min(self._most_rows, _GROWTH * self._task_rows + 1_000)
        return is_known and _state_bytes(plan) <= MOST_STATE_BYTES

    def worked_in_tasks(self, rows: int, ms: float, work_ms: float) -> None:
        """Note an epoch of tasks.

        Args:
            rows: the rows of its sources.
            ms: how long its actions took, milliseconds.
            work_ms: how long the tasks worked, all together.
        """
        self._trials += 1
        self._losses = 0
        self._rows = self._task_rows = rows
        self._task_ms, self._is_light = ms, work_ms <= HEAD_START * ms

    def worked_in_driver(self, rows: int, ms: float) -> None:
        """Note an epoch of the driver: where two in a row took longer than tasks did, these have the next ones."""
        self._rows = rows
        self._losses = self._losses + 1 if ms > self._task_ms else 0
        if self._losses == 2:
            self.failed()

    def failed(self) -> None:
        """Note that the driver could not work an epoch, or not as quickly."""
        self._losses, self._pause = 0, PAUSE


def _state_bytes(plan: EpochPlan) -> int:
    lineages = (lineage for one in plan.operators.values() for lineage in one.lineages)
    return sum(run.file_bytes for lineage in lineages for run in lineage)
