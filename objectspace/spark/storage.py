"""What the options of a read or write say of the location, and to its file system."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import orjson

from objectspace.errors import ObjectSpaceError

PREFIX = "fsspec."
"""What the names of these options begin with; the rest is the name that fsspec knows."""


def absolute(path: str) -> str:
    """Return a path that means the same on every machine and in every process: a URL as it is, another one whole."""
    return path if "://" in path else os.path.abspath(path)


def require_known(options: Mapping[str, str], known: Sequence[str]) -> None:
    """Refuse an option that means nothing here: one that is misspelt would be passed over in silence.

    Args:
        options: all options of a read or write; the case of their names does not matter, and Spark changes it.
        known: the names of those that there are, beside those for the file system.

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
    """Return what fsspec passes to the file system: of each option with the prefix its JSON value, or else its text.

    Args:
        options: all options of a read or write.

    >>> storage_options({"table": "t", "fsspec.key": "me", "fsspec.anon": "false", "fsspec.client_kwargs": '{"a": 1}'})
    {'key': 'me', 'anon': False, 'client_kwargs': {'a': 1}}
    """
    return {name.removeprefix(PREFIX): _value(text) for name, text in options.items() if name.startswith(PREFIX)}


def _value(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
