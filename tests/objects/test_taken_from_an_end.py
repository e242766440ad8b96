"""Taking elements from an end of what is not in memory: what was taken before is not stepped over again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from checkpoint import CheckpointStore
from checkpoint.reader import Reader
from objectspace import PersistedObjectSpace
from objectspace.kvt import KeyValueTableConfiguration, KeyValueTableManager
from objectspace.objects import limits

COUNT, TAKEN = 1200, 400
FEW_ROWS = 60
"""More than are read for one element, which are a few small pages."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> CheckpointStore:
    monkeypatch.setattr(limits, "WHOLE_SLOTS", 0)
    store = CheckpointStore(":memory:")
    space = PersistedObjectSpace(store)
    space.create_sorted_dictionary("dictionary").update(dict.fromkeys(range(COUNT), "v"))
    space.create_sorted_set("set").update(range(COUNT))
    manager = KeyValueTableManager(space)
    manager.create_scope("s")
    manager.create_key_value_table("s", "t", KeyValueTableConfiguration(4))
    manager.open_key_value_table("s", "t").put_all("f", [(b"%04d" % number, b"v") for number in range(COUNT)])
    space.checkpoint()
    return store


def family_of(space: PersistedObjectSpace) -> Any:
    return KeyValueTableManager(space).open_key_value_table("s", "t").family("f")


TAKES: dict[str, Callable[[PersistedObjectSpace], Callable[[], Any]]] = {
    "family": lambda space: family_of(space).popitem,
    "dictionary at the begin": lambda space: lambda: space.get_sorted_dictionary("dictionary").popitem(0),
    "dictionary at the end": lambda space: lambda: space.get_sorted_dictionary("dictionary").popitem(),
    "set at the begin": lambda space: lambda: space.get_sorted_set("set").pop(0),
    "set at the end": lambda space: lambda: space.get_sorted_set("set").pop(),
}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each row that scans over changed objects read."""
    read: list[int] = []
    rows = Reader.rows

    def _rows(self: Reader, *arguments: Any, **options: Any) -> Iterator[Any]:
        for row in rows(self, *arguments, **options):
            read.append(1)
            yield row

    monkeypatch.setattr(Reader, "rows", _rows)
    return read


@pytest.mark.parametrize("cache_slots", [100, 100_000])
@pytest.mark.parametrize("name", TAKES)
def test_what_was_taken_is_not_stepped_over_again(
    store: CheckpointStore, read: list[int], name: str, cache_slots: int
) -> None:
    space = PersistedObjectSpace(store, cache_slots=cache_slots)
    take = TAKES[name](space)
    for _ in range(TAKEN):
        take()
    assert len(read) < TAKEN * FEW_ROWS


@pytest.mark.parametrize("cache_slots", [100, 100_000])
def test_what_was_set_where_all_was_taken_is_found(store: CheckpointStore, cache_slots: int) -> None:
    space = PersistedObjectSpace(store, cache_slots=cache_slots)
    dictionary = space.get_sorted_dictionary("dictionary")
    for _ in range(TAKEN):
        dictionary.popitem(0)
    space.checkpoint()
    assert dictionary.peekitem(0) == (TAKEN, "v")
    for key in (7, 3):
        dictionary[key] = "new"
        assert dictionary.peekitem(0) == (key, "new")
        writer = store.writer()
        space.save(writer)
        writer.rollback()
        assert dictionary.peekitem(0) == (key, "new")
        space.checkpoint()
        assert dictionary.peekitem(0) == (key, "new")
    assert [dictionary.popitem(0)[0] for _ in range(3)] == [3, 7, TAKEN]
    space.rollback()
    assert [dictionary.popitem(0)[0] for _ in range(3)] == [3, 7, TAKEN]
    space.rollback(epoch=1)
    assert dictionary.peekitem(0) == (0, "v")


def test_keys_that_are_named_one_by_one_bring_an_object_into_memory(store: CheckpointStore) -> None:
    space = PersistedObjectSpace(store)
    dictionary = space.get_sorted_dictionary("dictionary")
    for key in range(TAKEN):
        dictionary.get_many([key])
    assert dictionary._table.complete
