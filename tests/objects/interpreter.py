"""Runs the behaviour cases in ``tests/cases/objects.json``: what each step means for the persisted objects.

The write sets of the cases are those of a layout with positions for slots. Here the counts of rows are upper bounds: a
set, dictionary or linked list may spend one metadata row a checkpoint on its length, and may delete a row where a slot
is written in the cases, since theirs are used again.

A space of ours is loaded by being made, and there is no second load: where the cases have one, it is refused here. A
space with nothing loaded is one whose objects are all deleted; going back to the store is its load.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from checkpoint import CheckpointKind, CheckpointStore, Run
from objectspace import (
    CheckpointProtocolError,
    DamagedObjectError,
    EmptyError,
    NameInUseError,
    ObjectNotFoundError,
    ObjectSpaceError,
    PersistedObjectSpace,
    WrongKindError,
)
from objectspace.objects import limits
from tests.fields import only

HEADER = json.loads((Path(__file__).parents[1] / "cases" / "objects.json").read_text())
CASES = HEADER["cases"]

ERRORS: dict[str, tuple[type[Exception], ...]] = {
    "null_argument": (TypeError, ValueError),
    "argument_out_of_range": (ValueError,),
    "index_out_of_range": (IndexError,),
    "name_exists": (NameInUseError,),
    "not_found": (ObjectNotFoundError,),
    "wrong_kind": (WrongKindError,),
    "empty": (EmptyError,),
    "key_missing": (KeyError,),
    "duplicate_key": (KeyError, ValueError),
    "invalid_node": (ValueError,),
    "bad_range": (ValueError,),
    "view_out_of_range": (ValueError,),
    "protocol": (CheckpointProtocolError,),
    "corrupt_store": (DamagedObjectError,),
}

TABLES = ("index", "metadata", "items")

WITH_LENGTH = frozenset(["Set", "SortedSet", "Dictionary", "SortedDictionary", "LinkedList"])
"""Kinds that keep their length in a metadata row, where those of the cases have none."""

KINDS = {"dict": "dictionary", "sorted_dict": "sorted_dictionary"}


class Interpreter:
    """One case: a store, a space, and the handles by their variable names."""

    def __init__(self) -> None:
        self.store = CheckpointStore(":memory:")
        self.space = PersistedObjectSpace(self.store)
        self.env: dict[str, Any] = {}
        self.writer: Any = None
        self.has_damage, self.is_loaded = False, True
        self.saved_lengths = 0

    def step(self, step: list[Any]) -> Any:
        op, *args = step
        return getattr(self, f"do_{op}")(*args)

    def do_create(self, kind: str, name: str, *args: Any) -> None:
        self.env[name] = getattr(self.space, f"create_{KINDS.get(kind, kind)}")(name, *args)

    def do_get(self, kind: str, name: str) -> None:
        handle = getattr(self.space, f"get_{KINDS.get(kind, kind)}")(name)
        dump(handle)
        self.env[name] = handle

    def do_delete(self, name: str) -> None:
        self.space.delete(name)

    def do_call(self, var: str, method: str, *args: Any) -> Any:
        return call(self.env[var], method, [self.env[a["$"]] if is_reference(a) else a for a in args])

    def do_bind(self, var: str, step: list[Any]) -> None:
        self.env[var] = self.step(step)

    def do_alias(self, new: str, old: str) -> None:
        self.env[new] = self.env[old]

    def do_returns(self, expected: Any, step: list[Any]) -> None:
        found = self.step(step)
        found = sorted(found) if isinstance(found, (set, frozenset)) else found
        assert found == expected, f"{step} returned {found!r}, expected {expected!r}"

    def do_raises(self, category: str, step: list[Any]) -> None:
        before = None if self.has_damage else self.state()
        try:
            self.step(step)
        except ERRORS[category]:
            assert self.has_damage or self.state() == before, f"{step} was refused, and changed something"
            return
        raise AssertionError(f"{step} raised nothing, expected {category}")

    def do_try(self, step: list[Any]) -> None:
        try:
            self.step(step)
        except Exception:
            return

    def do_repeat(self, count: int, step: list[Any]) -> None:
        for _ in range(count):
            self.step(step)

    def do_same(self, one: str, other: str) -> None:
        assert self.env[one] is self.env[other]

    def do_not_same(self, one: str, other: str) -> None:
        assert self.env[one] is not self.env[other]

    def do_is_null(self, var: str) -> None:
        assert self.env[var] is None

    def do_save(self, kind: str) -> None:
        self.writer = self.store.writer(CheckpointKind(kind))
        self.saved_lengths = self.lengths()
        self.space.save(self.writer)

    def do_commit(self) -> None:
        self.writer.commit()

    def do_fail_commit(self) -> None:
        self.writer.rollback()

    def do_on_saved(self) -> None:
        self.space.on_saved()
        self.check()

    def do_checkpoint(self, kind: str) -> None:
        self.do_save(kind)
        self.do_commit()
        self.do_on_saved()

    def do_recover(self) -> None:
        self.space = PersistedObjectSpace(self.store)
        self.env, self.is_loaded = {}, True
        self.find_damage()

    def do_new_space(self) -> None:
        self.space = PersistedObjectSpace(self.store)
        self.env, self.is_loaded = {}, False
        for name in list(self.space):
            self.space.delete(name)

    def do_load(self) -> None:
        if self.is_loaded or len(self.space):
            raise CheckpointProtocolError("a space is loaded once, when it has no objects")
        self.space.rollback()
        self.is_loaded = True
        self.find_damage()

    def find_damage(self) -> None:
        """Read every object: what the cases find when they load is found here when an object is read."""
        for name in self.space if self.has_damage else ():
            dump(self.space.get(name))

    def do_expect_writes(self, expected: dict[str, list[list[Any]]]) -> None:
        only(expected, "put", "del")
        self.do_expect_counts({side: Counter(map(table_of, expected.get(side, []))) for side in ("put", "del")})

    def do_expect_counts(self, expected: dict[str, dict[str, int]]) -> None:
        """The counts are upper bounds, table by table; what is not expected to write anything writes nothing."""
        only(expected, "put", "del")
        for rows in expected.values():
            only(rows, *TABLES)
        puts, deletes = self.written()
        put, gone = Counter(expected.get("put", {})), Counter(expected.get("del", {}))
        assert put + gone or not puts + deletes, f"wrote {puts} and deleted {deletes}, expected nothing"
        put["metadata"] += self.saved_lengths
        put["index"] += gone["items"] > limits.CLEAR_ROWS  # What is cleared gets a new id, and its old one goes.
        if self.writer.kind is CheckpointKind.FULL:
            assert (puts <= put, deletes.total()) == (True, 0), f"a full one: {puts} of {put}, {deletes} deleted"
        else:
            assert (puts <= put, deletes <= put + gone) == (True, True), f"{puts} of {put}, {deletes} of {gone}"

    def written(self) -> tuple[Counter[str], Counter[str]]:
        """Return how many rows of each table the last batch puts and deletes."""
        run = self.writer._run
        rows = {"index": run.index, "metadata": run.metadata, "items": run.items}
        values = {table: [row[2] for row in found] for table, found in rows.items()}
        if self.writer.kind is CheckpointKind.FULL:  # What is collected becomes an image at the commit.
            values = {table: self.stored(table) for table in rows}
        puts = Counter({table: sum(value is not None for value in found) for table, found in values.items()})
        return puts, Counter({table: len(found) - puts[table] for table, found in values.items()})

    def stored(self, table: str) -> list[Any]:
        """Return the value of every row that the last checkpoint has written into a table."""
        column, name = {"index": ("kind", "state_index"), "metadata": ("value", "state_metadata")}.get(
            table, ("value", "state_item")
        )
        found = self.store.database.execute(f"SELECT {column} FROM {name} WHERE checkpoint = ?", (self.writer.number,))
        return [value for (value,) in found.fetchall()]

    def do_expect_store(self, expected: dict[str, int]) -> None:
        only(expected, *TABLES)
        image = self.store.reader().image()
        assert len(image.index) == expected.get("index", 0)
        lengths = sum(kind in WITH_LENGTH for _, _, kind, _ in image.index)
        assert len(image.metadata) <= expected.get("metadata", 0) + lengths, image.metadata
        assert len(image.items) <= expected.get("items", 0), image.items

    def lengths(self) -> int:
        """Return how many objects the space has now of the kinds that keep their length in a row."""
        return sum(kind in WITH_LENGTH for _, kind, _ in self.space._entries.values())

    def state(self) -> dict[str, Any]:
        """Return the contents of every object, or with which error it refuses to be read."""
        return {name: self.contents(name) for name in self.space}

    def contents(self, name: str) -> Any:
        try:
            return dump(self.space.get(name))
        except ObjectSpaceError as error:
            return type(error)

    def do_put_row(self, table: str, name: str, slot: Any, value: Any) -> None:
        if table == "index":
            self.store.append(Run(CheckpointKind.DIFFERENTIAL, index=[(1, name, "Oracle", "{}")]))
        else:
            self.store.append(Run(CheckpointKind.DIFFERENTIAL, items=[(1, slot, json.dumps(value), None)]))

    def do_drop_row(self, table: str, name: str, slot: Any = None) -> None:
        self.change_row(table, name, slot, "DELETE FROM", "")
        self.has_damage = True

    def do_corrupt_row(self, table: str, name: str, slot: Any = None) -> None:
        self.change_row(table, name, slot, "UPDATE", "SET value = '{broken'")

    def change_row(self, table: str, name: str, slot: Any, verb: str, change: str) -> None:
        where = f"object = (SELECT object FROM current_index WHERE name = {name!r})"
        is_node = table == "metadata" and isinstance(slot, int)
        table = "items" if is_node else table
        target = {"items": "state_item", "data": "state_item", "metadata": "state_metadata"}[table]
        column = "key" if table == "metadata" else "slot"
        found = self.store.database.execute(f"SELECT {column} FROM {target} WHERE {where} ORDER BY 1").fetchall()
        key = found[slot][0] if isinstance(slot, int) else slot
        self.store.database.conn.execute(f"{verb} {target} {change} WHERE {where} AND {column} = ?", (key,))

    def check(self) -> None:
        self.space._check()


def run_case(case: dict[str, Any]) -> None:
    """Run the steps of a case, and compare the contents that it expects at its end."""
    only(case, "id", "type", "tags", "script", "expect", "reference", "source", "note")
    interpreter = Interpreter()
    for step in case["script"]:
        interpreter.step(step)
    if not interpreter.has_damage:
        interpreter.check()
    only(case["expect"] or {}, "contents")
    expected = (case["expect"] or {}).get("contents", {})
    assert {name: dump(interpreter.env[name]) for name in expected} == expected


def is_reference(argument: Any) -> bool:
    return isinstance(argument, dict) and set(argument) == {"$"}


def table_of(slot: list[Any]) -> str:
    return {"index": "index", "metadata": "metadata", "items": "items", "data": "items"}[slot[0]]


def dump(handle: Any) -> Any:
    """Return the contents of an object as the cases write them."""
    kind = handle.kind
    if kind == "Value":
        return handle.value
    if kind == "Set":
        return sorted(handle)
    if kind in ("Dictionary", "SortedDictionary"):
        pairs = [[key, value] for key, value in handle.items()]
        return sorted(pairs) if kind == "Dictionary" else pairs
    return list(handle)


def call(target: Any, method: str, args: list[Any]) -> Any:
    """Call a method of the cases on an object, a view or a node."""
    if (special := SPECIAL.get((getattr(target, "kind", type(target).__name__), method))) is not None:
        return special(target, *args)
    return COMMON[method](target, *args)


def add_new(target: Any, key: Any, value: Any) -> None:
    if key in target:
        raise ValueError(f"{key!r} is there already")
    target[key] = value


def is_new(target: Any, value: Any) -> bool:
    known = value in target
    target.add(value)
    return not known


def was_there(target: Any, value: Any) -> bool:
    known = value in target
    if known:
        target.remove(value)
    return known


def remove_key(target: Any, key: Any) -> bool:
    return target.pop(key, ABSENT) is not ABSENT


def remove_item(target: Any, key: Any, value: Any) -> bool:
    return key in target and target[key] == value and remove_key(target, key)


def place(target: Any, index: int) -> int:
    """The cases count from 0 only: a negative index is out of range."""
    if index < 0:
        raise IndexError(index)
    return index


def remove_at(target: Any, index: int) -> None:
    del target[place(target, index)]


def insert_at(target: Any, index: int, value: Any) -> None:
    if not 0 <= index <= len(target):
        raise IndexError(index)
    target.insert(index, value)


def set_value(target: Any, value: Any) -> None:
    target.value = value


def nothing(_: Any) -> None:
    """Stand for what a method of the cases returns that gives nothing."""


def existing(node: Any) -> Any:
    if node is None:
        raise TypeError("expected a node")
    return node


def in_place(operation: str) -> Any:
    def apply(target: Any, other: Any) -> None:
        getattr(target, operation)(other)

    return apply


ABSENT = object()

COMMON: dict[str, Any] = {
    "len": len,
    "get": lambda t, *k: t[place(t, k[0]) if isinstance(k[0], int) and t.kind in ("Array", "List") else k[0]],
    "set": lambda t, k, v: t.__setitem__(place(t, k) if t.kind in ("Array", "List") else k, v),
    "to_list": list,
    "to_list_reversed": lambda t: list(reversed(t)),
    "to_set": sorted,
    "append": lambda t, v: t.append(v),
    "extend": lambda t, v: t.extend(v),
    "insert": insert_at,
    "remove_at": remove_at,
    "remove": was_there,
    "clear": lambda t: t.clear(),
    "index_of": lambda t, v: t.index(v) if v in t else -1,
    "contains": lambda t, v: v in t,
    "enqueue": lambda t, v: t.enqueue(v),
    "dequeue": lambda t: t.dequeue(),
    "push": lambda t, v: t.push(v),
    "pop": lambda t: t.pop(),
    "peek": lambda t: t.peek(),
    "union_with": in_place("update"),
    "except_with": in_place("difference_update"),
    "intersect_with": in_place("intersection_update"),
    "symmetric_except_with": in_place("symmetric_difference_update"),
    "is_subset_of": lambda t, o: t.issubset(o),
    "is_proper_subset_of": lambda t, o: t < set(o),
    "is_superset_of": lambda t, o: t.issuperset(o),
    "is_proper_superset_of": lambda t, o: t > set(o),
    "overlaps": lambda t, o: not t.isdisjoint(o),
    "set_equals": lambda t, o: t == set(o),
    "min": lambda t: t.min() if len(t) else None,
    "max": lambda t: t.max() if len(t) else None,
    "reversed": lambda t: list(reversed(t)),
    "view_between": lambda t, lo, hi: t.view_between(lo, hi),
    "try_get": lambda t, k: [k in t, t.get(k)],
    "contains_key": lambda t, k: k in t,
    "contains_item": lambda t, k, v: k in t and t[k] == v,
    "remove_item": remove_item,
    "items": dump,
    "keys": lambda t: [pair[0] for pair in dump(t)],
    "values": lambda t: [pair[1] for pair in dump(t)],
    "add_first": lambda t, v: t.add_first(v),
    "add_last": lambda t, v: t.add_last(v),
    "add_after": lambda t, n, v: t.add_after(n, v),
    "add_before": lambda t, n, v: t.add_before(n, v),
    "add_first_node": lambda t, n: t.add_first(existing(n)),
    "add_last_node": lambda t, n: t.add_last(existing(n)),
    "add_after_node": lambda t, n, new: t.add_after(n, existing(new)),
    "add_before_node": lambda t, n, new: t.add_before(n, existing(new)),
    "find": lambda t, v: t.find(v),
    "find_last": lambda t, v: t.find_last(v),
    "first": lambda t: t.first,
    "last": lambda t: t.last,
    "remove_node": lambda t, n: t.remove_node(n),
    "remove_first": lambda t: nothing(t.remove_first()),
    "remove_last": lambda t: nothing(t.remove_last()),
    "value": lambda n: n.value,
    "set_value": set_value,
    "next": lambda n: n.next,
    "prev": lambda n: n.previous,
    "is_attached": lambda n: n.list is not None,
}

SPECIAL: dict[tuple[str, str], Any] = {
    ("Value", "get"): lambda t: t.value,
    ("Value", "set"): set_value,
    ("Set", "add"): is_new,
    ("SortedSet", "add"): is_new,
    ("SortedSetView", "add"): is_new,
    ("Dictionary", "add"): add_new,
    ("SortedDictionary", "add"): add_new,
    ("Dictionary", "remove"): remove_key,
    ("SortedDictionary", "remove"): remove_key,
}
