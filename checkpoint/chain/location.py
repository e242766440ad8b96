"""Where a chain lies: a folder or an object store, read and written as small whole files."""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec

from checkpoint.address import local_path
from checkpoint.errors import CheckpointError, FencedError

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

PROBE = "exclusive-create.probe"
"""The file that a remote location is tested with: it stays there, since others may be testing at the same time."""

_MOST_LISTINGS = 10
"""How many times to list a folder whose files disappear meanwhile."""

_EXISTS = 412
"""The status of a put that was refused as the file is there: s3fs makes out only some of the answers that have it."""

_CONTESTED = 409
"""The status of a put that met another one of the same file under way, and is to be sent again."""

_PAUSES_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8)
"""How long to wait before a contested put is sent again."""

_TEMPORARY = ".tmp-"
_CREATE_LOCK = threading.Lock()


class Location(ABC):
    """A place that every process of a cluster reaches, holding write-once files by name.

    A location is a small value: it can be pickled, and two with the same URL are equal. Names are relative and use
    ``/``.
    """

    @property
    @abstractmethod
    def url(self) -> str:
        """The address, in a form that ``location_at`` accepts."""

    def place(self) -> tuple[object, str]:
        """Return the file system and the path in it, which are equal for two spellings of one address."""
        return type(self), self.url

    def parent(self) -> Location | None:
        """Return the folder that this one lies in, or None if there is none."""
        return None

    def require_there(self) -> None:  # noqa: B027 -- an object store has no folders that could be gone
        """Make sure that the place of a space is still there, where a write would make another one.

        Raises:
            FencedError: it is gone.
        """

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None if there is none.

        Raises:
            CheckpointError: the location cannot be read.
        """

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, sorted and without the folder; an absent folder is empty.

        Raises:
            CheckpointError: the location cannot be read.
        """

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Write a file whose name nobody else uses; it appears whole or not at all.

        Raises:
            CheckpointError: the location cannot be written.

        Dirties: the one file, durable on return.
        """

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Put a file if it is absent, and return whether this call did: of any number of callers one gets True.

        Args:
            name: the file.
            data: its bytes, which must differ from the bytes of any other caller (hold a UUID, say).

        Raises:
            CheckpointError: the location cannot be written.

        Dirties: the one file, durable on return.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a file; one that is absent is fine.

        Raises:
            CheckpointError: the location cannot be written.

        Dirties: the one file.
        """

    @abstractmethod
    def modified(self, name: str) -> float | None:
        """Return when a file was written, in seconds since 1970 by the clock of the location.

        If there is none, or a folder has the name, return None.

        Raises:
            CheckpointError: the location cannot be read, or does not provide the time.
        """

    def leftovers(self, folders: Iterable[str]) -> list[str]:
        """Return the names of temporary files in some folders, each from a write that is under way or was cut off."""
        return []

    def lost(self, names: Iterable[str]) -> list[str]:
        """Return which of some files no longer exist; none if each look would cost a request."""
        return []

    @abstractmethod
    def require_exclusive_create(self) -> None:
        """Make sure that a single party decides ``create``, before anything relies on it.

        Raises:
            CheckpointError: this location has no such operation.
        """


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
    if publishes and protocol.lower() in _NOT_EXCLUSIVE:
        raise _without_exclusive_create(text, protocol)
    remote = RemoteLocation(f"{protocol}{colon}{rest.rstrip('/')}", dict(options or {}))
    remote.open_file_system()
    return remote


@dataclass(frozen=True)
class LocalLocation(Location):
    """A folder of this machine, or of a network file system that every machine mounts.

    Args:
        root: the folder, made absolute; it is created by the first write.
    """

    root: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", Path(os.path.abspath(self.root)))

    @property
    def url(self) -> str:
        """The absolute path of the folder."""
        return str(self.root)

    def place(self) -> tuple[object, str]:
        """Return the class, and the path with symbolic links resolved."""
        return type(self), os.path.realpath(self.root)

    def parent(self) -> Location:
        """Return the folder that this one lies in."""
        return LocalLocation(self.root.parent)

    def require_there(self) -> None:
        """Make sure that the folder is there."""
        with _explained(self, "look at", "its folder"):
            is_there = self.root.is_dir()
        if not is_there:
            raise FencedError(
                f"location {self.url}: the folder is gone: it was moved or removed, or its file system is not mounted:"
                " put it back, and start again; nothing was written"
            )

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None if there is none."""
        with _explained(self, "read", name):
            try:
                return (self.root / name).read_bytes()
            except FileNotFoundError:
                return None

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, sorted and without the folder."""
        with _explained(self, "list", folder):
            try:
                return sorted(name for name in os.listdir(self.root / folder) if not name.startswith(_TEMPORARY))
            except FileNotFoundError:
                return []

    def write(self, name: str, data: bytes) -> None:
        """Write a file through a temporary name, a sync and a rename."""
        with _explained(self, "write", name):
            staged = self._stage(name, data)
            os.replace(staged, self.root / name)
            _sync_folder(staged.parent)

    def create(self, name: str, data: bytes) -> bool:
        """Put a file if it is absent: a hard link to a synced temporary file, which only one caller can make."""
        with _explained(self, "create", name):
            staged = self._stage(name, data)
            try:
                if not _linked(staged, self.root / name):
                    return False
            finally:
                staged.unlink()
            _sync_folder(staged.parent)
            return True

    def delete(self, name: str) -> None:
        """Remove a file; one that is absent is fine."""
        with _explained(self, "delete", name):
            (self.root / name).unlink(missing_ok=True)

    def modified(self, name: str) -> float | None:
        """Return when a file was written."""
        with _explained(self, "look at", name):
            try:
                found = (self.root / name).stat()
            except FileNotFoundError:
                return None
            return found.st_mtime if stat.S_ISREG(found.st_mode) else None

    def leftovers(self, folders: Iterable[str]) -> list[str]:
        """Return the names of the files that were to be renamed or linked."""
        with _explained(self, "list", "its folders"):
            paths = (path for folder in folders for path in (self.root / folder).glob(f"{_TEMPORARY}*"))
            return sorted(path.relative_to(self.root).as_posix() for path in paths)

    def lost(self, names: Iterable[str]) -> list[str]:
        """Return which of some files no longer exist."""
        return [name for name in names if self.modified(name) is None]

    def require_exclusive_create(self) -> None:
        """Make a hard link and remove it again: some mounted file systems do not support them."""
        with _explained(self, "make a hard link (which publishing an epoch needs) as", PROBE):
            staged = self._stage(PROBE, b"")
            link = staged.with_name(staged.name + "-link")
            try:
                _linked(staged, link)
                link.unlink()
            finally:
                staged.unlink()

    def _stage(self, name: str, data: bytes) -> Path:
        target = self.root / name
        _make_folder(target.parent)
        staged = target.with_name(f"{_TEMPORARY}{uuid4().hex}")
        try:
            with open(staged, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            staged.unlink(missing_ok=True)
            raise
        return staged


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
            _require_options_known(self, error)
            # HDFS looks for Java as soon as it is created, and SFTP connects: both raise errors of their own kinds.
            raise CheckpointError(
                f"location {self.address}: no file system for this URL ({_said(error)}):"
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
        with _explained(self, "read", name):
            try:
                return bytes(system.cat_file(f"{folder}/{name}"))
            except FileNotFoundError as error:
                if _lacks_bucket(error):
                    raise
                return None

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, sorted and without the folder."""
        system, root = self.open_file_system()
        with _explained(self, "list", folder):
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
        with _explained(self, "write", name):
            system.pipe_file(f"{folder}/{name}", data)

    def create(self, name: str, data: bytes) -> bool:
        """Put a file if it is absent, with the exclusive create of the file system."""
        with _explained(self, "create", name):
            for pause in (*_PAUSES_SECONDS, None):
                try:
                    self._put_if_absent(name, data)
                except Exception as error:
                    if isinstance(error, FileExistsError) or _status_of(error) == _EXISTS:
                        # A put that was sent twice, because its first response got lost, meets its own file here.
                        return self.read(name) == data
                    if pause is None or _status_of(error) != _CONTESTED:
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
        with _explained(self, "delete", name), suppress(FileNotFoundError):
            system.rm_file(f"{folder}/{name}")

    def modified(self, name: str) -> float | None:
        """Return when a file was written."""
        system, folder = self.open_file_system()
        with _explained(self, "look at", name):
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


def _lacks_bucket(error: FileNotFoundError) -> bool:
    """Return whether a file of S3 is absent because its bucket is absent: a wrong name, and no place for a space."""
    return bool(_answer(error).get("Error", {}).get("Code") == "NoSuchBucket")


def _status_of(error: BaseException) -> int | None:
    """Return the status that a server of S3 answered with, if that is known."""
    status: int | None = _answer(error).get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status


def _answer(error: BaseException) -> dict[str, Any]:
    """Return what a server of S3 answered, as far as an error tells it."""
    found: Any = getattr(error.__cause__, "response", None)
    return found if isinstance(found, dict) else {}


def _keep_no_listings(system: fsspec.AbstractFileSystem) -> None:
    """Make a file system ask for each file: in a listing that it kept, files that others have put since are missing.

    Clearing its cache before each look would not do: a listing that was under way meanwhile is kept afterwards.
    """
    kept: Any = getattr(system, "dircache", None)
    if getattr(kept, "use_listings_cache", False):
        kept.use_listings_cache = False
        system.invalidate_cache()


@contextmanager
def _explained(location: Location, verb: str, name: str) -> Iterator[None]:
    try:
        yield
    except (CheckpointError, MemoryError):
        raise
    except Exception as error:
        if isinstance(location, RemoteLocation):
            _require_options_known(location, error)
        # The clients of object stores have errors of their own kinds, for example for missing credentials or a missing
        # endpoint.
        advice = "try again once it answers; if it never does, " if _is_outage(error) else ""
        raise CheckpointError(
            f"location {location.url}: cannot {verb} {name}: {_said(error)}: {advice}check the location and the rights"
            " to it"
        ) from error


def _is_outage(error: BaseException) -> bool:
    """Return whether a server could not be reached, or says that the fault is its own and may pass."""
    for cause in _causes_of(error):
        kinds = " ".join(kind.__name__ for kind in type(cause).__mro__)
        if "SSL" in kinds or "Certificate" in kinds:
            return False
        # The clients of S3, Azure and GCS each keep the status elsewhere, and have kinds of their own for connections.
        said = (_status_of(cause), *(getattr(cause, name, None) for name in ("status_code", "code", "status")))
        if "Connection" in kinds or "Timeout" in kinds or _PASSING.intersection(filter(_is_number, said)):
            return True
    return False


def _causes_of(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what led to it, each once: an error can be its own cause."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _is_number(status: object) -> bool:
    return isinstance(status, int)


_PASSING = frozenset(range(500, 600)) - {501, 505}
"""The statuses of faults of a server that may pass: not that it lacks what it was asked for."""


def _require_options_known(location: RemoteLocation, error: Exception) -> None:
    """Refuse the options of a location if its file system says that one of them means nothing to it.

    Only their names are told: the values may be secrets.
    """
    if location.options and _UNEXPECTED in str(error):  # s3fs makes an OSError of the TypeError.
        raise CheckpointError(
            f"location {location.url}: its file system does not know an option ({_said(error)}): check the names of the"
            f" options that were given: {', '.join(_names_in(location.options))}"
        ) from error


def _names_in(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of options, and of those inside of them, as ``client_kwargs`` has some."""
    for name, value in options.items():
        yield str(name)
        if isinstance(value, Mapping):
            yield from (f"{name}.{inner}" for inner in _names_in(value))


_UNEXPECTED = "unexpected keyword argument"
"""What Python says of an argument with a name that a function does not have."""


def _said(error: Exception) -> str:
    """Return the message of an error in one line: HDFS without Java goes on to list every path that it tried."""
    said = str(getattr(error, "strerror", None) or error)
    if said == "None":  # What the client of S3 makes of an answer that has a code and no message, as those of Ceph.
        said = str(_answer(error).get("Error", {}).get("Code", ""))
    return next(filter(None, map(str.strip, said.split("\n"))), type(error).__name__)


def _linked(staged: Path, target: Path) -> bool:
    """Make a hard link if there is none yet, and return whether it leads to this file."""
    try:
        os.link(staged, target)
    except FileExistsError:
        # A link that was sent twice, because the first response of a network file system got lost, meets itself here.
        with suppress(FileNotFoundError):
            return os.path.samefile(staged, target)
        return False
    return True


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    # The entry of a new file is durable only once its folder is.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
