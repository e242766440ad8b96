"""Locations: whole files, one winner for each put-if-absent, and clear refusals."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from checkpoint import CheckpointError
from checkpoint.chain import Chain, Location, location_at


def test_a_file_reads_back_and_an_absent_one_is_none(location: Location) -> None:
    location.write("run/a", b"\x00bytes")
    assert location.read("run/a") == b"\x00bytes"
    assert location.read("run/b") is None
    assert location.names("run") == ["a"]
    assert location.names("manifest") == []


def test_a_location_survives_pickling(location: Location) -> None:
    location.write("run/a", b"x")
    copy = pickle.loads(pickle.dumps(location))
    assert copy == location
    assert copy.read("run/a") == b"x"


def test_put_if_absent_keeps_the_first(location: Location) -> None:
    assert location.create("manifest/1", b"first")
    assert not location.create("manifest/1", b"second")
    assert location.read("manifest/1") == b"first"
    assert location.names("manifest") == ["1"]


def test_of_many_rivals_one_wins_and_its_bytes_stay(location: Location) -> None:
    won: list[bytes] = []
    start = threading.Barrier(8)

    def rival(name: str) -> None:
        data = uuid4().bytes
        start.wait()
        if location.create(name, data):
            won.append(data)

    for number in range(20):
        won.clear()
        threads = [threading.Thread(target=rival, args=(f"manifest/{number}",)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [location.read(f"manifest/{number}")] == won


def test_a_remote_put_that_was_sent_twice_has_won(location: Location) -> None:
    remote = location_at(f"memory://{uuid4().hex}")
    assert remote.create("manifest/1", b"mine")
    assert remote.create("manifest/1", b"mine")


def test_a_hard_link_that_was_sent_twice_has_won(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def twice(staged: Path, target: Path) -> None:
        link(staged, target)
        link(staged, target)

    location = location_at(tmp_path)
    monkeypatch.setattr("os.link", twice)
    assert location.create("manifest/1", b"mine")
    assert not location.create("manifest/1", b"theirs")
    assert location.read("manifest/1") == b"mine"
    location.require_exclusive_create()


@pytest.mark.parametrize("put", ["write", "create"])
def test_a_put_that_finds_no_space_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: str) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    location = location_at(tmp_path)
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(CheckpointError, match="No space left on device"):
        getattr(location, put)("file", b"data")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("put", ["write", "create"])
def test_a_put_is_whole_when_it_is_flushed_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: str
) -> None:
    sizes, fsync = [], os.fsync

    def _noted(descriptor: int) -> None:
        sizes.append(os.fstat(descriptor).st_size)
        fsync(descriptor)

    monkeypatch.setattr("os.fsync", _noted)
    getattr(location_at(tmp_path), put)("file", b"data")
    assert sizes[0] == 4


def test_a_relative_folder_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    location = location_at("here")
    monkeypatch.chdir("/")
    location.write("a", b"1")
    assert (tmp_path / "here" / "a").read_bytes() == b"1"
    assert location_at((tmp_path / "here").as_uri()) == location


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match=r"cannot read space\.json.*check the location"):
        Chain.open(location_at(tmp_path / "file"))
    with pytest.raises(CheckpointError, match=str(tmp_path / "file")):
        location_at(tmp_path / "file").write("run/a", b"")


def test_an_unknown_protocol_says_what_to_install() -> None:
    with pytest.raises(CheckpointError, match="nosuch://x: no file system for this URL"):
        location_at("nosuch://x")


@pytest.mark.parametrize("url", ["memory://", "memory:///"])
def test_the_root_of_a_file_system_is_a_location(url: str) -> None:
    name, data = uuid4().hex, uuid4().bytes
    location_at(url).write(f"{name}/a", data)
    assert location_at(f"memory://{name}/").read("a") == data
    assert name in location_at(url).names("")


@pytest.mark.parametrize("url", ["s3a://bucket/space", "s3://bucket/space/", "s3:///bucket/space"])
def test_two_spellings_of_a_url_are_one_place(url: str) -> None:
    assert location_at(url).place() == location_at("s3://bucket/space").place() != location_at("s3://bucket").place()


def test_a_bucket_lies_in_no_folder() -> None:
    assert location_at("s3://bucket/space").parent() == location_at("s3://bucket")
    assert location_at("s3://bucket").parent() is None


@pytest.mark.parametrize("url", ["s3://", "s3:///", "s3a://"])
def test_a_url_without_a_bucket_is_refused(url: str) -> None:
    with pytest.raises(CheckpointError, match=r"location s3a?://: it names no bucket: expected one"):
        location_at(url)


@pytest.mark.parametrize("url", ["s3://bucket//space/a", "s3a://bucket///space/a", "s3:///bucket//space/a/"])
def test_a_url_whose_key_begins_with_a_slash_is_refused(url: str) -> None:
    with pytest.raises(CheckpointError, match=r"location s3\S+ it has more than one slash .* as in (\S+)$") as caught:
        location_at(url)
    single = str(caught.value).rsplit(" ", 1)[-1]
    assert location_at(single).place() == location_at("s3://bucket/space/a").place()


@pytest.mark.parametrize("url", ["s3://bucket/p/a?versionId=x", "s3a://bucket/p/a?versionid=x", "s3://b/p?versionId="])
def test_a_url_that_names_a_version_of_an_object_is_refused(url: str) -> None:
    with pytest.raises(
        CheckpointError, match=r"location s3\S+ it names a version of an object, .* leave out \?version"
    ):
        location_at(url)
    assert location_at("memory://p/a?versionId=x").url == "memory://p/a?versionId=x"


@pytest.mark.parametrize("url", ["memory://a::b", "s3://bucket/a::b", "dir://a::file:///tmp", "nosuch://a/b::c.fork"])
def test_a_url_that_fsspec_would_cut_is_refused(url: str) -> None:
    with pytest.raises(CheckpointError, match=rf"location {url}: it has '::', where the path ends for fsspec"):
        location_at(url)


def test_a_folder_may_have_two_colons_in_its_name(tmp_path: Path) -> None:
    for address in (tmp_path / "a::b", f"file://{tmp_path}/a::b"):
        assert location_at(address).url == f"{tmp_path}/a::b"
    location_at(tmp_path / "a::b").write("x", b"1")
    assert location_at(tmp_path / "a::c").read("x") is None


def test_a_protocol_without_exclusive_create_is_refused(tmp_path: Path) -> None:
    archive = location_at("dir://inner", {"path": str(tmp_path), "target_protocol": "file"})
    with pytest.raises(CheckpointError, match="cannot create a file only where it is absent"):
        Chain.open_or_create(archive, 1)
    assert archive.read("space.json") is None


@pytest.mark.parametrize("url", ["hdfs://h/x", "sftp://h/x", "webhdfs://h/x", "ftp://127.0.0.1:1/x", "dbfs:///x"])
def test_a_protocol_that_cannot_publish_is_refused_before_its_file_system_is_made(url: str) -> None:
    """Without its package or its server, the reason would be another one, and the advice would not help."""
    protocol = url.partition(":")[0]
    refused = rf"location {url}: its file system \({protocol}\) cannot create a file only where it is absent"
    with pytest.raises(CheckpointError, match=refused):
        location_at(url, publishes=True)


class _Careless(MemoryFileSystem):  # type: ignore[misc]
    """A file system that promises exclusive create and overwrites."""

    protocol = ("careless", "memory")

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        super().pipe_file(path, value, mode="overwrite", **kwargs)


def test_a_file_system_that_breaks_its_promise_is_refused() -> None:
    fsspec.register_implementation("careless", _Careless, clobber=True)
    with pytest.raises(CheckpointError, match=r"its server cannot create a file only where it is absent,.* took two"):
        Chain.open_or_create(location_at(f"careless://{uuid4().hex}"), 1)


class _Going(dict[str, Any]):
    """What the file system in memory holds, while another thread removes a file in the midst of each listing."""

    def __iter__(self) -> Iterator[str]:
        listed = [*super().__iter__()]
        self.pop(next((name for name in listed if name.endswith(("run/a", "run/b"))), ""), None)
        return iter(listed)


def test_a_listing_of_memory_bears_that_files_go_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    location = location_at(f"memory://{uuid4().hex}")
    for name in "abc":
        location.write(f"run/{name}", b"1")
    mine = {path: file for path, file in MemoryFileSystem.store.items() if location.url.endswith(path.split("/")[1])}
    monkeypatch.setattr(MemoryFileSystem, "store", _Going(mine))
    assert location.names("run") == ["c"]


class _WithoutCredentials(MemoryFileSystem):  # type: ignore[misc]
    """A file system whose client has errors of its own kind, as those of object stores do."""

    protocol = ("unknowing", "memory")

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: object) -> bytes:
        raise LookupError("no credentials found")


def test_an_error_of_a_client_is_told_as_one_of_the_location() -> None:
    fsspec.register_implementation("unknowing", _WithoutCredentials, clobber=True)
    with pytest.raises(CheckpointError, match=r"cannot read space\.json: no credentials found: check the location"):
        location_at(f"unknowing://{uuid4().hex}").read("space.json")


class _WithOptions(MemoryFileSystem):  # type: ignore[misc]
    """A file system whose client is made late, as that of S3: it knows the options that it takes only then."""

    protocol = ("choosy", "memory")

    def __init__(self, **options: object) -> None:
        super().__init__()
        self.options = options
        if options.get("is_early"):
            self.connect(**options)  # type: ignore[arg-type]

    def connect(self, secret: str = "", *, is_early: bool = False, client_kwargs: object = None) -> None:
        """Take the options."""

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: object) -> bytes:
        self.connect(**self.options)  # type: ignore[arg-type]
        return bytes(super().cat_file(path, start, end, **options))


@pytest.mark.parametrize("is_early", [False, True])
def test_a_misspelt_option_of_a_file_system_is_told_without_its_value(is_early: bool) -> None:
    fsspec.register_implementation("choosy", _WithOptions, clobber=True)
    options = {"secrt": "hush", "client_kwargs": {"verify": "hush"}, "is_early": is_early}
    with pytest.raises(CheckpointError) as refused:
        location_at(f"choosy://{uuid4().hex}", options).read("space.json")
    for told in ("unexpected keyword argument 'secrt'", "): check the names of the options that were given: secrt, cl"):
        assert told in str(refused.value)
    assert not {"hush", "the rights", "install"} & {*str(refused.value).replace(":", "").split()}
    assert "client_kwargs.verify" in str(refused.value)


class _WithoutJava(MemoryFileSystem):  # type: ignore[misc]
    """A file system that lacks something when it is made, as that of HDFS does without libjvm."""

    protocol = "stillborn"

    def __init__(self, **options: object) -> None:
        raise OSError("Unable to load libjvm\ndlopen(/usr/lib/jvm/libjvm.so) failed")


def test_a_file_system_that_cannot_be_made_is_refused_with_the_reason() -> None:
    fsspec.register_implementation("stillborn", _WithoutJava, clobber=True)
    with pytest.raises(CheckpointError, match=r"stillborn://x: no file system for this URL \(Unable to load libjvm\)"):
        location_at("stillborn://x")


@pytest.mark.parametrize("url", ["hdfs:/x", "dbfs:/x", "S3:/bucket/x", "http:/x", "memory:/x", "viewfs:/x", "wasbs:/x"])
def test_a_url_with_one_slash_founds_no_folder_of_its_name(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each machine of a cluster would have a folder of its own."""
    monkeypatch.chdir(tmp_path)
    protocol = url.partition(":")[0]
    slashes, begin = ("three", "///") if protocol in ("hdfs", "dbfs", "viewfs", "memory") else ("two", "//")
    meant = f"{protocol}:{begin}{url.partition('/')[2]}"
    refused = rf"'{url}' has one slash after the protocol '{protocol}': .* {slashes}, as '{meant}'.*'\./{url}', as text"
    for given in (url, Path(url)):
        with pytest.raises(CheckpointError, match=refused):
            location_at(given)
    for folder in (f"./{url}", f"x:/{url}", f"nosuch:/{url}", protocol):
        assert location_at(folder).url == os.path.abspath(folder)


@pytest.mark.parametrize("name", ["data", "dir", "box", "root", "tar", "zip", "generic", "reference", "local.data"])
def test_a_folder_may_end_in_a_colon(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert location_at(f"{name}:/x").url == str(tmp_path / f"{name}:" / "x")


@pytest.mark.parametrize("url", ["simplecache::s3:/b/x", "filecache::hdfs:/x", "blockcache::simplecache::gs:/b/x"])
def test_a_chained_url_with_one_slash_founds_no_folder_of_its_name(url: str) -> None:
    with pytest.raises(CheckpointError, match=f"'{url}' has one slash after the protocol"):
        location_at(url)


def test_urls_of_files(tmp_path: Path) -> None:
    assert location_at(f"file://{tmp_path}//a").url == f"{tmp_path}/a"
    for url in (f"file://{tmp_path}/a%20b?c#d", f"file:{tmp_path}/a b?c#d", f"local://localhost{tmp_path}/a b?c#d"):
        assert location_at(url).url == f"{tmp_path}/a b?c#d"
    with pytest.raises(CheckpointError, match="names the host 'state'"):
        location_at("file://state/flights")


@pytest.mark.parametrize("spelling", ["file://{}", "file:{}", "local://localhost{}"])
def test_the_url_of_a_folder_that_is_no_text_is_that_folder(tmp_path: Path, spelling: str) -> None:
    for byte in (b"\xe9", b"\xe8"):
        folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf" + byte))
        made = Chain.open_or_create(location_at(folder), 1)
        url = spelling.format(folder.as_uri().removeprefix("file://"))
        assert Chain.open(location_at(url)).incarnation == made.incarnation


def test_lack_of_memory_is_told_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_bytes", Mock(side_effect=MemoryError))
    with pytest.raises(MemoryError):
        location_at(tmp_path).read("run/a")


class _Client(MemoryFileSystem):
    """Does what the clients of Azure and GCS do: of a folder they know no time, and say so with a bare key."""

    protocol = ("abfs", "abfss")
    store: dict[str, Any] = {}  # noqa: RUF012 -- as in the class that it extends
    cachable = False

    def modified(self, path: str) -> Any:
        return self.info(path)["created"]

    def cat_file(self, path: str, *_: Any, **__: Any) -> Any:
        """Raise what the client of S3 makes of an answer without a message, where a file is to be refused."""
        if not path.endswith("refused"):
            return super().cat_file(path)
        answer = Exception()
        answer.response = {"Error": {"Code": "SignatureDoesNotMatch", "Message": None}}  # type: ignore[attr-defined]
        raise PermissionError("None") from answer


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> Location:
    """A location whose client is like that of Azure."""
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url, **_: (_Client(), url.partition("://")[2]))
    return location_at("abfs://bucket/space")


def test_a_folder_that_its_client_knows_no_time_of_has_none(azure: Location) -> None:
    azure.write("run/notes/readme.txt", b"x")
    assert azure.modified("run/notes/readme.txt") is not None
    assert (azure.modified("run/notes"), azure.modified("run/absent")) == (None, None)


def test_what_a_server_answers_without_a_message_is_told_by_its_code(azure: Location) -> None:
    with pytest.raises(CheckpointError, match=r"cannot read refused: SignatureDoesNotMatch: check the location"):
        azure.read("refused")


@pytest.mark.usefixtures("azure")
def test_a_backslash_in_a_url_of_azure_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"Azure takes a backslash for a slash, and what is put there is not"):
        location_at("abfs://bucket/a\\b/space")


def test_a_relative_location_is_told_of_a_working_folder_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(CheckpointError, match=r"^state cannot be found: .* give an absolute path"):
        location_at("state")
