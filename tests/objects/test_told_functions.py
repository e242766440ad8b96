"""Functions that a space calls after a deletion and after a renaming."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from objectspace import CheckpointProtocolError, PersistedObjectSpace


def test_what_is_called_after_a_deletion_may_take_a_checkpoint(space: PersistedObjectSpace) -> None:
    space.create_list("gone")
    space.create_list("stays").append(1)
    space.on_delete(space.checkpoint)
    space.delete("gone")
    assert (list(PersistedObjectSpace(space.store)), space.checkpoint().slots) == (["stays"], 0)


def test_what_is_called_after_a_renaming_may_take_a_checkpoint(space: PersistedObjectSpace) -> None:
    space.create_list("old").append(1)
    space.create_list("edited")
    space.checkpoint()
    space.get("edited").append(2)
    space.on_rename(lambda *_: space.checkpoint())
    space.rename("old", "new")
    assert (list(PersistedObjectSpace(space.store)), space.checkpoint().slots) == (["new", "edited"], 0)


def test_all_are_told_of_a_renaming_and_of_a_deletion_whatever_one_of_them_raises(space: PersistedObjectSpace) -> None:
    told: list[object] = []

    def _fail(*names: str) -> None:
        told.append(names)
        raise LookupError(f"number {len(told)}")

    for function in (_fail, lambda *names: told.append(names), _fail):
        space.on_rename(function)
        space.on_delete(function)
    space.create_list("a").append(1)
    with pytest.raises(LookupError, match="number 1"):
        space.rename("a", "b")
    assert (told, list(space)) == ([("a", "b")] * 3, ["b"])
    space.checkpoint()
    told.clear()
    with pytest.raises(LookupError, match="number 1"):
        space.delete("b")
    assert (told, list(space)) == ([()] * 3, [])
    space.checkpoint()


@pytest.mark.parametrize("error", [None, LookupError, KeyboardInterrupt])
def test_all_are_told_of_renamings_in_their_order(space: PersistedObjectSpace, error: Any) -> None:
    told: list[tuple[str, ...]] = []
    raised = [error] if error else []

    def _rename_further(name: str, new_name: str) -> None:
        told.append(("first", name, new_name))
        if new_name < "d":
            space.rename(new_name, chr(ord(new_name) + 1))
        if raised:
            raise raised.pop()

    space.on_rename(_rename_further)
    space.on_rename(lambda *names: told.append(("second", *names)))
    space.create_list("a")
    with pytest.raises(error) if error else nullcontext():
        space.rename("a", "b")
    space.checkpoint()
    pairs = [("c", "d")] if error is KeyboardInterrupt else [("a", "b"), ("b", "c"), ("c", "d")]
    if error is KeyboardInterrupt:
        told.clear()
        space.rename("c", "d")
    assert told == [(who, *names) for names in pairs for who in ("first", "second")]


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_what_belongs_to_a_renaming_is_told_first_or_nothing_is_saved(space: PersistedObjectSpace) -> None:
    told: list[str] = []
    space.on_rename(lambda *_: told.append("after"))
    space.on_rename(lambda *_: told.append("within"), in_one_piece=True)
    space.create_list("a")
    space.checkpoint()
    space.rename("a", "b")
    assert told == ["within", "after"]
    space.on_rename(interrupt, in_one_piece=True)
    with pytest.raises(KeyboardInterrupt):
        space.rename("b", "c")
    with pytest.raises(CheckpointProtocolError, match="interrupted partway"):
        space.checkpoint()
    space.rollback()
    assert list(space) == ["a"]


def test_the_handle_of_a_deleted_object_is_told_once_it_refuses_work(space: PersistedObjectSpace) -> None:
    told: list[str] = []
    space.on_delete(lambda: told.append("after"))
    space.on_deleted_handle(lambda handle: told.append(repr(handle)))
    space.create_list("a").append(1)
    space.checkpoint()
    space.delete("a")
    assert told == ["<List 'a' [deleted]>", "after"]
    space.rollback()
    told.clear()
    space.delete("a")  # Nobody has a handle of it.
    assert told == ["after"]


def test_an_error_of_who_is_told_first_keeps_nobody_else_from_being_told(space: PersistedObjectSpace) -> None:
    def fail(*_: object) -> None:
        raise ValueError("first")

    told: list[str] = []
    space.on_rename(fail, in_one_piece=True)
    space.on_rename(lambda old, new: told.append(new))
    space.on_deleted_handle(fail)
    space.on_delete(lambda: told.append("deleted"))
    space.create_list("a").append(1)
    with pytest.raises(ValueError, match="first"):
        space.rename("a", "b")
    with pytest.raises(ValueError, match="first"):
        space.delete("b")
    assert (told, list(space)) == (["b", "deleted"], [])


def test_an_error_of_who_is_told_first_is_raised_by_a_renaming_within_another_one(space: PersistedObjectSpace) -> None:
    told: list[str] = []

    def _fail(_: str, new_name: str) -> None:
        if new_name == "inner":
            raise LookupError("the inner one")

    def _rename_further(name: str, new_name: str) -> None:
        told.append(new_name)
        if new_name == "outer":
            with pytest.raises(LookupError, match="the inner one"):
                space.rename("b", "inner")

    space.on_rename(_fail, in_one_piece=True)
    space.on_rename(_rename_further)
    space.create_list("a")
    space.create_list("b")
    space.rename("a", "outer")
    assert (told, list(space)) == (["outer", "inner"], ["outer", "inner"])
