"""Chains on S3: a real client against a server on this machine, which refuses what is there already."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest
from botocore.exceptions import ClientError, ConnectionClosedError
from moto.server import ThreadedMotoServer
from s3fs.errors import translate_boto_error

from checkpoint import CheckpointError, CorruptStoreError, FencedError
from checkpoint.chain import Chain, Collected, Location, SourcePosition, location_at, open_cache, save_run
from checkpoint.chain.remote_location import RemoteLocation
from tests.chain.chain_helpers import OPERATOR, Publisher, run_of

BUCKET = "bucket"
ACCESS = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
PATIENCE = {"connect_timeout": 5, "read_timeout": 20, "retries": {"max_attempts": 1}}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The address of a server that ends with the module."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module")
def client(endpoint: str) -> object:
    """A plain client of the server, which shares nothing with the code under test."""
    made = boto3.client("s3", endpoint_url=endpoint, **ACCESS)
    made.create_bucket(Bucket=BUCKET)
    return made


@pytest.fixture
def location(endpoint: str, client: object) -> Location:
    """A folder of the bucket that holds nothing yet."""
    return at(endpoint, f"s3://{BUCKET}/{uuid4().hex}/space")


def at(endpoint: str, url: str) -> Location:
    access = {"key": "test", "secret": "test", "client_kwargs": {"region_name": "us-east-1"}}
    return location_at(url, {"endpoint_url": endpoint, "config_kwargs": PATIENCE, **access})


def test_the_server_itself_refuses_a_second_put(location: Location, client: object) -> None:
    assert location.create("manifest/1", b"first")
    assert not location.create("manifest/1", b"second")
    key = f"{location.url.removeprefix(f's3://{BUCKET}/')}/manifest/1"
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put_object(Bucket=BUCKET, Key=key, Body=b"third", IfNoneMatch="*")  # type: ignore[attr-defined]
    assert location.read("manifest/1") == b"first"
    assert location.create("manifest/1", b"first")
    location.require_exclusive_create()
    location.require_exclusive_create()


def test_a_refusal_that_does_not_say_which_condition_it_is_for_is_one(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    def translated(error: ClientError, *args: Any, **kwargs: Any) -> Any:
        error.response.get("Error", {}).pop("Condition", None)  # Servers that are no Amazon's do not send it.
        return translate_boto_error(error, *args, **kwargs)

    monkeypatch.setattr("s3fs.core.translate_boto_error", translated)
    assert location.create("manifest/1", b"first")
    assert not location.create("manifest/1", b"second")
    assert location.create("manifest/1", b"first")
    assert location.read("manifest/1") == b"first"
    location.require_exclusive_create()


@pytest.mark.parametrize("times", [2, 99])
def test_a_contested_put_is_sent_again(location: Location, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    def contested(*args: Any) -> None:
        if next(left, None) is not None:
            answer: Any = {"Error": {}, "ResponseMetadata": {"HTTPStatusCode": 409}}
            raise OSError("please try again") from ClientError(answer, "PutObject")
        put(*args)

    left, put, pauses = iter(range(times)), RemoteLocation._put_if_absent, list[float]()
    monkeypatch.setattr(RemoteLocation, "_put_if_absent", contested)
    monkeypatch.setattr("checkpoint.chain.remote_location.time.sleep", pauses.append)
    with pytest.raises(CheckpointError, match="please try again") if times > 10 else nullcontext():
        assert location.create("manifest/1", b"first")
    assert (location.read("manifest/1"), len(pauses)) == ((None, 5) if times > 10 else (b"first", 2))


@pytest.mark.parametrize(
    ("cause", "advice"),
    [
        (ClientError({"ResponseMetadata": {"HTTPStatusCode": 503}}, "PutObject"), "try again once it answers; .*"),  # type: ignore[typeddict-item]
        (ConnectionRefusedError(111, "refused"), "try again once it answers; .*"),
        (ConnectionClosedError(endpoint_url="http://minio:9000"), "try again once it answers; .*"),
        (ClientError({"ResponseMetadata": {"HTTPStatusCode": 403}}, "PutObject"), ""),  # type: ignore[typeddict-item]
        (PermissionError(13, "denied"), ""),
    ],
)
def test_an_outage_is_told_from_what_trying_again_does_not_mend(
    location: Location, monkeypatch: pytest.MonkeyPatch, cause: Exception, advice: str
) -> None:
    def fail(*args: Any) -> None:
        raise OSError("it is so") from cause

    monkeypatch.setattr(RemoteLocation, "_put_if_absent", fail)
    with pytest.raises(CheckpointError, match=f"cannot create a: it is so: {advice}check the location and the rights"):
        location.create("a", b"")


def test_an_error_that_is_its_own_cause_is_told_too(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        error = OSError("it is so")
        raise error from error

    monkeypatch.setattr(RemoteLocation, "_put_if_absent", fail)
    with pytest.raises(CheckpointError, match="cannot create a: it is so: check the location"):
        location.create("a", b"")


def test_a_listing_hides_no_file_that_another_process_put_after_it(location: Location, client: object) -> None:
    location.write("manifest/1", b"1")
    prefix = location.url.removeprefix(f"s3://{BUCKET}/")
    for number, look in enumerate((location.read, lambda name: location.create(name, b"2")), 2):
        assert len(location.names("manifest")) == number - 1
        client.put_object(Bucket=BUCKET, Key=f"{prefix}/manifest/{number}", Body=b"2")  # type: ignore[attr-defined]
        # That of create may be our own put, whose first answer got lost.
        assert look(f"manifest/{number}") in (b"2", True)


def test_a_listing_under_way_while_a_file_is_put_hides_it_from_nobody(location: Location) -> None:
    assert isinstance(location, RemoteLocation)
    location.write("manifest/1", b"1")
    system, folder = location.open_file_system()
    stale = system.ls(f"{folder}/manifest", detail=True)
    location.write("manifest/2", b"2")
    system.dircache[f"{folder}/manifest"] = stale
    assert location.read("manifest/2") == b"2"


def test_of_many_rivals_one_wins(location: Location) -> None:
    won: list[bytes] = []
    start = threading.Barrier(4)

    def rival() -> None:
        data = uuid4().bytes
        start.wait()
        if location.create("manifest/1", data):
            won.append(data)

    threads = [threading.Thread(target=rival) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [location.read("manifest/1")] == won


def test_the_whole_cycle_of_a_chain(location: Location, publish: Publisher, tmp_path: Path) -> None:
    chain, rival = Chain.open_or_create(location, 2), Chain.open_or_create(location, 2)
    for epoch in range(1, 8):
        publish(chain, {"a": epoch, f"k{epoch}": 1}, {"b": epoch} if epoch % 3 == 1 else {}, full_after=2)
    with pytest.raises(FencedError, match="epoch 1 was published by another driver"):
        publish(rival, {"a": 100}, {})
    assert chain.begin(SourcePosition("q", 6), [OPERATOR]) is None
    save_run(chain.operator_plan(OPERATOR), 0, run_of({"orphan": 1}))
    removed = Chain.open(location).collect(grace_seconds=0, keep_epochs=2)
    assert (removed.first_epoch, removed.runs > 3) == (6, True)
    opened = Chain.open(location)
    assert opened.collect(grace_seconds=0, keep_epochs=2) == Collected(6, 0, 0, 0)
    publish(opened, {"a": 8}, {})
    plan = opened.operator_plan(OPERATOR, cache=str(tmp_path / "other machine"))
    for shard, expected in enumerate([{"a": "8", **{f"k{n}": "1" for n in range(1, 8)}}, {"b": "7"}]):
        with open_cache(plan, shard) as store:
            assert {item.slot: item.value for item in store.reader().items(1)} == expected


def test_damage_and_absence_are_named(location: Location, publish: Publisher, endpoint: str, tmp_path: Path) -> None:
    chain = Chain.open_or_create(location, 1)
    publish(chain, {"a": 1})
    (run,) = chain.lineage(OPERATOR, 0)
    location.write(run.file, b"not what was accepted")
    plan = chain.operator_plan(OPERATOR, cache=str(tmp_path / "cache"))
    with pytest.raises(CorruptStoreError, match=r"run/.* is damaged"), open_cache(plan, 0):
        pass
    location.delete(run.file)
    location.delete(run.file)
    assert (location.read(run.file), location.modified(run.file)) == (None, None)
    with pytest.raises(CheckpointError, match="check the location and the rights to it"):
        Chain.open_or_create(at(endpoint, f"s3://no-such-bucket-{uuid4().hex}/space"), 1)


@pytest.mark.parametrize(
    "misspelt", [{"secrt": "hush"}, {"client_kwargs": {"regoin_name": "hush"}}, {"config_kwargs": {"timeuot": "hush"}}]
)
def test_a_misspelt_option_is_told_and_no_value_of_one(endpoint: str, misspelt: dict[str, object]) -> None:
    with pytest.raises(CheckpointError, match="check the names of the options that were given: endpoint_url, ") as told:
        Chain.open(location_at(f"s3://{BUCKET}/x", {"endpoint_url": endpoint, "key": "hush", **misspelt}))
    assert "hush" not in str(told.value)


def test_a_bucket_that_does_not_exist_is_told_from_a_place_without_a_space(endpoint: str, location: Location) -> None:
    with pytest.raises(CheckpointError, match="no space here"):
        Chain.open(location)
    with pytest.raises(CheckpointError, match=r"no-such-bucket/x: .*The specified bucket does not exist"):
        Chain.open(at(endpoint, "s3://no-such-bucket/x"))


def test_a_file_that_stands_for_a_folder_does_not_lie_in_it(
    location: Location, client: object, publish: Publisher
) -> None:
    prefix = location.url.removeprefix(f"s3://{BUCKET}/")
    for folder in ("", "run/", "manifest/", "floor/"):
        client.put_object(Bucket=BUCKET, Key=f"{prefix}/{folder}", Body=b"")  # type: ignore[attr-defined]
    assert [location.names(folder) for folder in ("run", "manifest", "floor")] == [[], [], []]
    assert location.names("") == ["floor", "manifest", "run"]
    chain = Chain.open_or_create(location, 1)
    for epoch in range(3):
        publish(chain, {"a": epoch})
    assert chain.collect(grace_seconds=0, keep_epochs=1).first_epoch == Chain.open(location).first_epoch == 3
