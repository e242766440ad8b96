"""What the options of a read or write say of the location, and to its file system."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import orjson

PREFIX = "fsspec."
"""What the names of these options begin with; the rest is the name that fsspec knows."""


def absolute(path: str) -> str:
    """Return a path that means the same on every machine and in every process: a URL as it is, another one whole."""
    return path if "://" in path else os.path.abspath(path)


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
