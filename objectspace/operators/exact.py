"""Sums without rounding: the same total whatever the order of the rows, and no residue when rows are retracted.

A float is a whole number of units of 2**-1074, so the total of floats is kept as a Python integer of such units, and
rounded once when it is shown. Decimals are added with as many digits as they need. NaN and the infinities are counted
besides the finite total, so they can be retracted too.
"""

from __future__ import annotations

from decimal import MAX_EMAX, Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from objectspace.decimals import DECIMAL_TEXT, decimal_context
from objectspace.operators.canonical import EXACT, shortest

UNIT = 1074
"""The smallest float is 2**-UNIT."""

SQUARE = 2 * UNIT
"""The square of the smallest float is 2**-SQUARE."""


QUOTIENT = decimal_context(38, exponent=MAX_EMAX)
"""The context in which decimals are divided: to 38 digits."""


SCALE = 18
"""How many digits after the point an average of decimals has at least, if there are that many."""


class Odd(NamedTuple):
    """A total that includes numbers that are not finite, with how often each is there."""

    finite: Any
    nan: int
    plus: int
    minus: int

    def added(self, other: Any, add: Any) -> Any:
        """Return the sum with another total, which is a plain total if only finite numbers are left."""
        more = other if isinstance(other, Odd) else Odd(other, 0, 0, 0)
        counts = [mine + yours for mine, yours in zip(self[1:], more[1:], strict=True)]
        finite = add(self.finite, more.finite)
        return Odd(finite, *counts) if any(counts) else finite

    def value(self) -> float:
        """Return the value of a sum with such numbers."""
        return float("nan") if self.nan or (self.plus and self.minus) else float("inf") if self.plus else float("-inf")


def odd(value: Any, zero: Any) -> Odd:
    """Return the total of one number that is not finite."""
    return Odd(zero, int(value != value), int(value == float("inf")), int(value == float("-inf")))


def negated(total: Any) -> Any:
    """Return the total that cancels another one."""
    if isinstance(total, Odd):
        return Odd(negated(total.finite), -total.nan, -total.plus, -total.minus)
    # Python's minus sign rounds a Decimal to the digits of the context.
    return EXACT.minus(total) if isinstance(total, Decimal) else -total


def units_of(value: float) -> int:
    """Return a finite float as a number of units.

    >>> units_of(0.5) == 2**1073, units_of(5e-324)
    (True, 1)
    """
    numerator, denominator = value.as_integer_ratio()
    return numerator << (UNIT + 1 - denominator.bit_length())


def rounded(numerator: int, denominator: int) -> float:
    """Return the float nearest to a fraction, or an infinite one if none is near."""
    try:
        return numerator / denominator
    except OverflowError:
        return float("inf") if numerator > 0 else float("-inf")


def add_decimals(one: Decimal, other: Decimal) -> Decimal:
    """Return the exact sum."""
    return EXACT.add(one, other)


def binary_text(total: Any, unit: int) -> str:
    """Return a total of units of 2**-unit as hexadecimal text, followed by the counts of odd numbers.

    >>> binary_text(units_of(1.5), UNIT), binary_text(Odd(0, 1, 0, 0), UNIT)
    ('0x3p-1', '0x0p0 1 0 0')
    """
    if isinstance(total, Odd):
        return " ".join([binary_text(total.finite, unit), *map(str, total[1:])])
    if not total:
        return "0x0p0"
    zeros = (total & -total).bit_length() - 1
    return f"{total >> zeros:#x}p{zeros - unit}"


def from_binary_text(text: str, unit: int) -> Any:
    """Return the total that :func:`binary_text` wrote."""
    finite, *counts = text.split(" ")
    mantissa, _, exponent = finite.partition("p")
    total = int(mantissa, 16) << (int(exponent) + unit) if mantissa != "0x0" else 0
    return Odd(total, *map(int, counts)) if counts else total


def decimal_text(total: Any) -> str:
    """Return a total of decimals as text, followed by the counts of odd numbers.

    >>> decimal_text(Decimal("1.50"))
    '1.5'
    """
    if isinstance(total, Odd):
        return " ".join([decimal_text(total.finite), *map(str, total[1:])])
    return f"{shortest(total):f}"


def from_decimal_text(text: str) -> Any:
    """Return the total that :func:`decimal_text` wrote."""
    finite, *counts = text.split(" ")
    total = DECIMAL_TEXT.create_decimal(finite)
    return Odd(total, *map(int, counts)) if counts else total


def variance(total: Any, squares: Any, rows: int, unit: int, *, sample: bool) -> float | None:
    """Return the variance of numbers from their total and that of their squares, or ``None`` for too few numbers.

    Args:
        total: the total, in units of 2**-unit or as a Decimal.
        squares: the total of the squares, in units of 2**(-2*unit) or as a Decimal.
        rows: how many numbers there are.
        unit: see above; 0 for integers and decimals.
        sample: whether to divide by one less than the rows.
    """
    if rows < 1 + sample:
        return None
    if isinstance(total, Odd) or isinstance(squares, Odd):
        return float("nan")
    if isinstance(total, Decimal):
        spread = rows * Fraction(squares) - Fraction(total) ** 2
        found = spread / (rows * (rows - sample))
        return rounded(found.numerator, found.denominator)
    return rounded(rows * squares - total * total, rows * (rows - sample) << 2 * unit)


def quotient(total: Decimal, parts: int) -> Decimal:
    """Return a quotient of decimals: 38 digits, at most 18 of them after the point, or as many as the total has.

    The type in which Arrow and Spark hold a decimal without a given scale has that many.

    >>> quotient(Decimal(1), 4), quotient(Decimal("12.50"), 1), quotient(Decimal(2), 3)
    (Decimal('0.25'), Decimal('12.5'), Decimal('0.666666666666666667'))
    """
    total = shortest(total)  # As it is stored, so what is read again gives the same.
    if parts == 1:
        return total
    found = QUOTIENT.divide(total, Decimal(parts))
    if not found.is_finite():
        return shortest(found)
    scale = min(-SCALE, int(total.as_tuple().exponent))
    if int(found.as_tuple().exponent) < scale:
        found = found.quantize(Decimal(1).scaleb(scale, QUOTIENT), context=QUOTIENT)
    return shortest(found)
