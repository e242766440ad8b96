"""Values as text: JSON for what JSON has, one tagged object for every other type, and never pickle.

A value that is not a JSON value is written as an object with one key that begins with ``$``:

========================= ==========================================================
``bytes``, ``bytearray``  ``{"$bytes": base64}``, ``{"$bytearray": base64}``
``tuple``                 ``{"$tuple": [...]}``
``set``, ``frozenset``    ``{"$set": [...]}``, ``{"$frozenset": [...]}``, in the order of their texts
``int`` beyond 64 bits    ``{"$int": "123..."}``, in hexadecimal digits beyond 8,192 bits
``float`` nan, inf        ``{"$float": "nan"}``
``Decimal``               ``{"$decimal": "1.50"}``
``date``, ``time``        ``{"$date": "2013-01-31"}``, ``{"$time": "23:59:00"}``
``datetime``              ``{"$datetime": "2013-01-31T23:59:00"}``, with the key of its zone if it has one
``timedelta``             ``{"$timedelta": [days, seconds, microseconds]}``
``UUID``                  ``{"$uuid": "..."}``
``complex``               ``{"$complex": [real, imaginary]}``
``str`` JSON cannot hold  ``{"$str": hexadecimal UTF-8}`` (lone surrogates)
``dict`` JSON cannot hold ``{"$dict": [[key, value], ...]}`` (keys that are not text, or begin with ``$``)
dataclasses on request    ``{"$dataclass": [name, {field: value}]}``
========================= ==========================================================
"""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from functools import cache
from typing import Any, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import orjson

from checkpoint.errors import CheckpointError
from objectspace.decimals import DECIMAL_TEXT
from objectspace.errors import ObjectSpaceError, shown

ATOMS = frozenset({int, str, bool, type(None), bytes, float})
"""Types whose values cannot change, so a stored one may be compared with the object that was stored."""

_DEEPEST = 254

TOO_DEEP = (
    "it contains itself or is nested too deep: at most 254 lists or dictionaries, or 127 tuples or sets, may be"
    " nested, one fewer in a key; store its parts under keys of their own"
)
"""Why a value is refused if it is nested deeper than JSON text may be."""

_INT64 = range(-(2**63), 2**63)
_PLAIN = frozenset({str, bool, type(None)})

T = TypeVar("T")

_registered: dict[str, type] = {}


_PASSED_ON = (MemoryError, CheckpointError, ObjectSpaceError)
"""What the code of a value may raise that says nothing against the value: the library refuses what was asked there."""


TOO_DEEP_OR_FULL = (
    f"{TOO_DEEP}; if it is neither, this was called from too deep in other calls, near Python's recursion limit"
)
"""Why a value is refused if Python had no room for one more call."""


class Unencodable(TypeError):
    """A value has no text; the caller knows the object and the slot, and names them."""


class NotReadHere(ValueError):
    """What is stored is sound, and yet this process cannot read it: the error says what it lacks."""


class ClassChanged(NotReadHere):
    """A key is stored that is or holds a dataclass, which is compared by other fields now, or in another order."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the fields that a {name} is compared by, or their order, are not those that this key was stored with, so"
            f" nobody would find it: declare {name} as it was, and take another class for new keys"
        )


class ZoneChanged(NotReadHere):
    """A key is stored that holds a time of a zone whose rules have changed since, so that it is another moment now."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the rules of the zone {name} are not those that this key was stored with, so nobody would find it: read"
            " it with the tzdata that stored it, and take times in UTC for new keys"
        )


class UnknownZone(NotReadHere):
    """A time of a zone is stored that this machine does not know."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"a time of the zone {name} is stored here, which this machine does not know: install tzdata, which has the"
            " zones, with pip or with the system"
        )


class Unregistered(NotReadHere):
    """A dataclass is stored, but none of its name is registered in this process."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"a {name} is stored here, and no dataclass of that name is registered in this process: call"
            f" objectspace.register_dataclass({name}) before it is read"
        )


class Kept:
    """A value that is stored again as it was, because a dataclass in it is not registered in this process.

    It cannot be hashed: only the class tells which key it would be.

    Args:
        stored: what :func:`plain` made of the value.
        reason: the error that names the dataclass.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, stored: Any, reason: Unregistered) -> None:
        self.stored = stored
        self.reason = reason


_keeps = ContextVar("objectspace keeps dataclasses", default=False)


@contextmanager
def dataclasses_kept() -> Iterator[None]:
    """Read each value that holds a dataclass as a :class:`Kept` meanwhile.

    What only moves values needs no class for that, and moves the same text in every process. Keys need their class.
    """
    token = _keeps.set(True)
    try:
        yield
    finally:
        _keeps.reset(token)


def register_dataclass(cls: type[T]) -> type[T]:
    """Allow the instances of a dataclass to be stored, under the name of the class; usable as a decorator.

    Fields are stored by their names. An instance that was stored before a field was added has the default of the field
    when it is read; without a default the field stays unset until it is assigned, and to save the instance again before
    that is refused. A field that was removed is gone when an instance is read, and one that was renamed is a removed
    and an added one. The fields by which keys are compared must stay as they are: they are the slots of the keys.

    Args:
        cls: the dataclass.

    Returns:
        the dataclass.

    Raises:
        TypeError: ``cls`` is not a dataclass, or derives from a built-in type, whose contents its fields do not have.
        ValueError: another class of this name is already registered.

    >>> @register_dataclass
    ... @dataclasses.dataclass(frozen=True)
    ... class Point:
    ...     x: int
    ...     y: int
    >>> decode(encode(Point(1, 2)))
    Point(x=1, y=2)
    """
    if not dataclasses.is_dataclass(cls):
        raise TypeError(f"{shown(cls)} is no dataclass: put @dataclass under @register_dataclass")
    if not isinstance(cls, type):
        name = type(cls).__name__
        raise TypeError(f"{shown(cls)} is an instance: give its class, register_dataclass({name})")
    _require_fields_only(cls)
    known = _registered.setdefault(cls.__name__, cls)
    if known is not cls and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(f"another dataclass named {cls.__name__} is registered already: {known!r}")
    _registered[cls.__name__] = cls
    return cls


def _require_fields_only(cls: type) -> None:
    """Refuse a class whose instances are more than their fields, and cannot be made of these alone."""
    try:
        object.__new__(cls)
    except TypeError as error:
        if "is not safe" in str(error):  # An abstract class has another error: those that derive from it are stored.
            raise TypeError(
                f"{cls.__name__} derives from a built-in type, and what that holds is in no field ({error}): keep it in"
                " a field instead"
            ) from None


def is_registered(cls: type) -> bool:
    """Return whether the instances of a class can be stored because it is a registered dataclass."""
    return _registered.get(cls.__name__) is cls


def encode(value: Any) -> str:
    """Return the text of a value.

    Raises:
        Unencodable: the value, or something in it, is of a type that cannot be stored.

    >>> encode([1, "a", None]), encode((1, 2))
    ('[1,"a",null]', '{"$tuple":[1,2]}')
    """
    kind = type(value)
    if kind is int and -(2**63) <= value < 2**63:
        return repr(value)
    if kind is str:
        try:
            return orjson.dumps(value).decode()
        except TypeError:
            pass
    try:
        return encode_plain(plain(value))
    except RecursionError:
        raise Unencodable(TOO_DEEP_OR_FULL) from None


def encode_plain(value: Any) -> str:
    """Return the text of what :func:`plain` made of a value.

    Raises:
        Unencodable: it is nested too deeply.
    """
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError as error:
        # orjson has no error type of its own for this; plain() has replaced or refused everything else that it refuses.
        raise Unencodable(TOO_DEEP if "Recursion" in str(error) else str(error)) from None


def decode(text: str | bytes) -> Any:
    """Return the value of a text that :func:`encode` wrote.

    Raises:
        ValueError: the text is damaged.
    """
    if isinstance(text, bytes):
        text = text.decode()
    value = orjson.loads(text)
    return restore_value(value) if '{"$' in text else value


def is_nested_too_deep(text: Any) -> bool:
    """Return whether a text is nested deeper than any that :func:`encode` writes.

    >>> is_nested_too_deep("[" * 254 + "]" * 254), is_nested_too_deep("[" * 256 + "]" * 256)
    (False, True)
    """
    level, depth = [orjson.loads(text)], 0
    while level := [part for one in level for part in _parts(one)]:
        depth += 1
    return depth > _DEEPEST


def _parts(value: Any) -> Iterable[Any]:
    """Return what a value of JSON directly consists of."""
    return value.values() if type(value) is dict else value if type(value) is list else ()


def decode_together(texts: Sequence[Any]) -> list[Any] | None:
    """Return the values of texts that are all plain JSON, read as one, or ``None`` if that cannot be told.

    >>> decode_together(["1", '"a"']), decode_together(["1", '{"$tuple":[]}'])
    ([1, 'a'], None)
    """
    try:
        # No text holds a line break, so one that lost its closing quote is not completed by its neighbour.
        joined = ",\n".join(texts)
        values = None if '"$' in joined else orjson.loads(f"[{joined}]")
    except (TypeError, ValueError):
        return None
    return values if values is not None and len(values) == len(texts) else None


def plain(value: Any) -> Any:
    """Return a value in terms of what JSON has, with tagged objects for the rest."""
    kind: type = type(value)
    if kind in _PLAIN:
        return value if kind is not str or is_utf8(value) else {"$str": value.encode("utf-8", "surrogatepass").hex()}
    if kind is int:
        return value if value in _INT64 else {"$int": str(value) if value.bit_length() < 8192 else hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind is list:
        return [plain(item) for item in value]
    if kind is dict:
        return _plain_dict(value)
    encoder = _ENCODERS.get(kind)
    if encoder is not None:
        return encoder(value)
    if kind.__name__ in _registered and _registered[kind.__name__] is kind:
        fields = {name: plain(field_of(value, name)) for name in _names_of(kind)}
        return {"$dataclass": [kind.__name__, fields]}
    raise Unencodable(_advice(kind))


def field_of(value: Any, name: str) -> Any:
    """Return a field of a dataclass, whose class may have code of its own that gives it.

    Raises:
        Unencodable: it is not set, or that code fails.
    """
    try:
        return getattr(value, name)
    except _PASSED_ON:
        raise
    except Exception as error:
        found = f"the field {name!r} of a {type(value).__name__}"
        if isinstance(error, AttributeError):
            raise Unencodable(f"{found} has no value ({shown(error)}): set it, or give it a default") from error
        raise Unencodable(
            f"{found} cannot be read ({shown(error)}): set it, or change what the class does when it is read"
        ) from error


def is_same(value: Any, other: Any) -> bool:
    """Return whether two values are stored alike, where a field without a value is like another one.

    So an instance of a dataclass that got a field without a default is the same each time that it is read.
    """
    try:
        return _traits(value) == _traits(other)
    except (Unencodable, RecursionError):
        return False


def _traits(value: Any) -> str:
    """Return what tells a value from others, like :func:`encode`."""
    kind: type = type(value)
    if kind is dict:
        parts = [f"{_traits(key)}:{_traits(item)}" for key, item in value.items()]
    elif kind in (list, tuple):
        parts = list(map(_traits, value))
    elif kind in (set, frozenset):
        parts = sorted(map(_traits, value))
    elif is_registered(kind):
        parts = [_trait_of(value, name) for name in _names_of(kind)]
    else:
        return encode(value)
    return f"{kind.__name__}({','.join(parts)})"


def _trait_of(value: Any, name: str) -> str:
    try:
        found = field_of(value, name)
    except Unencodable:
        return "nothing"
    return _traits(found)


def _plain_dict(value: dict[Any, Any]) -> Any:
    if all(type(key) is str and not key.startswith("$") and is_utf8(key) for key in value):
        return {key: plain(item) for key, item in value.items()}
    return {"$dict": [[plain(key), plain(item)] for key, item in value.items()]}


def is_utf8(text: str) -> bool:
    """Return whether text has no lone surrogate, so that JSON and a database can hold it as text."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _advice(kind: type) -> str:
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    if dataclasses.is_dataclass(kind):
        return f"{name} is a dataclass that was not registered: call objectspace.register_dataclass({kind.__name__})"
    if name.startswith("objectspace.objects."):
        return (
            "it is a persisted object, which has its own place: store handle.copy(), or make the dictionary with"
            " create_dictionary(name, of=list)"
        )
    if kind.__module__.startswith("numpy"):
        return f"{name} is a numpy type: store value.item() or value.tolist(), or use a tensor"
    return f"{name} has no stored form: store what it consists of (numbers, text, bytes, dates, lists, dicts, ...)"


def _sorted_plain(values: Iterable[Any]) -> list[Any]:
    return sorted((plain(value) for value in values), key=encode_plain)


def _plain_datetime(value: datetime) -> Any:
    zone = value.tzinfo
    if isinstance(zone, ZoneInfo) and zone.key:
        if _zone(zone.key) is None:
            raise Unencodable(
                f"this machine knows no zone {zone.key!r}, so it could not be read again: take one that ZoneInfo finds"
                " by its name, or UTC"
            )
        return {"$datetime": [value.replace(tzinfo=None, fold=0).isoformat(), zone.key, value.fold]}
    try:
        text = value.replace(fold=0).isoformat()
    except _PASSED_ON:
        raise
    except Exception as error:
        raise Unencodable(
            f"the zone of a datetime, a {type(zone).__name__}, gives no offset from UTC ({shown(error)}): take a"
            " ZoneInfo, or a datetime.timezone"
        ) from error
    return {"$datetime": [text, None, 1] if value.fold else text}


def _plain_time(value: time) -> Any:
    if value.tzinfo is not None:
        raise Unencodable("datetime.time with a time zone has no stored form: store a datetime, or the zone beside it")
    text = value.replace(fold=0).isoformat()
    return {"$time": [text, 1] if value.fold else text}


def _restore_datetime(stored: Any) -> datetime:
    if isinstance(stored, str):
        return datetime.fromisoformat(stored)
    text, zone, fold = stored
    moment = datetime.fromisoformat(text).replace(fold=fold)
    if not zone:
        return moment
    if (known := _zone(zone)) is None:
        raise UnknownZone(zone)
    return moment.replace(tzinfo=known)


def _zone(name: str) -> ZoneInfo | None:
    """Return the zone of a name, ``None`` if this machine does not know it."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # The name may be that of a folder, or none at all.
        return None


def name_of(zone: tzinfo | None) -> str | None:
    """Return the name of a zone if it is the one that is found by this name, which is what is stored of it."""
    return zone.key if isinstance(zone, ZoneInfo) and zone.key and _zone(zone.key) is zone else None


def _restore_time(stored: Any) -> time:
    return time.fromisoformat(stored) if isinstance(stored, str) else time.fromisoformat(stored[0]).replace(fold=1)


def _restore_dataclass(stored: Any) -> Any:
    name, fields = stored
    fields = {key: restore(item) for key, item in fields.items()}
    if name not in _registered:
        raise Unregistered(name)
    cls = _registered[name]
    known = _names_of(cls)
    restored: Any = object.__new__(cls)
    for key, value in {**_defaults(cls), **fields}.items():
        if key in known:  # Else it was a field when the instance was stored.
            object.__setattr__(restored, key, value)
    return restored


@cache
def _names_of(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls))


def _defaults(cls: type) -> dict[str, Any]:
    """Return the defaults of the fields of a dataclass: what was stored before a field was added lacks that field."""
    found = {}
    for field in dataclasses.fields(cls):
        if field.default is not dataclasses.MISSING:
            found[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            found[field.name] = field.default_factory()
    return found


def restore_value(value: Any) -> Any:
    """Return what :func:`restore` does of a value that is no key; see also :func:`dataclasses_kept`."""
    if _keeps.get() and (name := _dataclass_in(value)) is not None:
        return Kept(value, Unregistered(name))
    return restore(value)


def _dataclass_in(value: Any) -> str | None:
    """Return the name of a dataclass that :func:`plain` has found in a value, or ``None`` if it found none."""
    if type(value) is dict and value.keys() == {"$dataclass"}:
        return str(value["$dataclass"][0])
    return next((name for name in map(_dataclass_in, _parts(value)) if name is not None), None)


def restore(value: Any) -> Any:
    """Return the value of what :func:`plain` made of it."""
    if type(value) is list:
        return [restore(item) for item in value]
    if type(value) is not dict:
        return value
    if len(value) == 1:
        ((tag, stored),) = value.items()
        if tag in _DECODERS:
            return _DECODERS[tag](stored)
        if tag.startswith("$"):
            raise ValueError(f"the tag {tag} is not known to this version")
    return {key: restore(item) for key, item in value.items()}


_ENCODERS: dict[type, Callable[[Any], Any]] = {
    bytes: lambda value: {"$bytes": base64.b64encode(value).decode()},
    bytearray: lambda value: {"$bytearray": base64.b64encode(value).decode()},
    tuple: lambda value: {"$tuple": [plain(item) for item in value]},
    set: lambda value: {"$set": _sorted_plain(value)},
    frozenset: lambda value: {"$frozenset": _sorted_plain(value)},
    Decimal: lambda value: {"$decimal": DECIMAL_TEXT.to_sci_string(value)},
    date: lambda value: {"$date": value.isoformat()},
    time: _plain_time,
    datetime: _plain_datetime,
    timedelta: lambda value: {"$timedelta": [value.days, value.seconds, value.microseconds]},
    UUID: lambda value: {"$uuid": str(value)},
    complex: lambda value: {"$complex": [plain(value.real), plain(value.imag)]},
    Kept: lambda value: value.stored,
}

_MADE_OF = frozenset({list, dict})
"""The types of what :func:`plain` makes of other values: all else stands for itself."""

_DECODERS: dict[str, Callable[[Any], Any]] = {
    "$bytes": base64.b64decode,
    "$bytearray": lambda stored: bytearray(base64.b64decode(stored)),
    "$tuple": lambda stored: tuple(stored if _MADE_OF.isdisjoint(map(type, stored)) else map(restore, stored)),
    "$set": lambda stored: set(map(restore, stored)),
    "$frozenset": lambda stored: frozenset(map(restore, stored)),
    "$int": lambda stored: int(stored, 0),
    "$float": float,
    "$decimal": DECIMAL_TEXT.create_decimal,
    "$date": date.fromisoformat,
    "$time": _restore_time,
    "$datetime": _restore_datetime,
    "$timedelta": lambda stored: timedelta(*stored),
    "$uuid": UUID,
    "$complex": lambda stored: complex(restore(stored[0]), restore(stored[1])),
    "$str": lambda stored: bytes.fromhex(stored).decode("utf-8", "surrogatepass"),
    "$dict": lambda stored: {restore(key): restore(item) for key, item in stored},
    "$dataclass": _restore_dataclass,
}
