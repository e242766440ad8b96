"""A location that shows what is done to it, and on request only notes it: how garbage collection is tried."""

from __future__ import annotations

from collections.abc import Iterable

from checkpoint.chain import Location
from checkpoint.tool.printing import Show


class Rehearsal(Location):
    """A location in front of another one.

    Args:
        location: the other one.
        show: called with how many of the files that were listed have been looked at.
        is_dry: whether nothing is written or deleted.
    """

    def __init__(self, location: Location, show: Show, *, is_dry: bool) -> None:
        self._location, self._show, self._is_dry = location, show, is_dry
        self._listed = self._looked_at = 0
        self._gone: set[str] = set()
        """What a rehearsal would have removed: it is not there any more."""

    @property
    def url(self) -> str:
        """The address."""
        return self._location.url

    def place(self) -> tuple[object, str]:
        """Return the file system and the path in it."""
        return self._location.place()

    def parent(self) -> Location | None:
        """Return the folder that it lies in."""
        return self._location.parent()

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a file."""
        return None if name in self._gone else self._location.read(name)

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder."""
        found = [name for name in self._location.names(folder) if f"{folder}/{name}" not in self._gone]
        self._listed = max(self._listed, len(found))
        return found

    def write(self, name: str, data: bytes) -> None:
        """Write a file, unless this is a rehearsal."""
        if not self._is_dry:
            self._location.write(name, data)

    def create(self, name: str, data: bytes) -> bool:
        """Put a file if it is absent, unless this is a rehearsal."""
        return True if self._is_dry else self._location.create(name, data)

    def delete(self, name: str) -> None:
        """Remove a file; in a rehearsal it is only gone from here."""
        if self._is_dry:
            self._gone.add(name)
        else:
            self._location.delete(name)

    def modified(self, name: str) -> float | None:
        """Return when a file was written."""
        self._looked_at += 1
        self._show(self._looked_at, max(self._listed, self._looked_at))
        return self._location.modified(name)

    def leftovers(self, folders: Iterable[str]) -> list[str]:
        """Return the names of temporary files."""
        return self._location.leftovers(folders)

    def require_exclusive_create(self) -> None:
        """Make sure that ``create`` is decided by one party."""
        self._location.require_exclusive_create()
