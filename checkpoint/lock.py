"""One writer per store: a lock on a file beside it, which the operating system releases when its process dies."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

import orjson
from filelock import FileLock, Timeout

from checkpoint.errors import CheckpointError, StoreLockedError
from checkpoint.failures import TOO_MANY_OPEN

READ_ONLY = ", or open the store with read_only=True"
"""What a program may do if it cannot write; the command-line tool has no such option."""

_ADVICE = {
    errno.ENAMETOOLONG: "give it a shorter name: those of its lock and its log are a few characters longer",
    **TOO_MANY_OPEN,
    errno.ENOSPC: "its file system has no room for another file: free some space, or remove small files",
    errno.EDQUOT: "its file system has no room for another file: free some space, or remove small files",
    errno.EROFS: f"its file system takes no writes: mount it for writing{READ_ONLY}",
}
"""What to do where the permissions are not the cause."""

_LONGEST_END = "-journal"
"""The longest one that the name of a file beside a store has."""

_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Opens a file only if it is no symbolic link, and waits for no pipe: others may be allowed to write to the folder."""

_CLOSING = "closing"
"""What the owner's note says if the lock will soon be released."""


class WriterLock:
    """The right to write to one store file, held from construction until :meth:`release`.

    A second file tells who holds it, since the lock file itself may be emptied by whoever tries next.

    Args:
        path: the store file; symbolic links to it are the same store, and it has no hard links.

    Raises:
        StoreLockedError: another handle holds it, in this process or another one.
        CheckpointError: the folder of the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        target = path.resolve()
        self._owner_path, self._process = _owner_path(target), os.getpid()
        # A store may be closed by another thread than the one that opened it.
        self._lock = FileLock(target.with_name(target.name + ".lock"), thread_local=False)
        try:
            with suppress(FileNotFoundError):
                target.with_name(target.name + _LONGEST_END).lstat()  # SQLite does not say that a name is too long.
            self._lock.acquire(timeout=0)
        except Timeout:
            raise StoreLockedError(f"{path} is being written by {_named_with_advice(target)}{READ_ONLY}") from None
        except OSError as error:
            beside = Path(self._lock.lock_file).name
            permissions = f"check the permissions of its folder, and of {beside} if that is there{READ_ONLY}"
            advice = _ADVICE.get(error.errno or 0, permissions)
            raise CheckpointError(f"{path} cannot be locked for writing ({error.strerror}): {advice}") from error
        self._lock_path = Path(self._lock.lock_file)
        self._identity = self._identity_now()
        self._tell({})
        if os.name == "posix" and os.geteuid() == 0:
            _give_to_owner_of(target, self._lock_path)

    def require_held(self) -> None:
        """Raise an error if the lock file is gone, so that others may write to the store, or have written.

        Raises:
            CheckpointError: it was removed or replaced.

        Time: one look at the file.
        """
        if self._identity_now() != self._identity:
            raise CheckpointError(
                f"{self._lock_path} was removed or replaced while the store was open, so another process may write to"
                " it: nothing was written; close the store, and open it again when nobody else has it open"
            )

    def _identity_now(self) -> tuple[int, int] | None:
        try:
            found = self._lock_path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def announce(self) -> None:
        """Tell others that the lock will soon be released by itself: they may wait for it."""
        self._tell({_CLOSING: True})

    def _tell(self, more: dict[str, bool]) -> None:
        # The lock holds without this file, which only tells others whom to ask.
        with suppress(OSError):
            # Another user may have left a note, or put a link or a pipe in its place.
            self._owner_path.unlink(missing_ok=True)
            with self._owner_path.open("xb") as file:
                file.write(orjson.dumps({"pid": os.getpid(), "host": socket.gethostname(), **more}))

    def release(self) -> None:
        """Let others write. Calling it twice is allowed; in a forked process, the lock stays with the parent."""
        if self._lock.is_locked and os.getpid() == self._process:
            with suppress(OSError):
                self._owner_path.unlink(missing_ok=True)
            self._lock.release()


def _give_to_owner_of(target: Path, lock: Path) -> None:
    """Give a lock that root has made to the owner of its store, who could not take it otherwise."""
    with suppress(OSError):
        owner, opened = target.stat(), os.open(lock, os.O_RDONLY | _NO_LINK)
        try:
            found = os.fstat(opened)
            # Whoever may write to the folder may have put another file of root in the place of the lock.
            if found.st_uid == 0 != owner.st_uid and S_ISREG(found.st_mode) and found.st_nlink == 1:
                os.fchown(opened, owner.st_uid, owner.st_gid)
        finally:
            os.close(opened)


def owner_of(path: Path) -> str | None:
    """Return in words who writes to a store file; ``None`` if nobody does.

    A killed process leaves its note behind: for this machine, only processes that still run count.
    """
    found = _note(path.resolve())
    if found is None or not _may_live(*found):
        return None
    return _named(path.resolve())


def is_closing(path: Path) -> bool | None:
    """Return whether the holder of a store file's lock says it will release it soon; None if nobody says anything."""
    try:
        return orjson.loads(_owner_path(path.resolve()).read_bytes()).get(_CLOSING, False) is True
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError):
        return False


def _named(target: Path) -> str:
    found = _note(target)
    return "another process" if found is None else "process {} on {}".format(*found)


def _named_with_advice(target: Path) -> str:
    if _note(target) == (os.getpid(), socket.gethostname()):
        return (
            f"this process itself ({_named(target)}): close() what has opened it, or use that; a space closes only a"
            " store that it has opened, not one that was handed to it: store.close() does that"
        )
    return f"{_named(target)}: close that writer first"


def _note(target: Path) -> tuple[int, str] | None:
    """Return the process and the machine that the second file names."""
    try:
        owner = orjson.loads(_owner_path(target).read_bytes())
        return int(owner["pid"]), str(owner["host"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _owner_path(target: Path) -> Path:
    return target.with_name(target.name + ".owner")


def _may_live(pid: int, host: str) -> bool:
    """Return whether a process may be running; for other machines that is not known."""
    if host != socket.gethostname():
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # No process has a number that the system does not have.
        return False
    except OSError:
        return True
    return True
