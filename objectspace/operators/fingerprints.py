"""Names for callables that change when their code does, and are the same in every process."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import partial
from types import CodeType, ModuleType
from typing import Any


def describe(function: Callable[..., Any]) -> str:
    """Return a name for a callable that changes when its code does: its name and a digest.

    The digest covers its code, its defaults and the values that it closes over, of a method and of an object that can
    be called the object too; nothing that it calls, and no global that it reads. What has no text of its own, such as
    an object of a class without ``__repr__``, counts by its class.

    >>> describe(len), describe(partial(int, base=2))
    ('builtins.len', 'partial(builtins.int, base=2)')
    """
    name = _described(function, ())
    _NAMES.add(name)
    return name


def names_function(text: str) -> bool:
    """Tell whether a text holds the name that :func:`describe` has given to a callable in this process."""
    return any(name in text for name in _NAMES)


_NAMES: set[str] = set()


def _described(function: Callable[..., Any], within: tuple[CodeType, ...]) -> str:
    if isinstance(function, partial):
        given = [*function.args, *function.keywords.values()]
        names = [""] * len(function.args) + [f"{name}=" for name in function.keywords]
        parts = [f"{name}{_text(value, within)}" for name, value in zip(names, given, strict=True)]
        return f"partial({', '.join([_described(function.func, within), *parts])})"
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", type(function).__qualname__).replace("<lambda>", "lambda")
    if code is None:
        made = f"{getattr(function, '__module__', None) or type(function).__module__}.{name}"
        called = type(function).__call__
        if not hasattr(called, "__code__"):
            return made
        return f"{made}({_text(function, within)})#{_described(called, within)}"
    if code in within:
        return name
    digest = hashlib.sha256(_content(function, code, (*within, code)).encode()).hexdigest()
    return f"{name.rpartition('.')[2]}#{digest[:8]}"


def _content(function: Callable[..., Any], code: CodeType, within: tuple[CodeType, ...]) -> str:
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
    return code.co_code.hex(), constants, code.co_names, code.co_varnames


def _cell(cell: Any, within: tuple[CodeType, ...]) -> str:
    try:
        return _text(cell.cell_contents, within)
    except ValueError:  # what is closed over has no value yet
        return ""


def _text(value: Any, within: tuple[CodeType, ...]) -> str:
    """Return a value as text that is the same in every process: without addresses, and sets in an order."""
    kind = type(value)
    if kind in (set, frozenset):
        return f"{kind.__name__}({', '.join(sorted(_text(one, within) for one in value))})"
    if kind is list:
        return f"[{', '.join(_text(one, within) for one in value)}]"
    if kind is tuple:
        return f"({', '.join(_text(one, within) for one in value)}{',' if len(value) == 1 else ''})"
    if kind is dict:
        return f"{{{', '.join(f'{_text(one, within)}: {_text(other, within)}' for one, other in value.items())}}}"
    if isinstance(value, partial) or hasattr(value, "__code__"):
        return _described(value, within)
    if kind.__module__.partition(".")[0] in ("numpy", "pandas", "pyarrow"):
        for listed in ("tolist", "to_pylist", "to_dict"):  # Their own text leaves out much of what is long.
            if callable(getattr(value, listed, None)):
                return f"{kind.__name__}({_text(getattr(value, listed)(), within)})"
    return value.__name__ if isinstance(value, ModuleType) else _ADDRESS.sub("", repr(value))


_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")
