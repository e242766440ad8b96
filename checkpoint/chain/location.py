"""Where a chain lies: a place that every machine reaches, read and written as small whole files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

PROBE = "exclusive-create.probe"
"""The file that a location is tested with: it stays there, since others may be testing at the same time."""


class Location(ABC):
    """A place that every process of a cluster reaches, holding write-once files by name.

    A location is a small value: it can be pickled, and two with the same URL are equal. Names are relative and use
    ``/``.
    """

    @property
    @abstractmethod
    def url(self) -> str:
        """The address, in a form that ``location_at`` accepts."""

    def place(self) -> tuple[object, str]:
        """Return the file system and the path in it, which are equal for two spellings of one address."""
        return type(self), self.url

    def parent(self) -> Location | None:
        """Return the folder that this one lies in, or None if there is none."""
        return None

    def require_there(self) -> None:  # noqa: B027 -- an object store has no folders that could be gone
        """Make sure that the place of a space is still there, where a write would make another one.

        Raises:
            FencedError: it is gone.
        """

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None if there is none.

        Raises:
            CheckpointError: the location cannot be read.
        """

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, sorted and without the folder; an absent folder is empty.

        Raises:
            CheckpointError: the location cannot be read.
        """

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Write a file whose name nobody else uses; it appears whole or not at all.

        Raises:
            CheckpointError: the location cannot be written.

        Dirties: the one file, durable on return.
        """

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Put a file if it is absent, and return whether this call did: of any number of callers one gets True.

        Args:
            name: the file.
            data: its bytes, which must differ from the bytes of any other caller (hold a UUID, say).

        Raises:
            CheckpointError: the location cannot be written.

        Dirties: the one file, durable on return.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a file; one that is absent is fine.

        Raises:
            CheckpointError: the location cannot be written.

        Dirties: the one file.
        """

    @abstractmethod
    def modified(self, name: str) -> float | None:
        """Return when a file was written, in seconds since 1970 by the clock of the location.

        If there is none, or a folder has the name, return None.

        Raises:
            CheckpointError: the location cannot be read, or does not provide the time.
        """

    def leftovers(self, folders: Iterable[str]) -> list[str]:
        """Return the names of temporary files in some folders, each from a write that is under way or was cut off."""
        return []

    def lost(self, names: Iterable[str]) -> list[str]:
        """Return which of some files no longer exist; none if each look would cost a request."""
        return []

    @abstractmethod
    def require_exclusive_create(self) -> None:
        """Make sure that a single party decides ``create``, before anything relies on it.

        Raises:
            CheckpointError: this location has no such operation.
        """
