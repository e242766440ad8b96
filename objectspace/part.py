"""A part of a space: names under a prefix, for code that must not run into the names of others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn, TypeVar

from objectspace.errors import CheckpointProtocolError
from objectspace.factory import ObjectFactory
from objectspace.objects.base import PersistedObject
from objectspace.objects.torn import InOnePiece
from objectspace.space import ObjectSpace

P = TypeVar("P", bound=PersistedObject)


class SpacePart(ObjectFactory):
    """The objects of a space whose names begin with a prefix, under the rest of their names.

    It creates, gets, deletes and lists objects as a space does; checkpoints belong to whoever has the space. Names that
    begin with ``$`` are the library's own and not part of it. A ``KeyValueTableManager`` works on it as on a space.

    Args:
        space: the space.
        prefix: what the names begin with.

    >>> from objectspace import VolatileObjectSpace
    >>> space = VolatileObjectSpace()
    >>> part = SpacePart(space, "mine/")
    >>> part.create_list("l").append(1)
    >>> list(part), list(space)
    (['l'], ['mine/l'])
    """

    def __init__(self, space: ObjectSpace, prefix: str) -> None:
        self._space, self._prefix = space, prefix

    def __repr__(self) -> str:
        return f"SpacePart({self._space!r}, {self._prefix!r})"

    @property
    def whole(self) -> ObjectSpace:
        """The space that this is a part of."""
        return self._space

    @property
    def prefix(self) -> str:
        """What the names of the part begin with in the whole space."""
        return self._prefix

    def get(self, name: str) -> Any:
        """Return the object of this name, of whatever kind.

        Raises:
            ObjectNotFoundError: there is none.
        """
        return self._space.get(self._full(name))

    def delete(self, name: str) -> None:
        """Delete an object; its name is free at once.

        Raises:
            ObjectNotFoundError: there is none of this name.

        Time: O(1).
        Dirties: one index row.
        """
        self._space.delete(self._full(name))

    def rename(self, name: str, new_name: str) -> None:
        """Give an object another name in the same part.

        Raises:
            ObjectNotFoundError: there is none of this name.
            NameInUseError: the new name is in use.

        Time: O(1).
        Dirties: one index row.
        """
        self._space.rename(self._full(name), self._full(new_name))

    def rollback(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: rollbacks belong to whoever has the space.

        Raises:
            CheckpointProtocolError: always.
        """
        self._refuse()

    def checkpoint(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: checkpoints belong to whoever has the space.

        Raises:
            CheckpointProtocolError: always.
        """
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise CheckpointProtocolError(
            f"a part of a space ({self._prefix}) has no checkpoints or rollbacks of its own: what is changed here is"
            " saved, or taken back, with the whole, by whoever has the space"
        )

    def in_one_piece(self, *made_up_for: type[Exception]) -> InOnePiece:
        """Return a ``with`` block for several edits that are only useful together, as the whole space does."""
        return self._space.in_one_piece(*made_up_for)

    def kind_of(self, name: str) -> str:
        """Return the kind of an object, ``"Dictionary"`` for example.

        Raises:
            ObjectNotFoundError: there is none of this name.
        """
        return self._space.kind_of(self._full(name))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and not name.startswith("$") and f"{self._prefix}{name}" in self._space

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[str]:
        names = (name.removeprefix(self._prefix) for name in self._space if name.startswith(self._prefix))
        return (name for name in names if not name.startswith("$"))

    def _create(self, cls: type[P], name: str, options: dict[str, Any]) -> P:
        return self._space._create(cls, self._full(name), options)  # type: ignore[no-any-return]

    def _get(self, cls: type[P], name: str) -> P:
        return self._space._get(cls, self._full(name))  # type: ignore[no-any-return]

    def _full(self, name: str) -> str:
        if not isinstance(name, str) or not name or name.startswith("$"):
            raise ValueError(
                f"the name {name!r} under {self._prefix!r}: expected text that does not begin with '$': such names are"
                " those of the library, whose relational tables belong to a whole space: a part has objects and"
                " key-value tables"
            )
        return f"{self._prefix}{name}"


def in_whole(space: ObjectSpace | SpacePart, name: str) -> tuple[ObjectSpace, str]:
    """Return the whole space, and the name that an object of a part has in it."""
    while isinstance(space, SpacePart):
        name = f"{space.prefix}{name}"
        space = space.whole
    return space, name
