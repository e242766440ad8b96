"""What is tested: how a new one is made for each run, and how it takes events."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Make = Callable[[], Any]


def maker_of(subject: Any) -> Make:
    """Return what makes a new operator for each run.

    Args:
        subject: a function or class that does; or a pipeline, or an operator that was never opened, which is copied.
            Anything else is refused when the first operator is made.
    """
    if isinstance(subject, type) or (callable(subject) and not hasattr(subject, "open")):
        return lambda: _operator(subject())
    if hasattr(subject, "as_operator"):
        return lambda: _operator(subject)
    return lambda: _copied(_operator(subject))


def given(operator: Any, event: Any, number: int) -> list[Any]:
    """Give an operator an event, and return what comes out.

    Args:
        operator: the operator.
        event: the event.
        number: its number, counted from 1.

    Raises:
        TypeError: the operator takes no such event, or what it returns is not a list.
    """
    what = f"event {number}: {type(operator).__name__}"
    if isinstance(event, Mapping) and hasattr(operator, "take"):
        return listed(what, operator.take(event, number))
    if callable(event):
        return listed(f"event {number}: the function", event(operator) or None)
    if hasattr(operator, "on_next"):
        return listed(what, operator.on_next(event))
    if not hasattr(operator, "process"):
        raise TypeError(f"{what} takes no values: expected on_next(value) or process(chunk), or functions as events")
    if isinstance(event, tuple) and len(event) == 2:
        return listed(what, operator.process(event[1], side=event[0]))
    if hasattr(operator, "take") and not hasattr(event, "rows"):
        raise TypeError(f"{what} takes a batch, a mapping of sources to their rows: found {event!r:.80}")
    return listed(what, operator.process(event))


def listed(what: str, found: Any) -> list[Any]:
    """Return what comes out of an operator as a list: nothing for ``None``.

    Args:
        what: what gave it, in a word.
        found: what it gave.

    Raises:
        TypeError: these are not values.
    """
    if isinstance(found, str | bytes) or not isinstance(found, Iterable | None):
        raise TypeError(f"{what} returned {found!r:.80}: expected a list of what comes out, or None for nothing")
    return list(() if found is None else found)


def _operator(made: Any) -> Any:
    """Return an operator that was made, or the operator that a pipeline is.

    Raises:
        TypeError: it is not an operator.
    """
    if hasattr(made, "as_operator"):
        return made.as_operator()
    if hasattr(made, "open"):
        return made
    if hasattr(made, "process"):
        raise TypeError(
            f"{made!r:.80} is an operator of your own, which runs in a pipeline: give the pipeline, or a function"
            " that builds one with apply(...) and materialize(...)"
        )
    raise TypeError(
        f"{made!r:.80} is no operator: expected one with open(space, name), a function or class that makes one, or a"
        " pipeline"
    )


def _copied(operator: Any) -> Any:
    try:
        return copy.deepcopy(operator)
    except TypeError as error:
        raise TypeError(
            f"{type(operator).__name__} is copied for each run, and cannot be ({error}): give one that was never"
            " opened, or a function that makes a new one"
        ) from error
