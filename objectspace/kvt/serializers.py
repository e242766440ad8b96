"""Serializers: keys and values as bytes. What they return decides the equality, order and length of keys."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import orjson

from objectspace.kvt.errors import SerializationError

T = TypeVar("T")


class Serializer(Protocol[T]):
    """What a table asks of a serializer; any object with these two methods is one."""

    def serialize(self, value: T, /) -> bytes:
        """Return a value as bytes; raise TypeError or ValueError if it has none."""

    def deserialize(self, data: bytes, /) -> T:
        """Return the value of bytes that :meth:`serialize` returned."""


class _Bytes:
    """Bytes as they are; ``bytearray`` and ``memoryview`` are copied."""

    def serialize(self, value: bytes) -> bytes:
        """Return the bytes."""
        if type(value) is bytes:
            return value
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        raise TypeError(
            f"{_shown(value)} is a {type(value).__name__} where bytes are expected: encode it, or open the table with"
            " key_serializer= or value_serializer= UTF8 or JSON"
        )

    def deserialize(self, data: bytes) -> bytes:
        """Return the bytes."""
        return data


class _Utf8:
    """Text as UTF-8, which sorts as its code points do."""

    def serialize(self, value: str) -> bytes:
        """Return text as UTF-8."""
        if not isinstance(value, str):
            raise TypeError(f"{_shown(value)} is a {type(value).__name__} where text is expected")
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{value!r:.80} holds a lone surrogate, invalid in UTF-8: give valid text") from None

    def deserialize(self, data: bytes) -> str:
        """Return the text of UTF-8."""
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise _foreign(data, "UTF-8") from None


class _Json:
    """What JSON has, as JSON with sorted keys; what would not come back equal (a tuple, NaN) is refused."""

    _OPTIONS = (
        orjson.OPT_SORT_KEYS
        | orjson.OPT_PASSTHROUGH_DATACLASS
        | orjson.OPT_PASSTHROUGH_DATETIME
        | orjson.OPT_PASSTHROUGH_SUBCLASS
    )

    def serialize(self, value: Any) -> bytes:
        """Return a value as JSON."""
        try:
            data = orjson.dumps(value, option=self._OPTIONS)
        except TypeError as error:
            raise TypeError(f"{_shown(value)} has no JSON: {error}") from None
        if orjson.loads(data) != value:
            raise TypeError(f"{_shown(value)} does not come back equal from JSON: use lists for tuples, and no NaN")
        return data

    def deserialize(self, data: bytes) -> Any:
        """Return the value of JSON."""
        try:
            return orjson.loads(data)
        except ValueError:
            raise _foreign(data, "JSON") from None


def _shown(value: object) -> str:
    """Return a value as errors show it: by its type if it is nested too deeply for that."""
    try:
        return f"{value!r:.80}"
    except RecursionError:
        return f"a deeply nested {type(value).__name__}"


def _foreign(data: bytes, what: str) -> SerializationError:
    return SerializationError(
        f"{data!r:.80} is no {what}: it was written with another serializer; open the table with that one"
    )


BYTES: Serializer[bytes] = _Bytes()
"""Bytes as they are: what a table uses unless it is told otherwise."""

UTF8: Serializer[str] = _Utf8()
"""Text as UTF-8."""

JSON: Serializer[Any] = _Json()
"""What JSON has, with sorted keys."""


def checked_serializer(serializer: object, what: str) -> Any:
    """Return what a table is opened with, which must have both methods.

    Raises:
        TypeError: it does not.
    """
    for method in ("serialize", "deserialize"):
        if not callable(getattr(serializer, method, None)):
            raise TypeError(
                f"{what} is {serializer!r:.80}, which has no method {method}(): pass BYTES, UTF8 or JSON, or an object"
                " of your own with serialize() and deserialize()"
            )
    return serializer


def to_bytes(serializer: Serializer[T], value: T, what: str) -> bytes:
    """Return a key or value as bytes.

    Raises:
        TypeError: it is ``None``, or the serializer does not take it or returns something other than bytes.
    """
    if serializer is BYTES and type(value) is bytes:
        return value  # type: ignore[return-value]
    if value is None:
        instead = "; to remove a key call remove()" if what == "value" else ""
        raise TypeError(f"the {what} is None: give a {what}{instead}")
    data = serializer.serialize(value)
    if type(data) is not bytes:
        raise TypeError(f"{serializer!r} made a {type(data).__name__} of a {what}: serialize() must return bytes")
    return data
