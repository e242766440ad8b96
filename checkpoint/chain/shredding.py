"""Texts of one shape as a template and columns of numbers, which take less space than the texts.

Repeated texts like ``{"rows":3,"sum":120}`` become ``{"rows":``, ``,"sum":`` and ``}`` with two numbers per row, each
in a column of its own, as Parquet stores structured values (its documentation calls this shredding). Nothing is known
of the texts except their digits: a text that would not come back character by character stays as it is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LEAST_ROWS = 512
"""The least number of texts for which columns are made: for fewer, describing the columns takes the space they save."""

MOST_NUMBERS = 16
"""The greatest number of columns."""

SLICE_BYTES = 2 * 1024 * 1024
"""About how many bytes of text are processed at once: each takes many bytes of memory."""

_LEAST_SHARE = 0.9
_SAMPLES = 7
_MOST_DIGITS = 18
_Array = np.ndarray[Any, Any]
_MINUS, _ZERO, _NINE = b"-09"
_NUMBER = re.compile("-?[0-9]+")

Template = tuple[str, ...]
"""The text before, between and after the numbers."""


class Shredded(NamedTuple):
    """Texts in columns.

    Args:
        numbers: a column for each gap between two pieces of the template; null where a text has another shape.
        others: the texts of another shape; null where the numbers represent the text.
    """

    numbers: Sequence[pa.Array | pa.ChunkedArray]
    others: pa.Array | pa.ChunkedArray


def template_of(texts: pa.Array | pa.ChunkedArray) -> Template:
    """Return the template that most of some texts seem to have; an empty one if they have none, or are few.

    >>> template_of(pa.array([f'[{number},"a",-1]' for number in range(1000)]))
    ('[', ',"a",', ']')
    """
    present = len(texts) - texts.null_count
    if present < LEAST_ROWS:
        return ()
    known = texts.drop_null()
    samples = [known[place * (present - 1) // (_SAMPLES - 1)].as_py() for place in range(_SAMPLES)]
    template, times = Counter(tuple(_NUMBER.split(text)) for text in samples).most_common(1)[0]
    return template if times > _SAMPLES // 2 and 1 < len(template) <= MOST_NUMBERS + 1 else ()


def shred(texts: pa.Array | pa.ChunkedArray, template: Template) -> Shredded | None:
    """Return texts in the columns of a template; None if too many of them have another shape.

    Time: O(bytes of the texts), column by column, for some of the texts at a time.

    >>> found = shred(pa.array([f"[{number}]" for number in range(1000)]), ("[", "]"))
    >>> found.numbers[0][7], found.others.null_count
    (<pyarrow.Int64Scalar: 7>, 1000)
    """
    rows = max(1, SLICE_BYTES * len(texts) // (texts.nbytes + 1))
    slices = [_shredded(texts.slice(start, rows), template) for start in range(0, len(texts), rows)]
    others = pa.chunked_array([one.others for one in slices], pa.string())
    fitting = others.null_count - texts.null_count
    if fitting < _LEAST_SHARE * (len(texts) - texts.null_count):
        return None
    columns = zip(*(one.numbers for one in slices), strict=True)
    return Shredded([pa.chunked_array(list(column), pa.int64()) for column in columns], others)


def _shredded(texts: pa.Array | pa.ChunkedArray, template: Template) -> Shredded:
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    width, known = len(template) - 1, texts.drop_null()
    if not len(known):
        return Shredded([pa.nulls(len(texts), pa.int64())] * width, texts)
    found = _Numbers(known)
    fits = found.is_plain & (found.counts == width)
    at = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False))[fits]
    numbers = np.zeros((width, len(texts)), np.int64)
    numbers[:, at] = found.values[np.repeat(fits, found.counts)].reshape(-1, width).T
    here = np.zeros(len(texts), bool)
    here[at] = True
    made = joined(Shredded(_columns(numbers, here), texts), template)
    here &= pc.fill_null(pc.equal(made, texts), False).to_numpy(zero_copy_only=False)
    # An array of nulls: with a single one, pyarrow before 24 gives other texts than those of a slice.
    return Shredded(_columns(numbers, here), pc.if_else(pa.array(here), pa.nulls(len(texts), pa.string()), texts))


def joined(shredded: Shredded, template: Template) -> pa.Array | pa.ChunkedArray:
    """Return the texts that columns represent.

    >>> joined(Shredded([pa.array([7, None])], pa.array([None, "x"])), ("[", "]")).to_pylist()
    ['[7]', 'x']
    """
    first, *pieces = map(pa.scalar, template)
    parts: list[Any] = [first]
    for column, piece in zip(shredded.numbers, pieces, strict=True):
        parts += column.cast(pa.string()), piece
    return pc.coalesce(pc.binary_join_element_wise(*parts, ""), shredded.others)


def _columns(numbers: _Array, here: _Array) -> list[pa.Array]:
    return [pa.array(column, pa.int64(), mask=~here) for column in numbers]


class _Numbers:
    """The numbers that occur in texts, one after the other.

    ``values`` are all of them, ``counts`` says how many each text has, and ``is_plain`` says which texts have only
    numbers that come back as they are written: without leading zeros, and not too long.
    """

    def __init__(self, texts: pa.Array) -> None:
        limits = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
        data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[limits[0] : limits[-1]]
        limits = limits - limits[0]
        is_digit = (data >= _ZERO) & (data <= _NINE)
        is_first, is_last = is_digit.copy(), is_digit.copy()
        is_first[1:] &= ~is_digit[:-1]
        is_last[:-1] &= ~is_digit[1:]
        # Where a text begins or ends, a number does too.
        filled = limits[:-1] < limits[1:]
        begin, end = limits[:-1][filled], limits[1:][filled] - 1
        is_first[begin] = is_digit[begin]
        is_last[end] = is_digit[end]
        self._firsts, self._lasts = np.flatnonzero(is_first), np.flatnonzero(is_last)
        in_front = np.maximum(self._firsts - 1, 0)
        begins_text = np.zeros(len(data) + 1, bool)
        begins_text[limits] = True
        self._is_negative = (data[in_front] == _MINUS) & ~begins_text[self._firsts]
        lengths = self._lasts - self._firsts + 1
        self.values = self._read(data[is_digit], lengths)
        places = np.searchsorted(self._firsts, limits)
        self.counts = np.diff(places)
        is_odd = (lengths > _MOST_DIGITS) | ((data[self._firsts] == _ZERO) & ((lengths > 1) | self._is_negative))
        odd = np.concatenate(([0], np.cumsum(is_odd)))
        self.is_plain = odd[places[1:]] == odd[places[:-1]]

    def _read(self, digits: _Array, lengths: _Array) -> _Array:
        """Return the values of the digits; anything for numbers that are too long.

        Args:
            digits: the digits of all numbers, as bytes.
            lengths: how many digits belong to each number.
        """
        limits = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        texts = pa.StringArray.from_buffers(len(lengths), pa.py_buffer(limits), pa.py_buffer(digits))
        if len(lengths) and lengths.max() > _MOST_DIGITS:
            texts = pc.if_else(pa.array(lengths > _MOST_DIGITS), "0", texts)
        numbers = texts.cast(pa.int64()).to_numpy(zero_copy_only=False)
        signed: _Array = np.where(self._is_negative, -numbers, numbers)
        return signed
