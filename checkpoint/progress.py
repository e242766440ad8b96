"""Reporting the progress of long work."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with how much is done and the total to do.

Other threads that need the store wait until it returns: so it may not wait for them, as asking their writers would do.
"""


def silent(done: int, total: int | None) -> None:
    """Report nothing."""
