"""A chain in an object store, or any other file system that fsspec opens."""

from __future__ import annotations

import re
import threading
import time
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import fsspec

from checkpoint.chain.location import PROBE, Location
from checkpoint.chain.storage_errors import explained, lacks_bucket, refuse_unknown_option, said_by, status_of
from checkpoint.errors import CheckpointError

OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
"""The remote file systems whose files lie in buckets or containers."""

EXCLUSIVE_PROTOCOLS = OBJECT_STORES | {"memory"}
"""The remote file systems in which a single party decides an exclusive create: S3 by If-None-Match, GCS by
ifGenerationMatch, Azure by its no-overwrite put, memory by a lock of this process. For others fsspec only asks first
whether the file exists, and two drivers may both hear "no"."""

_AZURE = ("abfs://", "abfss://", "az://")

_SERVERS = frozenset(("arrow_hdfs", "ftp", "hdfs", "http", "https", "sftp", "smb", "ssh", "webdav", "webhdfs"))
_SERVICES = frozenset(("adl", "box", "dbfs", "dropbox", "gdrive", "gist", "git", "github", "hf", "lakefs"))
_NOT_EXCLUSIVE = _SERVERS | _SERVICES | frozenset(("oci", "ocilake", "oss", "tos", "tosfs"))
"""Protocols that fsspec knows and whose file systems have no exclusive create: to publish there, installing something
or reaching a server would not help."""

_MOST_LISTINGS = 10
"""How many times to list a folder whose files disappear meanwhile."""

_EXISTS = 412
"""The status of a put that was refused as the file is there: s3fs makes out only some of the answers that have it."""

_CONTESTED = 409
"""The status of a put that met another one of the same file under way, and is to be sent again."""

_PAUSES_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8)
"""How long to wait before a contested put is sent again."""

_CREATE_LOCK = threading.Lock()


@dataclass(frozen=True)
class RemoteLocation(Location):
    """A folder of any file system that fsspec opens.

    Args:
        address: the URL of the folder.
        options: what fsspec passes to the file system.
    """

    address: str
    options: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def url(self) -> str:
        """The URL of the folder."""
        return self.address

    def place(self) -> tuple[object, str]:
        """Return the file system, which fsspec shares among equivalent protocols and options, and the path in it."""
        system, folder = self.open_file_system()
        return system, folder.strip("/")

    def parent(self) -> Location | None:
        """Return the folder that this one lies in, or None for a bucket."""
        outer = self.address.rpartition("/")[0]
        return None if outer.endswith(("/", ":")) else RemoteLocation(outer, self.options)

    def open_file_system(self) -> tuple[fsspec.AbstractFileSystem, str]:
        """Return the file system (one per process: fsspec keeps it) and the folder inside it.

        Raises:
            CheckpointError: the protocol is unknown, its package is not installed, or it cannot be opened; or it is an
                object store, and the URL names no bucket or a version, or has two slashes after the bucket.
        """
        try:
            system, folder = fsspec.core.url_to_fs(self.address, **self.options)
        except MemoryError:
            raise
        except Exception as error:
            refuse_unknown_option(self.address, self.options, error)
            # HDFS looks for Java as soon as it is created, and SFTP connects: both raise errors of their own kinds.
            raise CheckpointError(
                f"location {self.address}: no file system for this URL ({said_by(error)}):"
                " install the fsspec package of its protocol and what that needs, or use a folder"
            ) from error
        if OBJECT_STORES.intersection(_protocols(system)):
            self._require_place(folder)
        _keep_no_listings(system)
        return system, folder.rstrip("/")

    def _require_place(self, folder: str) -> None:
        """Refuse a folder of an object store that is in no bucket, or whose files would not be put where it says."""
        bucket, _, key = folder.strip("/").partition("/")
        if not bucket:
            raise CheckpointError(
                f"location {self.address}: it names no bucket: expected one, as in s3://bucket/folder"
            )
        if "?versionid=" in key.lower():
            # The client cuts it off with everything after it: all files of the space would be put under one key.
            raise CheckpointError(
                f"location {self.address}: it names a version of an object, and a space lies in a folder of many:"
                " leave out ?versionId= and what follows"
            )
        if "\\" in key and self.address.startswith(_AZURE):
            raise CheckpointError(
                f"location {self.address}: Azure takes a backslash for a slash, and what is put there is not listed:"
                " expected another name, or slashes"
            )
        if key.startswith("/"):
            single = re.sub(r"(?<=[^:/])/{2,}", "/", self.address, count=1)
            raise CheckpointError(
                f"location {self.address}: it has more than one slash after the bucket: expected one, as in {single}"
            )

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None if there is none."""
        system, folder = self.open_file_system()
        with self._explained("read", name):
            try:
                return bytes(system.cat_file(f"{folder}/{name}"))
            except FileNotFoundError as error:
                if lacks_bucket(error):
                    raise
                return None

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, sorted and without the folder."""
        system, root = self.open_file_system()
        with self._explained("list", folder):
            system.invalidate_cache()  # another process may have published since the last listing
            try:
                found = _listed(system, f"{root}/{folder}")
            except FileNotFoundError:
                return []
        # A console of S3 makes a folder as an empty file, whose name ends in a slash: it does not lie in the folder.
        marker = f"{root}/{folder}".rstrip("/") + "/"
        return sorted(path.rstrip("/").rsplit("/", 1)[-1] for path in found if path != marker)

    def write(self, name: str, data: bytes) -> None:
        """Write a file with one put."""
        system, folder = self.open_file_system()
        with self._explained("write", name):
            system.pipe_file(f"{folder}/{name}", data)

    def create(self, name: str, data: bytes) -> bool:
        """Put a file if it is absent, with the exclusive create of the file system."""
        with self._explained("create", name):
            for pause in (*_PAUSES_SECONDS, None):
                try:
                    self._put_if_absent(name, data)
                except Exception as error:
                    if isinstance(error, FileExistsError) or status_of(error) == _EXISTS:
                        # A put that was sent twice, because its first response got lost, meets its own file here.
                        return self.read(name) == data
                    if pause is None or status_of(error) != _CONTESTED:
                        raise
                    time.sleep(pause)
                else:
                    break
        return True

    def _put_if_absent(self, name: str, data: bytes) -> None:
        system, folder = self.open_file_system()
        with _CREATE_LOCK:
            system.pipe_file(f"{folder}/{name}", data, mode="create")

    def delete(self, name: str) -> None:
        """Remove a file; one that is absent is fine."""
        system, folder = self.open_file_system()
        with self._explained("delete", name), suppress(FileNotFoundError):
            system.rm_file(f"{folder}/{name}")

    def modified(self, name: str) -> float | None:
        """Return when a file was written."""
        system, folder = self.open_file_system()
        with self._explained("look at", name):
            system.invalidate_cache()
            try:
                return float(system.modified(f"{folder}/{name}").timestamp())
            except (FileNotFoundError, IsADirectoryError):
                return None
            except KeyError:  # What the clients of Azure and GCS ask for is not known of a folder.
                if system.isdir(f"{folder}/{name}"):
                    return None
                raise
            except NotImplementedError as error:
                raise CheckpointError(
                    f"location {self.address}: its file system does not tell how old a file is, which collecting"
                    " garbage needs: use a folder, S3, GCS or Azure"
                ) from error

    def require_exclusive_create(self) -> None:
        """Require a protocol that is known to decide, and check that a second create is really refused."""
        system, _ = self.open_file_system()
        known = EXCLUSIVE_PROTOCOLS.intersection(_protocols(system))
        if not known:
            raise _without_exclusive_create(self.address, *_protocols(system))
        if self.create(PROBE, uuid4().bytes) and self.create(PROBE, uuid4().bytes):
            raise CheckpointError(
                f"location {self.address}: its server cannot create a file only where it is absent, which publishing an"
                " epoch needs: it took two, as some older servers do, and some for a bucket that keeps versions: use"
                " another bucket, another server, or a folder"
            )

    def _explained(self, verb: str, name: str) -> AbstractContextManager[None]:
        return explained(self.address, verb, name, self.options)


def require_able_to_publish(url: str, protocol: str) -> None:
    """Refuse a protocol that is known to have no exclusive create, before its file system is made.

    Raises:
        CheckpointError: it has none.
    """
    if protocol.lower() in _NOT_EXCLUSIVE:
        raise _without_exclusive_create(url, protocol)


def _without_exclusive_create(url: str, *protocols: str) -> CheckpointError:
    return CheckpointError(
        f"location {url}: its file system ({'/'.join(protocols)}) cannot create a file only where it is absent, which"
        " publishing an epoch needs: use a folder, S3, GCS or Azure"
    )


def _protocols(system: fsspec.AbstractFileSystem) -> tuple[str, ...]:
    return (system.protocol,) if isinstance(system.protocol, str) else tuple(system.protocol)


def _listed(system: fsspec.AbstractFileSystem, folder: str) -> list[str]:
    """Return the paths in a folder.

    The memory file system looks up each path that it has found, and fails if another thread has removed one meanwhile.
    """
    for _ in range(_MOST_LISTINGS - 1):
        with suppress(KeyError):
            return list(system.ls(folder, detail=False))
    return list(system.ls(folder, detail=False))


def _keep_no_listings(system: fsspec.AbstractFileSystem) -> None:
    """Make a file system ask for each file: in a listing that it kept, files that others have put since are missing.

    Clearing its cache before each look would not do: a listing that was under way meanwhile is kept afterwards.
    """
    kept: Any = getattr(system, "dircache", None)
    if getattr(kept, "use_listings_cache", False):
        kept.use_listings_cache = False
        system.invalidate_cache()
