"""An interruption at any line of a checkpoint loses nothing in silence; a commit under way cannot be taken back."""

from __future__ import annotations

import asyncio
from threading import Event
from typing import Any

import pytest

from checkpoint import CheckpointError, CheckpointStore, Run, run
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


def test_an_interrupted_checkpoint_loses_nothing_in_silence() -> None:
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
            assert "interrupted in its midst" in message
            assert contents(space) in (before, after)
        else:
            ends.add("saved")
            assert contents(space) == after
        assert contents(PersistedObjectSpace(space.store)) == contents(space)
        space._check()
        space.store.verify()
        if not came:
            break
        lines += STEP
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


def test_a_writer_is_not_taken_back_while_it_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    target = space.create_dictionary("d")
    target["k"] = 1
    space.checkpoint()
    has_begun, may_end, append = Event(), Event(), CheckpointStore.append

    def _slowly(self: CheckpointStore, run: Run, epoch: int | None = None) -> Any:
        has_begun.set()
        assert may_end.wait(10)
        return append(self, run, epoch)

    async def use() -> None:
        target["k"] = 2
        writer = space.store.writer()
        space.save(writer)
        with monkeypatch.context() as patch:
            patch.setattr(CheckpointStore, "append", _slowly)
            task = asyncio.create_task(writer.commit_async())
            await asyncio.to_thread(has_begun.wait)
            asyncio.get_running_loop().call_later(0.05, may_end.set)
            task.cancel()
            taken_back = asyncio.create_task(asyncio.to_thread(writer.rollback))
            with pytest.raises(CheckpointError, match="this writer is committed"):
                await taken_back

    asyncio.run(use())
    target["k"] = 1
    space.checkpoint()
    assert PersistedObjectSpace(space.store).get_dictionary("d") == {"k": 1}


@pytest.mark.parametrize("kind", ["dictionary", "sorted_dictionary", "sorted_set", "set"])
def test_an_edit_that_was_cut_in_two_is_noticed(kind: str) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    target: Any = getattr(space, f"create_{kind}")("t")
    target.update(dict.fromkeys(range(200), 0))
    space.checkpoint()
    target.discard(5) if "set" in kind else target.pop(5)
    dict.__setitem__(target._table.live, 5, None)  # Ctrl-C came after the note of the removal, and before that.
    if kind.startswith("sorted"):
        with pytest.raises(CheckpointProtocolError, match="an edit was interrupted in its midst"):
            space.checkpoint()
        space.rollback()
        assert space.checkpoint().slots == 0
    else:
        space.checkpoint()
    assert len(target) == 200
    assert PersistedObjectSpace(space.store).get("t") == target
