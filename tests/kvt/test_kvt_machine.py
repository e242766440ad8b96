"""A table against a dictionary, over conditional batches, checkpoints, recovery and rollback."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.kvt import (
    BadKeyVersionError,
    ConditionalTableUpdateError,
    Insert,
    KeyValueTableConfiguration,
    KeyValueTableManager,
    KeyVersion,
    NoSuchKeyError,
    Put,
    Remove,
    partition_of,
)

FAMILIES = ["a", "ab", "\u00e9"]
KEYS = [b"", b"\x00", b"k", b"k\x00", b"kk", b"\xff"]
VALUES = [b"", b"v", b"\xfe\xff", b'{"a":1}']
CONDITIONS = ["none", "absent", "current", "stale", "foreign"]

families, keys, values = st.sampled_from(FAMILIES), st.sampled_from(KEYS), st.sampled_from(VALUES)
members = st.lists(st.tuples(st.sampled_from(["insert", "put", "remove"]), keys, values, st.sampled_from(CONDITIONS)))


class TableMachine(RuleBasedStateMachine):
    """The model holds (value, version) by (family, key)."""

    def __init__(self) -> None:
        super().__init__()
        self.store = CheckpointStore(":memory:")
        self.model: dict[Any, tuple[bytes, KeyVersion]] = {}
        self.saved: list[tuple[int, dict[Any, tuple[bytes, KeyVersion]]]] = []
        self.given: set[KeyVersion] = set()
        self.latest: dict[int, int] = {}
        self.open()
        self.manager.create_scope("s")
        self.manager.create_key_value_table("s", "t", KeyValueTableConfiguration(2))
        self.table = self.manager.open_key_value_table("s", "t")
        self.checkpoint()

    def open(self) -> None:
        self.space = PersistedObjectSpace(self.store, cache_slots=4)
        self.manager = KeyValueTableManager(self.space)

    def wrote(self, place: Any, value: bytes, version: KeyVersion) -> None:
        assert version not in self.given, "a version was given twice"
        assert version.number > self.latest.get(version.partition, -1), "versions do not grow"
        self.given.add(version)
        self.latest[version.partition] = version.number
        self.model[place] = value, version

    def condition(self, place: Any, wanted: str) -> KeyVersion:
        _, current = self.model.get(place, (None, None))
        partition, number = current or (self.partition_of(place), 0)
        versions = {
            "none": KeyVersion.NO_VERSION,
            "absent": KeyVersion.NOT_EXISTS,
            "current": KeyVersion(partition, number),
            "stale": KeyVersion(partition, number - 1),
            "foreign": KeyVersion(partition + 1, number),
        }
        return versions[wanted]

    def partition_of(self, place: Any) -> int:
        return partition_of(place[1], place[0], 2)

    def failure(self, place: Any, wanted: str) -> type[ConditionalTableUpdateError] | None:
        exists = place in self.model
        if wanted == "none" or (wanted == "current" and exists) or (wanted == "absent" and not exists):
            return None
        return NoSuchKeyError if not exists and wanted != "foreign" else BadKeyVersionError

    @rule(family=st.none() | families, key=keys, value=values)
    def put(self, family: str | None, key: bytes, value: bytes) -> None:
        self.wrote((family, key), value, self.table.put(key, value, family))

    @rule(family=st.none() | families, key=keys, value=values, wanted=st.sampled_from(CONDITIONS))
    def replace(self, family: str | None, key: bytes, value: bytes, wanted: str) -> None:
        place = family, key
        expected = self.failure(place, wanted)
        if expected is None:
            self.wrote(place, value, self.table.replace(key, value, self.condition(place, wanted), family))
            return
        with pytest.raises(expected) as caught:
            self.table.replace(key, value, self.condition(place, wanted), family)
        assert caught.value.key == key

    @rule(family=st.none() | families, key=keys)
    def remove(self, family: str | None, key: bytes) -> None:
        self.table.remove(key, key_family=family)
        self.model.pop((family, key), None)

    @rule(family=families, batch=members)
    def apply(self, family: str, batch: list[Any]) -> None:
        conditions = ["absent" if kind == "insert" else wanted for kind, _, _, wanted in batch]
        versions = [self.condition((family, member[1]), wanted) for member, wanted in zip(batch, conditions)]
        failures = [self.failure((family, member[1]), wanted) for member, wanted in zip(batch, conditions)]
        expected = next(filter(None, failures), None)
        if expected is None:
            self.applied(family, batch, self.table.apply(family, map(modification, batch, versions)))
            return
        with pytest.raises(expected):
            self.table.apply(family, map(modification, batch, versions))

    def applied(self, family: str, batch: list[Any], given: list[KeyVersion | None]) -> None:
        for (kind, key, value, _), version in zip(batch, given, strict=True):
            assert (version is None) == (kind == "remove")
            if version is None:
                self.model.pop((family, key), None)
            else:
                self.wrote((family, key), value, version)

    @rule()
    def checkpoint(self) -> None:
        self.saved.append((self.space.checkpoint().epoch, dict(self.model)))
        self.space.checkpoint()

    @rule()
    def recover(self) -> None:
        self.open()
        self.table = self.manager.open_key_value_table("s", "t")
        self.model = dict(self.saved[-1][1])

    @rule()
    def roll_back(self) -> None:
        self.space.rollback()
        self.model = dict(self.saved[-1][1])

    @precondition(lambda self: len(self.saved) > 1)
    @rule(steps=st.integers(1, 2))
    def roll_back_to_an_epoch(self, steps: int) -> None:
        del self.saved[max(1, len(self.saved) - steps) :]
        epoch, model = self.saved[-1]
        self.space.rollback(epoch)
        self.model = dict(model)

    @invariant()
    def the_entries_are_those_of_the_model(self) -> None:
        for family in [None, *FAMILIES]:
            entries = self.table.get_all(KEYS, family)
            found = [entry and (entry.value, entry.key.version) for entry in entries]
            assert found == [self.model.get((family, key)) for key in KEYS]

    @rule(family=families, size=st.integers(1, 4))
    def pages_are_exact_and_in_order(self, family: str, size: int) -> None:
        pages = [page.items for page in self.table.entry_iterator(family, size)]
        found = [(item.key.key, item.value, item.key.version) for items in pages for item in items]
        assert found == sorted((key, *entry) for (name, key), entry in self.model.items() if name == family)
        assert all(len(items) == size for items in pages[:-1])

    @rule()
    def everything_is_met_and_counted(self) -> None:
        pages = self.table.global_key_iterator(3)
        found = [(item.key_family, item.key) for page in pages for item in page.items]
        assert sorted(found, key=repr) == sorted(self.model, key=repr)
        assert self.table.count() == len(self.model)
        assert self.table.families() == [name for name in FAMILIES if any(place[0] == name for place in self.model)]

    @invariant()
    def the_space_is_sound(self) -> None:
        self.space._check()


def modification(member: Any, version: KeyVersion) -> Any:
    kind, key, value, _ = member
    if kind == "insert":
        return Insert(key, value)
    return Put(key, value, version) if kind == "put" else Remove(key, version)


TestTable = TableMachine.TestCase
TestTable.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
