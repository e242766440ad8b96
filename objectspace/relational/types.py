"""The types of columns, the Python values that they take, and the form of a value in a stored row.

=========================== ============================= =========================================
type                        Python value                  in a stored row (JSON)
=========================== ============================= =========================================
``bool``                    ``bool``                      ``true``
``int16 int32 int64``       ``int``                       ``42``
``float32 float64``         ``float``                     ``1.5``, ``"nan"``, ``"inf"``
``decimal``                 ``Decimal``                   ``"1.50"``
``decimal(p,s)``            ``Decimal`` that fits         ``"1.50"``
``string``                  ``str``                       ``"text"``
``binary``                  ``bytes``                     base64
``date``                    ``datetime.date``             ``"2013-01-31"``
``time``                    ``datetime.time``             ``"23:59:00"``
``timestamp``               ``datetime`` without a zone   ``"2013-01-31T23:59:00"``
``timestamptz``             ``datetime`` with a zone      the same in UTC
``list<T>``                 ``list``                      an array
``struct<a:T,b:U>``         ``dict``                      an array, in the order of the fields
=========================== ============================= =========================================

Times have microseconds, as in Spark. A ``float32`` keeps the number it was given, but is ordered, compared and computed
with as the nearest 32-bit number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from objectspace.relational.errors import SchemaError

INTEGERS = ("int16", "int32", "int64")
"""The types of whole numbers."""

FLOATS = ("float32", "float64")
"""The types of binary fractions, which may be NaN."""

NUMBERS = (*INTEGERS, *FLOATS, "decimal")
"""The types of numbers."""

TIMES = ("timestamp", "timestamptz", "date")
"""The types of points in time."""

DECIMAL_DIGITS_MAX = 38
"""The most digits of a decimal with a fixed number of digits, as in Spark and Arrow."""

_PLAIN = frozenset(
    """
    bool int16 int32 int64 float32 float64 decimal string binary date time timestamp timestamptz
    """.split()  # noqa: SIM905
)
_ALIASES = {
    "boolean": "bool",
    "smallint": "int16",
    "int": "int32",
    "integer": "int32",
    "bigint": "int64",
    "real": "float32",
    "float": "float64",
    "double": "float64",
    "numeric": "decimal",
    "varchar": "string",
    "text": "string",
    "bytea": "binary",
    "bytes": "binary",
}

_NEAR = {
    "tinyint": "int16",
    "byte": "int16",
    "short": "int16",
    "long": "int64",
    "str": "string",
    "timestamp_ntz": "timestamp",
    "timestamp_ltz": "timestamptz",
    "array": "list<T>",
    "map": "list<struct<key:K,value:V>>",
}
"""What is meant by names that other systems have for types."""


@dataclass(frozen=True)
class DataType:
    """A column type.

    Args:
        kind: its name without parameters.
        precision: the number of digits of a decimal, if it is fixed.
        scale: the number of digits after the point of such a decimal.
        element: the type of the elements of a list.
        fields: the names and types of the fields of a struct.

    A field name that is not a plain word is written in backticks, and a backtick in it is doubled.

    >>> str(parse_type("struct<at:timestamp, tags:list<varchar>, `user-id`:int>"))
    'struct<at:timestamp,tags:list<string>,`user-id`:int32>'
    """

    kind: str
    precision: int | None = None
    scale: int | None = None
    element: DataType | None = None
    fields: tuple[tuple[str, DataType], ...] = ()

    def __post_init__(self) -> None:
        is_whole = self.element is not None if self.kind == "list" else self.kind == "struct" or self.kind in _PLAIN
        if not is_whole or (self.precision is None) != (self.scale is None):
            raise SchemaError(
                f"there is no such type {self.kind!r}: name it in words, such as 'list<int64>' or 'decimal(10,2)'"
            )
        names = [name for name, _ in self.fields]
        if len({*names}) < len(names):
            raise SchemaError(f"a struct has two fields of one name: {', '.join(names)}")

    def __str__(self) -> str:
        if self.kind == "list":
            return f"list<{self.element}>"
        if self.kind == "struct":
            return f"struct<{','.join(f'{_quoted(name)}:{kind}' for name, kind in self.fields)}>"
        return self.kind if self.precision is None else f"decimal({self.precision},{self.scale})"

    @property
    def is_nested(self) -> bool:
        """Whether its values are lists or dicts, which could be changed in place."""
        return self.kind in ("list", "struct")


def parse_type(text: str | DataType) -> DataType:
    """Return the type that a text names.

    Raises:
        SchemaError: there is no such type, or it is nested too deep.

    >>> parse_type("decimal(10,2)").precision
    10
    """
    if isinstance(text, DataType):
        return text
    if not isinstance(text, str):
        raise SchemaError(f"a type is text such as 'int64': found {text!r}")
    tokens = _Tokens(text)
    found = tokens.read_type()
    tokens.read_end()
    return found


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else "`" + name.replace("`", "``") + "`"


def _unquoted(word: str) -> str:
    return word[1:-1].replace("``", "`") if word.startswith("`") else word


_MOST_LEVELS = 250
"""How many lists and structs may be nested in one another: values of JSON have a few more levels at most."""


class _Tokens:
    """The words and signs of a type that is being parsed."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._left = re.findall(r"`(?:[^`]|``)*`|\w+|\S", text)

    def read_type(self, level: int = 0) -> DataType:
        """Take a type from the remaining words; it is nested in so many others."""
        if level > _MOST_LEVELS:
            raise SchemaError(f"the type {self._text[:60]!r}...: lists and structs are nested too deep in it")
        name = self._next()
        kind = _ALIASES.get(name.lower(), name.lower())
        if kind == "list":
            self._expect("<")
            element = self.read_type(level + 1)
            self._expect(">")
            return DataType("list", element=element)
        if kind == "struct":
            return DataType("struct", fields=tuple(self._fields(level + 1)))
        if kind not in _PLAIN:
            near = _NEAR.get(name.lower())
            self._refuse(f"there is no type {name!r}" + (f": write {near}" if near else ""))
        if kind == "decimal" and self._peek() == "(":
            return self._decimal()
        return DataType(kind)

    def read_end(self) -> None:
        """Refuse any remaining words."""
        if self._left:
            self._refuse(f"{self._left[0]!r} is too much")

    def _fields(self, level: int) -> Iterator[tuple[str, DataType]]:
        self._expect("<")
        seen: set[str] = set()
        if self._peek() == ">":
            self._next()
            return
        while True:
            named = len(self._left) > 1 and self._left[1] == ":"
            name = _unquoted(self._next()) if named else f"f{len(seen)}"
            if named:
                self._expect(":")
            if name in seen:
                self._refuse(f"two fields have the name {name!r}")
            seen.add(name)
            yield name, self.read_type(level)
            if self._peek() != ",":
                break
            self._next()
        self._expect(">")

    def _decimal(self) -> DataType:
        self._expect("(")
        precision = self._number()
        scale = 0
        if self._peek() == ",":
            self._next()
            scale = self._number()
        self._expect(")")
        if not (1 <= precision <= DECIMAL_DIGITS_MAX and 0 <= scale <= precision):
            self._refuse(f"a decimal has 1 to {DECIMAL_DIGITS_MAX} digits, of which no more may follow the point")
        return DataType("decimal", precision, scale)

    def _number(self) -> int:
        word = self._next()
        if not (word.isascii() and word.isdigit()):
            self._refuse(f"{word!r} is no number")
        return int(word)

    def _peek(self) -> str:
        return self._left[0] if self._left else ""

    def _next(self) -> str:
        if not self._left:
            self._refuse("it ends too early")
        word: str = self._left.pop(0)
        return word

    def _expect(self, sign: str) -> None:
        if self._peek() != sign:
            self._refuse(f"expected {sign!r}, found {self._peek()!r}")
        self._next()

    def _refuse(self, why: str) -> NoReturn:
        known = ", ".join([*sorted(_PLAIN), "decimal(p,s)", "list<T>", "struct<name:T,...>"])
        raise SchemaError(f"the type {self._text!r}: {why}; types are {known}")


def can_widen(old: DataType, new: DataType) -> bool:
    """Return whether every stored value of one type is a value of the other.

    >>> can_widen(parse_type("int16"), parse_type("int64")), can_widen(parse_type("int64"), parse_type("float64"))
    (True, False)
    >>> [can_widen(parse_type("int16"), parse_type(f"decimal({digits},2)")) for digits in (6, 7)]
    [False, True]
    """
    if old == new:
        return True
    if old.kind == new.kind == "decimal":
        return new.precision is None or _decimal_fits(old, new)
    if old.kind == new.kind == "list":
        assert old.element is not None
        assert new.element is not None
        return can_widen(old.element, new.element)
    if old.kind in _DIGITS and new.kind == "decimal" and new.precision is not None and new.scale is not None:
        return new.precision - new.scale >= _DIGITS[old.kind]
    return new.kind in _WIDER.get(old.kind, ())


_DIGITS = {"int16": 5, "int32": 10, "int64": 19}
"""The most digits that the numbers of a type have."""

_WIDER = {
    "int16": ("int32", "int64", "float32", "float64", "decimal"),
    "int32": ("int64", "float64", "decimal"),
    "int64": ("decimal",),
    "float32": ("float64",),
}


def _decimal_fits(old: DataType, new: DataType) -> bool:
    if old.precision is None or old.scale is None or new.precision is None or new.scale is None:
        return False
    return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
