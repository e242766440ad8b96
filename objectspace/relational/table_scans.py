"""Going through a state table: what is sealed, with what waits in its MemTable laid over it."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from objectspace.relational.memtable import overlaid
from objectspace.relational.schema import Row

if TYPE_CHECKING:
    from objectspace.relational.state_table import StateTable

_MOST_DECODED = 256
"""The most rows that a scan decodes together."""


class Span(NamedTuple):
    """What a scan reads: the rows with a prefix of the key, between two bounds, of one vnode or all."""

    prefix: Row
    lower: Row | None
    upper: Row | None
    inclusive: tuple[bool, bool]
    vnode: int | None


def scan(table: StateTable, span: Span, *, reverse: bool = False) -> Iterator[Row]:
    """Return an iterator over the visible rows of a span in key order, or in the opposite one, that begins now."""
    return _rows(table, span, reverse, _texts(table, span, reverse), table._registry.changes)


def scan_all(table: StateTable, spans: Sequence[Span]) -> list[list[Row]]:
    """Return the visible rows of each of some spans in key order, all of them decoded together."""
    pairs = [list(_texts(table, span, reverse=False)) for span in spans]
    rows = iter(table._codec.decode_all([text for group in pairs for _, text in group]))
    groups = [list(islice(rows, len(group))) for group in pairs]
    if not _hides_by_row(table):
        return groups
    return [_shown(table, [key for key, _ in one], group) for one, group in zip(pairs, groups)]


def _rows(
    table: StateTable, span: Span, reverse: bool, texts: Iterator[tuple[bytes, str]], changes: int
) -> Iterator[Row]:
    """Yield the rows of a span, decoded in batches that grow, so taking little costs little.

    Sealed rows change under a scan that is open at a barrier: it begins again after its last row.
    """
    size, last, registry, is_anew = 1, None, table._registry, False
    key_of = table._keys.schema.key_of
    while True:
        if changes != registry.changes:
            texts, changes = _texts(table, span, reverse, None if last is None else key_of(last)), registry.changes
        try:
            keys, batch = _batch(table, texts, size)
        except RecursionError:  # It is a RuntimeError too.
            raise
        except RuntimeError:  # It was saved, or dropped from memory, and is otherwise unchanged.
            if is_anew:
                raise
            texts, is_anew = _texts(table, span, reverse, None if last is None else key_of(last)), True
            continue
        if not batch:
            return
        rows = table._codec.decode_all(batch)
        key_of = table._keys.schema.key_of  # For these rows: the schema may change while they are taken.
        yield from _shown(table, keys, rows) if keys else rows
        size, last, is_anew = min(4 * size, _MOST_DECODED), rows[-1], False


def _batch(table: StateTable, texts: Iterator[tuple[bytes, str]], size: int) -> tuple[list[bytes], list[str]]:
    """Return the next texts, with their keys if these are needed to tell what a watermark hides."""
    if not _hides_by_row(table):
        return [], [text for _, text in islice(texts, size)]
    pairs = list(islice(texts, size))
    return [key for key, _ in pairs], [text for _, text in pairs]


def _hides_by_row(table: StateTable) -> bool:
    """Return whether a watermark may hide rows of a range of keys: it is on a column that does not lead the key."""
    return table._may_hide and not table._seen.leads


def _shown(table: StateTable, keys: Sequence[bytes], rows: Sequence[Row]) -> list[Row]:
    """Return the rows that no watermark hides."""
    hides = table._seen.hides
    return [row for key, row in zip(keys, rows) if not hides(key, row)]


def _texts(table: StateTable, span: Span, reverse: bool, last: Row | None = None) -> Iterator[tuple[bytes, str]]:
    """Return an iterator over (key, text) of the rows of a span, or of those that follow a primary key."""
    ranges = table._keys.ranges(*span)
    if last is not None:
        ranges = table._keys.behind(last, ranges, reverse)
    parts = [part for found in ranges for part in table._seen.parts(found)[:: -1 if reverse else 1]]
    streams = [_merged(table, start, end, reverse) for start, end in parts]
    if not table._keys.is_distributed or len(streams) < 2:
        return chain.from_iterable(streams)
    body = table._keys.body_of
    return heapq.merge(*streams, key=lambda pair: body(pair[0]), reverse=reverse)


def _merged(table: StateTable, start: bytes, end: bytes, reverse: bool) -> Iterator[tuple[bytes, str]]:
    """Merge the MemTable over what is sealed: for equal keys memory wins."""
    buffered = table._buffer.between(start, end, reverse=reverse)
    sealed = table._rows.between(start, end, reverse=reverse)
    return overlaid(sealed, buffered, reverse) if buffered else sealed
