"""What some methods ask of a dictionary or its objects, told to type checkers."""

from __future__ import annotations

from typing import Protocol, TypeVar

K_contra = TypeVar("K_contra", contravariant=True)
C_co = TypeVar("C_co", covariant=True)


class Copied(Protocol[C_co]):
    """A persisted object, as far as its plain copy goes."""

    def copy(self) -> C_co:
        """Return a plain copy."""


class TakesNone(Protocol[K_contra]):
    """A dictionary that may hold ``None``."""

    def __setitem__(self, key: K_contra, value: None, /) -> None: ...
