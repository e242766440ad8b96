"""The values of Arrow columns as Python values: Arrow has times, instants and texts that Python does not have.

This module needs pyarrow: ``pip install 'objectspace[arrow]'``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from objectspace.relational.errors import RowError

NO_VALUE = (pa.ArrowException, ArithmeticError, TypeError, ValueError)
"""What is raised if Arrow has no value for a Python one, or Python none for an Arrow one."""

_Require = Callable[[Any], None]


def listed(column: pa.Array | pa.ChunkedArray, what: str) -> list[Any]:
    """Return the values of a column as Python values.

    Raises:
        RowError: Python has no such value.
    """
    try:
        # Most values that Python does not have raise an error anyway, and are looked for only then.
        return _column_held(column, partial(_require_told, what=what)).to_pylist()  # type: ignore[no-any-return]
    except RowError:
        raise
    except NO_VALUE as error:
        held(column, what)
        raise RowError(
            f"{what}: Arrow gives no {column.type} to Python: cast it to another type first: {error}"
        ) from None


def held(column: pa.Array | pa.ChunkedArray, what: str) -> pa.Array | pa.ChunkedArray:
    """Return a column with instants in UTC and times in microseconds, all of whose values Python has.

    In another time zone an instant of the first or last year may fall outside the years that Python knows.

    Args:
        column: the column.
        what: what to call it in errors.

    Raises:
        RowError: a value is out of Python's range, has nanoseconds, which Python would cut off, or is not UTF-8.
        ArrowNotImplementedError: Arrow does not cast values of such a type.
    """
    return _column_held(column, partial(_require_held, what=what))


def _column_held(column: Any, require: _Require) -> Any:
    if column.type.id in _AS_THEY_ARE:
        return column
    if not isinstance(column, pa.ChunkedArray):
        return _held(column, require)
    found = [_held(chunk, require) for chunk in column.chunks]
    return column if _are_same(found, column.chunks) else pa.chunked_array(found)


def _held(array: Any, require: _Require) -> Any:
    """Return an array as :func:`held` does a column; the same array if nothing changes.

    Args:
        array: the array.
        require: a function that looks for values that Python does not have.
    """
    kind = array.type
    if kind.id in _AS_THEY_ARE:
        return array
    if _is_wrapped(kind):
        used = _used(array)
        return array if _held(used, require) is used else _held(_decoded(array), require)
    if pt.is_struct(kind):
        fields = array.flatten()
        found = [_held(field, require) for field in fields]
        if _are_same(found, fields):
            return array
        return pa.StructArray.from_arrays(found, [field.name for field in kind], mask=array.is_null())
    if pt.is_map(kind):
        entries = _held_list(array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))), require)
        if entries is None:
            return array
        return pa.MapArray.from_arrays(entries[0].cast(pa.int32()), *entries[1].flatten(), mask=array.is_null())
    if is_list(kind):
        parts = _held_list(array, require)
        return array if parts is None else pa.LargeListArray.from_arrays(*parts, mask=array.is_null())
    require(array)
    wanted = _held_type(kind)
    return array if kind == wanted else array.cast(wanted)


def _held_list(array: Any, require: _Require) -> tuple[Any, Any] | None:
    """Return the offsets and the values of lists, or ``None`` if no value changes."""
    # A cast of the lists would do, but Arrow loses values when it turns list views into lists.
    values = pc.list_flatten(array)
    found = _held(values, require)
    if found is values:
        return None
    lengths = pc.list_value_length(array).cast(pa.int64()).fill_null(0)
    return pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)]), found


def _are_same(found: Sequence[Any], known: Sequence[Any]) -> bool:
    return all(one is other for one, other in zip(found, known, strict=True))


def _is_wrapped(kind: pa.DataType) -> bool:
    """Return whether an array of a type has its values in another array."""
    return bool(pt.is_dictionary(kind) or pt.is_run_end_encoded(kind) or isinstance(kind, pa.BaseExtensionType))


def _used(array: Any) -> Any:
    """Return the array that holds the values of an array, with only those that it uses."""
    if isinstance(array, pa.ExtensionArray):
        return array.storage
    if isinstance(array, pa.RunEndEncodedArray):
        return array.values.slice(array.find_physical_offset(), array.find_physical_length())
    try:
        return array.dictionary.take(array.indices.unique())
    except pa.ArrowNotImplementedError:  # For text views, for example.
        return array.dictionary


def _decoded(array: Any) -> Any:
    """Return the values of an array that has them in another array."""
    if isinstance(array, pa.ExtensionArray):
        return array.storage
    if isinstance(array, pa.RunEndEncodedArray):
        # Not the values themselves: pyarrow before 26 decodes neither structs nor lists.
        places = pa.RunEndEncodedArray.from_arrays(array.run_ends, pa.array(range(len(array.values))))
        return array.values.take(pc.run_end_decode(places.slice(array.offset, len(array))))
    return array.dictionary.take(array.indices)


def _held_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that :func:`held` gives to values that contain no other values."""
    if pt.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    return pa.time64("us") if pt.is_time(kind) else kind


def _require_told(leaf: Any, what: str) -> None:
    """Do what :func:`_require_held` does, for the types whose values would silently become other values."""
    if pt.is_time(leaf.type) or pt.is_duration(leaf.type):
        _require_held(leaf, what)


def _require_held(leaf: Any, what: str) -> None:
    kind = leaf.type
    for matches, seconds, expected in _RANGES:
        if matches(kind):
            numbers, (least, most, step) = leaf.view(_INTEGERS_OF[kind.bit_width]), _range(kind, seconds)
            found = pc.min_max(numbers).as_py()
            if found["min"] is not None and not least <= found["min"] <= found["max"] <= most:
                outside = pc.or_(pc.less(numbers, least), pc.greater(numbers, most))
                _require_none(leaf.filter(outside), what, f"is out of range: expected {expected}")
            if step > 1:
                cut = pc.multiply(pc.divide(numbers, step), step)
                _require_none(leaf.filter(pc.not_equal(numbers, cut)), what, _ROUND)
    if pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind):
        _require_text(leaf, what)


def _require_text(leaf: Any, what: str) -> None:
    try:
        leaf.validate(full=True)
    except pa.ArrowInvalid:
        values = leaf.cast(pa.large_binary()).drop_null().to_pylist()
        found = next(value for value in values if value.decode(errors="replace").encode() != value)
        raise RowError(f"{what}: {found!r:.80} is not UTF-8: decode it, or use a binary column") from None


def _require_none(found: Any, what: str, why: str) -> None:
    if len(found):
        kind = found.type
        shown = found[:1].cast(pa.timestamp(kind.unit, "UTC")) if pt.is_timestamp(kind) and kind.tz else found[:1]
        raise RowError(f"{what}: {shown.cast(pa.string())[0]} {why}")


def _range(kind: pa.DataType, seconds: tuple[int, int]) -> tuple[int, int, int]:
    """Return the least and the greatest number of a time that Python holds, and of how many numbers it holds one."""
    first, last = seconds
    if pt.is_date32(kind):
        return first // _DAY, last // _DAY, 1
    unit = 1000 if pt.is_date64(kind) else _UNITS[kind.unit]
    return max(first * unit, -(2**63)), min(last * unit + unit - 1, 2**63 - 1), max(unit // 10**6, 1)


_AS_THEY_ARE = frozenset(
    kind.id
    for kind in (
        *(pa.null(), pa.bool_(), pa.float16(), pa.float32(), pa.float64()),
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.binary(), pa.large_binary(), pa.binary(1), pa.decimal128(1), pa.decimal256(1)),
    )
)
"""The types whose values Python has in full."""

_DAY = 86_400
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_INTEGERS_OF = {32: pa.int32(), 64: pa.int64()}

_YEARS = (-719_162 * _DAY, 2_932_897 * _DAY - 1)
"""The seconds of the years 1 to 9999, counted from 1970."""

_RANGES = (
    (pt.is_timestamp, _YEARS, "the years 1 to 9999: change it, or leave it out"),
    (pt.is_date, _YEARS, "the years 1 to 9999: change it, or leave it out"),
    (pt.is_time, (0, _DAY - 1), "0 to 24 hours: change it, or leave it out"),
    (pt.is_duration, (-999_999_999 * _DAY, 10**9 * _DAY - 1), "fewer than 10**9 days: change it, or leave it out"),
)
"""For Arrow types that hold more than Python's: the seconds that Python holds, and what to say about them."""

_ROUND = "has nanoseconds: Python has microseconds; round it first, with column.cast(..., safe=False) for example"


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is one of Arrow's lists."""
    return any(matches(kind) for matches in _LISTS)


_LISTS = (pt.is_list, pt.is_large_list, pt.is_fixed_size_list, pt.is_list_view, pt.is_large_list_view)
