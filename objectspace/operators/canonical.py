"""One form for values that are equal in SQL, so a result does not depend on which of them came first.

Rows keep the spelling that they came with: ``-0.0``, ``1.00``. Where an operator has to choose one value for several
equal ones (a group key, a minimum, a distinct value) it shows the form that all of them share: ``0.0``, ``1``, and for
a ``float32`` the nearest 32-bit number, such as ``0.10000000149011612`` for ``0.1``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import MAX_EMAX, Decimal, Inexact
from operator import itemgetter
from typing import Any

from objectspace.decimals import decimal_context
from objectspace.relational import DataType, Order, TableSchema
from objectspace.relational.keys import KeyEncoder, column_encoder
from objectspace.relational.values import nearest_float32

Form = Callable[[Any], Any]

EXACT = decimal_context(60_000, exponent=MAX_EMAX, traps=[Inexact])
"""Decimal arithmetic without rounding: enough digits for the products of all decimals that a column accepts."""

_HASHED_AS_THEY_ARE = frozenset(
    ["bool", "int16", "int32", "int64", "string", "binary", "date", "time", "timestamp", "timestamptz"]
)
"""Types whose values are equal in Python exactly if they are equal in SQL."""


def is_plain(kind: DataType) -> bool:
    """Return whether equal values of a type have only one form, which Python hashes and orders as SQL does."""
    return kind.kind in _HASHED_AS_THEY_ARE


def canonical(kind: DataType) -> Form | None:
    """Return a function that gives a value or ``None`` the form that equal values share; ``None`` if it has it already.

    >>> from objectspace.relational.types import parse_type
    >>> canonical(parse_type("float64"))(-0.0), canonical(parse_type("list<decimal>"))([Decimal("1.50"), None])
    (0.0, [Decimal('1.5'), None])
    """
    inner = _inner(kind)
    return None if inner is None else lambda value: None if value is None else inner(value)


def shortest(value: Decimal) -> Decimal:
    """Return a decimal without insignificant zeros.

    >>> shortest(Decimal("1.500")), shortest(Decimal("3E+2"))
    (Decimal('1.5'), Decimal('300'))
    """
    if not value.is_finite():
        return value
    if not value:
        return Decimal(0)
    short = value.normalize(EXACT)
    return short if int(short.as_tuple().exponent) <= 0 else Decimal(int(short))


def identity(kinds: Sequence[DataType], places: Sequence[int]) -> Callable[[Any], Any]:
    """Return a function that gives the values at some places of a row as one key of a Python dictionary.

    Plain values stand for themselves, alone or in a tuple; others are encoded as keys are.
    """
    if not all(map(is_plain, kinds)):
        columns = [(column_encoder(kind, Order()), place) for kind, place in zip(kinds, places, strict=True)]
        return lambda row: b"".join([encode(row[place]) for encode, place in columns])
    if len(places) == 1:
        (only,) = places
        return lambda row: row[only]
    if len(places) == 2:
        first, second = places
        return lambda row: (row[first], row[second])
    return lambda row: tuple([row[place] for place in places])


def dictionary_keys(schema: TableSchema, places: Sequence[int]) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a function that gives the values at some places of many rows as dictionary keys; equal ones are one key.

    It is faster than :func:`identity` if there are floats, but the keys have no order. A value of a single place stands
    for itself.

    >>> from objectspace.relational import Column
    >>> keys = dictionary_keys(TableSchema([Column("v", "float64"), Column("tags", "list<string>")]), [0])
    >>> len(set(keys([(float("nan"), []), (float("nan"), []), (0.0, []), (-0.0, [])])))
    2
    """
    forms = [(place, _hashed(schema.columns[place].type)) for place in places]
    if all(form is None for _, form in forms):
        pick = itemgetter(*places) if places else lambda row: ()
        return lambda rows: list(map(pick, rows))

    def _keys(rows: Sequence[Any]) -> list[Any]:
        columns = [
            [row[place] for row in rows] if form is None else [form(row[place]) for row in rows]
            for place, form in forms
        ]
        return columns[0] if len(columns) == 1 else list(zip(*columns))

    return _keys


def picker(schema: TableSchema, places: Sequence[int]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that gives the values at some places of a row in their canonical form."""
    forms = [(place, canonical(schema.columns[place].type)) for place in places]
    if all(form is None for _, form in forms):
        return lambda row: tuple([row[place] for place in places])
    return lambda row: tuple([row[place] if form is None else form(row[place]) for place, form in forms])


def rank(kind: DataType) -> Form:
    """Return a function that makes values of a type comparable in key order, in which NaN is the greatest number."""
    if is_plain(kind):
        return _same
    return KeyEncoder([kind], [Order()]).columns[0]


def _inner(kind: DataType) -> Form | None:
    if kind.kind == "list":
        assert kind.element is not None
        element = canonical(kind.element)
        return None if element is None else lambda value: [element(item) for item in value]
    if kind.kind == "struct":
        fields = {name: canonical(field) for name, field in kind.fields}
        if all(form is None for form in fields.values()):
            return None
        return lambda value: {name: value[name] if form is None else form(value[name]) for name, form in fields.items()}
    return _FORMS.get(kind.kind)


def _same(value: Any) -> Any:
    return value


def _hashed(kind: DataType) -> Form | None:
    """Return a function that gives equal values, or NULL, one form that Python hashes; ``None`` if they have it."""
    if is_plain(kind):
        return None
    return _HASHED.get(kind.kind) or column_encoder(kind, Order())


def _hashed_float(value: Any) -> Any:
    return value if value == value else _NAN


def _hashed_float32(value: Any) -> Any:
    return None if value is None else _hashed_float(nearest_float32(value))


_NAN = float("nan")
"""The one NaN that stands for all: as a key, an object is equal to itself."""

_HASHED: dict[str, Form] = {"float32": _hashed_float32, "float64": _hashed_float, "decimal": _hashed_float}


_FORMS: dict[str, Form] = {
    "float32": lambda value: nearest_float32(value) + 0.0,
    "float64": lambda value: value + 0.0,
    "decimal": shortest,
}
