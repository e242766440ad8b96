"""What a prompt shows of operators, pipelines and runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_IS_FOR_PEOPLE = ContextVar("is_for_people", default=True)


@contextmanager
def not_for_people() -> Iterator[None]:
    """Have what is :class:`ShownAtPrompt` shown by its class alone, however deep in the texts of others."""
    before = _IS_FOR_PEOPLE.set(False)
    try:
        yield
    finally:
        _IS_FOR_PEOPLE.reset(before)


class ShownAtPrompt:
    """What has a text for people only: a function that closes over it stays the same, whatever the text says."""

    def __repr__(self) -> str:
        if not _IS_FOR_PEOPLE.get():
            return object.__repr__(self)
        try:
            name, (what, state) = type(self).__name__, self._at_prompt()
        except AttributeError:  # It is only half made: a debugger shows it as well.
            return object.__repr__(self)
        return f"<{name} {what} [{state}]>".replace("  ", " ") if state else f"{name}({what})"

    def _at_prompt(self) -> tuple[str, str]:
        """Return what it is, and a word for a state in which it is of no use, which is empty otherwise."""
        raise AssertionError(f"{type(self).__name__} must define _at_prompt")
