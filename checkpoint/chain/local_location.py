"""A chain in a folder of this machine, or of a file system that it mounts."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from checkpoint.chain.location import PROBE, Location
from checkpoint.chain.storage_errors import explained
from checkpoint.errors import FencedError
from checkpoint.recognised import absolute

_TEMPORARY = ".tmp-"


@dataclass(frozen=True)
class LocalLocation(Location):
    """A folder of this machine, or of a network file system that every machine mounts.

    Args:
        root: the folder, made absolute; it is created by the first write.
    """

    root: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", Path(absolute(self.root)))

    @property
    def url(self) -> str:
        """The absolute path of the folder."""
        return str(self.root)

    def place(self) -> tuple[object, str]:
        """Return the class, and the path with symbolic links resolved."""
        return type(self), os.path.realpath(self.root)

    def parent(self) -> Location:
        """Return the folder that this one lies in."""
        return LocalLocation(self.root.parent)

    def require_there(self) -> None:
        """Make sure that the folder is there."""
        with explained(self.url, "look at", "its folder"):
            is_there = self.root.is_dir()
        if not is_there:
            raise FencedError(
                f"location {self.url}: the folder is gone: it was moved or removed, or its file system is not mounted:"
                " put it back, and start again; nothing was written"
            )

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None if there is none."""
        with explained(self.url, "read", name):
            try:
                return (self.root / name).read_bytes()
            except FileNotFoundError:
                return None

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, sorted and without the folder."""
        with explained(self.url, "list", folder):
            try:
                return sorted(name for name in os.listdir(self.root / folder) if not name.startswith(_TEMPORARY))
            except FileNotFoundError:
                return []

    def write(self, name: str, data: bytes) -> None:
        """Write a file through a temporary name, a sync and a rename."""
        with explained(self.url, "write", name):
            staged = self._stage(name, data)
            os.replace(staged, self.root / name)
            _sync_folder(staged.parent)

    def create(self, name: str, data: bytes) -> bool:
        """Put a file if it is absent: a hard link to a synced temporary file, which only one caller can make."""
        with explained(self.url, "create", name):
            staged = self._stage(name, data)
            try:
                if not _linked(staged, self.root / name):
                    return False
            finally:
                staged.unlink()
            _sync_folder(staged.parent)
            return True

    def delete(self, name: str) -> None:
        """Remove a file; one that is absent is fine."""
        with explained(self.url, "delete", name):
            (self.root / name).unlink(missing_ok=True)

    def modified(self, name: str) -> float | None:
        """Return when a file was written."""
        with explained(self.url, "look at", name):
            try:
                found = (self.root / name).stat()
            except FileNotFoundError:
                return None
            return found.st_mtime if stat.S_ISREG(found.st_mode) else None

    def leftovers(self, folders: Iterable[str]) -> list[str]:
        """Return the names of the files that were to be renamed or linked."""
        with explained(self.url, "list", "its folders"):
            paths = (path for folder in folders for path in (self.root / folder).glob(f"{_TEMPORARY}*"))
            return sorted(path.relative_to(self.root).as_posix() for path in paths)

    def lost(self, names: Iterable[str]) -> list[str]:
        """Return which of some files no longer exist."""
        return [name for name in names if self.modified(name) is None]

    def require_exclusive_create(self) -> None:
        """Make a hard link and remove it again: some mounted file systems do not support them."""
        with explained(self.url, "make a hard link (which publishing an epoch needs) as", PROBE):
            staged = self._stage(PROBE, b"")
            link = staged.with_name(staged.name + "-link")
            try:
                _linked(staged, link)
                link.unlink()
            finally:
                staged.unlink()

    def _stage(self, name: str, data: bytes) -> Path:
        target = self.root / name
        _make_folder(target.parent)
        staged = target.with_name(f"{_TEMPORARY}{uuid4().hex}")
        try:
            with open(staged, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            staged.unlink(missing_ok=True)
            raise
        return staged


def _linked(staged: Path, target: Path) -> bool:
    """Make a hard link if there is none yet, and return whether it leads to this file."""
    try:
        os.link(staged, target)
    except FileExistsError:
        # A link that was sent twice, because the first response of a network file system got lost, meets itself here.
        with suppress(FileNotFoundError):
            return os.path.samefile(staged, target)
        return False
    return True


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    # The entry of a new file is durable only once its folder is.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
