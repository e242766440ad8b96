"""Versions: their text, and that none is ever given twice along one lineage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from objectspace import PersistedObjectSpace
from objectspace.kvt import (
    BadKeyVersionError,
    KeyValueTable,
    KeyValueTableConfiguration,
    KeyValueTableManager,
    KeyVersion,
    NoSuchKeyError,
    SerializationError,
)

Table = KeyValueTable[Any, Any]


def recover(space: PersistedObjectSpace) -> tuple[PersistedObjectSpace, Table]:
    """What a new process finds."""
    again = PersistedObjectSpace(space.store)
    return again, KeyValueTableManager(again).open_key_value_table("s", "t")


def test_a_version_lost_in_a_crash_is_not_given_again(space: PersistedObjectSpace, table: Table) -> None:
    table.put(b"k", b"1", "f")
    space.checkpoint()
    lost = table.put(b"k", b"lost", "f")
    _, after = recover(space)
    kept = after.put(b"k", b"2", "f")
    assert kept > lost
    with pytest.raises(BadKeyVersionError):
        after.replace(b"k", b"3", lost, "f")


def test_a_version_lost_in_a_second_crash_is_not_given_again(space: PersistedObjectSpace, table: Table) -> None:
    table.put(b"k", b"1", "f")
    space.checkpoint()
    lost = [recover(space)[1].put(b"k", b"lost", "f") for _ in range(5)]
    assert len(set(lost)) == 5


def test_a_version_rolled_back_is_not_given_again(space: PersistedObjectSpace, table: Table) -> None:
    kept = table.put(b"k", b"1", "f")
    space.checkpoint(epoch=1)
    durable = table.put(b"k", b"2", "f")
    space.checkpoint(epoch=2)
    lost = table.put(b"k", b"3", "f")
    space.rollback(epoch=1)
    assert table.get(b"k", "f").key.version == kept  # type: ignore[union-attr]
    assert table.put(b"k", b"4", "f") > lost > durable > kept


def test_another_process_rolls_back_to_an_epoch(space: PersistedObjectSpace, table: Table) -> None:
    table.put(b"k", b"1", "f")
    space.checkpoint(epoch=1)
    durable = [table.put(b"k", b"2", "f") for _ in range(10)][-1]
    space.checkpoint(epoch=2)
    again, after = recover(space)
    again.rollback(epoch=1)
    assert after.put(b"k", b"3", "f") > durable


@pytest.mark.parametrize("in_between", ["checkpoint", "rollback"])
def test_two_handles_give_no_version_twice(space: PersistedObjectSpace, manager: Any, in_between: str) -> None:
    one, other = (manager.open_key_value_table("s", "t") for _ in range(2))
    space.checkpoint()
    given = []
    for _ in range(4):
        given += [one.put(b"k", b"v", "f"), other.put(b"k", b"v", "f")]
        getattr(space, in_between)()
    assert given == sorted(set(given))


def test_without_a_clock_versions_depend_on_the_writes_alone(table: Table, space: PersistedObjectSpace) -> None:
    def replay() -> list[KeyVersion]:
        attempt = KeyValueTableManager(PersistedObjectSpace(space.store), version_floor=lambda: 0)
        table = attempt.open_key_value_table("s", "t")
        return [table.put(b"k", b"v", "f"), *table.put_all("f", [(b"a", b"1"), (b"b", b"2")])]

    space.checkpoint()
    assert replay() == replay()
    assert [version.number for version in replay()] == [1, 2, 3]


def test_without_a_clock_what_was_rolled_back_leaves_no_trace(space: PersistedObjectSpace) -> None:
    def attempt() -> Any:
        manager = KeyValueTableManager(space, version_floor=lambda: 0)
        manager.create_scope("r")
        manager.create_key_value_table("r", "t", KeyValueTableConfiguration(2))
        given = manager.open_key_value_table("r", "t").put_all("f", [(b"a", b"1"), (b"b", b"2")])
        return given, space.get_sorted_dictionary("kvt/catalogue").copy()

    first = attempt()
    space.rollback()
    assert attempt() == first


def test_a_clock_that_stands_still_gives_growing_versions(manager: Any, space: PersistedObjectSpace) -> None:
    table = KeyValueTableManager(space, version_floor=lambda: 7).open_key_value_table("s", "t")
    given = [table.put(b"k", b"v", "f").number for _ in range(3)]
    assert given == [8, 9, 10]


def test_the_counter_of_an_emptied_partition_is_kept(space: PersistedObjectSpace, table: Table) -> None:
    gone = table.put(b"k", b"v", "f")
    table.remove(b"k", key_family="f")
    space.checkpoint()
    assert recover(space)[1].put(b"k", b"v", "f") > gone


TEXTS: list[Any] = ["", "1", "a:b", "1:2:3", "1:2\n", " 1:2", "1:", "99999999999999999999:1", "1:-", None]


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_no_version_is_refused(text: Any) -> None:
    with pytest.raises(SerializationError, match="is no version"):
        KeyVersion.parse(text)


@pytest.mark.parametrize("version", [KeyVersion(0, 0), KeyVersion.NO_VERSION, KeyVersion.NOT_EXISTS])
def test_every_version_has_a_text(version: KeyVersion) -> None:
    assert KeyVersion.parse(str(version)) == version
    assert version, "a version is true, whatever its number"


def failing(table: Table) -> dict[str, Callable[[KeyVersion], Any]]:
    return {
        "replace": lambda version: table.replace("k", "w", version, "f"),
        "remove": lambda version: table.remove("k", version, "f"),
    }


@pytest.mark.parametrize("call", ["replace", "remove"])
def test_an_error_names_key_and_versions(manager: Any, call: str) -> None:
    from objectspace.kvt import UTF8

    table = manager.open_key_value_table("s", "t", key_serializer=UTF8, value_serializer=UTF8)
    current = table.put("k", "v", "f")
    stale = current._replace(number=current.number - 1)
    with pytest.raises(BadKeyVersionError) as caught:
        failing(table)[call](stale)
    error = caught.value
    assert (error.table, error.key_family, error.key) == ("s/t", "f", "k")
    assert (error.expected, error.actual) == (stale, current)
    for part in ("s/t", "'f'", "'k'", str(stale), str(current), "get the key again"):
        assert part in str(error)
    table.remove("k", key_family="f")
    with pytest.raises(NoSuchKeyError, match=f"expected version {current}, found no such key"):
        failing(table)[call](current)


def test_a_later_table_of_the_same_name_knows_no_earlier_version(manager: Any, table: Table) -> None:
    old = table.put(b"k", b"v", "f")
    manager.delete_key_value_table("s", "t")
    manager.create_key_value_table("s", "t", KeyValueTableConfiguration(4))
    after = manager.open_key_value_table("s", "t")
    assert after.put(b"k", b"v", "f").partition != old.partition
    with pytest.raises(BadKeyVersionError):
        after.replace(b"k", b"w", old, "f")


@pytest.mark.parametrize(
    ("floor", "error", "message"),
    [
        (1.5e15, TypeError, "version_floor returned 1500000000000000.0, a float: expected an int"),
        (True, TypeError, "a bool: expected an int"),
        (2**63, ValueError, "expected less than 2\\*\\*62"),
    ],
)
def test_a_floor_that_is_no_number_of_a_version_changes_nothing(
    space: PersistedObjectSpace, table: Table, floor: Any, error: type[Exception], message: str
) -> None:
    kept = table.put(b"k", b"1", "f")
    space.checkpoint()
    space.rollback()
    space = PersistedObjectSpace(space.store)
    manager = KeyValueTableManager(space, version_floor=lambda: floor)
    again = manager.open_key_value_table("s", "t")
    for call in (
        lambda: again.put(b"k", b"2", "f"),
        lambda: again.put_all("f", [(b"k", b"2"), (b"l", b"2")]),
        lambda: manager.create_key_value_table("s", "u", KeyValueTableConfiguration(1)),
    ):
        with pytest.raises(error, match=message):
            call()
    assert again.get(b"k", "f").key.version == kept  # type: ignore[union-attr]
    assert (again.count(), manager.list_key_value_tables("s")) == (1, ["t"])
