"""Watermarks: below a watermark nothing is touched any more, so rows there are hidden, and removed over time.

One rule holds for every read, point or scan, of rows in memory or stored, whatever the position of the column: a row
whose value in the watermark column is smaller than the committed watermark does not exist. A row that is equal to it
does exist, and so does one with NULL, or with NaN, which is the greatest of all values. Watermarks only grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from objectspace import DamagedObjectError
from objectspace.errors import GO_ON
from objectspace.relational.keys import NOTHING, KeyRange, Order, column_encoder, intersect, next_key
from objectspace.relational.types import DataType
from objectspace.relational.vnodes import VNODE_BYTES, VNODES, VnodeBitmap
from objectspace.space import WATERMARKS


class WatermarkIndex:
    """Which watermark applies to a vnode at an epoch: the newest that was written for it up to then.

    >>> index = WatermarkIndex()
    >>> index.write(1, VnodeBitmap([0, 1]), 10); index.write(3, VnodeBitmap([1]), 20)
    >>> index.read(0, 3), index.read(1, 2), index.read(1, 3), index.read(2, 3)
    (10, 10, 20, None)
    """

    def __init__(self) -> None:
        self._writes: list[tuple[int, VnodeBitmap, Any]] = []

    def write(self, epoch: int, vnodes: VnodeBitmap, watermark: Any) -> None:
        """Note the watermark of some vnodes from an epoch on. Time: O(1)."""
        self._writes.append((epoch, vnodes, watermark))

    def read(self, vnode: int, epoch: int | None = None) -> Any:
        """Return the watermark of a vnode as of an epoch, by default the last one, or ``None`` if there is none."""
        found = [
            (written, place)
            for place, (written, vnodes, _) in enumerate(self._writes)
            if vnode in vnodes and (epoch is None or written <= epoch)
        ]
        return self._writes[max(found)[1]][2] if found else None

    def newest(self) -> list[tuple[VnodeBitmap, Any]]:
        """Return the watermarks that apply now, each with the vnodes that it applies to. Time: O(writes)."""
        covered, found = 0, []
        places = sorted(range(len(self._writes)), key=lambda place: (self._writes[place][0], place), reverse=True)
        for _, vnodes, watermark in map(self._writes.__getitem__, places):
            if bits := vnodes.bits & ~covered:
                found.append((VnodeBitmap.from_bits(bits), watermark))
                covered |= bits
        return found

    def to_json(self, cell: Callable[[Any], Any]) -> list[list[Any]]:
        """Return what must be stored: bit patterns in hexadecimal digits, with the cells of the watermarks."""
        return [[f"{vnodes.bits:x}", cell(watermark)] for vnodes, watermark in self.newest()]

    @classmethod
    def from_json(cls, stored: Iterable[Any], value: Callable[[Any], Any]) -> WatermarkIndex:
        """Return the index that :meth:`to_json` wrote."""
        index = cls()
        for bits, cell in stored:
            index.write(0, VnodeBitmap.from_hex(bits), value(cell))
        return index


def damaged_watermarks(table: str, stored: object, error: Exception) -> DamagedObjectError:
    """Return the error for stored watermarks of a table that are not watermarks."""
    return DamagedObjectError(
        f"Dictionary {WATERMARKS!r}, slot {table!r}: expected the watermarks of a table ({error}), found"
        f" {stored!r:.80}; other tables are readable; {GO_ON}"
    )


def used_bits(table: str, key_from: Callable[[bytes], bytes | None], stored: Any) -> int:
    """Return the bits of the vnodes of a table whose rows name them: the usual ones, and any others in use.

    Args:
        table: the name of the table, for errors.
        key_from: a function that returns the first row key from a given key on, or ``None`` if there is none.
        stored: the watermarks of the table as they are stored, or ``None`` if there are none.

    Raises:
        DamagedObjectError: the stored watermarks are not watermarks.

    Time: O(vnodes in use besides the usual ones · log n).
    """
    bits = (1 << VNODES) - 1
    try:
        for used, _ in stored or []:
            bits |= VnodeBitmap.from_hex(used).bits
    except (TypeError, ValueError) as error:
        raise damaged_watermarks(table, stored, error) from error
    following = VNODES
    while (key := key_from(following.to_bytes(VNODE_BYTES, "big"))) is not None:
        vnode = int.from_bytes(key[:VNODE_BYTES], "big")
        bits, following = bits | 1 << vnode, vnode + 1
    return bits


def is_below(value: Any, watermark: Any) -> bool:
    """Return whether a value is below a watermark; NULL and NaN are not (a decimal NaN refuses to be compared).

    >>> is_below(1.0, 5.0), is_below(None, 5.0), is_below(float("nan"), 5.0)
    (True, False, False)
    """
    return value is not None and bool(value == value and value < watermark)


def visible_range(found: KeyRange, kind: DataType, order: Order, watermark: Any) -> list[KeyRange]:
    """Return the parts of a range of keys that a watermark on the first key column leaves visible, in key order.

    Rows below the watermark lie at the low end of an ascending column and at the high end of a descending one. NULL is
    not below it, so NULLs may form a second part.

    Args:
        found: the range.
        kind: the type of the first key column.
        order: its order.
        watermark: the watermark.
    """
    encode = column_encoder(kind, order)
    mark, null, tag = encode(watermark), encode(None), bytes([order.tags[0]])
    values = (tag, next_key(mark)) if order.descending else (mark, next_key(tag))
    parts = [intersect(found, part) for part in sorted([values, (null, next_key(null))])]
    return [part for part in parts if part != NOTHING]
