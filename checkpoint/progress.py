"""Telling how far work that takes long has come."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Is told how much is done, and how much is to be done in all."""


def silent(done: int, total: int | None) -> None:
    """Tell nobody."""
