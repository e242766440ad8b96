"""The asyncio interface of a table: the same calls, each in a thread, so that no read or commit holds up the loop."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from threading import Lock
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from objectspace.kvt.entries import K, V
from objectspace.kvt.iteration import Page, PageIterator
from objectspace.kvt.table import KeyValueTable

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


async def _in_thread(call: Callable[[], R]) -> R:
    """Run a call in a thread and return its result."""
    return await asyncio.to_thread(_unstopped, call)


def _unstopped(call: Callable[[], R]) -> R:
    """Make a call whose StopIteration no future could hold: whoever awaits it would wait for ever."""
    try:
        return call()
    except StopIteration as error:
        raise RuntimeError("a function or serializer raised StopIteration in a call of a table") from error


def _awaited(
    method: Callable[Concatenate[KeyValueTable[K, V], P], R],
) -> Callable[Concatenate[AsyncKeyValueTable[K, V], P], Coroutine[Any, Any, R]]:
    """Return a method that runs a method of the table in a thread."""

    @functools.wraps(method)
    async def _call(self: AsyncKeyValueTable[K, V], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await _in_thread(functools.partial(method, self.table, *args, **kwargs))

    return _call


def _paged(
    method: Callable[Concatenate[KeyValueTable[K, V], P], PageIterator[T]],
) -> Callable[Concatenate[AsyncKeyValueTable[K, V], P], AsyncPageIterator[T]]:
    """Return a method that gives the pages of a method of the table to ``async for``."""

    @functools.wraps(method)
    def _call(self: AsyncKeyValueTable[K, V], /, *args: P.args, **kwargs: P.kwargs) -> AsyncPageIterator[T]:
        return AsyncPageIterator(functools.partial(method, self.table, *args, **kwargs))

    shown = inspect.signature(method)
    gives = f"Async{shown.return_annotation}"
    _call.__signature__ = shown.replace(return_annotation=gives)  # type: ignore[attr-defined]
    return _call


class AsyncPageIterator(Generic[T]):
    """The pages of an iteration for ``async for``; each is read in a thread, and the first one begins the iteration.

    Steps that are awaited together run one after the other. If a step is cancelled, the next one returns its page.
    """

    def __init__(self, begin: Callable[[], PageIterator[T]]) -> None:
        self._begin = begin
        self._pages: PageIterator[T] | None = None
        self._page: Page[T] | None = None
        self._turn = asyncio.Lock()
        self._mutex = Lock()

    def __aiter__(self) -> AsyncPageIterator[T]:
        return self

    async def __anext__(self) -> Page[T]:
        async with self._turn:
            await _in_thread(self._read)
            page, self._page = self._page, None
        if page is None:
            raise StopAsyncIteration
        return page

    def _read(self) -> None:
        """Read the next page, unless that of a cancelled step is still there: its thread ran on all the same."""
        with self._mutex:
            if self._pages is None:
                self._pages = self._begin()
            if self._page is None:
                self._page = next(self._pages, None)


class AsyncKeyValueTable(Generic[K, V]):
    """The calls of a :class:`KeyValueTable` as coroutines, with the same arguments, results and errors.

    It has no state but the table: calls that are awaited together may run in any order, and exclude one another as
    calls from several threads do. A cancelled call may still take effect.

    Args:
        table: the table; closed at the end of ``async with``.

    >>> import asyncio
    >>> from objectspace import VolatileObjectSpace
    >>> from objectspace.kvt import KeyValueTableConfiguration, KeyValueTableManager
    >>> manager = KeyValueTableManager(VolatileObjectSpace())
    >>> manager.create_scope("s"), manager.create_key_value_table("s", "t", KeyValueTableConfiguration(4))
    (True, True)
    >>> async def count_words(words: list[bytes]) -> list[bytes]:
    ...     async with manager.open_key_value_table("s", "t").as_async() as table:
    ...         await table.put_all("words", [(word, b"") for word in words])
    ...         return [item.key async for page in table.key_iterator("words") for item in page.items]
    >>> asyncio.run(count_words([b"to", b"be", b"or", b"not", b"to", b"be"]))
    [b'be', b'not', b'or', b'to']
    """

    def __init__(self, table: KeyValueTable[K, V]) -> None:
        self.table = table

    put = _awaited(KeyValueTable[K, V].put)
    put_if_absent = _awaited(KeyValueTable[K, V].put_if_absent)
    put_all = _awaited(KeyValueTable[K, V].put_all)
    replace = _awaited(KeyValueTable[K, V].replace)
    replace_all = _awaited(KeyValueTable[K, V].replace_all)
    remove = _awaited(KeyValueTable[K, V].remove)
    remove_all = _awaited(KeyValueTable[K, V].remove_all)
    apply = _awaited(KeyValueTable[K, V].apply)
    update = _awaited(KeyValueTable[K, V].update)
    get = _awaited(KeyValueTable[K, V].get)
    get_all = _awaited(KeyValueTable[K, V].get_all)
    exists = _awaited(KeyValueTable[K, V].exists)
    count = _awaited(KeyValueTable[K, V].count)
    families = _awaited(KeyValueTable[K, V].families)

    key_iterator = _paged(KeyValueTable[K, V].key_iterator)
    entry_iterator = _paged(KeyValueTable[K, V].entry_iterator)
    key_prefix_iterator = _paged(KeyValueTable[K, V].key_prefix_iterator)
    entry_prefix_iterator = _paged(KeyValueTable[K, V].entry_prefix_iterator)
    key_range_iterator = _paged(KeyValueTable[K, V].key_range_iterator)
    entry_range_iterator = _paged(KeyValueTable[K, V].entry_range_iterator)
    global_key_iterator = _paged(KeyValueTable[K, V].global_key_iterator)
    global_entry_iterator = _paged(KeyValueTable[K, V].global_entry_iterator)

    async def close(self) -> None:
        """Close the table. May be called twice."""
        self.table.close()

    async def __aenter__(self) -> AsyncKeyValueTable[K, V]:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.table.close()
