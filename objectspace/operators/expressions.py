"""Small typed expressions over the columns of a row: they compute, they can be printed, and they can be compared.

``col("price") * 2 > lit(100)`` knows its type once it is bound to a schema, and follows SQL where a value is NULL. Its
text is its identity: two expressions with the same text do the same. A Python callable over a row or a pyarrow
expression can take its place; a callable is identified by its code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Never

from objectspace.operators import arrow_expressions
from objectspace.operators.bound import Bound, Constant, RowFunction, named_reader, reader
from objectspace.operators.fingerprints import describe
from objectspace.operators.row_functions import (
    as_branch,
    both,
    by_days,
    comparable,
    form_of,
    guarded,
    in_form,
    in_range,
    kind_of,
    literal,
)
from objectspace.operators.rules import note_call
from objectspace.operators.sql_rules import (
    CASTS,
    COMPARISONS,
    OPERATIONS,
    WIDE_OPERATIONS,
    castable,
    caster,
    common_type,
    comparing,
    result_type,
    to_float,
)
from objectspace.relational import DataType, RowError, SchemaError, TableSchema
from objectspace.relational.schema import Row
from objectspace.relational.types import FLOATS, TIMES, parse_type


class Expression:
    """Something that is computed from a row.

    Args:
        text: what it does; two expressions with equal text do the same.
        bind: prepares it for the rows of a schema.
        column: the column whose value it is, or ``None`` if it is computed: a column may be called ``lower(a)``.

    >>> from objectspace.relational import Column
    >>> schema = TableSchema([Column("a", "int64"), Column("b", "string", nullable=True)], ["a"])
    >>> bound = ((col("a") > 3) & col("b").is_null()).bind(schema)
    >>> bound.value((4, None)), str(bound.type)
    (True, 'bool')
    >>> print((col("a") + 1).is_in([2, 3]))
    ((a + 1) in (2, 3))
    """

    def __init__(self, text: str, bind: Callable[[TableSchema], Bound], column: str | None = None) -> None:
        self._text, self._bind, self.column = text, bind, column

    def bind(self, schema: TableSchema) -> Bound:
        """Return the expression over the rows of a schema.

        Raises:
            SchemaError: there is no such column, or an operation does not take its type, or it is nested too deeply.
        """
        try:
            return self._bind(schema)
        except RecursionError:
            raise SchemaError(
                f"...{self._text[-80:]} is nested too deeply: split it with with_columns(), or compute it in a function"
            ) from None

    def is_same(self, other: Expression) -> bool:
        """Return whether another expression does the same, judged by their texts; ``==`` makes a comparison."""
        return self._text == other._text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Expression({self._text})"

    def __bool__(self) -> bool:
        raise TypeError(f"{self._text} has no truth before it has a row: combine with & | ~, not with and, or, not")

    def __contains__(self, value: object) -> Never:
        raise TypeError(
            f"{self._text} has no values before it has a row: write {self._text}.contains(...) for a part of a text, or"
            " .is_in([...]) for one of some values, not in"
        )

    def __add__(self, other: Any) -> Expression:
        return _arithmetic("+", self, other)

    def __radd__(self, other: Any) -> Expression:
        return _arithmetic("+", lit(other), self)

    def __sub__(self, other: Any) -> Expression:
        return _arithmetic("-", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return _arithmetic("-", lit(other), self)

    def __mul__(self, other: Any) -> Expression:
        return _arithmetic("*", self, other)

    def __rmul__(self, other: Any) -> Expression:
        return _arithmetic("*", lit(other), self)

    def __truediv__(self, other: Any) -> Expression:
        return _arithmetic("/", self, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return _arithmetic("/", lit(other), self)

    def __floordiv__(self, other: Any) -> Expression:
        return _arithmetic("//", self, other)

    def __rfloordiv__(self, other: Any) -> Expression:
        return _arithmetic("//", lit(other), self)

    def __mod__(self, other: Any) -> Expression:
        return _arithmetic("%", self, other)

    def __rmod__(self, other: Any) -> Expression:
        return _arithmetic("%", lit(other), self)

    def __neg__(self) -> Expression:
        return _arithmetic("-", lit(0), self)

    def __lt__(self, other: Any) -> Expression:
        return _comparison("<", self, other)

    def __le__(self, other: Any) -> Expression:
        return _comparison("<=", self, other)

    def __gt__(self, other: Any) -> Expression:
        return _comparison(">", self, other)

    def __ge__(self, other: Any) -> Expression:
        return _comparison(">=", self, other)

    def __eq__(self, other: Any) -> Expression:  # type: ignore[override]
        return _comparison("=", self, other)

    def __ne__(self, other: Any) -> Expression:  # type: ignore[override]
        return _comparison("!=", self, other)

    __hash__ = None  # type: ignore[assignment]

    def __and__(self, other: Any) -> Expression:
        return _Chain("and", self, other)

    def __or__(self, other: Any) -> Expression:
        return _Chain("or", self, other)

    def __invert__(self) -> Expression:
        return _strict(f"(not {self})", "bool", lambda value: not value, condition(self))

    def is_null(self) -> Expression:
        """Return whether it is NULL."""
        return _any(f"({self} is null)", "bool", lambda value: value is None, self)

    def is_not_null(self) -> Expression:
        """Return whether it is not NULL."""
        return _any(f"({self} is not null)", "bool", lambda value: value is not None, self)

    def is_in(self, values: Iterable[Any]) -> Expression:
        """Return whether it is one of some values, none of which may be NULL.

        Raises:
            SchemaError: one of them is NULL, an expression, or of another type, which is checked when it is bound; or
                these are no values.
        """
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise SchemaError(f"is_in() takes a list of values: found {values!r:.80}")
        # The order of a set differs from process to process.
        known = sorted(values, key=repr) if isinstance(values, set | frozenset) else list(values)
        for value in known:
            if value is None or isinstance(value, Expression):
                raise SchemaError(f"is_in() takes values: found {value}: use == or is_null(), combined with |")
        text = f"({self} in ({', '.join(map(str, map(lit, known)))}))"
        by_kind: dict[DataType | None, list[Any]] = {}
        for value in known:
            by_kind.setdefault(kind_of(value), []).append(value)

        def _bind(schema: TableSchema) -> Bound:
            bound = self.bind(schema)
            groups = [comparable(bound.type, kind, among) for kind, among in by_kind.items()]

            def _value(row: Row) -> Any:
                value = bound.value(row)
                return None if value is None else any(prepare(value) in among for prepare, among in groups)

            return Bound(DataType("bool"), bound.nullable, _value)

        return Expression(text, _bind)

    def cast(self, kind: str | DataType) -> Expression:
        """Return it as another type: numbers and text into each other, a timestamp or ``2026-01-31`` into its date.

        A date becomes the timestamp at which it begins, and an instant becomes the timestamp in UTC. Fractions are cut
        off, except for ``decimal(p,s)``, which rounds. A boolean becomes 1 or 0, or ``true`` or ``false``. A value that
        cannot be cast, such as text that is not a number, is refused when its row comes; a type that cannot be cast is
        refused at once.
        """
        wanted = parse_type(kind)
        if wanted.kind not in CASTS:
            raise SchemaError(f"{self} cannot be cast to {wanted}: use call(function, {str(wanted)!r}, ...)")
        text = f"cast({self} as {wanted})"

        def _bind(schema: TableSchema) -> Bound:
            plain = caster(wanted, self.bind(schema).type)

            def _cast(value: Any) -> Any:
                try:
                    return plain(value)
                except (ArithmeticError, TypeError, ValueError):
                    raise RowError(f"{text}: {value!r} is no {wanted}: filter such rows out first") from None

            return _strict(text, wanted, _cast, self, takes=castable(wanted)).bind(schema)

        return Expression(text, _bind)

    def lower(self) -> Expression:
        """Return the text in lower case."""
        return _strict(f"lower({self})", "string", str.lower, self, takes=_TEXT)

    def upper(self) -> Expression:
        """Return the text in upper case."""
        return _strict(f"upper({self})", "string", str.upper, self, takes=_TEXT)

    def length(self) -> Expression:
        """Return the number of characters of the text."""
        return _strict(f"length({self})", "int64", len, self, takes=("string", "binary", "list"))

    def contains(self, part: str) -> Expression:
        """Return whether the text contains a part."""
        return _strict(f"contains({self}, {_text(part)!r})", "bool", lambda value: part in value, self, takes=_TEXT)

    def starts_with(self, part: str) -> Expression:
        """Return whether the text begins with a part."""
        text = f"starts_with({self}, {_text(part)!r})"
        return _strict(text, "bool", lambda value: value.startswith(part), self, takes=_TEXT)

    def split_part(self, separator: str, place: int) -> Expression:
        """Return a part of the text between separators, counted from 0, or NULL if there are fewer."""
        if not _text(separator):
            raise SchemaError("split_part() takes a separator: found an empty text")
        if not isinstance(place, int) or place < 0:
            raise SchemaError(f"split_part() counts the parts from 0: found {place!r}")

        def _part(value: str) -> str | None:
            parts = value.split(separator)
            return parts[place] if place < len(parts) else None

        text = f"split_part({self}, {separator!r}, {place})"
        return _strict(text, "string", _part, self, nullable=True, takes=_TEXT)

    def strftime(self, form: str) -> Expression:
        """Return the date or time as text, in the codes of :meth:`datetime.datetime.strftime`.

        Names of days and months, and all else that follows the locale (``%a %A %b %B %c %p %x %X``), are those of the
        locale of the process.

        Raises:
            SchemaError: the form has ``%s``, whose number of seconds follows the time zone of the process.
        """
        if "s" in _CODE.findall(_text(form)):
            raise SchemaError(f"strftime() takes no %s, which depends on the time zone of the process: found {form!r}")
        text = f"strftime({self}, {_text(form)!r})"
        return _strict(text, "string", lambda value: value.strftime(form), self, takes=(*sorted(TIMES), "time"))

    def hour(self) -> Expression:
        """Return the hour of the time or timestamp, 0 to 23."""
        kinds = ("time", "timestamp", "timestamptz")
        return _strict(f"hour({self})", "int64", lambda value: value.hour, self, takes=kinds)


def col(name: str) -> Expression:
    """Return the value of a column.

    Raises:
        SchemaError: this is not the name of one.
    """
    if not isinstance(name, str):
        raise SchemaError(f"a column is given by its name: found {name!r:.200}")

    def _bind(schema: TableSchema) -> Bound:
        column = schema.column(name)
        return Bound(column.type, column.nullable, reader(schema, name))

    # Names that look like something else (a number, say, or a call) are marked, because the text is the identity.
    return Expression(name if _is_plain(name) else "`" + name.replace("`", "``") + "`", _bind, column=name)


def _is_plain(name: str) -> bool:
    """Return whether the name of a column can be nothing else, alone and within another text."""
    begins = name[:1].isalpha() or name[:1] in ("_", "$")
    return begins and name.lower() not in _VALUES and not _SIGNS & {*name} and not _WORDS & {*name.split()}


_VALUES = frozenset(["true", "false", "null", "nan", "snan", "inf", "infinity"])
"""How values that begin like names are written."""

_SIGNS = frozenset("()'\",")
"""What occurs in the texts of calls and of quoted values."""

_OPERATORS = ["+", "-", "*", "/", "//", "%", "<", "<=", ">", ">=", "=", "!="]

_WORDS = frozenset([*_OPERATORS, "and", "or", "not", "is", "in", "as", "when", "then", "else", "null"])
"""What stands between names in a text; other words may be part of a name."""


def lit(value: Any) -> Expression:
    """Return an expression for a value that is the same for every row; an expression is returned as it is.

    Raises:
        SchemaError: no column type has such values.
        RowError: an instant is out of range in UTC.
    """
    if isinstance(value, Expression):
        return value
    kind, text = kind_of(value), literal(value)
    form = None if kind is None else form_of(kind, f"lit({text})")
    found = value if form is None else form(value)
    return Expression(text, lambda schema: Constant(kind, value is None, lambda row: found, found))


def call(function: Callable[..., Any], kind: str | DataType, *arguments: Any, nullable: bool = True) -> Expression:
    """Return an expression that calls a Python function with some expressions; NULL reaches it as ``None``.

    Args:
        function: the function; it is identified by its code, so a changed one counts as another.
        kind: the type of its results.
        arguments: expressions or the names of columns; without any the function takes the row, with values by name.
        nullable: whether it may return ``None``.

    >>> from objectspace.relational import Column
    >>> schema = TableSchema([Column("a", "int64")], ["a"])
    >>> call(lambda a: a * 10, "int64", "a").bind(schema).value((4,))
    40
    """
    for argument in arguments:
        if callable(argument):
            raise SchemaError(
                "an argument of call() is a function: give it as call(function, type, columns), which has a type"
            )
    if isinstance(kind, str) and kind.endswith("?"):
        raise SchemaError(f"call(): the type {kind!r}: write {kind[:-1]!r}; a result may be NULL unless nullable=False")
    inputs, wanted = [expression(argument) for argument in arguments], parse_type(kind)
    text = f"{describe(function)}({', '.join(map(str, inputs))})"

    def _bind(schema: TableSchema) -> Bound:
        note_call(text, wanted)
        if not inputs:
            value = guarded(function, named_reader(schema))
        else:
            parts = [one.bind(schema).value for one in inputs]
            value = guarded(function, lambda row: [part(row) for part in parts])
        return Bound(wanted, nullable, in_form(value, form_of(wanted, text)))

    return Expression(text, _bind)


def when(test: Any, value: Any, otherwise: Any = None) -> Expression:
    """Return one expression if a condition is true, and another if it is false or NULL.

    >>> from objectspace.relational import Column
    >>> schema = TableSchema([Column("a", "int64")], ["a"])
    >>> when(col("a") > 3, lit("big"), lit("small")).bind(schema).value((1,))
    'small'
    """
    parts = [condition(test), lit(value), lit(otherwise)]

    def _bind(schema: TableSchema) -> Bound:
        decides, then, other = [part.bind(schema) for part in parts]
        kind = common_type(then.type, other.type, "when")
        f, (g, h) = decides.value, [as_branch(one, kind) for one in (then, other)]
        return Bound(kind, then.nullable or other.nullable, lambda row: g(row) if f(row) else h(row))

    return Expression(f"(when {parts[0]} then {parts[1]} else {parts[2]})", _bind)


def coalesce(*choices: Any) -> Expression:
    """Return the first of some expressions that is not NULL.

    Raises:
        SchemaError: there are none.
    """
    if not choices:
        raise SchemaError("coalesce() takes at least one expression: found none")
    parts = [expression(choice) if isinstance(choice, str) else lit(choice) for choice in choices]

    def _bind(schema: TableSchema) -> Bound:
        bound = [part.bind(schema) for part in parts]
        kind = bound[0].type
        for other in bound[1:]:
            kind = common_type(kind, other.type, "coalesce")
        functions = [as_branch(one, kind) for one in bound]

        def _value(row: Row) -> Any:
            return next((value for function in functions if (value := function(row)) is not None), None)

        return Bound(kind, all(one.nullable for one in bound), _value)

    return Expression(f"coalesce({', '.join(map(str, parts))})", _bind)


def expression(given: Any) -> Expression:
    """Return the expression for what a user gives: one of ours or pyarrow's, a column name, a callable, or a value.

    Args:
        given: what the user gives; text is the name of a column, and a callable over a row is a condition.
    """
    if isinstance(given, Expression):
        return given
    if isinstance(given, str):
        return col(given)
    if type(given).__module__.startswith("pyarrow"):
        return Expression(*arrow_expressions.text_and_bind(given))
    return call(given, "bool") if callable(given) else lit(given)


def computed_column(name: str, given: Any) -> Expression:
    """Return the expression for a column that a user gives; a callable over a row comes with the type of its results.

    Raises:
        SchemaError: a callable comes without a type, and would be taken for a condition; or a pair is no such pair.
    """
    if isinstance(given, tuple):
        if len(given) != 2 or not callable(given[0]):
            raise SchemaError(
                f"column {name!r}: expected (function, type of what it returns), found {given!r:.80}; what is no"
                " function has a type of its own: give it alone, or cast it: col('v').cast('int64')"
            )
        return call(*given)
    _require_type(f"column {name!r}", given)
    return expression(given)


def _require_type(what: str, given: Any) -> None:
    """Refuse a callable where it is no condition, so nothing says what its results are."""
    if callable(given):
        raise SchemaError(
            f"{what}: give the type of what the function returns: (function, 'int64'), or"
            " call(function, 'int64', columns)"
        )


def condition(given: Any) -> Expression:
    """Return the expression for a condition that a user gives, which is refused if its type is not ``bool``."""
    made = expression(given)

    def _bind(schema: TableSchema) -> Bound:
        bound = made.bind(schema)
        if bound.type is not None and bound.type.kind != "bool":
            raise SchemaError(f"a condition is of type bool: {made} is {bound.type}: compare it with something")
        return bound

    return Expression(str(made), _bind, made.column)


def shown(name: str, made: Expression) -> str:
    """Return a computed column as text."""
    return name if made.column == name else f"{made} as {name}"


def _arithmetic(symbol: str, left: Expression, other: Any) -> Expression:
    right = lit(other)
    text = f"({left} {symbol} {right})"

    def _bind(schema: TableSchema) -> Bound:
        a, b = left.bind(schema), right.bind(schema)
        kind = result_type(symbol, a.type, b.type)
        function = OPERATIONS[symbol] if kind is None or kind.kind != "decimal" else WIDE_OPERATIONS[symbol]
        nullable = a.nullable or b.nullable or symbol in ("/", "//", "%")
        if kind is not None and kind.kind in TIMES:
            function = in_range(symbol, kind, function)
        if kind is not None and kind.kind == "date":
            function = by_days(text, (a, b), function)
        casts = to_float if kind is not None and kind.kind in FLOATS else None
        return Bound(kind, nullable, both(a.value, b.value, function, casts))

    return Expression(text, _bind)


def _comparison(symbol: str, left: Expression, other: Any) -> Expression:
    right, compare = lit(other), COMPARISONS[symbol]

    def _bind(schema: TableSchema) -> Bound:
        a, b = left.bind(schema), right.bind(schema)
        common_type(a.type, b.type, symbol)
        values = both(a.value, b.value, compare, comparing(a.type, b.type))
        return Bound(DataType("bool"), a.nullable or b.nullable, values)

    return Expression(f"({left} {symbol} {right})", _bind)


class _Chain(Expression):
    """Conditions that are joined by one word: any number of them are side by side, not one within the other."""

    def __init__(self, word: str, first: Expression, other: Any) -> None:
        self.word = word
        left, right = self._parts_of(first), self._parts_of(other)
        self.parts = [*left, *right]
        super().__init__(f"({first} {word} {expression(other)})", self._bound)

    def _parts_of(self, given: Any) -> list[Expression]:
        return given.parts if isinstance(given, _Chain) and given.word == self.word else [condition(given)]

    def _bound(self, schema: TableSchema) -> Bound:
        bound = [part.bind(schema) for part in self.parts]
        combined = _of_two if len(bound) == 2 else _of_many
        value = combined([one.value for one in bound], decides=self.word == "or")
        return Bound(DataType("bool"), any(one.nullable for one in bound), value)


def _of_two(tests: Sequence[RowFunction], *, decides: bool) -> RowFunction:
    """Return what two conditions come to, if one value of either decides: the fast path."""
    f, g = tests

    def _value(row: Row) -> Any:
        x = f(row)
        if x is decides:
            return decides
        y = g(row)
        return decides if y is decides else (None if x is None or y is None else not decides)

    return _value


def _of_many(tests: Sequence[RowFunction], *, decides: bool) -> RowFunction:
    def _value(row: Row) -> Any:
        found: Any = not decides
        for test in tests:
            value = test(row)
            if value is decides:
                return decides
            if value is None:
                found = None
        return found

    return _value


def _strict(
    text: str,
    kind: str | DataType,
    function: Callable[[Any], Any],
    source: Expression,
    *,
    nullable: bool = False,
    takes: Collection[str] = (),
) -> Expression:
    """Return a function of one expression that is NULL if the expression is; ``takes`` may limit its types."""

    def _bind(schema: TableSchema) -> Bound:
        bound = source.bind(schema)
        if takes and bound.type is not None and bound.type.kind not in takes:
            raise SchemaError(f"{text} takes {' or '.join(takes)}: {source} is {bound.type}")
        inner = bound.value

        def _value(row: Row) -> Any:
            value = inner(row)
            return None if value is None else function(value)

        return Bound(parse_type(kind), bound.nullable or nullable, _value)

    return Expression(text, _bind)


def _text(part: str) -> str:
    """Return a text after checking that it is one, not an expression.

    Raises:
        SchemaError: it is something else.
    """
    if not isinstance(part, str):
        raise SchemaError(f"expected a text, found {part}")
    return part


def _any(text: str, kind: str, function: Callable[[Any], Any], source: Expression) -> Expression:
    """Return a function of one expression that is never NULL."""

    def _bind(schema: TableSchema) -> Bound:
        inner = source.bind(schema).value
        return Bound(parse_type(kind), False, lambda row: function(inner(row)))

    return Expression(text, _bind)


_TEXT = ("string",)

_CODE = re.compile(r"%[-_0^#]*\d*[EO]?(.)", re.DOTALL)
"""A code of a form for times, with the flags and the width that some platforms take."""
