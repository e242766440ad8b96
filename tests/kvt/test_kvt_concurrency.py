"""Threads and coroutines over one table."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from threading import Event
from typing import Any

import pytest

from objectspace import PersistedObjectSpace, SpacePart
from objectspace.kvt import (
    JSON,
    BadKeyVersionError,
    IteratorState,
    KeyValueTable,
    KeyValueTableConfiguration,
    KeyValueTableManager,
    KeyVersion,
    Put,
    Remove,
    TableClosedError,
)
from objectspace.kvt.asynchronous import AsyncPageIterator
from objectspace.kvt.shared import shared_of

THREADS, ROUNDS = 8, 150


@pytest.fixture(autouse=True)
def threads_take_turns_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_no_update_is_lost(manager: KeyValueTableManager) -> None:
    table = manager.open_key_value_table("s", "t", value_serializer=JSON)

    def work(thread: int) -> None:
        for place in range(ROUNDS):
            table.update(b"sum", lambda value: value + 1, "f", default=0)
            table.put(b"%d-%d" % (thread, place), thread)
            if place % 50 == 0:
                manager.checkpoint()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    manager.checkpoint()
    assert table.get(b"sum", "f").value == THREADS * ROUNDS  # type: ignore[union-attr]
    assert table.count() == THREADS * ROUNDS + 1


def test_threads_share_a_table_that_commits_each_call(space: PersistedObjectSpace, manager: Any) -> None:
    handles = [manager.open_key_value_table("s", "t", value_serializer=JSON, autocommit=True) for _ in range(4)]

    def work(table: KeyValueTable[Any, Any]) -> list[KeyVersion]:
        return [table.update(b"sum", lambda value: value + 1, default=0) for _ in range(10)]

    with ThreadPoolExecutor(4) as pool:
        versions = [version for given in pool.map(work, handles) for version in given]
    assert len(set(versions)) == 40
    again = KeyValueTableManager(PersistedObjectSpace(space.store)).open_key_value_table(
        "s", "t", value_serializer=JSON
    )
    assert again.get(b"sum").value == 40  # type: ignore[union-attr]


def test_managers_on_parts_of_a_space_lose_no_update(space: PersistedObjectSpace) -> None:
    managers = [KeyValueTableManager(SpacePart(space, "op/")) for _ in range(2)]
    managers[0].create_scope("s")
    managers[0].create_key_value_table("s", "t", KeyValueTableConfiguration(1))
    tables = [manager.open_key_value_table("s", "t", value_serializer=JSON) for manager in managers]

    def work(thread: int) -> list[KeyVersion]:
        add = tables[thread % 2].update
        return [add(b"sum", lambda value: value + 1, default=0) for _ in range(ROUNDS)]

    with ThreadPoolExecutor(4) as pool:
        versions = [version for given in pool.map(work, range(4)) for version in given]
    assert tables[0].get(b"sum").value == len(set(versions)) == 4 * ROUNDS  # type: ignore[union-attr]


def test_parts_of_a_space_share_its_lock_and_no_numbers(space: PersistedObjectSpace) -> None:
    one, same, other, whole = (
        shared_of(part) for part in (*(SpacePart(space, prefix) for prefix in ("a/", "a/", "b/")), space)
    )
    assert one is same
    assert one.lock is other.lock is whole.lock
    assert len({id(shared.given) for shared in (one, other, whole)}) == 3


def test_a_batch_is_seen_whole_or_not_at_all(table: KeyValueTable[Any, Any]) -> None:
    keys = [b"a", b"b", b"c"]
    table.put_all("f", [(key, b"0") for key in keys])

    def write(_: int) -> None:
        for place in range(100):
            table.put_all("f", [(key, b"%d" % place) for key in keys])

    def read(_: int) -> set[int]:
        return {len({entry.value for entry in table.get_all(keys, "f") if entry}) for _ in range(300)}

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write, 0) for _ in range(2)]
        seen = [pool.submit(read, 0) for _ in range(2)]
    assert [writer.result() for writer in writers] == [None, None]
    assert [found.result() for found in seen] == [{1}, {1}]


def test_the_asynchronous_face_makes_the_same_calls(table: KeyValueTable[Any, Any]) -> None:
    async def scenario() -> None:
        async with table.as_async() as face:
            version = await face.put(b"b", b"1", key_family="f")
            version = await face.replace(b"b", b"2", version, key_family="f")
            assert (await face.get(b"b", key_family="f")).value == b"2"
            with pytest.raises(BadKeyVersionError):
                await face.put_if_absent(b"b", b"3", key_family="f")
            await asyncio.gather(*(face.put(b"%d" % place, b"", "g") for place in range(20)))
            assert await face.count("g") == 20
            assert await face.families() == ["f", "g"]
            await face.apply("f", [Put(b"a", b"1"), Put(b"c", b"3"), Remove(b"b", version)])
            pages = [page async for page in face.key_iterator("f", 1)]
            assert [[item.key for item in page.items] for page in pages] == [[b"a"], [b"c"]]
            state = IteratorState.from_bytes(pages[0].state.to_bytes())
            assert [page.items[0].value async for page in face.entry_iterator("f", 1, state)] == [b"3"]
            await face.update(b"a", lambda value: value + b"!", "f")
            assert [entry and entry.value for entry in await face.get_all([b"a", b"b"], "f")] == [b"1!", None]
        with pytest.raises(TableClosedError):
            await face.get(b"a")

    asyncio.run(scenario())
    with pytest.raises(TableClosedError):
        table.get(b"a")


def test_a_function_that_raises_stop_iteration_holds_nobody_up(table: KeyValueTable[Any, Any]) -> None:
    async def scenario() -> None:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.wait_for(table.as_async().update(b"k", lambda _: next(iter([]))), 5)

    asyncio.run(scenario())
    assert not table.exists(b"k")


def test_the_page_of_a_cancelled_step_is_given_by_the_next(table: KeyValueTable[Any, Any]) -> None:
    table.put_all("f", [(b"%d" % place, b"") for place in range(4)])
    is_read, go_on = Event(), Event()

    def read_slowly() -> Iterator[Any]:
        for page in table.key_iterator("f", 1):
            is_read.set()
            assert go_on.wait(10)
            yield page

    async def scenario() -> list[Any]:
        pages = AsyncPageIterator(read_slowly)  # type: ignore[arg-type]
        step = asyncio.ensure_future(anext(pages))
        await asyncio.to_thread(is_read.wait, 10)
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        go_on.set()
        return [key.key async for page in pages for key in page.items]

    assert asyncio.run(scenario()) == [b"0", b"1", b"2", b"3"]


def test_steps_that_are_awaited_together_are_of_one_iteration(table: KeyValueTable[Any, Any]) -> None:
    table.put_all("f", [(b"%d" % place, b"") for place in range(4)])

    async def scenario() -> list[Any]:
        pages = AsyncPageIterator(lambda: Event().wait(0.05) or table.key_iterator("f", 1))
        found = await asyncio.gather(*(anext(pages) for _ in range(4)))
        with pytest.raises(StopAsyncIteration):
            await anext(pages)
        return [page.items[0].key for page in found]

    assert asyncio.run(scenario()) == [b"0", b"1", b"2", b"3"]


def test_every_call_of_a_table_has_an_asynchronous_face(table: KeyValueTable[Any, Any]) -> None:
    calls = {name for name in dir(KeyValueTable) if not name.startswith("_")} - {"as_async", "family", "name"}
    assert calls <= set(dir(table.as_async()))
    assert str(inspect.signature(table.as_async().key_iterator)).endswith("AsyncPageIterator[TableKey[K]]'")


def test_making_an_iterator_does_not_wait_for_the_lock(manager: KeyValueTableManager) -> None:
    table = manager.open_key_value_table("s", "t")
    table.put(b"k", b"v", key_family="f")
    held, done = Event(), Event()

    def hold() -> bool:
        with table._lock:
            held.set()
            return done.wait(10)

    async def scenario() -> list[Any]:
        assert held.wait(10)
        pages = table.as_async().key_iterator("f")
        done.set()
        return [key.key async for page in pages for key in page.items]

    with ThreadPoolExecutor(1) as other:
        was_released = other.submit(hold)
        assert asyncio.run(scenario()) == [b"k"]
        assert was_released.result()


def test_a_family_is_counted_as_of_one_moment(table: KeyValueTable[Any, Any]) -> None:
    count, is_over = 3_000, Event()
    table.put_all("f", [(b"%05d" % place, b"v") for place in range(count)])

    def move() -> None:
        for place in cycle(range(count)):
            table.apply("f", [Remove(b"%05d" % place), Put(b"9%05d" % place, b"v")])
            table.apply("f", [Remove(b"9%05d" % place), Put(b"%05d" % place, b"v")])
            if is_over.is_set():
                return

    with ThreadPoolExecutor(1) as pool:
        moving = pool.submit(move)
        found = {table.count("f") for _ in range(20)} | {len(table.family("f")) for _ in range(20)}
        is_over.set()
        moving.result()
    assert found == {count}
