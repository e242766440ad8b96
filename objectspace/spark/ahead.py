"""Folding what a task has saved into the cache of its machine at once, before it is known whether it is accepted.

It mostly is, and then whoever opens the shard there for the next epoch need not wait for it: the work is done in a
thread, while Spark ends the epoch and plans the next one. If another run was accepted, the task of the next epoch drops
what is ahead.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from threading import Lock, Thread

from checkpoint import CheckpointStore, Run
from checkpoint.chain import AcceptedRun, is_private
from checkpoint.process import switching_often

LOG = logging.getLogger("objectspace.spark")

LEAST_ROWS = 4_096
"""Smaller runs are folded in when the shard is opened: there they take a few milliseconds, and no thread."""

_under_way: set[Thread] = set()
_lock = Lock()


def fold_ahead(opened: ExitStack, store: CheckpointStore, run: Run, saved: AcceptedRun) -> None:
    """Fold a run into the cache that it was made on, and close that, both in the background.

    Args:
        opened: what is to be closed then, including the cache. It is left as it is if there is nothing to do.
        store: the cache; it stands just before the run, and nobody else uses it.
        run: its rows, which nobody changes any more.
        saved: what was written of it.

    Time: O(1), and O(rows) in the background. Dirties: the cache.
    """
    if is_private(store) or run.slots < LEAST_ROWS:
        return
    mine = opened.pop_all()
    store.announce_close()
    # A daemon: a worker of Spark may be ended at any time, which leaves the cache as it was, or with the run.
    thread = Thread(target=_fold, args=(mine, store, run, saved), name="objectspace-ahead", daemon=True)
    with _lock:
        _under_way.difference_update([one for one in _under_way if not one.is_alive()])
        try:
            thread.start()
        except RuntimeError as error:  # There are too many threads.
            LOG.info("%s: %s", _NOT_FOLDED, error)
            mine.close()
        else:
            _under_way.add(thread)


def wait_until_folded() -> None:
    """Wait for all that this process folds ahead: whoever looks at its caches then sees them complete."""
    with _lock:
        waiting = list(_under_way)
    for thread in waiting:
        thread.join()


def _fold(opened: ExitStack, store: CheckpointStore, run: Run, saved: AcceptedRun) -> None:
    try:
        with switching_often(), opened:
            store.apply(run, saved.epoch)
    except Exception as error:
        LOG.info("%s: %s", _NOT_FOLDED, error)


_NOT_FOLDED = "a run could not be folded in ahead of its epoch; opening the shard does it"
