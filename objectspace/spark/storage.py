"""What the options of a read or write say about the location, and to its file system."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import orjson

from checkpoint import CheckpointError
from checkpoint.address import local_path
from checkpoint.chain import Location, location_at
from objectspace.errors import ObjectSpaceError
from objectspace.spark.connect import in_session_folder

PREFIX = "fsspec."
"""What the names of these options begin with; the rest is the name that fsspec knows."""


def absolute(path: str) -> str:
    """Return a path that means the same on every machine and in every process: a URL as it is, any other made absolute.

    Raises:
        CheckpointError: it is on another host, or a URL with one slash after the protocol.
        ObjectSpaceError: it is relative to a folder that Spark made for the session, and removes with it.
    """
    local = local_path(path)
    if local is None:
        return path
    if not os.path.isabs(local) and in_session_folder():
        raise ObjectSpaceError(
            f"location {path!r}: this process of Spark works in a temporary folder of the session, where no other"
            " session finds what is written: expected an absolute path, or a URL"
        )
    return os.path.abspath(local)


def require_known(options: Mapping[str, str], known: Sequence[str]) -> None:
    """Refuse an option that means nothing here: a misspelt one would be silently ignored.

    Args:
        options: all options of a read or write; the case of their names does not matter, and Spark changes it.
        known: the names of those that exist, apart from those for the file system.

    Raises:
        ObjectSpaceError: there is another one.

    >>> require_known({"path": "state", "retainepochs": "5", "fsspec.key": "me"}, ["path", "retainEpochs"])
    """
    names = {name.lower(): name for name in known}
    for name in options:
        if name.lower() not in names and not name.startswith(PREFIX):
            close = [names[one] for one in get_close_matches(name.lower(), names, 1)]
            raise ObjectSpaceError(
                f"there is no option {name!r}: expected {close[0] if close else ', '.join(sorted(known))}, or one for"
                f" the file system that begins with {PREFIX}"
            )


def storage_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Return what fsspec passes to the file system: for each option with the prefix its JSON value, or else its text.

    Args:
        options: all options of a read or write.

    >>> storage_options({"table": "t", "fsspec.key": "me", "fsspec.anon": "false", "fsspec.client_kwargs": '{"a": 1}'})
    {'key': 'me', 'anon': False, 'client_kwargs': {'a': 1}}
    """
    return {name.removeprefix(PREFIX): _value(text) for name, text in options.items() if name.startswith(PREFIX)}


def require_shared(location: Location) -> None:
    """Make sure that tasks can reach a location.

    Raises:
        CheckpointError: it is the memory of this process.
    """
    if location.url.startswith("memory:"):
        raise CheckpointError(
            f"location {location.url}: tasks run in other processes, which do not see the memory of this one: use a"
            " folder, or a URL that all of them reach"
        )


def shared_location(path: str, storage: Mapping[str, Any], *, publishes: bool = False) -> Location:
    """Return the location of a read or write, which its tasks can reach.

    Raises:
        CheckpointError: it cannot be opened, is the memory of one process, or cannot publish and is to.
    """
    location = location_at(path, storage, publishes=publishes)
    require_shared(location)
    return location


def _value(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
