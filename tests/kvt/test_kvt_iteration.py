"""Iteration: ranges, states that survive, and changes on the way."""

from __future__ import annotations

from typing import Any

import pytest

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.kvt import (
    UTF8,
    FamilyRequiredError,
    IteratorState,
    KeyValueTable,
    KeyValueTableConfiguration,
    KeyValueTableManager,
    SerializationError,
    TableClosedError,
    table_key,
)

Table = KeyValueTable[Any, Any]


def keys_of(pages: Any) -> list[Any]:
    return [[item.key for item in page.items] for page in pages]


def test_ranges_include_both_ends_and_prefixes_mean_bytes(table: Table) -> None:
    table.put_all("f", [(key, b"") for key in (b"", b"a", b"ab", b"a\xff", b"a\xff\xff", b"b", b"\xff")])
    table.put_all("g", [(b"a", b"")])
    assert keys_of(table.key_range_iterator("f", b"a", b"b")) == [[b"a", b"ab", b"a\xff", b"a\xff\xff", b"b"]]
    assert keys_of(table.key_range_iterator("f", from_key=b"b")) == [[b"b", b"\xff"]]
    assert keys_of(table.key_range_iterator("f", to_key=b"a")) == [[b"", b"a"]]
    assert keys_of(table.key_range_iterator("f", b"b", b"a")) == []
    assert keys_of(table.key_prefix_iterator("f", b"a\xff", 1)) == [[b"a\xff"], [b"a\xff\xff"]]
    assert keys_of(table.key_prefix_iterator("f", b"\xff")) == [[b"\xff"]]
    assert keys_of(table.key_iterator("f", 100)) == [[b"", b"a", b"ab", b"a\xff", b"a\xff\xff", b"b", b"\xff"]]


def test_a_state_goes_on_in_another_process(space: PersistedObjectSpace, table: Table) -> None:
    table.put_all("f", [(b"%03d" % place, b"v") for place in range(50)])
    page = next(table.entry_iterator("f", 20))
    space.checkpoint()
    after = KeyValueTableManager(PersistedObjectSpace(space.store)).open_key_value_table("s", "t")
    rest = list(after.entry_iterator("f", 20, IteratorState.from_bytes(page.state.to_bytes())))
    assert [len(page.items) for page in rest] == [20, 10]
    assert rest[0].items[0].key.key == b"020"


def test_a_foreign_state_is_refused(manager: KeyValueTableManager, table: Table) -> None:
    table.put_all("f", [(b"a", b"1"), (b"b", b"2")])
    state = next(table.key_iterator("f", 1)).state
    manager.create_key_value_table("s", "other", KeyValueTableConfiguration(4))
    other = manager.open_key_value_table("s", "other")
    for refused in (
        lambda: table.key_iterator("g", 1, state),
        lambda: table.global_key_iterator(1, state),
        lambda: other.key_iterator("f", 1, state),
    ):
        with pytest.raises(ValueError, match="a state resumes where it was taken"):
            refused()
    manager.delete_key_value_table("s", "t")
    manager.create_key_value_table("s", "t", KeyValueTableConfiguration(4))
    with pytest.raises(ValueError, match="created again"):
        manager.open_key_value_table("s", "t").key_iterator("f", 1, state)
    with pytest.raises(TypeError, match=r"IteratorState\.from_bytes"):
        other.key_iterator("f", 1, state.to_bytes())  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"{}", b'["kvt1","s/t",0,"f","zz"]', b'["kvt0","s/t",0,"f",""]'])
def test_what_is_no_state_is_refused(data: bytes) -> None:
    with pytest.raises(SerializationError, match="is no iterator state"):
        IteratorState.from_bytes(data)


def test_a_state_at_what_is_no_bytes_is_refused(table: Table) -> None:
    table.put(b"a", b"1", key_family="f")
    state = next(table.key_iterator("f", 1)).state._replace(position="a")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the position of the state is 'a': expected bytes"):
        state.to_bytes()
    with pytest.raises(TypeError, match="the position of the state is 'a': expected bytes"):
        table.key_iterator("f", 1, state)


def test_a_page_may_be_larger_than_any_table(table: Table) -> None:
    table.put_all("f", [(b"a", b"1"), (b"b", b"2")])
    assert [len(page.items) for page in table.key_iterator("f", 2**63)] == [2]


def test_the_whole_table_is_met_in_the_order_of_its_table_keys(table: Table) -> None:
    places = [("b", b"k"), ("aa", b"k"), ("a", b"z"), (None, b"x"), (None, b"long"), (None, b""), ("a", b"")]
    for family, key in places:
        table.put(key, b"v", family)
    pages = list(table.global_key_iterator(3))
    met = [(item.key_family, item.key) for page in pages for item in page.items]
    assert met == sorted(places, key=lambda place: table_key(place[1], place[0]))
    rest = table.global_key_iterator(3, pages[0].state)
    assert [page.items for page in rest] == [page.items for page in pages[1:]]
    entries = [item for page in table.global_entry_iterator(2) for item in page.items]
    assert [entry.key for entry in entries] == [item for page in pages for item in page.items]
    assert table.families() == ["a", "b", "aa"]


@pytest.mark.parametrize("change", ["put", "remove", "checkpoint", "rollback"])
def test_each_page_is_as_of_its_moment(space: PersistedObjectSpace, table: Table, change: str) -> None:
    table.put_all("f", [(b"%03d" % place, b"v") for place in range(20)])
    space.checkpoint()
    table.put(b"0035", b"unsaved", "f")
    pages = table.key_iterator("f", 2)
    assert [next(pages).items[0].key for _ in range(2)] == [b"000", b"002"]
    changes = {
        "put": lambda: table.put(b"0036", b"v", "f"),
        "remove": lambda: table.remove(b"004", key_family="f"),
        "checkpoint": space.checkpoint,
        "rollback": space.rollback,
    }
    changes[change]()
    expected = {
        "put": [b"0035", b"0036"],
        "remove": [b"0035", b"005"],
        "checkpoint": [b"0035", b"004"],
        "rollback": [b"004", b"005"],
    }
    assert [item.key for item in next(pages).items] == expected[change]


def test_an_iteration_ends_with_its_handle(table: Table) -> None:
    table.put_all("f", [(b"a", b"1"), (b"b", b"2")])
    pages = table.key_iterator("f", 1)
    next(pages)
    table.close()
    with pytest.raises(TableClosedError):
        next(pages)


def test_a_large_table_is_read_from_the_store(space: PersistedObjectSpace, manager: KeyValueTableManager) -> None:
    table = manager.open_key_value_table("s", "t", key_serializer=UTF8)
    table.put_all("f", [(f"{place:05d}", b"v") for place in range(5_000)])
    space.checkpoint()
    with PersistedObjectSpace(space.store, cache_slots=100) as small:
        cold = KeyValueTableManager(small).open_key_value_table("s", "t", key_serializer=UTF8)
        assert cold.get("00017", "f").value == b"v"  # type: ignore[union-attr]
        assert cold.put("00003", b"w", "f") > cold.get("00017", "f").key.version  # type: ignore[union-attr]
        found = [item for page in cold.entry_iterator("f", 999) for item in page.items]
        assert [item.key.key for item in found] == [f"{place:05d}" for place in range(5_000)]
        assert found[3].value == b"w"
        assert cold.count("f") == 5_000
        assert cold.families() == ["f"]


@pytest.mark.parametrize("size", [0, -1])
def test_a_page_has_items(table: Table, size: int) -> None:
    with pytest.raises(ValueError, match="expected 1 or more"):
        table.key_iterator("f", size)


def test_keys_without_a_family_are_not_iterated_over(table: Table) -> None:
    with pytest.raises(FamilyRequiredError, match="global_key_iterator"):
        table.key_iterator(None)  # type: ignore[arg-type]


def test_a_page_that_was_read_ahead_is_read_anew_after_a_rollback_that_gives_its_numbers_again() -> None:
    manager = KeyValueTableManager(PersistedObjectSpace(CheckpointStore(":memory:")), version_floor=lambda: 0)
    manager.create_scope("s")
    manager.create_key_value_table("s", "t", KeyValueTableConfiguration(1))
    table = manager.open_key_value_table("s", "t")
    table.put_all("f", [(b"%d" % place, b"v") for place in range(10)])
    manager.checkpoint()
    lost = table.put(b"8", b"lost", "f")
    pages = table.entry_iterator("f", 2)
    assert [entry.key.key for entry in [next(pages) for _ in range(4)][-1].items] == [b"6", b"7"]
    manager.rollback()
    assert table.put(b"a", b"new", "f") == lost
    assert [(entry.key.key, entry.value) for entry in next(pages).items] == [(b"8", b"v"), (b"9", b"v")]


class Refusing:
    """A serializer that refuses to read some bytes as long as it is told to, with an error of a kind."""

    def __init__(self, error: type[Exception]) -> None:
        self.error: type[Exception] | None = error

    def serialize(self, value: bytes) -> bytes:
        return value

    def deserialize(self, data: bytes) -> bytes:
        if self.error and data == b"c":
            raise self.error
        return data


@pytest.mark.parametrize(("error", "expected"), [(OSError, OSError), (StopIteration, RuntimeError)])
def test_a_page_of_which_no_items_can_be_made_is_not_skipped(
    manager: KeyValueTableManager, table: Table, error: type[Exception], expected: type[Exception]
) -> None:
    table.put_all("f", [(key, b"") for key in (b"a", b"b", b"c", b"d", b"e")])
    serializer = Refusing(error)
    pages = manager.open_key_value_table("s", "t", key_serializer=serializer).key_iterator("f", 1)
    assert keys_of([next(pages), next(pages)]) == [[b"a"], [b"b"]]
    for _ in range(2):
        with pytest.raises(expected):
            next(pages)
    serializer.error = None
    assert keys_of(pages) == [[b"c"], [b"d"], [b"e"]]
