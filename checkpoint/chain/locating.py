"""From the address of a folder to the location there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checkpoint.address import local_path
from checkpoint.chain.local_location import LocalLocation
from checkpoint.chain.location import Location
from checkpoint.chain.remote_location import RemoteLocation, require_able_to_publish
from checkpoint.errors import CheckpointError


def location_at(
    url: str | os.PathLike[str] | Location, options: Mapping[str, Any] | None = None, *, publishes: bool = False
) -> Location:
    """Return the location at a folder or an fsspec URL.

    Args:
        url: a path, ``file:/...``, or any URL that fsspec opens (``s3://bucket/folder``, ``memory://name``).
        options: what fsspec passes to the file system, such as an endpoint or credentials.
        publishes: whether epochs are to be published there. A protocol that is known to be unable is then refused
            before its file system is made, which may lack a package or a server.

    Raises:
        CheckpointError: the protocol is unknown, its package is not installed, or it cannot be opened; the path is on
            another host; the URL has ``::``, or one slash after the protocol; or that of an object store names no
            bucket, or a version, or has two slashes after the bucket; or the protocol cannot publish and is to.
    """
    if isinstance(url, Location):
        return url
    text = os.fspath(url)
    path = local_path(text)
    if path is not None:
        return LocalLocation(Path(path))
    if "::" in text:
        # For fsspec the path ends there, so several addresses would be one space.
        raise CheckpointError(
            f"location {text}: it has '::', where the path ends for fsspec, which chains file systems by it: give the"
            " URL of one file system, without '::' in its path"
        )
    protocol, colon, rest = text.partition("://")
    if publishes:
        require_able_to_publish(text, protocol)
    remote = RemoteLocation(f"{protocol}{colon}{rest.rstrip('/')}", dict(options or {}))
    remote.open_file_system()
    return remote
