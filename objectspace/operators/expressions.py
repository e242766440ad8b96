"""Small typed expressions over the columns of a row: they compute, they can be printed, and they can be compared.

``col("price") * 2 > lit(100)`` knows its type once it is bound to a schema, and follows SQL where a value is NULL. Its
text is its identity: two expressions with the same text do the same. A Python callable over a row or a pyarrow
expression can take its place; a callable is identified by its code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Never

from objectspace.operators import rules
from objectspace.operators.bound import ArrowBound, Bound, Constant, ExpressionError, RowFunction, named_reader, reader
from objectspace.operators.fingerprints import describe
from objectspace.operators.sql_rules import (
    CASTS,
    COMPARISONS,
    FLOATS,
    OPERATIONS,
    WIDE_OPERATIONS,
    castable,
    caster,
    common_type,
    comparing,
    result_type,
    to_float,
    widening,
)
from objectspace.relational import DataType, RelationalError, RowError, SchemaError, TableSchema
from objectspace.relational.schema import Row
from objectspace.relational.types import parse_type
from objectspace.relational.values import BadValue, checker, nearest_float32


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
            groups = [_comparable(bound.type, kind, among) for kind, among in by_kind.items()]

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
        """Return the date or time as text, in the codes of :meth:`datetime.datetime.strftime`."""
        text = f"strftime({self}, {_text(form)!r})"
        return _strict(text, "string", lambda value: value.strftime(form), self, takes=(*_TIMES, "time"))

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
    kind, text = kind_of(value), _literal(value)
    form = None if kind is None else _form_of(kind, f"lit({text})")
    found = value if form is None else form(value)
    return Expression(text, lambda schema: Constant(kind, value is None, lambda row: found, found))


def _literal(value: Any) -> str:
    """Return a value as text; a decimal says that it is one, since it may compare differently from the same float."""
    if value is None:
        return "null"
    is_quoted = isinstance(value, str | date | time | timedelta | Decimal)
    text = "'" + str(value).replace("'", "''") + "'" if is_quoted else str(value)
    return f"decimal {text}" if isinstance(value, Decimal) else text


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
    inputs, wanted = [expression(argument) for argument in arguments], parse_type(kind)
    text = f"{describe(function)}({', '.join(map(str, inputs))})"

    def _bind(schema: TableSchema) -> Bound:
        if not inputs:
            value = _guarded(function, named_reader(schema))
        else:
            parts = [one.bind(schema).value for one in inputs]
            value = _guarded(function, lambda row: [part(row) for part in parts])
        return Bound(wanted, nullable, _in_form(value, _form_of(wanted, text)))

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
        f, (g, h) = decides.value, [_as_branch(one, kind) for one in (then, other)]
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
        functions = [_as_branch(one, kind) for one in bound]

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
        return _arrow(given)
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
        if kind is not None and kind.kind in _TIMES:
            function = _in_range(symbol, kind, function)
        if kind is not None and kind.kind == "date":
            function = _by_days(text, (a, b), function)
        casts = to_float if kind is not None and kind.kind in FLOATS else None
        return Bound(kind, nullable, _both(a.value, b.value, function, casts))

    return Expression(text, _bind)


def _by_days(text: str, given: Iterable[Bound], function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a function of a date and a span that refuses hours, which no date can hold; known spans at once."""
    for bound in given:
        if isinstance(bound, Constant):
            _whole_days(text, bound.constant, SchemaError)

    def _checked(x: Any, y: Any) -> Any:
        for one in (x, y):
            _whole_days(text, one, RowError)
        return function(x, y)

    return _checked


def _whole_days(text: str, span: Any, error: type[RelationalError]) -> None:
    """Refuse a span that is not whole days; anything that is not a span passes."""
    if isinstance(span, timedelta) and (span.seconds or span.microseconds):
        raise error(
            f"{text}: {span!r} is not whole days, and a date has no hours: make a timestamp of the date with"
            " cast('timestamp') first"
        )


def _in_range(symbol: str, kind: DataType, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a function of times whose error says what was out of range."""

    def _checked(x: Any, y: Any) -> Any:
        try:
            return function(x, y)
        except OverflowError:
            raise RowError(f"{x!r} {symbol} {y!r} is beyond what a {kind} holds") from None

    return _checked


def _comparison(symbol: str, left: Expression, other: Any) -> Expression:
    right, compare = lit(other), COMPARISONS[symbol]

    def _bind(schema: TableSchema) -> Bound:
        a, b = left.bind(schema), right.bind(schema)
        common_type(a.type, b.type, symbol)
        values = _both(a.value, b.value, compare, comparing(a.type, b.type))
        return Bound(DataType("bool"), a.nullable or b.nullable, values)

    return Expression(f"({left} {symbol} {right})", _bind)


def _both(f: RowFunction, g: RowFunction, function: Callable[[Any, Any], Any], prepare: Any = None) -> RowFunction:
    def _value(row: Row) -> Any:
        x, y = f(row), g(row)
        if x is None or y is None:
            return None
        return function(x, y) if prepare is None else function(prepare(x), prepare(y))

    return _value


def _comparable(a: DataType | None, b: DataType | None, values: Iterable[Any]) -> tuple[Callable[[Any], Any], set[Any]]:
    """Return a function that makes values of one type comparable with some of another, and those in that form."""
    common_type(a, b, "is_in()")
    prepare = comparing(a, b) or _same
    return prepare, set(map(prepare, values))


def _same(value: Any) -> Any:
    return value


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


def _guarded(function: Callable[..., Any], given: Callable[[Row], Sequence[Any]]) -> RowFunction:
    """Return a function that calls a user's function for a row, and says on which row it failed."""

    def _value(row: Row) -> Any:
        arguments = given(row)
        try:
            return function(*arguments)
        except RelationalError:
            raise
        except Exception as error:
            name = getattr(function, "__name__", type(function).__name__)
            raise ExpressionError(
                f"the function {name} failed for the row {row!r:.200}: {type(error).__name__}: {error}; values may be"
                " None where a column is nullable"
            ) from error

    return _value


def _form_of(kind: DataType, text: str) -> Callable[[Any], Any] | None:
    """Return a function that puts an outside value into the form that operations on its type need, if it must be.

    A ``bool`` may be anything that has a truth value, a double may be a decimal or a whole number, a 32-bit number
    becomes the nearest one, and an instant may be in any time zone. The result is ``None`` if values already have the
    form.
    """
    if kind.kind == "bool":
        return bool
    if kind.kind not in ("timestamptz", *FLOATS):
        return None
    check, widened = checker(kind), (int, Decimal) if kind.kind in FLOATS else ()
    nearest = nearest_float32 if kind.kind == "float32" else _same

    def _form(value: Any) -> Any:
        try:
            return nearest(check(float(value) if isinstance(value, widened) else value))
        except (BadValue, OverflowError) as error:
            raise RowError(f"{text}: {error}") from None

    return _form


def _as_branch(bound: Bound, kind: DataType | None) -> RowFunction:
    """Return a function that gives the values of an expression in the type that it has in common with others."""
    if bound.type is not None and kind is not None and bound.type.kind == "decimal" and kind.kind in FLOATS:
        rules.note(rules.BRANCHES)
    return _in_form(bound.value, widening(bound.type, kind))


def _in_form(function: RowFunction, form: Callable[[Any], Any] | None) -> RowFunction:
    """Return a function whose results, other than NULL, are put into a form."""
    if form is None:
        return function

    def _value(row: Row) -> Any:
        value = function(row)
        return None if value is None else form(value)

    return _value


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


def _arrow(given: Any) -> Expression:
    """Return the expression for one of pyarrow, which is computed for all rows of a chunk at once."""
    text = f"arrow({_whole(given)})"

    def _bind(schema: TableSchema) -> Bound:
        import pyarrow as pa
        import pyarrow.dataset as ds

        from objectspace.relational import Chunk
        from objectspace.relational.values_arrow import listed

        def _table(rows: Sequence[Row]) -> pa.Table:
            batch = Chunk(schema, ["+"] * len(rows), rows).to_arrow(op_column="$op")
            return ds.dataset(pa.Table.from_batches([batch])).to_table(columns={"value": given})

        (column,) = TableSchema.from_arrow(_table([]).schema).columns
        form = _form_of(column.type, text) if column.type.kind == "timestamptz" else None

        def _values(rows: Sequence[Row]) -> list[Any]:
            found = listed(_table(rows)["value"], text) if rows else []
            return found if form is None else [None if value is None else form(value) for value in found]

        return ArrowBound(column.type, True, lambda row: _values([row])[0], _values)

    return Expression(text, _bind)


def _whole(given: Any) -> str:
    """Return the text of a pyarrow expression, together with what that text leaves out.

    It leaves out a part of a long list, for which a digest is added; and which numbers are floats, since a whole one is
    written like an integer.
    """
    _, (content,) = given.__reduce__()
    text, kinds = str(given), _kinds_of_literals(content)
    if kinds:
        text += f" of {', '.join(kinds)}"
    return f"{text}#{hashlib.sha256(content).hexdigest()[:16]}" if "..." in text else text


def _kinds_of_literals(content: Any) -> list[str]:
    """Return the types of the literals in a pyarrow expression, in whose text a float is written like an integer."""
    import pyarrow as pa
    import pyarrow.compute as pc

    literals = pa.ipc.open_file(content).read_all().columns
    floats = [column[0] for column in literals if pa.types.is_floating(column.type)]
    is_hidden = any(str(pc.scalar(one)).lstrip("-").isdigit() for one in floats)
    return [str(column.type) for column in literals] if is_hidden else []


def kind_of(value: Any) -> DataType | None:
    """Return the type of a Python value, or ``None`` if it fits several.

    Raises:
        SchemaError: no column type has such values.
    """
    if value is None or isinstance(value, timedelta):
        return None
    if isinstance(value, datetime):
        return DataType("timestamptz" if value.tzinfo else "timestamp")
    if isinstance(value, Decimal) and value.is_snan():
        raise SchemaError(f"{value!r} has no order and no double: write Decimal('NaN')")
    for cls, kind in _LITERALS:
        if isinstance(value, cls):
            return DataType(kind)
    hint = ": in a pipeline use col() and lit() of objectspace.operators" if type(value).__name__ == "Column" else ""
    raise SchemaError(f"{value!r} is a {type(value).__name__}: no column type has such values{hint}")


_TEXT = ("string",)

_TIMES = ("date", "timestamp", "timestamptz")

_LITERALS: tuple[tuple[type, str], ...] = (
    (bool, "bool"),
    (int, "int64"),
    (float, "float64"),
    (Decimal, "decimal"),
    (str, "string"),
    (bytes, "binary"),
    (date, "date"),
    (time, "time"),
)
