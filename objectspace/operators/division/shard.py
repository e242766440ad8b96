"""A shard that is divided: what it holds, and to which vnode each slot of it belongs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.kvt.catalogue import NAME as CATALOGUE
from objectspace.kvt.catalogue import NEXT_PARTITION
from objectspace.operators.catalogue import OPERATORS
from objectspace.operators.division.keyed import KEYED, KeyedBy, noted_keyed
from objectspace.operators.division.rules import Rule, VnodeOfKey, routed_values, vnode_by_note, vnode_by_types
from objectspace.operators.division.vnodes import owner_of, vnode_router
from objectspace.relational import TableSchema, tables
from objectspace.relational.catalogue import TableRecord
from objectspace.space import TABLES, WATERMARKS

Placed = Iterator[tuple[int, Any, Any]]
"""Slots as (vnode, key, value); the value is None where a set is divided."""

MAPPINGS = ("Dictionary", "SortedDictionary")
KEYED_KINDS = (*MAPPINGS, "Set", "SortedSet")
"""The kinds of objects with keys, which may tell where each slot belongs."""

_NOTES = (TABLES, WATERMARKS, KEYED)
_PAGE_ROWS = 4096
"""How many rows of a table are placed at once."""


def is_note(name: str) -> bool:
    """Tell whether an object holds what is known of others, and goes to each shard that gets a part of them."""
    return name in _NOTES or name.endswith(f"/{OPERATORS}")


class OldShard:
    """One of the shards that an operator had.

    Args:
        operator: its name.
        number: that of the shard.
        shards: how many there were.
        rule: how the operator is divided.
        space: the space of the shard.
    """

    def __init__(self, operator: str, number: int, shards: int, rule: Rule, space: PersistedObjectSpace) -> None:
        self.operator, self.number, self.shards, self.rule, self.space = operator, number, shards, rule, space
        noted = noted_keyed(space) if rule.sides is None else {}
        self._keyed: dict[str, KeyedBy | None] = {**dict.fromkeys(rule.named), **noted}

    def require_divisible(self) -> None:
        """Make sure that it is known of every slot where it belongs.

        Raises:
            ObjectSpaceError: nothing tells where an object or a slot belongs.

        Time: O(objects); O(slots) of what others than the library have written.
        """
        for name in self.space:
            if self.rule.sides is None:
                self._require_keyed(name)
            slots = self.slots(name)
            if not (self.rule.is_of_library and name in tables(self.space)):
                for _ in slots:
                    pass

    def notes(self) -> dict[str, dict[Any, Any]]:
        """Return what is known of the tables and objects of the shard."""
        return {name: dict(self.space.get(name).items()) for name in self.space if is_note(name)}

    def filled_tables(self) -> set[str]:
        """Return the names of the tables of which the shard has rows."""
        return {name for name in tables(self.space) if len(self.space.get(name))}

    def slots(self, name: str) -> Placed:
        """Return the slots of an object, each with its vnode; none of one that goes to every shard.

        Raises:
            ObjectSpaceError: nothing tells where it, or one of its slots, belongs.

        Time: O(slots), as they are asked for.
        """
        if is_note(name):
            return iter(())
        record = tables(self.space).get(name)
        if record is not None:
            return self._rows(name, record, self._columns(name, record.schema))
        source = self.space.get(name)
        if source.kind not in KEYED_KINDS or f"/{name}".endswith(f"/{CATALOGUE}"):
            kinds = ", ".join(KEYED_KINDS)
            raise self._refused(name, f"expected objects with keys ({kinds}), which tell where each slot belongs")
        if self.rule.kinds:
            return self._keys(source, vnode_by_types(self.rule.kinds))
        return self._keys(source, vnode_by_note(self._keyed.get(name)))

    def _rows(self, name: str, record: TableRecord, columns: Sequence[str]) -> Placed:
        key = [record.schema.place_of(column) for column in columns]
        vnodes_of, read = vnode_router(record.schema, key), record.codec().decode
        items = iter(self.space.get_sorted_dictionary(name).items())
        while page := list(islice(items, _PAGE_ROWS)):
            rows = [read(text) for _, text in page]
            for (slot, text), row, vnode in zip(page, rows, vnodes_of(rows), strict=True):
                if owner_of(vnode, self.shards) != self.number:
                    raise self._refused(
                        name, f"the row {row!r} is not where rows of its key go, so nothing tells its shard"
                    )
                yield vnode, slot, text

    def _keys(self, source: Any, vnode_of_key: VnodeOfKey) -> Placed:
        for key, value in source.items() if source.kind in MAPPINGS else ((key, None) for key in source):
            vnode = vnode_of_key(key)
            if vnode is None or owner_of(vnode, self.shards) != self.number:
                raise self._refused(
                    source.name,
                    f"the key {key!r} is not one that rows are routed by, so nothing tells which shard it belongs to",
                )
            yield vnode, key, value

    def _columns(self, name: str, schema: TableSchema) -> Sequence[str]:
        """Return the columns of a table that its rows are routed by."""
        head = [column for column, _ in schema.primary_key]
        if self.rule.sides is None:
            columns = routed_values(tuple(head), self._keyed.get(name))
            if columns is None:
                raise self._refused(name, f"its key is {', '.join(head)}, expected that which rows are routed by")
            return columns
        there = {column.name for column in schema.columns}
        found = [side for side in self.rule.sides if there.issuperset(side)]
        if not found:
            sides = " or ".join(", ".join(side) for side in self.rule.sides)
            raise self._refused(
                name, f"it has the columns {', '.join(sorted(there))}: expected those that rows are routed by, {sides}"
            )
        # At best they are at the head of its key.
        return max(found, key=lambda side: head[: len(side)] == side)

    def _require_keyed(self, name: str) -> None:
        """Refuse an object of an added operator of which nobody has said how its keys are routed."""
        if is_note(name):
            return
        if self._is_of_no_tables(name):
            raise ObjectSpaceError(
                f"{self.place(name)}: the key-value tables are all deleted, and this is what still lists and counts"
                f" them: {self._advice}; or have the operator delete() {CATALOGUE!r} and {NEXT_PARTITION!r} from its"
                " space, let the query run one more epoch, and rescale then: new tables count from scratch"
            )
        if name.startswith("kvt/"):
            raise self._refused(
                name, "expected objects that an operator keys by what routes its rows, found a part of key-value tables"
            )
        if name.startswith("$"):
            raise self._refused(
                name, "expected objects of the operator, but this one is the library's own, which nothing can divide"
            )
        if self.space.get(name).kind in KEYED_KINDS and name not in self._keyed:
            raise self._refused(
                name,
                "nothing says that its keys are the values that rows are routed by: if they are, say rescale(...,"
                f" keyed={{{self.operator!r}: [{name!r}]}}), or Operator(keyed=) and let the query run one more epoch;"
                " otherwise nothing tells where a slot belongs",
            )

    def _is_of_no_tables(self, name: str) -> bool:
        """Tell whether an object lists or counts key-value tables where there are none any more."""
        known = self.space.get_sorted_dictionary(CATALOGUE) if CATALOGUE in self.space else None
        return name in (CATALOGUE, NEXT_PARTITION) and not known

    def place(self, name: str) -> str:
        """Return how errors call an object."""
        return f"operator {self.operator}, shard {self.number}, {self.space.get(name).kind} {name!r}"

    def _refused(self, name: str, reason: str) -> ObjectSpaceError:
        return ObjectSpaceError(f"{self.place(name)}: {reason}: {self._advice}")

    @property
    def _advice(self) -> str:
        count = f"{self.shards} shard{'s' if self.shards > 1 else ''}"
        return f"keep the {count}, or feed a new space from the beginning"
