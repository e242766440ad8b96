"""What a table says of a key, a counter or an entry of the catalogue that is damaged, and how it is got rid of."""

from __future__ import annotations

import re
from typing import Any

import pytest

from objectspace import DamagedObjectError, PersistedObjectSpace, SpacePart, VolatileObjectSpace
from objectspace.kvt import KeyValueTable, KeyValueTableConfiguration, KeyValueTableManager, split_table_key
from objectspace.kvt.catalogue import objects_of_tables
from objectspace.spark.key_values import entries, key_value_tables

Table = KeyValueTable[Any, Any]

ENTRY = {"partitions": 4, "first": 0, "sealed": False, "created": 7}

# Too short, of a family that is no UTF-8, and without a family where the length is that of another key.
NO_KEYS = [b"", b"\x00", b"\x00\x05f", b"\x00\x03\xff\xff\xff1", b"\xff\xfdab", b"\x00\x00ab"]


@pytest.mark.parametrize("address", NO_KEYS)
def test_a_table_key_that_is_none_is_told_and_can_be_removed(
    space: PersistedObjectSpace, table: Table, address: bytes
) -> None:
    name = f"kvt/s/t/{table.put(b'k', b'v', 'f').partition}"
    rows = space.get_sorted_dictionary(name)
    rows[address] = "12 blue"
    parts = key_value_tables(space)["kvt/s/t"]
    told = re.escape(f"partition {name!r} of a key-value table, table key {address!r}: ")
    mend = re.escape(f"del space.get_sorted_dictionary({name!r})[{address!r}]")
    for read in (table.global_key_iterator, table.global_entry_iterator, lambda: entries(space, parts)):
        with pytest.raises(DamagedObjectError, match=f"^{told}.*{mend}"):
            list(read())
    assert table.family("f") == {b"k": b"v"}
    del rows[address]
    assert [entry.value for page in table.global_entry_iterator() for entry in page.items] == [b"v"]


@pytest.mark.parametrize("address", [address for address in NO_KEYS if b"\x00\x01" <= address < b"\x80"])
def test_families_tell_of_a_table_key_that_is_none(space: PersistedObjectSpace, table: Table, address: bytes) -> None:
    name = f"kvt/s/t/{table.put(b'k', b'v', 'f').partition}"
    space.get_sorted_dictionary(name)[address] = "12 blue"
    with pytest.raises(DamagedObjectError, match=re.escape(f"{name!r} of a key-value table, table key {address!r}: ")):
        table.families()


def test_a_key_without_a_family_has_the_length_that_its_table_key_says() -> None:
    with pytest.raises(ValueError, match="is no table key: its first 2 bytes are not the negated length of its key"):
        split_table_key(b"\xff\xfdab")


@pytest.mark.parametrize(
    "found",
    [
        [1],
        None,
        *({name: value for name, value in ENTRY.items() if name != lost} for lost in ("partitions", "first", "sealed")),
        *({**ENTRY, name: value} for name in ENTRY for value in ("1", None, 1.5)),
        {**ENTRY, "partitions": 0},
        {**ENTRY, "partitions": 2**31},
        {**ENTRY, "first": -1},
        {**ENTRY, "first": True},
    ],
)
def test_an_entry_of_the_catalogue_that_is_damaged_is_told(
    space: PersistedObjectSpace, manager: KeyValueTableManager, table: Table, found: Any
) -> None:
    table.put(b"k", b"v", "f")
    space.get_sorted_dictionary("kvt/catalogue")["s/t"] = found
    configuration = KeyValueTableConfiguration(4)
    told = re.escape("key-value table s/t, its entry in 'kvt/catalogue': ")
    for call in (
        lambda: table.get(b"k", "f"),
        lambda: manager.open_key_value_table("s", "t"),
        lambda: manager.create_key_value_table("s", "t", configuration),
        lambda: manager.get_key_value_table_configuration("s", "t"),
        lambda: manager.update_key_value_table("s", "t", configuration),
        lambda: manager.seal_key_value_table("s", "t"),
        lambda: key_value_tables(space),
    ):
        with pytest.raises(DamagedObjectError, match=f"^{told}.* found .*delete_key_value_table"):
            call()  # type: ignore[no-untyped-call]
    assert objects_of_tables(space) == set(space)
    assert manager.list_key_value_tables("s") == ["t"]


@pytest.mark.parametrize("found", ["[1]", "{}", "null"])
def test_a_table_whose_entry_is_damaged_can_be_deleted_and_made_anew(
    space: PersistedObjectSpace, manager: KeyValueTableManager, table: Table, found: str
) -> None:
    other = KeyValueTableConfiguration(1)
    manager.create_key_value_table("s", "t-2", other)
    kept = manager.open_key_value_table("s", "t-2")
    kept.put(b"k", b"kept", "f")
    table.put(b"k", b"v", "f")
    space.create_list("kvt/s/t/notes")
    space.checkpoint()
    space.store.database.conn.execute("UPDATE state_item SET value = ? WHERE slot = 's/t'", (found,))
    space.rollback()
    with pytest.raises(DamagedObjectError, match="key-value table s/t, its entry in 'kvt/catalogue'"):
        table.get(b"k", "f")
    assert manager.delete_key_value_table("s", "t")
    assert sorted(space) == [
        "kvt/catalogue",
        "kvt/partitions",
        "kvt/s/t-2/4",
        "kvt/s/t-2/4/version",
        "kvt/s/t/notes",
    ]
    assert manager.list_key_value_tables("s") == ["t-2"]
    assert not manager.delete_key_value_table("s", "t")
    assert manager.create_key_value_table("s", "t", other)
    space.checkpoint()
    again = KeyValueTableManager(space).open_key_value_table("s", "t")
    assert (again.count(), kept.get(b"k", "f").value) == (0, b"kept")  # type: ignore[union-attr]


def test_a_deletion_of_a_damaged_table_in_a_part_leaves_that_of_the_whole() -> None:
    space = VolatileObjectSpace()
    for one in (space, SpacePart(space, "mine/")):
        manager = KeyValueTableManager(one)
        manager.create_scope("s")
        manager.create_key_value_table("s", "t", KeyValueTableConfiguration(1))
        manager.open_key_value_table("s", "t").put(b"k", b"v")
    space.get_sorted_dictionary("mine/kvt/catalogue")["s/t"] = {}
    assert manager.delete_key_value_table("s", "t")
    assert [name for name in space if name.startswith("mine/")] == ["mine/kvt/catalogue", "mine/kvt/partitions"]
    assert KeyValueTableManager(space).open_key_value_table("s", "t").count() == 1


@pytest.mark.parametrize("found", ["x", None, 1.5, -1, True])
def test_a_counter_that_is_damaged_is_told_by_writes_and_can_be_set(
    space: PersistedObjectSpace, table: Table, found: Any
) -> None:
    first = table.put(b"k", b"v", "f")
    space.checkpoint()
    name = f"kvt/s/t/{first.partition}/version"
    space.get_value(name).value = found
    told = re.escape(f"Value {name!r}: expected the number of the last write")
    for write in (
        lambda: table.put(b"k", b"w", "f"),
        lambda: table.remove(b"k", key_family="f"),
        lambda: table.put_all("f", [(b"k", b"w"), (b"l", b"w")]),
    ):
        with pytest.raises(DamagedObjectError, match=f"^{told}.* found {re.escape(repr(found))}; .*set it to a number"):
            write()  # type: ignore[no-untyped-call]
    assert table.family("f") == {b"k": b"v"}
    space.get_value(name).value = first.number
    assert table.put(b"k", b"w", "f") > first


def test_a_counter_that_is_damaged_before_the_first_write_of_a_process_is_told(space: PersistedObjectSpace) -> None:
    KeyValueTableManager(space).create_scope("s")
    KeyValueTableManager(space).create_key_value_table("s", "t", KeyValueTableConfiguration(1))
    KeyValueTableManager(space).open_key_value_table("s", "t").put(b"k", b"v")
    space.checkpoint()
    again = PersistedObjectSpace(space.store)
    again.get_value("kvt/s/t/0/version").value = None
    with pytest.raises(DamagedObjectError, match="Value 'kvt/s/t/0/version': expected the number of the last write"):
        KeyValueTableManager(again).open_key_value_table("s", "t").put(b"k", b"w")


@pytest.mark.parametrize("found", ["x", None, 1.5, -1, True])
def test_a_next_partition_that_is_damaged_is_told_by_a_creation_and_can_be_set(
    space: PersistedObjectSpace, manager: KeyValueTableManager, found: Any
) -> None:
    following = space.get_value("kvt/partitions")
    following.value = found
    told = f"^Value 'kvt/partitions': expected the id of the next partition, found {re.escape(repr(found))}; "
    with pytest.raises(DamagedObjectError, match=told):
        manager.create_key_value_table("s", "u", KeyValueTableConfiguration(1))
    assert manager.list_key_value_tables("s") == ["t"]
    following.value = 4
    assert manager.create_key_value_table("s", "u", KeyValueTableConfiguration(1))
    assert space.get_sorted_dictionary("kvt/catalogue")["s/u"]["first"] == 4
