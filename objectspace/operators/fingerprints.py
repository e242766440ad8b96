"""Names for callables that change when their code does, and are the same in every process."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import partial
from operator import attrgetter, itemgetter, methodcaller
from types import CodeType, MappingProxyType, MethodType, ModuleType, SimpleNamespace
from typing import Any, TypeVar

from objectspace.errors import ObjectSpaceError
from objectspace.operators.prompt import not_for_people

T = TypeVar("T")


def describe(function: Callable[..., Any]) -> str:
    """Return a name for a callable that changes when its code does: its name and a digest.

    The digest covers its code, its defaults and the values that it closes over; for a method or a callable object also
    the object, for a built-in method the value that it belongs to, and for a cached function the function that is
    cached. It covers nothing that the callable calls, and no global that it reads. A class counts by its name. A value
    without a text of its own, such as an object of a class without ``__repr__``, counts by its class.

    Raises:
        ObjectSpaceError: what it closes over is nested too deeply to be described, or raises when asked for its text.

    Time: O(what it closes over), each value once for each path that leads to it.

    >>> describe(len), describe(partial(int, base=2))
    ('builtins.len', 'partial(builtins.int, base=2)')
    >>> describe({"UA": "United"}.get) == describe({"UA": "United Airlines"}.get)
    False
    """
    try:
        with not_for_people():
            name = _Description().of(function)
    except Exception as error:
        called = _name_of(function)
        why = "it is nested too deeply" if isinstance(error, RecursionError) else f"{type(error).__name__}: {error}"
        raise ObjectSpaceError(
            f"function {called}: what it closes over, or belongs to, cannot be compared with what it was when the"
            f" pipeline runs again ({why}): close over less, or over values that have a text"
        ) from None
    _NAMES.add(name)
    return name


def described_value(value: Any) -> str:
    """Return a value as text that is the same in every process and says all that it holds: sets in order, arrays whole.

    >>> described_value(("k", "in", {"b", "a"}))
    "('k', 'in', set('a', 'b'))"
    """
    with not_for_people():
        return _Description().text(value)


def names_function(text: str) -> bool:
    """Return whether a text contains a name that :func:`describe` has given to a callable in this process."""
    return any(name in text for name in _NAMES)


def without_functions(text: str) -> str:
    """Return a text without the names from :func:`describe`, some of which differ between processes.

    >>> without_functions(f"Where({describe(lambda row: row.v > 5)}(v))")
    'Where(function(v))'
    """
    # A name may contain that of another callable, so the longest goes first.
    for name in sorted((name for name in _NAMES if name in text), key=lambda name: (-len(name), name)):
        text = text.replace(name, "function")
    return text


_NAMES: set[str] = set()


class _Description:
    """What is known while a callable is described: what is already described, and what is being described."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, str]] = {}
        self._open: list[tuple[Any, Any]] = []

    def of(self, function: Any) -> str:
        """Return the name of a callable."""
        if isinstance(function, partial):
            given = [*function.args, *function.keywords.values()]
            names = [""] * len(function.args) + [f"{name}=" for name in function.keywords]
            parts = [f"{name}{self.text(value)}" for name, value in zip(names, given, strict=True)]
            return f"partial({', '.join([self.of(function.func), *parts])})"
        name = _name_of(function).replace("<lambda>", "lambda")
        one = (function.__func__, function.__self__) if isinstance(function, MethodType) else (function, None)
        if self._is_open(*one):
            return name
        found = self._known.get(id(function))
        if found is None:
            with self._opened(*one):
                code = _code_of(function)
                text = self._without_code(function, name) if code is None else self._with_code(function, code, name)
            # The function is kept, so no other one gets its id.
            found = self._known[id(function)] = (function, text)
        return found[1]

    def _is_open(self, one: Any, owner: Any = None) -> bool:
        return any(one is other and owner is whose for other, whose in self._open)

    @contextmanager
    def _opened(self, one: Any, owner: Any = None) -> Iterator[None]:
        self._open.append((one, owner))
        try:
            yield
        finally:
            self._open.pop()

    def _with_code(self, function: Any, code: CodeType, name: str) -> str:
        """Describe a Python function."""
        cells = [self._cell(cell) for cell in getattr(function, "__closure__", None) or ()]
        named = getattr(function, "__kwdefaults__", None)
        parts = [repr(self._code(code)), self.text(getattr(function, "__defaults__", None)), repr(cells)]
        owner = _attribute(function, "__self__", object)
        parts += [] if owner is None else [self.text(owner)]
        parts += [self.text(named)] if named else []
        content = ", ".join(parts)
        return f"{name.rpartition('.')[2]}#{_digest(f'({content})')}"

    def _without_code(self, function: Any, name: str) -> str:
        """Describe a callable that is not a Python function."""
        made = f"{_attribute(function, '__module__', str) or type(function).__module__}.{name}"
        called, wrapped = type(function).__call__, _wrapped(function)
        if _code_of(called) is None or isinstance(function, MethodType):
            carried = self._carried(function, wrapped)
            return f"{made}#{_digest(', '.join(carried))}" if carried else made
        parts = [self.of(called)] + ([] if wrapped is None else [self.of(wrapped)])
        return f"{made}({self.text(function)})#{'#'.join(parts)}"

    def _carried(self, function: Any, wrapped: Any) -> list[str]:
        """Return as text what a callable without code carries that decides what it does."""
        if isinstance(function, (attrgetter, itemgetter, methodcaller)):
            return [self.text(function.__reduce__())]
        if isinstance(function, type):
            return []
        owner = _attribute(function, "__self__", object)
        if isinstance(function, MethodType):
            return [self.of(function.__func__), self.text(owner)]
        if owner is not None and not isinstance(owner, (ModuleType, type)):
            return [self.text(owner) if _is_value(owner) else type(owner).__qualname__]
        return [] if wrapped is None else [self.of(wrapped)]

    def _code(self, code: CodeType) -> tuple[Any, ...]:
        """Return what a piece of code does, regardless of where it stands."""
        constants = tuple(self._code(one) if isinstance(one, CodeType) else self.text(one) for one in code.co_consts)
        caught = (code.co_exceptiontable.hex(),) if code.co_exceptiontable else ()
        taken = (code.co_flags & _TAKES_MORE,) if code.co_flags & _TAKES_MORE else ()
        return code.co_code.hex(), constants, code.co_names, code.co_varnames, *caught, *taken

    def _cell(self, cell: Any) -> str:
        try:
            held = cell.cell_contents
        except ValueError:  # what is closed over has no value yet
            return ""
        return self.text(held)

    def text(self, value: Any) -> str:
        """Return a value as text that is the same in every process: without addresses, and with sets in order."""
        kind = type(value)
        if kind in _PLAIN:
            return repr(value)
        if isinstance(value, re.Pattern):
            return _of_pattern(value)
        if isinstance(value, partial) or _code_of(value) is not None:
            return self.of(value)
        if callable(value) and not isinstance(value, type) and _code_of(type(value).__call__) is None:
            owner = _attribute(value, "__self__", object)
            is_bound = owner is not None and not isinstance(owner, ModuleType)
            return self.of(value) if is_bound or self._carried(value, _wrapped(value)) else _own_text(value)
        if self._is_open(value, _AS_VALUE):
            return "..."
        with self._opened(value, _AS_VALUE):
            return self._of_table(value) if _is_of_tables(value) else self._of_container(value)

    def _of_container(self, value: Any) -> str:
        """Return a value as text, a container by what it holds: its own text may be cut off, or without an order."""
        kind = type(value)
        if kind in (set, frozenset) or kind.__repr__ in _OF_SETS:
            return f"{kind.__name__}({', '.join(sorted(self._of_members(value)))})"
        if kind is list:
            return f"[{self._listed(value)}]"
        if kind is tuple:
            return f"({self._listed(value)}{',' if len(value) == 1 else ''})"
        if kind is dict:
            return f"{{{', '.join(self._pairs(value))}}}"
        if kind is SimpleNamespace:
            return f"namespace({self._named(vars(value).items())})"
        if kind is deque:
            return f"deque([{self._listed(value)}], {value.maxlen})"
        if kind is Counter:
            return f"Counter({{{', '.join(sorted(self._pairs(value)))}}})"
        if kind in (MappingProxyType, OrderedDict, defaultdict) or _is_shown_as_dictionary(kind):
            made = f"{self.text(value.default_factory)}, " if kind is defaultdict else ""
            return f"{kind.__name__}({made}{{{', '.join(self._pairs(value))}}})"
        if (shown := _shown_fields(value)) is not None:
            return f"{kind.__qualname__}({self._named(shown)})"
        return _own_text(value)

    def _of_table(self, value: Any) -> str:
        """Return a NumPy, pandas or pyarrow value as text: its own text leaves out much of a long value."""
        kind = type(value)
        is_indexed = hasattr(kind, "iloc")
        if is_indexed and hasattr(kind, "columns"):
            return f"{kind.__name__}({self.text(value.to_dict(orient='split'))}, {list(map(repr, value.dtypes))})"
        for listed in ("tolist", "to_pylist", "to_dict"):
            if callable(getattr(value, listed, None)):
                try:
                    held = getattr(value, listed)()
                except (ValueError, OverflowError):  # Python has no such times.
                    return _own_text(value)
                parts = [self.text(held)] + ([self.text(value.index)] if is_indexed else [])
                dtype = getattr(value, "dtype", "object")
                parts += [] if str(dtype) in _USUAL else [repr(dtype)]
                return f"{kind.__name__}({', '.join(parts)})"
        return _own_text(value)

    def _of_members(self, members: Iterable[Any]) -> Iterator[str]:
        """Yield the texts of the members of a set, none of which depends on which member comes first."""
        known = self._known
        for one in members:
            if type(one) not in _PLAIN:
                self._known = dict(known)
            yield self.text(one)
        self._known = known

    def _listed(self, values: Iterable[Any]) -> str:
        return ", ".join(map(self.text, values))

    def _pairs(self, held: Any) -> list[str]:
        return [f"{self.text(one)}: {self.text(other)}" for one, other in held.items()]

    def _named(self, pairs: Iterable[tuple[str, Any]]) -> str:
        return ", ".join(f"{name}={self.text(one)}" for name, one in pairs)


def _attribute(value: Any, name: str, kind: type[T]) -> T | None:
    """Return an attribute if it is of a kind: some objects answer to any name."""
    try:
        found = getattr(value, name, None)
    except Exception:
        return None
    return found if isinstance(found, kind) else None


def _name_of(function: Any) -> str:
    """Return the name of a callable; without one, that of its type."""
    kind = type(function)
    # A ufunc that NumPy before 2.2 has made, or any that frompyfunc makes, has no other name.
    known = _attribute(function, "__name__", str) if (kind.__module__, kind.__name__) == ("numpy", "ufunc") else None
    return _attribute(function, "__qualname__", str) or known or kind.__qualname__


def _code_of(value: Any) -> CodeType | None:
    return _attribute(value, "__code__", CodeType)


def _wrapped(value: Any) -> Any:
    """Return the callable that another one stands for, such as a cache or one marked by ``functools.wraps``."""
    found = None if isinstance(value, type) or _is_of_tables(value) else _attribute(value, "__wrapped__", object)
    return found if callable(found) else None


def _is_value(owner: Any) -> bool:
    """Return whether the owner of a built-in method is a value, not something that is open, locked or connected."""
    is_of_values = type(owner).__module__.partition(".")[0] in _VALUES or _is_of_tables(owner)
    return is_of_values or _is_shown_as_dictionary(type(owner))


def _is_shown_as_dictionary(kind: type) -> bool:
    """Return whether a type is a dictionary without a text of its own."""
    shown: Any = kind.__repr__
    return shown is dict.__repr__


def _shown_fields(value: Any) -> list[tuple[str, Any]] | None:
    """Return the fields that a data class or named tuple shows as text, or ``None`` if it has a text of its own."""
    kind = type(value)
    if is_dataclass(kind) and _is_made_by_dataclass(kind.__repr__):
        return [(one.name, getattr(value, one.name, None)) for one in fields(value) if one.repr]
    names = _attribute(kind, "_fields", tuple)
    if isinstance(value, tuple) and names is not None and _attribute(kind.__repr__, "__module__", str) == "collections":
        return list(zip(names, value))
    return None


def _is_made_by_dataclass(shown: Any) -> bool:
    """Return whether a ``__repr__`` was written by ``dataclass``, and is not the class's own with a decorator."""
    code = _code_of(_wrapped(shown))
    return code is not None and code.co_filename == "<string>"


def _of_pattern(value: re.Pattern[Any]) -> str:
    pattern = repr(value.pattern)
    is_cut = len(pattern) > _CUT_PATTERN or _ADDRESS.search(pattern)
    return f"re.compile({pattern}, {value.flags})" if is_cut else repr(value)


def _own_text(value: Any) -> str:
    if type(value) in (bytearray, memoryview):
        return f"{type(value).__name__}({bytes(value)!r})"
    if isinstance(value, ModuleType):
        return value.__name__
    return _ADDRESS.sub("", repr(value))


def _is_of_tables(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] in ("numpy", "pandas", "pyarrow")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


_AS_VALUE = object()
"""Stands for the owner of what is described as a value: it may also be what is called."""

_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")

_PLAIN = frozenset([str, bytes, int, float, complex, bool, type(None)])
"""Types whose values have a text that describes them fully."""

_VALUES = frozenset(
    [
        "builtins",
        "collections",
        "datetime",
        "decimal",
        "fractions",
        "functools",
        "operator",
        "re",
        "types",
        "uuid",
        "zoneinfo",
    ]
)
"""The modules in which the types of values are defined."""

_OF_SETS: tuple[Any, ...] = (set.__repr__, frozenset.__repr__)
"""The texts of sets, which have no order."""

_CUT_PATTERN = 200
"""The number of characters from which the text of a regular expression is cut off."""

_TAKES_MORE = 0x04 | 0x08
"""The flags of code that takes ``*args`` and ``**kwargs``, which its names do not show."""

_USUAL = {"bool", "float64", "int64", "object"}
"""The types of elements that are not named, because Python's values have them."""
