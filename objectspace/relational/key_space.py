"""Where the rows of a table lie: keys and ranges of keys, with the vnode in front if rows are distributed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from objectspace.relational.errors import RowError
from objectspace.relational.keys import NOTHING, KeyRange, key_range, next_key
from objectspace.relational.schema import Row, TableSchema
from objectspace.relational.vnodes import LAST_VNODE, VNODE_BYTES, VNODES, VnodeBitmap, hasher
from objectspace.relational.watermarks import visible_range

Bound = Sequence[Any] | None


class KeySpace:
    """Makes keys and ranges of keys for one instance of a table.

    Args:
        table: the name of the table, for errors.
        schema: its schema.
        owned: the vnodes that the instance owns; all by default.

    ``of_row(row)`` returns the key of a checked row, ``of_rows(rows)`` those of many.
    """

    def __init__(self, table: str, schema: TableSchema, owned: VnodeBitmap | None = None) -> None:
        self.table, self.schema = table, schema
        self.owned = VnodeBitmap.from_bits((1 << VNODES) - 1) if owned is None else owned
        names = (schema.vnode_column,) if schema.vnode_column is not None else schema.distribution_key
        self.is_distributed = bool(names)
        key_names = [name for name, _ in schema.primary_key]
        self._places = tuple(key_names.index(name) for name in names if name is not None)
        self._vnode: Callable[[Sequence[Any]], int] = self._read_vnode
        self.of_row: Callable[[Row], bytes] = self._key_of_row if self.is_distributed else _encoder_of_rows(schema)
        if schema.distribution_key:
            self._vnode = hasher([schema.column(name).type for name in schema.distribution_key])

    def checked(self, values: Sequence[Any], *, whole: bool = True, skip: int = 0, what: str = "a key") -> Row:
        """Return values of the primary key in their one form: see :meth:`TableSchema.check_key`.

        Raises:
            RowError: they do not fit the schema; the message names the table.
        """
        try:
            return self.schema.check_key(values, whole=whole, skip=skip, what=what)
        except RowError as error:
            raise RowError(f"table {self.table!r}: {error}") from None

    def checked_range(
        self, prefix: Sequence[Any], lower: Sequence[Any] | None, upper: Sequence[Any] | None
    ) -> tuple[Row, Row | None, Row | None]:
        """Return a prefix and the bounds below it in their one form; a bound with no column is none.

        Raises:
            RowError: they do not fit the schema; the message names the table, and which of them it is.
        """
        group = self.checked(prefix, whole=False, what="the prefix")
        skip = len(group)
        least = None if lower is None else self.checked(lower, whole=False, skip=skip, what="lower") or None
        most = None if upper is None else self.checked(upper, whole=False, skip=skip, what="upper") or None
        return group, least, most

    def key(self, values: Row) -> bytes:
        """Return the key of the checked values of the whole primary key.

        Raises:
            VnodeNotOwnedError: it belongs to a vnode that another instance owns.
        """
        body = self.schema.key_encoder.encode(values)
        return self._lead(self.vnode_of_key(values)) + body if self.is_distributed else body

    def keys(self, keys: Sequence[Row]) -> list[bytes]:
        """Return the keys of the checked values of whole primary keys.

        Raises:
            VnodeNotOwnedError: one belongs to a vnode that another instance owns.

        Time: O(keys), a third of that of as many single ones.
        """
        if self.is_distributed or not self.schema.key_places or not keys:
            return list(map(self.key, keys))
        return self.schema.encode_columns([list(map(itemgetter(place), keys)) for place in range(len(keys[0]))])

    def of_rows(self, rows: Sequence[Row]) -> list[bytes]:
        """Return the keys of checked rows: see :meth:`keys`."""
        return list(map(self.of_row, rows)) if self.is_distributed else self.schema.encode_keys(rows)

    def vnode_of_key(self, values: Row) -> int:
        """Return the vnode of a key, or 0 if the table is not distributed.

        Raises:
            VnodeNotOwnedError: another instance owns it.
        """
        if not self.is_distributed:
            return 0
        vnode = self._vnode([values[place] for place in self._places])
        return self.owned.require(vnode, self.table, values)

    def ranges(
        self,
        prefix: Row,
        lower: Bound,
        upper: Bound,
        inclusive: tuple[bool, bool],
        vnode: int | None = None,
    ) -> list[KeyRange]:
        """Return the ranges of keys to read, one for each vnode that may have rows in them.

        Raises:
            VnodeNotOwnedError: the prefix belongs to a vnode that another instance owns.
            ValueError: a vnode is given, but the table is not distributed.
        """
        if vnode is not None and not self.is_distributed:
            raise ValueError(f"vnode {vnode} of table {self.table!r}: it is not distributed, so it has no vnodes")
        body = key_range(self.schema.key_encoder.encode, prefix, lower, upper, inclusive)
        if body == NOTHING:
            return []
        if not self.is_distributed:
            return [body]
        return [_shifted(body, self._lead(number)) for number in self._vnodes_of(prefix, vnode)]

    def behind(self, values: Row, ranges: Iterable[KeyRange], reverse: bool) -> list[KeyRange]:
        """Return what is left of some ranges for a scan that has reached the values of a whole primary key."""
        body = self.schema.key_encoder.encode(values)
        left = []
        for start, end in ranges:
            edge = start[:VNODE_BYTES] + body if self.is_distributed else body
            if reverse:
                left.append((start, min(end or edge, edge)))
            else:
                left.append((max(start, edge + b"\0"), end))
        return [(start, end) for start, end in left if start < end or not (end or reverse)]

    def visible(self, found: KeyRange, watermark: Any) -> list[KeyRange]:
        """Return the parts of a range that a watermark on the first key column leaves visible."""
        name, order = self.schema.primary_key[0]
        kind = self.schema.column(name).type
        if not self.is_distributed:
            return visible_range(found, kind, order, watermark)
        lead = found[0][:VNODE_BYTES]
        body = (found[0][VNODE_BYTES:], b"" if found[1] == next_key(lead) else found[1][VNODE_BYTES:])
        return [_shifted(part, lead) for part in visible_range(body, kind, order, watermark)]

    def vnode_of(self, key: bytes) -> int:
        """Return the vnode that a key begins with, or 0 if the table is not distributed."""
        return int.from_bytes(key[:VNODE_BYTES], "big") if self.is_distributed else 0

    def body_of(self, key: bytes) -> bytes:
        """Return a key without its vnode, by which rows of several vnodes are sorted."""
        return key[VNODE_BYTES:] if self.is_distributed else key

    def _vnodes_of(self, prefix: Row, vnode: int | None) -> Iterable[int]:
        if vnode is not None:
            return [self.owned.require(vnode, self.table, f"a scan of vnode {vnode}")]
        if all(place < len(prefix) for place in self._places):
            return [self.owned.require(self._vnode([prefix[p] for p in self._places]), self.table, prefix)]
        return self.owned

    def _read_vnode(self, values: Sequence[Any]) -> int:
        (vnode,) = values
        if vnode is None or not 0 <= vnode <= LAST_VNODE:
            column = self.schema.vnode_column
            raise RowError(
                f"table {self.table!r}: the vnode column {column!r} holds {vnode!r}: expected a number from 0 to"
                f" {LAST_VNODE}"
            )
        return int(vnode)

    def _key_of_row(self, row: Row) -> bytes:
        return self.key(self.schema.key_of(row))

    def _lead(self, vnode: int) -> bytes:
        return vnode.to_bytes(VNODE_BYTES, "big")


def _encoder_of_rows(schema: TableSchema) -> Callable[[Row], bytes]:
    """Return a function that encodes the key of a row if rows are not distributed."""
    pairs = list(zip(schema.key_encoder.columns, schema.key_places, strict=True))
    if len(pairs) != 1:
        return lambda row: b"".join([encode(row[place]) for encode, place in pairs])
    ((only, where),) = pairs
    return lambda row: only(row[where])


def _shifted(body: KeyRange, lead: bytes) -> KeyRange:
    return lead + body[0], lead + body[1] if body[1] else next_key(lead)
