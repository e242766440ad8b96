"""Handles change their class with their state: an unread one reads itself first, a dead one refuses all work.

Python looks special methods up in the class, so a handle that is a real ``list`` or ``dict`` can only be guarded by
giving it another class. A variant has the methods of its model, each replaced by one that calls ``instead`` first.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from functools import cache, partial
from itertools import compress, repeat, starmap
from typing import Any, TypeVar

C = TypeVar("C")

_KEPT = frozenset(
    """
    name __class__ __new__ __init__ __init_subclass__ __subclasshook__ __getattribute__ __setattr__ __delattr__ __dir__
    __doc__ __dict__ __module__ __weakref__ __slots__ __class_getitem__ __hash__ __repr__ __str__ __format__ __reduce__
    __reduce_ex__ __getstate__ __sizeof__ __abstractmethods__ __orig_bases__ __parameters__ __missing__ __match_args__
    __static_attributes__ __firstlineno__ __annotations__ __copy__ __deepcopy__
    """.split()  # noqa: SIM905
)
"""Names of a class that a variant keeps: what Python itself needs, and what works without the contents."""


@cache
def variant(model: type, label: str, instead: Callable[[Any], None], shown: str = "") -> type:
    """Return a subclass of ``model`` whose every public method and operator calls ``instead(handle)`` first.

    ``instead`` either raises, or gives the handle another class, and then the method is looked up again. A model says
    in ``_unguarded`` which of its methods can do without. ``shown`` appears in the ``repr`` of handles whose contents
    cannot be shown.
    """
    kept = _KEPT | getattr(model, "_unguarded", frozenset())
    members: dict[str, Any] = {"__slots__": (), "__doc__": model.__doc__, "__module__": model.__module__}
    members["__qualname__"] = model.__qualname__
    for name in dir(model):
        if name in kept or (name.startswith("_") and not name.startswith("__")):
            continue
        # Another library may have put names on Python's abstract collections that cannot be read: zope.interface does.
        attribute = getattr(model, name, None)
        if isinstance(attribute, property):
            members[name] = _guarded_property(name, instead)
        elif callable(attribute):
            members[name] = _guarded(name, instead)
    members["kind"] = model.kind  # type: ignore[attr-defined]
    if shown:
        members["__repr__"] = lambda handle: f"<{handle._describe()} [{shown}]>"
    guarded = type(model.__name__, (model,), members)
    guarded._label = label  # type: ignore[attr-defined]
    guarded._model = model  # type: ignore[attr-defined]
    guarded._instead = staticmethod(instead)  # type: ignore[attr-defined]
    return guarded


def named_as(public: type) -> Callable[[type[C]], type[C]]:
    """Return what gives a class of handles the name of their public class: Python's errors name the class."""

    def _rename(cls: type[C]) -> type[C]:
        cls.__name__, cls.__qualname__ = public.__name__, public.__qualname__
        return cls

    return _rename


def become(handle: Any, model: type, label: str, instead: Callable[[Any], None], shown: str = "") -> None:
    """Give a handle a variant of ``model`` for its class, and take its shortcuts away: methods kept in the instance."""
    for name in [name for name in handle.__dict__ if not name.startswith("_")]:
        del handle.__dict__[name]
    handle.__class__ = variant(model, label, instead, shown)


def base_of(handle: Any) -> type:
    """Return the public class of a handle: of all the classes that it may have, the one that names its kind."""
    found: type = next(cls for cls in type(handle).__mro__ if "kind" in cls.__dict__ and "_model" not in cls.__dict__)
    return found


def is_dead(handle: Any) -> bool:
    """Return whether a handle refuses all work."""
    return getattr(type(handle), "_label", "") == "dead"


def refuse_dead(handle: Any) -> None:
    """Raise what all methods of a handle that refuses all work raise: for a method that was kept from before."""
    if is_dead(handle):
        type(handle)._instead(handle)


def is_known_elsewhere(handles: dict[Any, Any], key: Any) -> bool:
    """Return whether anything but this table refers to the handle under ``key``: a caller, a node, an iteration."""
    return sys.getrefcount(handles[key]) > _BY_TABLE


def replace_unknown(handles: dict[Any, Any], replacements: dict[Any, Any]) -> None:
    """Replace the handles under some keys in a table, but for those that anything else refers to by now.

    That is found out and the handle is replaced without a step of Python in between, in which another thread could get
    hold of the old one.
    """
    keys = list(replacements)
    counts = map(sys.getrefcount, map(dict.get, repeat(handles), keys))
    unknown = compress(replacements.items(), map(_BY_TABLE_AND_MAP.__ge__, counts))
    deque(starmap(partial(dict.__setitem__, handles), unknown), maxlen=0)


def _count_of_named() -> int:
    alone = object()
    return sys.getrefcount(alone)


BY_NAME = _count_of_named()
"""What ``sys.getrefcount`` returns for an object with one local name; since Python 3.14 it does not count the call."""

_BY_TABLE = sys.getrefcount({0: object()}[0]) + 1
"""What ``sys.getrefcount`` returns for an object that is in one table only; that of a literal is gone at the call."""


_BY_TABLE_AND_MAP = next(map(sys.getrefcount, map(dict.get, repeat({0: object()}), [0])))
"""What a ``map`` of it gives for an object that is in one table only."""


def is_cold(handle: Any) -> bool:
    """Return whether a handle reads itself at the next touch."""
    return getattr(type(handle), "_label", "") == "cold"


def is_partial(handle: Any) -> bool:
    """Return whether a handle holds the end of what it stands for, and reads the rest when that is asked for."""
    return getattr(type(handle), "_label", "") == "partial"


def _guarded(name: str, instead: Callable[[Any], None]) -> Callable[..., Any]:
    def _method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        instead(self)
        return getattr(self, name)(*args, **kwargs)

    _method.__name__ = name
    return _method


def _guarded_property(name: str, instead: Callable[[Any], None]) -> property:
    def _getter(self: Any) -> Any:
        instead(self)
        return getattr(self, name)

    def _setter(self: Any, value: Any) -> None:
        instead(self)
        setattr(self, name, value)

    return property(_getter, _setter)
