"""Which addresses name a path of this machine, and which are URLs of other file systems."""

from __future__ import annotations

import re
from urllib.parse import unquote

import fsspec

from checkpoint.errors import CheckpointError

HADOOP_PROTOCOLS = frozenset(
    (
        *("abfss", "adl", "alluxio", "cosn", "dbfs", "har", "hdfs", "maprfs", "o3fs", "obs", "ofs", "oss", "s3n"),
        *("swebhdfs", "swift", "viewfs", "wasb", "wasbs", "webhdfs"),
    )
)
"""Protocols of file systems of Hadoop and Spark, of some of which fsspec knows nothing."""

_ONE_SLASH = re.compile("([A-Za-z][A-Za-z0-9+.-]+):/(?!/)")
"""How a URL begins that Hadoop and Spark print and take, and ``Path`` makes of one; a drive has one letter."""


def local_path(address: str) -> str | None:
    """Return the path of this machine that an address names, ``None`` where it is a URL of another file system.

    Hadoop and Spark print a path with ``file:`` and one slash. One without a protocol stays as it is spelt. Any other
    protocol wants two slashes: with one it would be a folder of this machine that is called so.

    Args:
        address: a path, ``file:/...``, ``file://...``, or any other URL.

    Raises:
        CheckpointError: it is on another host, or a URL of another file system with one slash.

    >>> local_path("state/flights"), local_path("file:/tmp/a%20b"), local_path("s3://bucket/flights")
    ('state/flights', '/tmp/a b', None)
    """
    protocol, colon, rest = address.partition(":")
    if not colon or protocol.lower() not in ("file", "local"):
        _require_no_single_slash(address)
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


def _require_no_single_slash(address: str) -> None:
    found = _ONE_SLASH.match(address)
    if found is not None and found[1].lower() in HADOOP_PROTOCOLS.union(fsspec.available_protocols()):
        raise CheckpointError(
            f"{address!r} has one slash after the protocol {found[1]!r}: give the URL with two, as"
            f" {found[1] + '://'!r} and what follows, or {'./' + address!r} for a folder of this machine that is called"
            " so"
        )
