"""Tables that could not read what is stored of them: they refuse their own work until they can, and hold up nobody."""

from __future__ import annotations

from functools import cache
from typing import Any

_FROM_STORE = frozenset({"schema", "_codec", "_key_of", "_keys", "_may_hide", "_may_wait", "_seen"})
"""The attributes that a table takes from what is stored."""


def read_or_leave(table: Any) -> None:
    """Have a table read what is stored of it; if that fails it is left unread, and the error says why.

    The next use of an unread table reads it, or raises. Nothing in it waits to be sealed, so barriers skip it.
    """
    model: type = getattr(type(table), "_model", type(table))
    try:
        table.__class__ = model
        table._read_stored()
    except BaseException:
        table.__class__ = _unread(model)
        raise


@cache
def _unread(model: type) -> type:
    """Return the class of unread tables: Python lets an object change to it only if it has no other bases.

    A method that was kept from before also asks the object for its attributes.
    """

    def _attribute(table: Any, name: str) -> Any:
        if name in _FROM_STORE:
            read_or_leave(table)
        return object.__getattribute__(table, name)

    members = {"__slots__": (), "__doc__": model.__doc__, "__module__": model.__module__, "_model": model}
    left = dict.fromkeys(("seal", "follow_schema", "follow_watermarks"), _leave)
    return type(model.__name__, (model,), {**members, **left, "__getattribute__": _attribute, "__repr__": _shown})


def _leave(table: Any, *_: object) -> None:
    """Do nothing: there is nothing to seal, and the next use reads what others have changed."""


def _shown(table: Any) -> str:
    return f"<StateTable {table.name!r} [what is stored of it cannot be read]>"
