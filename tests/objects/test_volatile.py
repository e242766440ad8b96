"""A volatile space has the objects and the barriers of a persisted one, and refuses what takes a store."""

from __future__ import annotations

from typing import Any

import pytest

from checkpoint import CheckpointError, CheckpointStore
from objectspace import (
    CheckpointProtocolError,
    PersistedObjectSpace,
    VolatileObjectSpace,
)
from tests.objects.kinds import PUTS, create


def test_a_volatile_space_has_the_same_objects() -> None:
    space = VolatileObjectSpace()
    for kind, put in PUTS.items():
        handle = create(space, kind, kind)
        put(handle, 1)
        assert space.get(kind) is handle
    space.get("list").clear()
    space.delete("list")
    assert "list" not in space


def test_a_volatile_space_runs_barriers_and_refuses_what_takes_a_store() -> None:
    space, sealed = VolatileObjectSpace(), list[int]()
    space.on_barrier(sealed.append)
    space.checkpoint(epoch=7)
    assert (space.checkpoint().epoch, sealed) == (8, [7, 8])
    writer = CheckpointStore(":memory:").writer()
    for refused in (lambda: space.save(writer), space.on_saved, space.rollback, lambda: space.at(7)):
        with pytest.raises(CheckpointProtocolError, match="volatile"):
            refused()


@pytest.mark.parametrize("epoch", [3, 5, "x", True, 2**70, 1.5, -(2**63) - 1])
def test_a_volatile_space_refuses_the_epochs_that_a_persisted_one_refuses(
    space: PersistedObjectSpace, epoch: Any
) -> None:
    words: list[str] = []
    sealed: list[int] = []
    for one in (space, VolatileObjectSpace()):
        assert not one.read_only
        assert one.checkpoint(epoch=5).number == 1
        one.on_barrier(sealed.append)
        with pytest.raises(CheckpointError) as refusal:
            one.checkpoint(epoch=epoch)
        words.append(f"{type(refusal.value).__name__}: {refusal.value}")
        sealed.clear()
        assert (one.checkpoint().epoch, sealed) == (6, [6])
    assert words[0].replace(str(space.store.path), "this volatile space") == words[1]


def test_a_refused_checkpoint_of_a_volatile_space_seals_nothing() -> None:
    space, sealed = VolatileObjectSpace(), list[int]()
    space.on_barrier(sealed.append)
    refused: list[dict[str, Any]] = [{"epoch": True}, {"kind": "partly"}]
    for arguments in refused:
        with pytest.raises((CheckpointError, ValueError)):
            space.checkpoint(**arguments)
    assert sealed == []
    assert (space.checkpoint().number, sealed) == (1, [1])
