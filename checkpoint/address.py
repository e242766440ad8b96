"""Which addresses name a path of this machine, and which are URLs of other file systems."""

from __future__ import annotations

import re
from urllib.parse import unquote

from checkpoint.errors import CheckpointError

_WITHOUT_HOST = frozenset(["alluxio", "dbfs", "hdfs", "maprfs", "memory", "viewfs"])
"""Protocols of file systems of which one is the usual one, so a URL need not name it and then has three slashes."""

REMOTE_PROTOCOLS = _WITHOUT_HOST.union(
    (
        *("abfs", "abfss", "adl", "az", "cos", "cosn", "dropbox", "ftp", "gcs", "gdrive", "github", "gs", "har", "hf"),
        *("http", "https", "lakefs", "o3fs", "obs", "oci", "ofs", "oss", "s3", "s3a", "s3n", "sftp", "smb", "ssh"),
        *("swebhdfs", "swift", "tos", "wasb", "wasbs", "webdav", "webhdfs"),
    )
)
"""Protocols of remote storage, known to fsspec or not; other protocols are names that people give to folders."""

_ONE_SLASH = re.compile("((?:[A-Za-z]+::)*)([A-Za-z][A-Za-z0-9+.-]+):/(?!/)")
"""How a URL begins as Hadoop and Spark print and accept it, and as ``Path`` alters one; a drive has one letter."""


def local_path(address: str) -> str | None:
    """Return the path on this machine that an address names, or ``None`` if it is a URL of another file system.

    Hadoop and Spark print a path with ``file:`` and one slash. An address without a protocol stays as it is spelt. A
    URL of remote storage needs two slashes: with one it would be a folder of this machine with that name.

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
        return _unquoted(rest)
    host, slash, path = rest.removeprefix("//").partition("/")
    if host not in ("", "localhost"):
        raise CheckpointError(
            f"{address!r} names the host {host!r}: give an absolute path, with three slashes, or a path without a"
            " protocol"
        )
    return _unquoted(slash + path)


def _unquoted(path: str) -> str:
    """Return the path that a URL spells with escapes; it need not be UTF-8, and then is as ``os.fsdecode`` has it."""
    return unquote(path, errors="surrogateescape")


def _require_no_single_slash(address: str) -> None:
    found = _ONE_SLASH.match(address)
    if found is None or found[2].lower() not in REMOTE_PROTOCOLS:
        return
    rest, is_one_of_many = address[found.end() :], found[2].lower() not in _WITHOUT_HOST
    meant = f"two, as '{found[0]}/{rest}'" if is_one_of_many else f"three, as '{found[0]}//{rest}' without a host"
    raise CheckpointError(
        f"{address!r} has one slash after the protocol {found[2]!r}: give the URL with {meant}; a local folder of that"
        f" name is {'./' + address!r}, as text: a Path drops the dot"
    )
