"""What the methods of dictionaries take, told to type checkers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

K = TypeVar("K")
K_contra = TypeVar("K_contra", contravariant=True)
V_co = TypeVar("V_co", covariant=True)


class Keyed(Protocol[K, V_co]):
    """A mapping, as far as ``dict`` looks at one."""

    def keys(self) -> Iterable[K]:
        """Return the keys."""

    def __getitem__(self, key: K, /) -> V_co: ...


class TakesNone(Protocol[K_contra]):
    """A dictionary that may hold ``None``."""

    def __setitem__(self, key: K_contra, value: None, /) -> None: ...
