"""The rules by which an operator computes that were different in earlier versions, whose state followed the old ones.

While an operator is made, its parts note such rules here. The rules are part of its fingerprint, so the state of an
earlier version is refused by name if it would be wrong, and used if nothing has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

FLOAT32 = "a float32 is the nearest number of 32 bits"
BRANCHES = "a decimal beside a double in coalesce or when is one too"
DOUBLES = "an int64 is compared with a double as one"
PROMISES = "a full join keeps its watermark on the column of on= that is in the output"

_MadeT = TypeVar("_MadeT")

_NOTED: ContextVar[set[str] | None] = ContextVar("rules", default=None)


def note(rule: str) -> None:
    """Note that what is being made computes by a rule."""
    found = _NOTED.get()
    if found is not None:
        found.add(rule)


@contextmanager
def noted() -> Iterator[set[str]]:
    """Collect the rules that are noted in the block."""
    found: set[str] = set()
    token = _NOTED.set(found)
    try:
        yield found
    finally:
        _NOTED.reset(token)


def made_by_rules(make: Callable[[], _MadeT]) -> tuple[_MadeT, tuple[str, ...]]:
    """Return what a function makes, and the rules that it computes by."""
    with noted() as found:
        made = make()
    return made, tuple(sorted(found))
