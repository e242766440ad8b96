"""A table that could not read what is stored of it: it refuses its own work until it can, and holds up nobody else."""

from __future__ import annotations

from functools import cache
from typing import Any

_FROM_STORE = frozenset({"schema", "_codec", "_key_of", "_keys", "_may_hide", "_may_wait", "_seen"})
"""The attributes of a table that it takes from what is stored."""


def read_or_leave(table: Any) -> None:
    """Have a table read what is stored of it; where that fails it is left unread, and what is raised says why.

    The next use of one that is unread reads it, or raises. Nothing waits in it to be sealed: barriers pass it over.
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
    """Return the class of tables that are unread: Python gives an object another one only where it has no other bases.

    A method that was kept from before asks the object for its attributes, too.
    """

    def _attribute(table: Any, name: str) -> Any:
        if name in _FROM_STORE:
            read_or_leave(table)
        return object.__getattribute__(table, name)

    members = {"__slots__": (), "__doc__": model.__doc__, "__module__": model.__module__, "_model": model}
    left = dict.fromkeys(("seal", "follow_schema", "follow_watermarks"), _leave)
    return type(model.__name__, (model,), {**members, **left, "__getattribute__": _attribute, "__repr__": _shown})


def _leave(table: Any, _: object) -> None:
    """Leave it to the next use: there is nothing to seal, and what others have changed is read then."""


def _shown(table: Any) -> str:
    return f"<StateTable {table.name!r} [what is stored of it cannot be read]>"
