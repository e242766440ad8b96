"""Which rows of a table the committed watermarks hide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from objectspace.relational.errors import RowError
from objectspace.relational.key_space import KeySpace
from objectspace.relational.keys import KeyRange
from objectspace.relational.schema import Row
from objectspace.relational.types import DataType
from objectspace.relational.values import checker, from_cell, nearest_float32, to_cell
from objectspace.relational.vnodes import VnodeBitmap
from objectspace.relational.watermarks import WatermarkIndex, damaged_watermarks, is_below


class Visibility:
    """Tells rows below the watermark from other rows.

    Args:
        keys: where the rows of the table lie.
        stored: the watermarks as they are stored; ``None`` if there are none.
    """

    def __init__(self, keys: KeySpace, stored: Any = None) -> None:
        self._keys, schema = keys, keys.schema
        name = schema.watermark_column
        self.column = None if name is None else schema.column(name)
        self._place = -1 if name is None else schema.place_of(name)
        self.leads = name is not None and schema.key_places[:1] == (self._place,)
        self._is_single = self.column is not None and self.column.type.kind == "float32"
        self._index = WatermarkIndex()
        self.marks: dict[int, Any] = {}
        self.read(stored)

    def read(self, stored: Any) -> None:
        """Take over the stored watermarks for the vnodes that are owned now.

        Raises:
            RowError: the column cannot hold one of them.
            DamagedObjectError: they are not watermarks.
        """
        if self.column is None:
            return
        try:
            self._index = WatermarkIndex.from_json(stored or [], self._mark_reader())
        except RowError:
            raise
        except (TypeError, ValueError) as error:
            raise damaged_watermarks(self._keys.table, stored, error) from error
        self._refresh()

    def raised(self, stored: Any, watermark: Any) -> Any:
        """Raise the watermark of the owned vnodes that have a lower one, and return what must be stored.

        Return ``None`` if all of them already have it or a higher one.
        """
        assert self.column is not None
        self.read(stored)
        behind = [vnode for vnode, mark in self.marks.items() if mark is None or mark < watermark]
        if not behind:
            return None
        self._index.write(0, VnodeBitmap(behind), watermark)
        self._refresh()
        return self._index.to_json(to_cell(self.column.type) or _same)

    def hides_anything(self) -> bool:
        """Return whether there is any watermark."""
        return any(mark is not None for mark in self.marks.values())

    def hides(self, key: bytes, row: Row) -> bool:
        """Return whether a row lies below the watermark of its vnode."""
        if not self.marks:
            return False
        mark, value = self.marks.get(self._keys.vnode_of(key)), row[self._place]
        if mark is None or value is None:
            return False
        return is_below(nearest_float32(value), nearest_float32(mark)) if self._is_single else is_below(value, mark)

    def parts(self, found: KeyRange) -> list[KeyRange]:
        """Return the parts of a range that may hold visible rows, as far as keys tell, in key order."""
        mark = self.marks.get(self._keys.vnode_of(found[0])) if self.leads else None
        return [found] if mark is None else self._keys.visible(found, mark)

    def hidden_parts(self) -> Iterator[KeyRange]:
        """Yield the ranges of keys that may hold hidden rows."""
        for start, end in self._keys.ranges((), None, None, (True, True)):
            visible = self.parts((start, end)) if self.leads else []
            gaps = [start, *(edge for part in visible for edge in part), end]
            for place, (low, high) in enumerate(zip(gaps[::2], gaps[1::2], strict=True)):
                # A part without an end leaves nothing after it.
                if (low or not place) and (not high or low < high):
                    yield low, high

    def _mark_reader(self) -> Callable[[Any], Any]:
        """Return a function that turns a cell into a watermark, or refuses one to which no column value compares."""
        assert self.column is not None
        name, kind = self.column.name, self.column.type
        # A watermark with too many digits for the decimal column can still be compared.
        value, check = from_cell(kind) or _same, checker(kind if kind.precision is None else DataType(kind.kind))

        def _read(cell: Any) -> Any:
            try:
                return check(value(cell))
            except (ValueError, TypeError, ArithmeticError) as error:
                raise RowError(
                    f"table {self._keys.table!r}: {name!r} ({kind}) does not hold its watermark {cell!r:.80}: {error};"
                    " widen the column to what the watermark is of, with evolve=True, or undo what made it narrower"
                ) from None

        return _read

    def _refresh(self) -> None:
        owned = self._keys.owned if self._keys.is_distributed else (0,)
        self.marks = {vnode: self._index.read(vnode) for vnode in owned}


def _same(value: Any) -> Any:
    return value
