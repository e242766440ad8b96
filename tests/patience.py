"""How long a test waits for what other processes and threads do: as long as a machine under load may take."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 300.0
"""Seconds. Whoever waits goes on at once when it has happened; processes of the lowest priority may take long."""


def wait_until(has_happened: Callable[[], object], what: str) -> None:
    """Wait until something has happened.

    Args:
        has_happened: looks whether it has.
        what: what it is, for the error.

    Raises:
        AssertionError: it has not happened in time.
    """
    end = time.monotonic() + PATIENCE
    while not has_happened():
        assert time.monotonic() < end, f"{what}: not within {PATIENCE:.0f} s"
        time.sleep(0.05)
