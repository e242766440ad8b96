"""One writer a store: a lock on a file beside it, which the operating system drops when its process dies."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

import orjson
from filelock import FileLock, Timeout

from checkpoint.errors import CheckpointError, StoreLockedError


class WriterLock:
    """The right to write to one store file, held from construction until :meth:`release`.

    Who holds it is told by a second file, since the lock file itself may be emptied by whoever tries next.

    Args:
        path: the store file; symbolic links to it are the same store, and hard links must not be used.

    Raises:
        StoreLockedError: another handle holds it, in this process or another one.
        CheckpointError: the folder of the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        target = path.resolve()
        self._owner_path = target.with_name(target.name + ".owner")
        # Whoever closes a store may be another thread than the one that opened it.
        self._lock = FileLock(target.with_name(target.name + ".lock"), thread_local=False)
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise StoreLockedError(
                f"{path} is being written by {self._owner()}: close that writer first, or open the store with"
                " read_only=True"
            ) from None
        except OSError as error:
            raise CheckpointError(
                f"{path} cannot be locked for writing ({error.strerror}): check the permissions of its folder, or open"
                " it with read_only=True"
            ) from error
        # The lock holds without this file: it only tells others whom to ask.
        with suppress(OSError):
            self._owner_path.write_bytes(orjson.dumps({"pid": os.getpid(), "host": socket.gethostname()}))

    def release(self) -> None:
        """Let others write. May be done twice."""
        if self._lock.is_locked:
            with suppress(OSError):
                self._owner_path.unlink(missing_ok=True)
            self._lock.release()

    def _owner(self) -> str:
        try:
            owner = orjson.loads(self._owner_path.read_bytes())
            return f"process {owner['pid']} on {owner['host']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"
