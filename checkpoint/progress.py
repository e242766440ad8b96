"""Reporting the progress of long work."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with how much is done and the total to do."""


def silent(done: int, total: int | None) -> None:
    """Report nothing."""
