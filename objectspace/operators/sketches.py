"""Sketches that estimate how many distinct values there were: 4,096 registers, an error of about 1.6 percent.

This module needs datasketches: ``pip install 'objectspace[sketch]'``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

LOG_REGISTERS = 12


def require_sketches() -> Any:
    """Return the sketch library.

    Raises:
        ImportError: it is not installed; the error says how to install it.
    """
    try:
        import datasketches
    except ImportError:
        raise ImportError(
            "approx_count_distinct over an append-only input needs datasketches: pip install 'objectspace[sketch]', or"
            " from Python 3.14 on, for which it has no wheels yet, pip install datasketches, with CMake and a compiler"
            " of C++; or leave append_only out: the count is exact then"
        ) from None
    return datasketches


def joined_sketch(stored: bytes | None, values: Iterable[str] | None) -> bytes | None:
    """Return a stored sketch with the values of an epoch added.

    The bytes of a sketch depend on the order of its values, so the values are sorted: the same state and the same
    values give the same bytes.
    """
    if not values:
        return stored
    library = require_sketches()
    sketch = library.hll_sketch.deserialize(stored) if stored else library.hll_sketch(LOG_REGISTERS)
    for value in sorted(values):
        sketch.update(value)
    found: bytes = sketch.serialize_compact()
    return found


def estimate(stored: bytes | None) -> int:
    """Return the number of distinct values that a sketch estimates."""
    return 0 if not stored else round(require_sketches().hll_sketch.deserialize(stored).get_estimate())
