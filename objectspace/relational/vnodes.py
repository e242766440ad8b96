"""Virtual nodes: the 256 parts of every distributed table, each owned by one instance of it.

The vnode of a row leads its key, so a vnode is one contiguous range of keys, and moving it to another owner moves no
row. The vnode of a key is the top eight bits of xxHash64 with seed 42, as Spark's own ``xxhash64`` computes it: for
text and bytes over their bytes, for anything else over the eight bytes of a whole number, lowest first, with the hash
so far as the seed for the next column; a NULL is skipped.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from operator import index
from typing import Any, SupportsIndex

from xxhash import xxh64_intdigest

from objectspace.relational.errors import SchemaError, VnodeNotOwnedError
from objectspace.relational.keys import fixed_form
from objectspace.relational.types import DataType

VNODES = 256
"""The default number of vnodes; it never changes for a table."""

VNODE_BYTES = 2
"""The number of bytes of the vnode at the beginning of a key, big-endian."""

LAST_VNODE = 2 ** (8 * VNODE_BYTES - 1) - 1
"""The greatest vnode that a vnode column may name."""

SEED = 42
_MASK = 2**64 - 1


class VnodeBitmap:
    """A set of vnodes.

    >>> bitmap = VnodeBitmap(range(64, 128))
    >>> 64 in bitmap, 63 in bitmap, len(bitmap)
    (True, False, 64)
    """

    def __init__(self, vnodes: Iterable[int] = ()) -> None:
        self.bits = 0
        if isinstance(vnodes, str | bytes) or not isinstance(vnodes, Iterable):
            raise ValueError(f"vnodes are whole numbers, such as range(64): found {vnodes!r:.80}")
        if isinstance(vnodes, VnodeBitmap) and 0 <= vnodes.bits < 1 << (LAST_VNODE + 1):
            self.bits, vnodes = vnodes.bits, ()  # Every opening of a table copies one.
        for vnode in vnodes:
            # Ints are tested for first: a protocol check is slow.
            if not isinstance(vnode, (int, SupportsIndex)) or not 0 <= index(vnode) <= LAST_VNODE:
                raise ValueError(f"a vnode is 0 to {LAST_VNODE}: found {vnode!r:.80}")
            self.bits |= 1 << index(vnode)

    @classmethod
    def from_bits(cls, bits: int) -> VnodeBitmap:
        """Return the set of a bit pattern, bit 0 for vnode 0."""
        made = cls()
        made.bits = bits
        return made

    @classmethod
    def from_hex(cls, text: Any) -> VnodeBitmap:
        """Return the set of a bit pattern in hexadecimal digits, as it is stored.

        Raises:
            TypeError, ValueError: it is not such a pattern.
        """
        bits = int(text, 16)
        if not 0 <= bits < 1 << (LAST_VNODE + 1):
            raise ValueError(f"vnodes are bits 0 to {LAST_VNODE} in hexadecimal digits: found {text!r:.80}")
        return cls.from_bits(bits)

    def __contains__(self, vnode: object) -> bool:
        return isinstance(vnode, int) and vnode >= 0 and bool(self.bits >> vnode & 1)

    def __iter__(self) -> Iterator[int]:
        return (vnode for vnode in range(self.bits.bit_length()) if self.bits >> vnode & 1)

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VnodeBitmap) and self.bits == other.bits

    def __hash__(self) -> int:
        return hash(self.bits)

    def __le__(self, other: VnodeBitmap) -> bool:
        """Return whether every vnode is in the other set too."""
        return not self.bits & ~other.bits

    def overlaps(self, other: VnodeBitmap) -> bool:
        """Return whether a vnode is in both sets."""
        return bool(self.bits & other.bits)

    def __repr__(self) -> str:
        return f"VnodeBitmap({_spans(list(self))})"

    def require(self, vnode: int, table: str, what: object) -> int:
        """Return a vnode after checking that it is in the set.

        Raises:
            VnodeNotOwnedError: it is not.
        """
        if vnode not in self:
            raise VnodeNotOwnedError(
                f"table {table!r}: {what!r:.200} belongs to vnode {vnode}, and this instance owns {_spans(list(self))}:"
                " send it to the owner, or move the vnode with update_vnodes() after a commit"
            )
        return vnode


def cache_is_stale(previous: VnodeBitmap, current: VnodeBitmap) -> bool:
    """Return whether a cache by row key must be cleared when ownership changes: it must if a vnode was gained.

    >>> cache_is_stale(VnodeBitmap([0, 1]), VnodeBitmap([0]))
    False
    """
    return not current <= previous


def assign_vnodes(
    workers: int, previous: Sequence[VnodeBitmap] | None = None, vnode_count: int = VNODES
) -> list[VnodeBitmap]:
    """Return the vnodes of each worker: sizes differ by at most one, and as few vnodes as possible move.

    Args:
        workers: the number of workers from now on.
        previous: what each worker owned so far; if nobody owned anything, the result is contiguous ranges.
        vnode_count: the number of vnodes.

    Raises:
        ValueError: there are more workers than vnodes; or a vnode had two owners so far, or does not exist.

    >>> [len(bitmap) for bitmap in assign_vnodes(3)]
    [86, 85, 85]
    """
    if not 1 <= workers <= vnode_count:
        raise ValueError(f"{workers} workers: expected 1 to {vnode_count}, at least one vnode each")
    _check_previous(previous or [], vnode_count)
    owned = [list(bitmap) for bitmap in (previous or [])][:workers]
    owned += [[] for _ in range(workers - len(owned))]
    sizes = _sizes([len(vnodes) for vnodes in owned], vnode_count)
    kept = [vnodes[:size] for vnodes, size in zip(owned, sizes, strict=True)]
    taken = {vnode for vnodes in kept for vnode in vnodes}
    free = iter([vnode for vnode in range(vnode_count) if vnode not in taken])
    for vnodes, size in zip(kept, sizes, strict=True):
        vnodes.extend(next(free) for _ in range(size - len(vnodes)))
    return [VnodeBitmap(vnodes) for vnodes in kept]


def _check_previous(previous: Sequence[VnodeBitmap], vnode_count: int) -> None:
    """Refuse an assignment in which a vnode has two owners, or does not exist."""
    taken = VnodeBitmap()
    for worker, bitmap in enumerate(previous):
        twice, beyond = bitmap.bits & taken.bits, bitmap.bits >> vnode_count << vnode_count
        if twice:
            raise ValueError(
                f"worker {worker} owned {_spans(list(VnodeBitmap.from_bits(twice)))}, which one before it owned too:"
                " expected each vnode once"
            )
        if beyond:
            raise ValueError(
                f"worker {worker} owned {_spans(list(VnodeBitmap.from_bits(beyond)))}: expected 0 to {vnode_count - 1},"
                " or pass vnode_count="
            )
        taken.bits |= bitmap.bits


def _sizes(present: list[int], total: int) -> list[int]:
    """Share out a total evenly; the workers that have most get the remainder."""
    base, extra = divmod(total, len(present))
    favoured = set(sorted(range(len(present)), key=lambda worker: -present[worker])[:extra])
    return [base + (worker in favoured) for worker in range(len(present))]


def _spans(vnodes: list[int]) -> str:
    """Return vnodes as text, with neighbours together."""
    spans: list[list[int]] = []
    for vnode in vnodes:
        if spans and spans[-1][1] == vnode - 1:
            spans[-1][1] = vnode
        else:
            spans.append([vnode, vnode])
    shown = [f"{first}" if first == last else f"{first}-{last}" for first, last in spans]
    return f"vnodes {', '.join(shown)}" if shown else "no vnodes"


def hasher(kinds: Sequence[DataType]) -> Callable[[Sequence[Any]], int]:
    """Return a function that gives the vnode for the values of the distribution columns.

    Raises:
        SchemaError: a column has a type for which Spark has no hash that is the same everywhere.
    """
    parts = [_hash_bytes(kind) for kind in kinds]

    def _vnode(values: Sequence[Any]) -> int:
        state = SEED
        for part, value in zip(parts, values, strict=True):
            if value is not None:
                state = xxh64_intdigest(part(value), state)
        return state >> 56

    return _vnode


def column_hasher(kinds: Sequence[DataType]) -> Callable[[Sequence[Sequence[Any]]], list[int]]:
    """Return a function that gives the vnodes of many rows from their distribution columns, at least one.

    They are the vnodes that :func:`hasher` gives, in a third of its time.

    Raises:
        SchemaError: a column has a type for which Spark has no hash that is the same everywhere.

    >>> from objectspace.relational.types import parse_type
    >>> kinds = [parse_type("string"), parse_type("int64")]
    >>> column_hasher(kinds)([("a", "b"), (1, None)]) == [hasher(kinds)(row) for row in (("a", 1), ("b", None))]
    True
    """
    parts = [(_hash_bytes(kind), _column_bytes(kind)) for kind in kinds]

    def _vnodes(columns: Sequence[Sequence[Any]]) -> list[int]:
        states: Iterable[int] = repeat(SEED)
        for (one, many), column in zip(parts, columns, strict=True):
            if None in column:
                pairs = zip(column, states, strict=False)
                states = [state if value is None else xxh64_intdigest(one(value), state) for value, state in pairs]
            else:
                states = list(map(xxh64_intdigest, many(column), states))
        return [state >> 56 for state in states]

    return _vnodes


def _column_bytes(kind: DataType) -> Callable[[Sequence[Any]], list[bytes]]:
    """Return a function that gives the bytes to hash for a whole column without NULL."""
    one, form = _hash_bytes(kind), fixed_form(kind)
    if form is None:
        return lambda values: list(map(one, values))

    def _bytes(values: Sequence[Any]) -> list[bytes]:
        numbers = array("q", values if form.is_whole else map(form.number, values))
        if sys.byteorder == "big":
            numbers.byteswap()
        data = numbers.tobytes()
        return [data[start : start + 8] for start in range(0, len(data), 8)]

    return _bytes


def _hash_bytes(kind: DataType) -> Callable[[Any], bytes]:
    if kind.kind == "string":
        return str.encode
    if kind.kind == "binary":
        return bytes
    form = fixed_form(kind)
    if form is None or kind.kind.startswith("float"):
        raise SchemaError(
            f"rows cannot be distributed by a {kind}: use text, binary, whole numbers, dates or timestamps"
        )
    return lambda value: (form.number(value) & _MASK).to_bytes(8, "little")
