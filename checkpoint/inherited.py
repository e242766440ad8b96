"""Files that were open in the process that this one was forked from, which it must leave alone.

SQLite records the locks of a process in tables of its own, which a fork copies; the locks themselves belong to the
operating system, and stay with the parent. A child that opens a file recorded in its tables takes no lock: others
checkpoint and truncate the log underneath it, and what it reads and writes is lost or wrong. Nor can the tables be
emptied: a connection that is closed in the child may copy and remove the log of others.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

# What was registered last comes first before a fork. From its turn on, filelock lets nobody release a lock, and whoever
# waits for that may be closing a store: it is imported here so that its turn comes when all of them are done.
import filelock  # noqa: F401

from checkpoint.errors import InheritedStoreError

INSTEAD = 'start this process with "spawn" or "forkserver" of multiprocessing, or close the store before forking'
"""What to do instead of opening a file of the parent."""

_PATIENCE_SECONDS = 5
"""How long a fork waits for other threads that are inside SQLite, all in all."""

Identity = tuple[int, int]
"""The device and inode of a file, by which SQLite tells it from others."""


class Connection(sqlite3.Connection):
    """A connection that can be tracked without being kept open."""


class User(Protocol):
    """A user of connections."""

    mutex: RLock

    def leave_to_parent(self) -> list[Any]:
        """Forget the connections, and return what refers to them."""


_USERS: WeakSet[User] = WeakSet()
"""All users in this process."""

_OPENED: WeakKeyDictionary[sqlite3.Connection, Identity] = WeakKeyDictionary()
"""The files behind the connections that this process has opened, and those that it was forked with."""

_INHERITED: set[Identity] = set()
"""The files that were open in an ancestor when this process, or one between, was forked from it."""

_FORKING: list[Any] = []
"""The mutexes that are held while this process is being forked."""

OPENING = RLock()
"""What is held while somebody joins the users, and while a connection of no user is open: forks wait for it."""


def note_user(user: User) -> None:
    """Make a fork wait until nobody works with what a user has open, and the child leave it to the parent."""
    with OPENING:
        _USERS.add(user)


def note_opened(connection: sqlite3.Connection, path: str | Path) -> None:
    """Note which file a connection has open, for as long as it is open."""
    with suppress(OSError):
        _OPENED[connection] = file_identity(path)


def is_open_elsewhere(path: str | Path, connection: sqlite3.Connection | None) -> bool:
    """Return whether this process has a file open through another connection than a given one."""
    with suppress(OSError):
        mine = file_identity(path)
        return any(one is not connection and _is_open(one) for one, found in _opened() if found == mine)
    return False


def _opened() -> list[tuple[sqlite3.Connection, Identity]]:
    while True:
        with suppress(RuntimeError):  # Another thread has opened one, or closed one.
            return list(_OPENED.items())


def require_own(path: str | Path) -> None:
    """Refuse a file that was open in the process that this one was forked from, before SQLite opens it.

    Raises:
        InheritedStoreError: it was.
    """
    if not _INHERITED:
        return
    with suppress(OSError, ValueError):
        if file_identity(path) in _INHERITED:
            raise InheritedStoreError(
                f"{path} was open in the process that this one was forked from, and the locks of SQLite do not hold in"
                f" such a child: {INSTEAD}"
            )


def file_identity(path: str | Path) -> Identity:
    """Return what distinguishes the file at a path from any other."""
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _is_open(connection: sqlite3.Connection) -> bool:
    try:
        return connection.total_changes >= 0
    except sqlite3.ProgrammingError:
        return False


def _hold_all() -> None:
    """Keep other threads out of SQLite before this process forks: the child would keep SQLite's locks forever.

    Nobody is waited for without end: one of them may be waiting for this thread.
    """
    end, known = time.monotonic() + _PATIENCE_SECONDS, _mutexes()
    _hold(known, end)
    _hold({OPENING}, end)  # From now on there are no new users; those that came meanwhile are held too.
    _hold(_mutexes() - known, end)


def _mutexes() -> set[RLock]:
    while True:
        with suppress(RuntimeError):  # Another thread has joined them meanwhile.
            return {user.mutex for user in _USERS}


def _hold(mutexes: set[RLock], end: float) -> None:
    for mutex in mutexes:
        if mutex.acquire(timeout=max(0, end - time.monotonic())):
            _FORKING.append(mutex)


def _release_all() -> None:
    """Release the mutexes in both processes after the fork: the thread that forked holds them in each."""
    while _FORKING:
        _FORKING.pop().release()


def _leave_all_to_parent() -> None:
    global OPENING
    _release_all()
    OPENING = RLock()  # Somebody who was not waited for long enough may have the other one, and is not here.
    left: list[Any] = [one for user in list(_USERS) for one in user.leave_to_parent()]
    for connection, identity in list(_OPENED.items()):
        if _is_open(connection):
            _INHERITED.add(identity)
            left.append(connection)
    for one in left:
        # Python closes what nobody refers to, and all that is left when it exits: it must not close these.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_leave_all_to_parent)
