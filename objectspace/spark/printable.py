"""Errors as text that can be sent and shown, whatever they are.

Spark's worker sends what is printed of an error as UTF-8. If that is impossible, as with the surrogates that
``os.fsdecode`` makes of a file name in another encoding, it sends nothing, and Spark waits for it for ever.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from objectspace.codec import is_utf8


@contextmanager
def printable_errors() -> Iterator[None]:
    r"""Replace an error that cannot be sent with one that can, of a class of the same name.

    >>> with printable_errors():
    ...     raise FileNotFoundError("no file caf\udce9.csv")
    Traceback (most recent call last):
    FileNotFoundError: no file caf\udce9.csv
    """
    try:
        yield
    except BaseException as error:
        if is_utf8("".join(traceback.format_exception(error))):
            raise
        raise _told(error) from None  # Its cause may be what cannot be sent.


def in_words(error: BaseException) -> str:
    """Return what an error says, with its notes; if it raises when asked for that, what it is.

    >>> in_words(KeyError())
    'KeyError'
    """
    notes: Any = []
    with suppress(Exception):
        notes = getattr(error, "__notes__", [])
    found = notes if isinstance(notes, list | tuple) else [notes]
    return "; ".join([_text(error) or type(error).__name__, *map(_text, found)])


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an error; anything that it has instead of a list of notes becomes the note before it."""
    try:
        error.add_note(note)
    except TypeError:
        with suppress(Exception):
            error.__notes__ = [_text(error.__notes__), note]


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception as why:
        return f"{type(value).__name__}, whose text cannot be told: asking for it raised {type(why).__name__}"


def _told(error: BaseException) -> Exception:
    """Return an error of a class of the same name that says the same, with what cannot be sent escaped."""
    kind = type(error)
    named = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    told: Exception = type(kind.__name__, (Exception,), named)(
        _said(error).removeprefix(name).removeprefix(":").strip()
    )
    cause = error.__context__ if error.__cause__ is None and not error.__suppress_context__ else error.__cause__
    if cause is not None:
        told.add_note(f"from {_said(cause)}")
    files = "".join(frame.filename for frame in traceback.extract_tb(error.__traceback__))
    return told.with_traceback(error.__traceback__ if is_utf8(files) else None)


def _said(error: BaseException) -> str:
    """Return an error in words, with its notes."""
    printed = "".join(traceback.format_exception_only(error)).strip()
    return printed.encode(errors="backslashreplace").decode()
