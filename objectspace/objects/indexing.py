"""What a numpy index selects from an array that is kept in chunks, without making an array of its size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from operator import index as as_integer
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy.typing as npt


class Piece(NamedTuple):
    """What is selected from one chunk.

    Args:
        chunk: its number, in row-major order of the chunks.
        inside: its index in the chunk.
        outside: its index in the selection as laid out.
    """

    chunk: int
    inside: Any
    outside: Any


class Selection(NamedTuple):
    """What an index selects.

    Args:
        shape: the shape of what numpy would return.
        laid: another shape with as many elements, in which the pieces are placed.
        pieces: the pieces, for each chunk that is touched. None is looked for before it is asked for, so whoever needs
            room for all elements is refused first if there is none.
    """

    shape: tuple[int, ...]
    laid: tuple[int, ...]
    pieces: Iterator[Piece]


def selected(index: Any, shape: Sequence[int], chunks: Sequence[int]) -> Selection:
    """Return what an index selects.

    Args:
        index: whatever numpy takes.
        shape: the length of each dimension.
        chunks: the length of a chunk in each dimension.

    Raises:
        IndexError: the index is out of bounds, or of a kind that numpy does not know.

    Time: O(chunks touched) for integers and slices, O(elements) if there are arrays.

    >>> next(selected((slice(3, 6), 1), (8, 2), (4, 2)).pieces)
    Piece(chunk=0, inside=(slice(3, 4, 1), slice(1, 2, 1)), outside=(slice(0, 1, None), slice(0, 1, None)))
    """
    import numpy as np

    # All its elements are one in memory, so numpy itself judges the index and says what results.
    found: tuple[int, ...] = np.shape(np.broadcast_to(np.False_, tuple(shape))[index])
    entries = _entries(index, len(shape))
    if all(_takes_none(entry) or type(entry) is slice or _is_integer(entry) for entry in entries):
        ranges = list(_ranges(entries, shape))
        laid = tuple(map(len, ranges))
        return Selection(found, laid, _blocks(ranges, shape, chunks) if prod(laid) else iter(()))
    return Selection(found, (prod(found),), _groups(entries, shape, chunks) if prod(found) else iter(()))


def _entries(index: Any, ndim: int) -> list[Any]:
    """Return a numpy index as a list of entries, with a slice for each dimension left out.

    An ellipsis that stands for none of them stays: to numpy it separates the arrays on both sides, as a slice does.
    """
    entries = list(index) if isinstance(index, tuple) else [index]
    missing: list[Any] = [slice(None)] * (ndim - sum(map(_dimensions, entries)))
    place = next((place for place, entry in enumerate(entries) if entry is ...), None)
    if place is None:
        return entries + missing
    return entries[:place] + (missing or [...]) + entries[place + 1 :]


def _dimensions(entry: Any) -> int:
    """Return how many dimensions an entry stands for."""
    import numpy as np

    if _takes_none(entry):
        return 0
    if type(entry) is slice or _is_integer(entry):
        return 1
    array = np.asarray(entry)
    return array.ndim if array.dtype.kind == "b" else 1


def _takes_none(entry: Any) -> bool:
    """Return whether an entry stands for no dimension: a new axis, or an ellipsis."""
    return entry is None or entry is ...


def _is_integer(entry: Any) -> bool:
    """Return whether an entry is one integer; to numpy a truth value is not one."""
    import numpy as np

    if isinstance(entry, bool | np.bool_) or (
        isinstance(entry, np.ndarray) and (entry.ndim or entry.dtype.kind == "b")
    ):
        return False
    return hasattr(entry, "__index__")


def _ranges(entries: Sequence[Any], shape: Sequence[int]) -> Iterator[range]:
    """Yield what integers and slices select of each dimension."""
    lengths = iter(shape)
    for entry in entries:
        if type(entry) is slice:
            yield range(*entry.indices(next(lengths)))
        elif not _takes_none(entry):
            place = as_integer(entry) % next(lengths)
            yield range(place, place + 1)


class _Part(NamedTuple):
    """What a range selects from one chunk along one dimension."""

    chunk: int
    inside: slice
    outside: slice


def _parts(selected: range, size: int) -> Iterator[_Part]:
    """Yield what a range selects from each chunk along a dimension."""
    done = 0
    while done < len(selected):
        rest = selected[done:]
        chunk = rest.start // size
        base = chunk * size
        # As many as are left before the end of the chunk, or before its beginning if the range goes backwards.
        room = base + size - 1 - rest.start if rest.step > 0 else rest.start - base
        part = rest[: room // abs(rest.step) + 1]
        stop = part.stop - base
        inside = slice(part.start - base, stop if stop >= 0 else None, part.step)
        yield _Part(chunk, inside, slice(done, done + len(part)))
        done += len(part)


def _blocks(ranges: Sequence[range], shape: Sequence[int], chunks: Sequence[int]) -> Iterator[Piece]:
    """Yield what ranges, one per dimension, select from each chunk."""
    for parts in product(*map(_parts, ranges, chunks)):
        yield _block(parts, shape, chunks)


def _block(parts: tuple[_Part, ...], shape: Sequence[int], chunks: Sequence[int]) -> Piece:
    number = 0
    for part, length, size in zip(parts, shape, chunks, strict=True):
        number = number * -(-length // size) + part.chunk
    return Piece(number, tuple(part.inside for part in parts), tuple(part.outside for part in parts))


def _coordinates(entries: Sequence[Any], shape: Sequence[int]) -> list[npt.NDArray[Any]]:
    """Return the coordinate of each selected element in each dimension, one after the other.

    What numpy does with the coordinates of a dimension is done with those that the index mentions: few of a long one.
    """
    import numpy as np

    mentioned: list[npt.NDArray[Any]] = []
    places: list[Any] = []
    for entry in _without_masks(entries):
        length = shape[len(mentioned)] if len(mentioned) < len(shape) else 0
        if type(entry) is slice:
            mentioned.append(np.arange(*entry.indices(length)))
            places.append(slice(None))
        elif _takes_none(entry) or entry.dtype.kind == "b":
            places.append(entry)
        else:
            found, among = np.unique(np.where(entry < 0, entry + length, entry), return_inverse=True)
            mentioned.append(found)
            places.append(among.reshape(entry.shape))
    grid = np.ix_(*mentioned)
    lengths = tuple(map(len, mentioned))
    return [np.asarray(np.broadcast_to(axis, lengths)[tuple(places)]).reshape(-1) for axis in grid]


def _without_masks(entries: Sequence[Any]) -> Iterator[Any]:
    """Yield entries with arrays of integers for masks, one for each of their dimensions, and for single integers."""
    import numpy as np

    for entry in entries:
        if _takes_none(entry) or type(entry) is slice:
            yield entry
            continue
        array = np.asarray(entry)
        if array.dtype.kind == "b" and array.ndim:
            yield from array.nonzero()
        else:
            # Small integers have no room for a length, and those of no elements are floats to numpy.
            yield array if array.dtype.kind == "b" else array.astype(np.intp)


def _groups(entries: Sequence[Any], shape: Sequence[int], chunks: Sequence[int]) -> Iterator[Piece]:
    """Yield which of the elements that the entries select lie in each chunk; elements of one chunk in their order."""
    import numpy as np

    places = _coordinates(entries, shape)
    if not places:
        yield Piece(0, (), 0)  # The one element of an array without dimensions.
        return
    numbers = np.zeros(places[0].shape, np.int64)
    for place, length, size in zip(places, shape, chunks, strict=True):
        numbers = numbers * -(-length // size) + place // size
    order = np.argsort(numbers, kind="stable")
    edges = np.flatnonzero(np.diff(numbers[order])) + 1
    for group in np.split(order, edges) if len(order) else ():
        inside = tuple(place[group] % size for place, size in zip(places, chunks, strict=True))
        yield Piece(int(numbers[group[0]]), inside, group)
