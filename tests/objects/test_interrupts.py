"""An interruption at any line of a checkpoint loses nothing in silence; a commit under way cannot be taken back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from checkpoint import CheckpointError, CheckpointStore, CheckpointWriter, Run, run
from objectspace import CheckpointProtocolError, PersistedObjectSpace
from tests.objects.interruptions import interrupted

STEP = 5
"""An interruption comes at each so many-th line."""


def made() -> PersistedObjectSpace:
    """Return a space with objects that are stored, and with changes of each."""
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    space.create_list("list").extend(range(60))
    space.create_dictionary("dictionary").update(a=1)
    space.create_sorted_set("sorted").update(range(9))
    space.create_queue("queue").enqueue(1)
    space.checkpoint()
    space.get_list("list").insert(30, "new")
    space.get_dictionary("dictionary").update(a=2, b=3)
    space.get_sorted_set("sorted").discard(4)
    space.get_queue("queue").enqueue(2)
    space.create_stack("stack").push("new")
    space.delete("queue")
    return space


def contents(space: PersistedObjectSpace) -> dict[str, Any]:
    return {name: space.get(name).copy() for name in space}  # type: ignore[attr-defined]


def test_an_interrupted_checkpoint_loses_nothing_in_silence(apart: int) -> None:
    before, after = contents(PersistedObjectSpace(made().store)), contents(made())
    ends = set()
    lines = 0
    while True:
        space = made()
        came = interrupted(space.checkpoint, lines)
        try:
            space.checkpoint()
        except CheckpointProtocolError as error:
            ends.add("refused")
            message = str(error)
            space.rollback()
            assert "interrupted partway" in message
            assert contents(space) in (before, after)
        else:
            ends.add("saved")
            assert contents(space) == after
        assert contents(PersistedObjectSpace(space.store)) == contents(space)
        space._check()
        space.store.verify()
        if not came:
            break
        lines += STEP * apart
    assert lines > 500
    assert ends == {"refused", "saved"}


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit, MemoryError])
def test_an_interruption_while_bytes_are_digested_is_no_bad_row(
    interruption: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    tensor = space.create_tensor("t", 4)
    tensor[:] = 1

    def interrupt(value: object) -> None:
        raise interruption

    with monkeypatch.context() as patch, pytest.raises(interruption):
        patch.setattr(run, "_hex", interrupt)
        space.checkpoint()
    assert space.checkpoint() is not None
    assert PersistedObjectSpace(space.store).get_tensor("t")[...].tolist() == [1] * 4


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> tuple[Event, Event]:
    """Hold commits: return what is set when one has begun, and what lets them come to their end."""
    has_begun, may_end, append = Event(), Event(), CheckpointStore.append

    def _append(self: CheckpointStore, run: Run, epoch: int | None = None) -> Any:
        has_begun.set()
        assert may_end.wait(10)
        return append(self, run, epoch)

    monkeypatch.setattr(CheckpointStore, "append", _append)
    return has_begun, may_end


def saved_into(space: PersistedObjectSpace, value: int) -> CheckpointWriter:
    """Return a writer that an edit was saved into."""
    space.get_or_create_dictionary("d")["k"] = value
    writer = space.store.writer()
    space.save(writer)
    return writer


def test_a_writer_is_not_taken_back_while_it_commits(held: tuple[Event, Event]) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    has_begun, may_end = held

    async def use() -> None:
        writer = saved_into(space, 2)
        task = asyncio.create_task(writer.commit_async())
        await asyncio.to_thread(has_begun.wait)
        asyncio.get_running_loop().call_later(0.05, may_end.set)
        task.cancel()
        taken_back = asyncio.create_task(asyncio.to_thread(writer.rollback))
        with pytest.raises(CheckpointError, match=r"call space\.on_saved\(\) and go on"):
            await taken_back

    asyncio.run(use())
    saved_into(space, 1).commit()
    assert PersistedObjectSpace(space.store).get_dictionary("d") == {"k": 1}


@pytest.mark.parametrize("moment", ["before its task", "before its thread", "in its midst"])
def test_the_next_checkpoint_covers_a_save_whose_commit_was_cancelled(
    moment: str, held: tuple[Event, Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    has_begun, may_end = held

    async def use() -> None:
        writer = saved_into(space, 1)
        if moment == "before its thread":
            threads = ThreadPoolExecutor(1)
            threads.submit(may_end.wait, 10)
            asyncio.get_running_loop().set_default_executor(threads)
        task = asyncio.create_task(writer.commit_async())
        if moment == "before its thread":
            await asyncio.sleep(0)
        if moment == "in its midst":
            await asyncio.to_thread(has_begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        let_go_before(writer, "rollback", may_end, monkeypatch)
        space.get_dictionary("d")["l"] = 2
        try:
            assert space.checkpoint().slots == (1 if moment == "in its midst" else 2)
        finally:
            may_end.set()

    asyncio.run(use())
    assert PersistedObjectSpace(space.store).get_dictionary("d") == {"k": 1, "l": 2}


def test_on_saved_waits_for_a_commit_whose_caller_was_timed_out(
    held: tuple[Event, Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    has_begun, may_end = held

    async def use() -> None:
        writer = saved_into(space, 1)
        with pytest.raises(asyncio.TimeoutError):
            commit = asyncio.create_task(writer.commit_async())
            await asyncio.to_thread(has_begun.wait)
            await asyncio.wait_for(commit, 0)
        let_go_before(writer, "is_durable", may_end, monkeypatch)
        try:
            space.on_saved()
        finally:
            may_end.set()

    asyncio.run(use())
    assert space.checkpoint().slots == 0


def test_a_commit_that_somebody_awaits_is_not_taken_back(held: tuple[Event, Event]) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    has_begun, may_end = held

    async def use() -> None:
        commit = asyncio.create_task(saved_into(space, 1).commit_async())
        with pytest.raises(CheckpointProtocolError, match="two saves in flight"):
            space.checkpoint()
        await asyncio.to_thread(has_begun.wait)
        with pytest.raises(CheckpointProtocolError, match="await its commit if that is under way"):
            space.checkpoint()
        may_end.set()
        await commit
        space.on_saved()

    asyncio.run(use())
    assert space.checkpoint().slots == 0


def test_no_second_save_comes_between_the_end_of_a_commit_and_who_awaits_it(held: tuple[Event, Event]) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    has_begun, may_end = held

    async def use() -> None:
        writer = saved_into(space, 1)
        commit = asyncio.create_task(writer.commit_async())
        await asyncio.to_thread(has_begun.wait)
        may_end.set()
        assert writer.is_durable()
        assert not commit.done()
        with pytest.raises(
            CheckpointProtocolError, match=r"durable, but has not returned .*: await it, or call space.on_"
        ):
            space.checkpoint()
        await commit
        space.on_saved()

    asyncio.run(use())
    assert space.checkpoint().slots == 0


async def alone(commit: Coroutine[Any, Any, Any]) -> None:
    await commit


async def within(commit: Coroutine[Any, Any, Any]) -> None:
    async with asyncio.timeout(60):
        await commit


AWAITED: dict[str, Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]]] = {
    "alone": alone,
    "shield": lambda commit: asyncio.shield(asyncio.ensure_future(commit)),
    "timeout": within,
    "wait_for": lambda commit: asyncio.wait_for(commit, 60),
}


@pytest.mark.parametrize("name", AWAITED)
def test_tasks_that_save_one_after_the_other_each_acknowledge_their_own(name: str, tmp_path: Path) -> None:
    space = PersistedObjectSpace.open(tmp_path / "s.db")
    slots = space.create_dictionary("d")
    space.checkpoint()

    async def save(key: int) -> None:
        slots[key] = key
        while True:
            writer = space.store.writer()
            try:
                space.save(writer)
            except CheckpointProtocolError:
                await asyncio.sleep(0)
            else:
                break
        await AWAITED[name](writer.commit_async())
        space.on_saved()

    async def use() -> None:
        await asyncio.gather(*map(save, range(8)))

    asyncio.run(use())
    with pytest.raises(CheckpointProtocolError, match="without a save"):
        space.on_saved()
    assert space.checkpoint().slots == 0
    assert PersistedObjectSpace(space.store).get("d") == {key: key for key in range(8)}
    space.close()


def test_the_acknowledgement_of_a_save_is_none_of_another_one(held: tuple[Event, Event]) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    has_begun, may_end = held

    async def save_and_give_up() -> None:
        commit = asyncio.create_task(saved_into(space, 1).commit_async())
        await asyncio.to_thread(has_begun.wait)
        commit.cancel()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await commit

    async def use() -> None:
        await save_and_give_up()
        for value in (2, 3):
            saved_into(space, value)
            with pytest.raises(CheckpointProtocolError, match="before the commit"):
                space.on_saved()
        other = asyncio.create_task(asyncio.to_thread(space.store.checkpoints))
        await other
        with pytest.raises(CheckpointProtocolError, match="before the commit"):
            space.on_saved()

    asyncio.run(use())


def stopped_before_it_came_back(writer: CheckpointWriter) -> tuple[asyncio.AbstractEventLoop, Coroutine[Any, Any, Any]]:
    """Return an event loop that was stopped when a commit had ended in its thread, and what waits there for that."""
    loop, commit = asyncio.new_event_loop(), writer.commit_async()
    threads = ThreadPoolExecutor(1)
    loop.set_default_executor(threads)
    loop.call_soon(commit.send, None)
    loop.call_soon(loop.stop)
    loop.run_forever()
    threads.shutdown()
    return loop, commit


def test_a_durable_commit_that_never_comes_back_is_acknowledged_by_hand() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    loop, commit = stopped_before_it_came_back(saved_into(space, 1))
    with pytest.raises(CheckpointProtocolError, match=r"or call space\.on_saved\(\) if nobody will"):
        space.checkpoint()
    space.on_saved()
    assert space.checkpoint().slots == 0
    commit.close()
    loop.close()


def test_a_commit_that_failed_keeps_no_save_out_before_it_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))

    def _fail(*_: object) -> None:
        raise OSError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(space.store, "append", _fail)
        loop, commit = stopped_before_it_came_back(saved_into(space, 1))
    assert space.checkpoint().slots == 1
    commit.close()
    loop.close()


def test_a_closed_event_loop_has_let_go_of_a_commit() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    writer = saved_into(space, 1)
    loop, commit = stopped_before_it_came_back(writer)
    assert (writer.is_awaited(), writer.is_let_go()) == (True, False)
    loop.close()
    assert (writer.is_awaited(), writer.is_let_go()) == (False, True)
    assert space.checkpoint().slots == 0
    commit.close()


def test_a_second_commit_of_a_writer_does_not_hide_the_first(held: tuple[Event, Event]) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    has_begun, may_end = held

    async def use() -> None:
        writer = saved_into(space, 1)
        first = asyncio.create_task(writer.commit_async())
        await asyncio.to_thread(has_begun.wait)
        second = writer.commit_async()
        second.close()
        assert (writer.is_awaited(), writer.is_let_go()) == (True, False)
        may_end.set()
        await first
        assert (writer.is_awaited(), writer.is_let_go()) == (False, True)
        space.on_saved()

    asyncio.run(use())
    assert space.checkpoint().slots == 0


def let_go_before(writer: CheckpointWriter, method: str, may_end: Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a commit come to its end only when somebody calls a method of its writer, which waits for it."""
    called = getattr(writer, method)

    def _call() -> Any:
        may_end.set()
        return called()

    monkeypatch.setattr(writer, method, _call)


def test_a_close_that_was_interrupted_is_made_up_for_by_the_next() -> None:
    for lines in count():
        space = made()
        numbers, noted = space.get_list("list"), space.get_dictionary("dictionary")
        came = interrupted(space.close, lines)
        space.close()
        for edit in (partial(numbers.append, 1), partial(noted.update, a=1)):
            with pytest.raises(CheckpointProtocolError, match="closed"):
                edit()
        if not came:
            break
    assert lines > 10


@pytest.mark.parametrize("kind", ["dictionary", "sorted_dictionary", "sorted_set", "set"])
def test_an_edit_that_was_cut_in_two_is_noticed(kind: str) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    target: Any = getattr(space, f"create_{kind}")("t")
    target.update(dict.fromkeys(range(200), 0))
    space.checkpoint()
    target.discard(5) if "set" in kind else target.pop(5)
    dict.__setitem__(target._table.live, 5, None)  # Ctrl-C came after the note of the removal, and before that.
    if kind.startswith("sorted"):
        with pytest.raises(CheckpointProtocolError, match="an edit was interrupted partway"):
            space.checkpoint()
        space.rollback()
        assert space.checkpoint().slots == 0
    else:
        space.checkpoint()
    assert len(target) == 200
    assert PersistedObjectSpace(space.store).get("t") == target


def test_a_block_in_one_piece_is_saved_whole_or_not_at_all() -> None:
    space, came, lines = PersistedObjectSpace(CheckpointStore(":memory:")), True, 0
    rows, count = space.create_list("rows"), space.create_value("count", 0)
    space.checkpoint()

    def work() -> None:
        with space.in_one_piece():
            rows.append(1)
            count.value += 1

    while came:
        came, lines = interrupted(work, lines), lines + 1
        with suppress(CheckpointProtocolError):
            space.checkpoint()
        space.rollback()
        assert len(rows) == count.value
    assert (len(rows), lines > 10) == (count.value, True)
    assert count.value > 0


def test_a_block_in_one_piece_remembers_what_was_cut_in_two_within_it() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    space.create_list("rows")
    space.checkpoint()
    with space.in_one_piece():
        space.create_list("more")
        with suppress(KeyboardInterrupt), space.in_one_piece():
            raise KeyboardInterrupt
    with pytest.raises(CheckpointProtocolError, match="an edit was interrupted partway"):
        space.checkpoint()
    with space.in_one_piece():
        space.rollback()
    assert list(space) == ["rows"]
    assert space.checkpoint().slots == 0
