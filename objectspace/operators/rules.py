"""What the parts of an operator note about it while it is made, because the texts that it is known by do not say it.

The rules by which it computes that were different in earlier versions are part of its fingerprint, so the state of an
earlier version is refused by name if it would be wrong, and used if nothing has changed.

The types of what its calls of functions return are compared beside the fingerprint, if they were stored: earlier
versions neither stored nor compared them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Generic, TypeVar

FLOAT32 = "a float32 is the nearest number of 32 bits"
BRANCHES = "a decimal beside a double in coalesce or when is one too"
DOUBLES = "an int64 is compared with a double as one"
FULL_JOIN_WATERMARK = "a full join keeps its watermark on the column of on= that is in the output"
SESSIONS = "a watermark on their times ends sessions, and what no change can touch any more is forgotten"
ALL_RULES = (FLOAT32, BRANCHES, DOUBLES, FULL_JOIN_WATERMARK, SESSIONS)
"""All of them, the oldest first: with an operator is noted how many there were when it was stored."""

UNNOTED = 4
"""How many there were before that was noted, in versions that noted which Python it was; none in those before."""

_MadeT = TypeVar("_MadeT")


@dataclass
class Noted:
    """What was noted.

    Args:
        rules: the rules that were different in earlier versions.
        calls: the calls of functions, with the types of what they return, in the order in which they came.
    """

    rules: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)


_NOTED: ContextVar[Noted | None] = ContextVar("noted", default=None)


def note(rule: str) -> None:
    """Note that what is being made computes by a rule."""
    found = _NOTED.get()
    if found is not None:
        found.rules.add(rule)


def note_call(call: str, kind: object) -> None:
    """Note the type of what a call of a function returns."""
    found = _NOTED.get()
    if found is not None:
        found.calls.append(f"{call} as {kind}")


@contextmanager
def noted() -> Iterator[Noted]:
    """Collect what is noted in the block."""
    found = Noted()
    token = _NOTED.set(found)
    try:
        yield found
    finally:
        _NOTED.reset(token)


@dataclass(frozen=True)
class Made(Generic[_MadeT]):
    """Something that was made, and what was noted about it.

    Args:
        made: what was made.
        rules: the rules that were different in earlier versions, in order.
        calls: the calls of functions, with the types of what they return, in the order in which they came.
    """

    made: _MadeT
    rules: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()


def made_by_rules(make: Callable[[], _MadeT]) -> Made[_MadeT]:
    """Return what a function makes, with what is noted about it."""
    with noted() as found:
        made = make()
    return Made(made, tuple(sorted(found.rules)), tuple(found.calls))
