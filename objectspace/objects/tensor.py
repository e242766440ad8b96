"""The persisted tensor: an array of any number of dimensions, stored in chunks of raw numbers."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from itertools import islice, product
from math import prod
from typing import TYPE_CHECKING, Any

from checkpoint.reader import StoredItem, StoredRow
from checkpoint.run import ItemRow, fault_of
from objectspace import codec
from objectspace.errors import shown
from objectspace.extras import require
from objectspace.keys import INT64_MAX
from objectspace.objects.base import ABSENT
from objectspace.objects.indexing import Piece, Selection, selected
from objectspace.objects.keyed import KeyedObject
from objectspace.objects.torn import undivided

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

CHUNK_ELEMENTS = 1024
"""How many elements a chunk has at most, unless the shape of the chunks is given."""

CHUNK_BYTES = 2**28
"""How many bytes a chunk has at most: it is one slot, which is read and written whole, and a row has less than 1 GB."""

_TOGETHER = 256
"""How many chunks are read at once."""


class Tensor(KeyedObject):
    """An array of numbers with the indexing of numpy; one slot per chunk, and only touched chunks are stored.

    Reading gives numpy arrays and scalars that are copies: to change the tensor, assign to it.

    ==================== =================================================================================
    method               dirties
    ==================== =================================================================================
    ``t[index] = v``     1 item per chunk in which an element changes; for a new chunk also the length
    ``fill(v)``          1 item per chunk; for new chunks also the length
    ==================== =================================================================================

    >>> from objectspace import VolatileObjectSpace
    >>> t = VolatileObjectSpace().create_tensor("t", (1000, 1000), dtype="int64")
    >>> t[10, 5:8] = [1, 2, 3]
    >>> t[9:12, 6].tolist(), t.touched()
    ([0, 2, 0], 1)
    """

    kind = "Tensor"
    _is_plain = False
    __hash__ = None  # type: ignore[assignment]

    def _configure(self, options: dict[str, Any]) -> None:
        require("numpy", "tensor")
        import numpy

        self._np = numpy
        self._shape: tuple[int, ...] = tuple(options["shape"])
        self._dtype: np.dtype[Any] = numpy.dtype(options["dtype"])
        self._chunks: tuple[int, ...] = tuple(options["chunks"])
        self._fill = self._dtype.type(_restored_fill(options["fill"]))

    def _options(self) -> dict[str, Any]:
        return {
            "shape": list(self._shape),
            "dtype": self._dtype.str,
            "chunks": list(self._chunks),
            "fill": _plain_fill(self._fill),
            "bytes": "little-endian, C order",
        }

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each dimension."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        return self._dtype

    @property
    def chunks(self) -> tuple[int, ...]:
        """The length of a chunk in each dimension."""
        return self._chunks

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self._shape)

    def __getitem__(self, index: Any) -> Any:
        """Return a copy of what numpy would return for this index.

        Raises:
            IndexError: the index is out of bounds or of a kind that numpy does not know.

        Time: O(elements and chunks touched).
        """
        found = self._selected(index)
        out = self._np.full(found.laid, self._fill, self._dtype)
        for piece, chunk in self._read(found.pieces):
            if chunk is not ABSENT:
                out[piece.outside] = chunk[piece.inside]
        out = out.reshape(found.shape)
        return out if out.ndim or _has_ellipsis(index) else out[()]

    def __setitem__(self, index: Any, value: Any) -> None:
        """Assign what numpy would assign for this index.

        Raises:
            IndexError: the index is out of bounds or of a kind that numpy does not know.
            ValueError: the value does not fit the shape of the index.
            OverflowError: a number does not fit the dtype; a NumPy scalar is cast as NumPy casts arrays.

        Time: O(elements and chunks touched). Dirties: one item per chunk in which an
        element changes, and the length for a new one.
        """
        found = self._selected(index)
        shape = found.shape
        # Assigned to an array first, so that numpy refuses here what it refuses there, and nothing is half applied.
        converted = self._converted(value)
        surplus = converted.ndim - len(shape)
        if (shape or _has_ellipsis(index)) and surplus > 0 and prod(converted.shape[:surplus]) == 1:
            converted = converted.reshape(converted.shape[surplus:])  # Leading dimensions of one count for nothing.
        self._assign(found.pieces, self._np.broadcast_to(converted, shape).reshape(found.laid))

    def _selected(self, index: Any) -> Selection:
        try:
            return selected(index, self._shape, self._chunks)
        except IndexError as error:
            raise IndexError(f"{self._describe()}: {error}") from error

    def _converted(self, value: Any) -> npt.NDArray[Any]:
        """Return a value as an array of the dtype."""
        if self._np.__version__.startswith("1."):
            _require_fit(value, self._dtype)
        converted = self._np.empty(self._np.shape(value), self._dtype)
        converted[...] = value
        return converted

    @undivided
    def _assign(self, pieces: Iterator[Piece], values: npt.NDArray[Any]) -> None:
        """Assign values, laid as the pieces say."""
        for piece, _ in self._read(pieces):
            self._writable(piece.chunk)[piece.inside] = values[piece.outside]

    @undivided
    def fill(self, value: Any) -> None:
        """Assign one value to every element.

        Raises:
            OverflowError: the value does not fit the dtype.

        Time: O(n). Dirties: one item per chunk, and the length for new ones.
        """
        _require_fit(value, self._dtype)
        if not self.size:
            return
        for position in product(*map(range, self._grid())):
            # No more than what is inside the tensor, so that a chunk at its edge can come back to what is stored of it.
            places = zip(position, self._shape, self._chunks, strict=True)
            inside: tuple[Any, ...] = (*(slice(length - place * size) for place, length, size in places), ...)
            self._writable(self._number(position))[inside].fill(value)

    def touched(self) -> int:
        """Return the number of chunks that are stored or will be."""
        return len(self._table)

    def copy(self) -> npt.NDArray[Any]:
        """Return a plain numpy array with the same elements."""
        return self[...]  # type: ignore[no-any-return]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError(f"{self._describe()} is not an array in memory: it must be copied")
        return self.copy() if dtype is None else self.copy().astype(dtype)

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError(f"{self._describe()} has no dimensions, so it has no length")
        return self._shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))

    def __contains__(self, value: object) -> bool:
        """Return whether an element equals the value. Time: O(n)."""
        return bool((self.copy() == value).any())

    def __bool__(self) -> bool:
        """Refuse, as numpy does, for more than one element."""
        return bool(self.copy())

    def __eq__(self, other: object) -> Any:
        return self.copy() == other

    def __ne__(self, other: object) -> Any:
        return self.copy() != other

    def __repr__(self) -> str:
        return f"Tensor({self._name!r}, shape={self._shape}, dtype={self._dtype.name}, chunks={self._chunks})"

    def _read(self, pieces: Iterator[Piece]) -> Iterator[tuple[Piece, Any]]:
        """Yield pieces with their chunks, which are read together."""
        while some := list(islice(pieces, _TOGETHER)):
            yield from zip(some, self._table.read_all([piece.chunk for piece in some], ABSENT), strict=True)

    def _grid(self) -> list[int]:
        return [-(-length // size) for length, size in zip(self._shape, self._chunks, strict=True)]

    def _number(self, position: tuple[int, ...]) -> int:
        number = 0
        for place, count in zip(position, self._grid(), strict=True):
            number = number * count + place
        return number

    def _writable(self, number: int) -> npt.NDArray[Any]:
        """Return a chunk that is noted as changed."""
        chunk = self._table.read(number)
        if chunk is ABSENT:
            chunk = self._np.full(self._chunks, self._fill, self._dtype)
        self._table.write(number, chunk)
        return chunk  # type: ignore[no-any-return]

    def _held(self) -> int:
        """Count a chunk as so many slots of 64 bytes."""
        return super()._held() * (1 + prod(self._chunks) * self._dtype.itemsize // 64)

    def _weigh(self, slots: int, size_bytes: int) -> None:
        """Do nothing: all chunks are equally large in memory, however few bytes they have in the store."""

    def _rows(self) -> list[ItemRow]:
        blank = self._np.full(self._chunks, self._fill, self._dtype).tobytes()
        self._table.forget_new(lambda chunk: bool(chunk.tobytes() == blank))
        return super()._rows()

    def _text(self, key: Any, value: Any) -> Any:
        return value.astype(self._dtype.newbyteorder("<"), copy=False).tobytes()

    def _keys_of(self, rows: Sequence[StoredRow]) -> list[Any]:
        return [row[0] for row in rows]

    def _key_value(self, item: StoredItem) -> tuple[Any, Any]:
        try:
            data: Any = item.value
            numbers = self._np.frombuffer(data, self._dtype.newbyteorder("<"))
            return item.slot, numbers.astype(self._dtype).reshape(self._chunks)
        except (ValueError, TypeError) as error:
            self._damaged(item.slot, item.value, fault_of(item.value) or error)


def _has_ellipsis(index: Any) -> bool:
    """Return whether an index has an ellipsis: then even a single element is an array, one without dimensions."""
    return any(part is Ellipsis for part in (index if isinstance(index, tuple) else (index,)))


def tensor_options(shape: Any, dtype: Any, chunks: Any, fill: Any) -> dict[str, Any]:
    """Check what a tensor is created with and return its options.

    Raises:
        ValueError: a negative length, chunks that do not fit the shape or are too large, a type that is not numeric or
            cannot be stored, a fill that does not fit the type.
        TypeError: a fill that is no number, or a length that is no whole one.
    """
    require("numpy", "tensor")
    import numpy

    lengths = _whole("shape", shape if isinstance(shape, tuple | list) else (shape,))
    kind = numpy.dtype(dtype)
    if kind.kind not in "biufc":
        raise ValueError(f"the dtype of a tensor is {kind}: expected bool, integers, floats or complex numbers")
    if kind.char in "gG":
        raise ValueError(
            f"the dtype of a tensor is {kind}, whose bytes differ between machines: use float64 or complex128"
        )
    if any(length < 0 for length in lengths) or prod(lengths) > INT64_MAX:
        raise ValueError(
            f"the shape of a tensor is {lengths}: expected lengths of 0 or more, and at most {INT64_MAX} elements"
        )
    try:
        numpy.empty(lengths if 0 in lengths else (0,) * len(lengths), kind)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"the shape of a tensor is {lengths!s:.200}, which numpy does not take: {error}") from None
    given = (chunks,) if isinstance(chunks, int) else chunks
    sizes = _default_chunks(lengths) if given is None else _whole("chunks", given)
    if len(sizes) != len(lengths) or any(size < 1 for size in sizes):
        raise ValueError(f"chunks of {sizes} do not fit the shape {lengths}: expected one length of 1 or more each")
    sizes = tuple(min(size, max(1, length)) for size, length in zip(sizes, lengths, strict=True))
    if prod(sizes) * kind.itemsize > CHUNK_BYTES:
        raise ValueError(
            f"a chunk of {sizes} elements of {kind} has {prod(sizes) * kind.itemsize} bytes: expected at most"
            f" {CHUNK_BYTES}, as it is read and written whole; give smaller chunks, or none"
        )
    return {"shape": lengths, "dtype": kind.str, "chunks": sizes, "fill": _checked_fill(fill, kind)}


def _whole(what: str, lengths: Any) -> tuple[int, ...]:
    """Return the lengths of dimensions as integers."""
    try:
        return tuple(map(operator.index, lengths))
    except TypeError as error:
        message = f"the {what} of a tensor: found {shown(lengths):.80}, expected a whole number for each dimension"
        raise TypeError(message) from error


def _checked_fill(fill: Any, kind: np.dtype[Any]) -> Any:
    """Return what the index keeps of the fill of a new tensor."""
    try:
        _require_fit(fill, kind)
        return _plain_fill(kind.type(fill))
    except (OverflowError, ValueError, TypeError) as error:
        raise (TypeError if isinstance(error, TypeError) else ValueError)(
            f"the fill of a tensor is {shown(fill):.80}: expected a number that fits its dtype {kind} ({error})"
        ) from error


def _require_fit(value: Any, kind: np.dtype[Any]) -> None:
    """Refuse numbers that are out of bounds, for NumPy before 2 wraps them, as any does those of arrays.

    Raises:
        OverflowError: one is.
    """
    import numpy

    if kind.kind not in "iu" or (hasattr(value, "__array__") and not isinstance(value, numpy.generic)):
        return
    bounds = numpy.iinfo(kind)
    for one in numpy.array(value, dtype=object).flat:
        if isinstance(one, int | float | numpy.integer | numpy.floating) and not bounds.min <= int(one) <= bounds.max:
            raise OverflowError(f"{one} is out of bounds for {kind}: expected {bounds.min} to {bounds.max}")


def _plain_fill(fill: Any) -> Any:
    """Return what the index keeps of a fill: a number that is not finite has a form of its own, as JSON has none."""
    value = fill.item()
    return [codec.plain(value.real), codec.plain(value.imag)] if isinstance(value, complex) else codec.plain(value)


def _restored_fill(stored: Any) -> Any:
    """Return the fill that the index keeps; one that is null was not finite, in a store of an older version."""
    if isinstance(stored, list):
        return complex(*map(_restored_fill, stored))
    return math.nan if stored is None else codec.restore(stored)


def _default_chunks(lengths: tuple[int, ...]) -> tuple[int, ...]:
    """Return chunks of about :data:`CHUNK_ELEMENTS` elements that are as cubic as the shape allows."""
    sizes = [max(1, length) for length in lengths]
    while prod(sizes) > CHUNK_ELEMENTS:
        longest = sizes.index(max(sizes))
        sizes[longest] = -(-sizes[longest] // 2)
    return tuple(sizes)
