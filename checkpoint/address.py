"""Which addresses name a path of this machine, and which are URLs of other file systems."""

from __future__ import annotations

from urllib.parse import unquote

from checkpoint.errors import CheckpointError


def local_path(address: str) -> str | None:
    """Return the path of this machine that an address names, ``None`` where it is a URL of another file system.

    Hadoop and Spark print a path with ``file:`` and one slash. One without a protocol stays as it is spelt.

    Args:
        address: a path, ``file:/...``, ``file://...``, or any other URL.

    Raises:
        CheckpointError: it is on another host.

    >>> local_path("state/flights"), local_path("file:/tmp/a%20b"), local_path("s3://bucket/flights")
    ('state/flights', '/tmp/a b', None)
    """
    protocol, colon, rest = address.partition(":")
    if not colon or protocol.lower() not in ("file", "local"):
        return None if "://" in address else address
    if not rest.startswith("//"):
        return unquote(rest)
    host, slash, path = rest.removeprefix("//").partition("/")
    if host not in ("", "localhost"):
        raise CheckpointError(
            f"{address!r} names the host {host!r}: give an absolute path, with three slashes, or a path without a"
            " protocol"
        )
    return unquote(slash + path)
