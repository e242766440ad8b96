"""What is tested: how it is made anew for each run, and how it takes events."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

Make = Callable[[], Any]


def maker_of(subject: Any) -> Make:
    """Return what makes a new operator for each run.

    Args:
        subject: a function or class that does; or a pipeline, or an operator that was never opened, which is copied.
    """
    if isinstance(subject, type) or (callable(subject) and not hasattr(subject, "open")):
        return lambda: _operator(subject())
    if hasattr(subject, "process") and not hasattr(subject, "open"):
        raise TypeError(
            f"{subject!r:.80} is an operator of your own, which runs in a pipeline: give the pipeline, or a function"
            " that builds one with apply(...) and materialize(...)"
        )
    if hasattr(subject, "as_operator"):
        return lambda: _operator(subject)
    return lambda: copy.deepcopy(subject)


def given(operator: Any, event: Any, number: int) -> list[Any]:
    """Give an operator an event, and return what comes out.

    Args:
        operator: the operator.
        event: the event.
        number: its number, counted from 1.
    """
    if isinstance(event, Mapping) and hasattr(operator, "take"):
        return list(operator.take(event, number))
    if callable(event):
        return list(event(operator) or ())
    if hasattr(operator, "on_next"):
        return list(operator.on_next(event))
    if isinstance(event, tuple):
        side, chunk = event
        return list(operator.process(chunk, side=side))
    return list(operator.process(event))


def _operator(made: Any) -> Any:
    return made.as_operator() if hasattr(made, "as_operator") else made
