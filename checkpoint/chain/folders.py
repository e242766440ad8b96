"""Folders of a machine for files that can be recreated: its caches, and what is only used for a moment."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from uuid import uuid4

from checkpoint.errors import CheckpointError, StoreFailedError, StoreLockedError
from checkpoint.lock import WriterLock

KEPT_SECONDS = 7 * 86_400
"""How long to keep a cache that nobody opens: that of a space or an operator that is gone, or of a task that died."""

LONGEST_NAME = 160
"""How many characters of an operator's name go into the name of a folder; file systems take 255 bytes."""

_ELSEWHERE = "set OBJECTSPACE_CACHE, or cache= of the pipeline if it names one, to a folder"
"""What to do about a folder of caches."""

PRIVATE = "private-"
"""The prefix of the names of folders that only one task uses, for as long as it runs."""

# What lies beside the caches may be anybody's: only names that nobody else would choose count as names of caches.
_SPACE_FOLDER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHARD_FOLDER = re.compile(r"[A-Za-z0-9_%-]*-[0-9]+")
_CACHE = re.compile(r"[0-9a-f]{32}\.db")
_PRIVATE_FOLDER = re.compile(rf"{PRIVATE}[0-9a-f]{{32}}-[a-z0-9_]{{8}}")


def cache_root() -> Path:
    """Return the folder of this machine's caches: ``$OBJECTSPACE_CACHE``, or the user's own in the temporary one."""
    named = os.environ.get("OBJECTSPACE_CACHE")
    return Path(named) if named else _own(Path(tempfile.gettempdir()) / f"objectspace-{os.getuid()}")


def _own(root: Path) -> Path:
    """Return a folder that nobody else writes into, made if there is none: what lies in a cache is believed.

    Raises:
        CheckpointError: it is a link, or belongs to another user.
    """
    found = made(root).lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (os.getuid(), os.geteuid()):
        what = f"belongs to user {found.st_uid}" if stat.S_ISDIR(found.st_mode) else "is a link"
        raise CheckpointError(
            f"cache folder {root} {what}: whoever made it decides what is read from it; remove it, or set"
            " OBJECTSPACE_CACHE to a folder of your own"
        )
    if found.st_mode & 0o022:
        with suppress(OSError):
            root.chmod(0o700)
    return root


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder beside the caches of this machine, for files that are not needed afterwards, and remove it on exit.

    Raises:
        CheckpointError: it cannot be made.
    """
    root = made(cache_root())
    # What a killed process has left is removed as old caches are.
    sweep(root)
    with private_folder(root) as folder:
        yield folder


@contextmanager
def private_folder(beside: Path) -> Iterator[Path]:
    """Make a folder in another one, for files that only one task uses, and remove it on exit.

    Raises:
        CheckpointError: it cannot be made.
    """
    try:
        private = tempfile.TemporaryDirectory(prefix=f"{PRIVATE}{uuid4().hex}-", dir=beside, ignore_cleanup_errors=True)
    except OSError as error:
        raise unusable(beside, error) from error
    with private as folder:
        yield Path(folder)


def folder_name(operator: str) -> str:
    """Return a name that every file system accepts, unique to each operator; a long one ends in a digest."""
    # Half of a surrogate pair is refused when an epoch is published, with an error that says so.
    encoded = operator.encode(errors="surrogatepass")
    plain = re.sub(rb"[^A-Za-z0-9_-]", lambda match: b"%%%02x" % ord(match[0]), encoded).decode()
    if len(plain) <= LONGEST_NAME:
        return plain
    return f"{plain[: LONGEST_NAME - 33]}-{hashlib.blake2b(encoded, digest_size=16).hexdigest()}"


def made(folder: Path) -> Path:
    """Return a cache folder, creating it if there is none.

    Raises:
        CheckpointError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise unusable(folder, error) from error
    return folder


def unusable(folder: Path, error: OSError) -> CheckpointError:
    """Return the error for a cache folder that cannot be written."""
    return CheckpointError(f"cache folder {folder}: {error.strerror}: {_ELSEWHERE} that can be written")


def unopened(folder: Path, error: CheckpointError) -> CheckpointError:
    """Return the error for a cache that could not be made in its folder."""
    return CheckpointError(f"cache folder {folder}: {error}; {_ELSEWHERE} that can be written")


def removed(path: Path) -> CheckpointError:
    """Return the error for a cache that somebody has removed while it was brought to an epoch: nothing is lost."""
    return CheckpointError(f"cache {path} was removed while it was open: try again, which makes another one")


def failing(folder: Path, error: CheckpointError) -> StoreFailedError:
    """Return the error for a cache that could not be made: who is told has no store of which to call ``reopen()``."""
    return StoreFailedError(
        f"cache folder {folder}: its file system failed ({error.__cause__ or error}), as when it is full or limits"
        f" files: make room there, or {_ELSEWHERE} of another disk, then try again"
    )


@cache
def sweep(root: Path) -> None:
    """Remove what nobody has opened for long: once per process, and only what is named and placed as caches are."""
    oldest = time.time() - KEPT_SECONDS
    for path in _swept(root):
        # Another process may sweep, or remove what it is done with, at the same time.
        with suppress(OSError, CheckpointError):
            if path.stat().st_mtime < oldest:
                (remove if path.is_dir() else discard)(path)


def _swept(root: Path) -> Iterator[Path]:
    yield from _named(root, _PRIVATE_FOLDER)
    for space in _named(root, _SPACE_FOLDER):
        for shard in _named(space, _SHARD_FOLDER):
            yield from _named(shard, _CACHE)
            yield from _named(shard, _PRIVATE_FOLDER)


def _named(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    with suppress(OSError):
        return [path for path in folder.iterdir() if pattern.fullmatch(path.name)]
    return []


def discard(path: Path) -> None:
    """Remove a cache, unless somebody has it open: whoever that is finds out what it is worth.

    Raises:
        CheckpointError: a file cannot be removed.
    """
    try:
        lock = WriterLock(path)
    except StoreLockedError:
        return
    except CheckpointError:
        remove(path)  # Which says what is wrong with the folder.
        return
    try:
        remove(path)
    finally:
        lock.release()


def remove(path: Path) -> None:
    """Remove a folder, or a store with the files beside it.

    Raises:
        CheckpointError: a file cannot be removed.
    """
    try:
        # The lock goes last: until then nobody opens what is about to go.
        for file in sorted(path.parent.glob(path.name + "*"), key=lambda file: file.name.endswith(".lock")):
            if file.is_dir():
                shutil.rmtree(file, ignore_errors=True)
            else:
                file.unlink(missing_ok=True)
    except OSError as error:
        raise unusable(path.parent, error) from error
