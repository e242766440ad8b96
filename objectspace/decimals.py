"""Contexts for decimals: what this library reads, computes and writes with them is the same in every program."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import (
    MAX_EMAX,
    MAX_PREC,
    ROUND_HALF_EVEN,
    Clamped,
    Context,
    DecimalException,
    DivisionByZero,
    Inexact,
    InvalidOperation,
    Overflow,
    Rounded,
)

PYTHONS_EXPONENT = 999_999
"""The greatest exponent of a context, unless a program has changed that."""

PYTHONS_TRAPS = (DivisionByZero, InvalidOperation, Overflow)
"""What a context raises, unless a program has changed that."""


def decimal_context(
    prec: int,
    *,
    rounding: str = ROUND_HALF_EVEN,
    exponent: int = PYTHONS_EXPONENT,
    traps: Iterable[type[DecimalException]] = PYTHONS_TRAPS,
) -> Context:
    """Return a context of which every part is given.

    >>> decimal_context(5).divide(2, 3)
    Decimal('0.66667')
    """
    # What is left out here would be taken from decimal.DefaultContext, which a program may change.
    return Context(
        prec=prec, rounding=rounding, Emin=-exponent, Emax=exponent, capitals=1, clamp=0, flags=[], traps=list(traps)
    )


DECIMAL_TEXT = decimal_context(MAX_PREC, exponent=MAX_EMAX, traps=[InvalidOperation, Inexact, Rounded, Clamped])
"""For decimals that are made from text, or written as text: it changes no digit, and refuses what is no decimal."""
