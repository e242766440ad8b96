"""The rows of an object in the form of its kind, from one store or from all shards of a space."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from checkpoint.errors import CheckpointError
from checkpoint.tool.content import Entry, State
from checkpoint.tool.filters import condition, equalities
from checkpoint.tool.listing import parts_with, require_one_operator
from checkpoint.tool.printing import Row
from checkpoint.tool.source import OpenStore, Source


class Contents:
    """The rows of an object, from one store or from all shards of a space.

    Args:
        source: the store or space.
        name: the object.
        point: the checkpoint; the newest for None.
        conditions: those of ``--where``.
        lower: the least index or key.
        upper: the greatest one.

    ``length`` is how many entries the shards have stored, ``is_counted`` whether it counts those of all shards and not
    only of the ones read so far, ``has_watermark`` whether some of them may be hidden, and ``given`` how many rows were
    asked for.

    Raises:
        CheckpointError: there is no such object or column.
    """

    def __init__(
        self,
        source: Source,
        name: str,
        point: str | None = None,
        conditions: tuple[str, ...] = (),
        lower: str | None = None,
        upper: str | None = None,
    ) -> None:
        self.name = name
        self._bounds = lower, upper
        total = require_one_operator(source, name, point)
        self._parts = parts_with(source, name, point)
        part, state = next(self._parts)
        self._first = part, state
        self.columns = state.columns(name)
        self.is_table = state.is_table(name)
        self.kind = state.kind_of(name)
        self.is_counted = total is not None or not part.title
        self.length = state.length(name) if total is None else total
        self.has_watermark = state.has_watermark(name)
        self._with_shard = bool(part.title) and not self.is_table
        self._own_header = state.header(name)
        self.header = ["operator", "shard", *self._own_header] if self._with_shard else self._own_header
        if conditions and not self.is_table:
            raise CheckpointError(f"--where goes with a table: {name!r} is a {self.kind}")
        kinds = {one["name"]: str(one["type"]) for one in self.columns or ()}
        self._conditions = [condition(text, self.header, kinds) for text in conditions]
        self._cells = equalities(conditions)
        self.given = 0

    def rows(self) -> Iterator[Row]:
        """Yield the rows, by column name. May be called only once."""
        part, state = self._first
        yield from self._rows_of(part, state)
        for part, state in self._parts:
            if not self.is_counted:
                self.length += state.length(self.name)
            yield from self._rows_of(part, state)
        self.is_counted = True

    def _rows_of(self, part: OpenStore, state: State) -> Iterator[Row]:
        where = {"operator": part.operator, "shard": part.shard} if self._with_shard else {}
        for entry in self._entries_of(state):
            row = self._row(entry)
            if all(holds(row) for holds in self._conditions):
                self.given += 1
                yield {**where, **row}

    def _entries_of(self, state: State) -> Iterator[Entry]:
        """Return the entries among which those that fulfil the conditions are: one, if they tell the whole key."""
        lower, upper = self._bounds
        if self._cells and self._bounds == (None, None):
            slots = state.slots_of(self.name, self._cells)
            if slots is not None:
                return state.entries_at(slots)
        return state.entries(self.name, lower=lower, upper=upper)

    def _row(self, entry: Entry) -> Row:
        if self.is_table:
            return dict(entry.value)
        if len(self._own_header) == 1:
            return {self._own_header[0]: entry.key}
        return {"key": entry.key, "value": entry.value}


def split_epoch(source: Source, name: str) -> tuple[str, str | None]:
    """Return the name and the checkpoint of NAME@EPOCH; a name may hold an @ itself."""
    head, at, epoch = name.rpartition("@")
    digits = epoch.removeprefix("-")
    if not at or not digits.isascii() or not digits.isdigit():
        return name, None
    with suppress(CheckpointError):  # that shard may no longer exist
        if any(name in State(part.readers[0]) for part in source.parts(None)):
            return name, None
    return head, f"@{epoch}"
