"""Names for callables that change when their code does, and are the same in every process."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import partial
from operator import attrgetter, itemgetter, methodcaller
from types import CodeType, MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

Within = tuple[Any, ...]
"""What is being described: code and containers, each of which may lead back to itself."""


def describe(function: Callable[..., Any]) -> str:
    """Return a name for a callable that changes when its code does: its name and a digest.

    The digest covers its code, its defaults and the values that it closes over, of a method, a built-in one too, and of
    an object that can be called the object as well, of a cached function the one that is cached; nothing that it calls,
    and no global that it reads. A class counts by its name. What has no text of its own, such as an object of a class
    without ``__repr__``, counts by its class.

    >>> describe(len), describe(partial(int, base=2))
    ('builtins.len', 'partial(builtins.int, base=2)')
    >>> describe({"UA": "United"}.get) == describe({"UA": "United Airlines"}.get)
    False
    """
    name = _described(function, ())
    _NAMES.add(name)
    return name


def names_function(text: str) -> bool:
    """Tell whether a text holds the name that :func:`describe` has given to a callable in this process."""
    return any(name in text for name in _NAMES)


_NAMES: set[str] = set()


def _described(function: Callable[..., Any], within: Within) -> str:
    if isinstance(function, partial):
        given = [*function.args, *function.keywords.values()]
        names = [""] * len(function.args) + [f"{name}=" for name in function.keywords]
        parts = [f"{name}{_text(value, within)}" for name, value in zip(names, given, strict=True)]
        return f"partial({', '.join([_described(function.func, within), *parts])})"
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", type(function).__qualname__).replace("<lambda>", "lambda")
    if code is None:
        return _without_code(function, name, within)
    if _is_among(code, within):
        return name
    return f"{name.rpartition('.')[2]}#{_digest(_content(function, code, (*within, code)))}"


def _without_code(function: Callable[..., Any], name: str, within: Within) -> str:
    """Describe a callable that is no function of Python."""
    made = f"{getattr(function, '__module__', None) or type(function).__module__}.{name}"
    if carried := _carried(function, within):
        return f"{made}#{_digest(', '.join(carried))}"
    called = type(function).__call__
    if not hasattr(called, "__code__"):
        return made
    return f"{made}({_text(function, within)})#{_described(called, within)}"


def _carried(function: Any, within: Within) -> list[str]:
    """Return as text what a callable without code carries with it that decides what it does."""
    if isinstance(function, (attrgetter, itemgetter, methodcaller)):
        return [_text(function.__reduce__(), within)]
    owner, cached = getattr(function, "__self__", None), getattr(function, "__wrapped__", None)
    if owner is not None and not isinstance(owner, (ModuleType, type)):
        return [_text(owner, within)]
    return [_described(cached, within)] if cached is not None and not _is_of_tables(function) else []


def _content(function: Callable[..., Any], code: CodeType, within: Within) -> str:
    """Return what a function is made of as text."""
    cells = [_cell(cell, within) for cell in getattr(function, "__closure__", None) or ()]
    named = getattr(function, "__kwdefaults__", None)
    parts = [repr(_code(code)), _text(getattr(function, "__defaults__", None), within), repr(cells)]
    owner = getattr(function, "__self__", None)
    parts += [] if owner is None else [_text(owner, within)]
    return f"({', '.join([*parts, _text(named, within)] if named else parts)})"


def _code(code: CodeType) -> tuple[Any, ...]:
    """Return what a piece of code does, without where it stands."""
    constants = tuple(_code(each) if isinstance(each, CodeType) else _text(each, ()) for each in code.co_consts)
    caught = (code.co_exceptiontable.hex(),) if code.co_exceptiontable else ()
    taken = (code.co_flags & _TAKES_MORE,) if code.co_flags & _TAKES_MORE else ()
    return code.co_code.hex(), constants, code.co_names, code.co_varnames, *caught, *taken


def _cell(cell: Any, within: Within) -> str:
    try:
        return _text(cell.cell_contents, within)
    except ValueError:  # what is closed over has no value yet
        return ""


def _text(value: Any, within: Within) -> str:
    """Return a value as text that is the same in every process: without addresses, and sets in an order."""
    kind = type(value)
    if kind in (str, bytes):
        return repr(value)
    if isinstance(value, re.Pattern) and len(repr(value.pattern)) > _CUT_PATTERN:
        return f"re.compile({value.pattern!r}, {value.flags})"
    if hasattr(value, "__code__") or isinstance(value, partial):
        return _described(value, within)
    if callable(value) and not isinstance(value, type) and not hasattr(type(value).__call__, "__code__"):
        return _described(value, within) if _carried(value, within) else _own_text(value)
    if _is_of_tables(value):
        return _of_table(value, within)
    if _is_among(value, within):
        return "..."
    return _of_container(value, (*within, value))


def _of_container(value: Any, within: Within) -> str:
    """Return a value as text, one that holds others by what it holds: their own text may be cut or without an order."""
    kind = type(value)
    if kind in (set, frozenset):
        return f"{kind.__name__}({', '.join(sorted(_text(one, within) for one in value))})"
    if kind is list:
        return f"[{_listed(value, within)}]"
    if kind is tuple:
        return f"({_listed(value, within)}{',' if len(value) == 1 else ''})"
    if kind is dict:
        return f"{{{', '.join(f'{_text(one, within)}: {_text(other, within)}' for one, other in value.items())}}}"
    if kind is SimpleNamespace:
        return f"namespace({_named(vars(value).items(), within)})"
    if kind is deque:
        return f"deque([{_listed(value, within)}], {value.maxlen})"
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return f"{kind.__name__}({_named(zip(kind._fields, value, strict=True), within)})"
    if is_dataclass(kind) and hasattr(kind.__repr__, "__wrapped__"):  # Not where it has a text of its own.
        held = ((one.name, getattr(value, one.name, None)) for one in fields(value) if one.repr)
        return f"{kind.__qualname__}({_named(held, within)})"
    if kind in (Counter, MappingProxyType, OrderedDict, defaultdict):
        made = f"{_text(value.default_factory, within)}, " if kind is defaultdict else ""
        return f"{kind.__name__}({made}{_of_container(dict(value), within)})"
    return _own_text(value)


def _listed(values: Iterable[Any], within: Within) -> str:
    return ", ".join(_text(one, within) for one in values)


def _named(pairs: Iterable[tuple[str, Any]], within: Within) -> str:
    return ", ".join(f"{name}={_text(one, within)}" for name, one in pairs)


def _of_table(value: Any, within: Within) -> str:
    """Return a value of numpy, pandas or pyarrow as text: its own leaves out much of what is long."""
    name = type(value).__name__
    if hasattr(value, "columns") and hasattr(value, "iloc"):
        return f"{name}({_text(value.to_dict('split'), within)})"
    for listed in ("tolist", "to_pylist", "to_dict"):
        if callable(getattr(value, listed, None)):
            parts = [_text(getattr(value, listed)(), within)]
            if hasattr(value, "iloc"):
                parts.append(_text(value.index, within))
            if (dtype := str(getattr(value, "dtype", "object"))) not in _USUAL:
                parts.append(dtype)
            return f"{name}({', '.join(parts)})"
    return _own_text(value)


def _own_text(value: Any) -> str:
    return value.__name__ if isinstance(value, ModuleType) else _ADDRESS.sub("", repr(value))


def _is_of_tables(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] in ("numpy", "pandas", "pyarrow")


def _is_among(value: Any, within: Within) -> bool:
    return any(value is one for one in within)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")

_CUT_PATTERN = 200
"""From how many characters on the text of a regular expression is cut."""

_TAKES_MORE = 0x04 | 0x08
"""The flags of code that takes ``*args`` and ``**kwargs``: its names do not tell."""

_USUAL = {"bool", "float64", "int64", "object"}
"""The types of elements that are not named: they are those that Python's values have."""
