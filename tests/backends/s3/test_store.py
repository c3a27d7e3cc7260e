"""S3: URLs, keys, conditional requests, and a service that ignores their conditions."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from testkit.servers.s3 import LOGIN, REGION, ObjectStore

import leaselock
from leaselock._backends import open_store
from leaselock._backends.aws import Settings
from leaselock._backends.document.adapter import Delete, Put
from leaselock._backends.s3.bucket import Bucket
from leaselock._backends.s3.keys import key_of, name_of
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from typing import Any

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.filterwarnings("ignore:an object store:UserWarning"),
]


@pytest.fixture
def bucket(object_store: ObjectStore) -> str:
    """The name of a new bucket."""
    name = f"locks-{uuid.uuid4().hex[:8]}"
    with patient(object_store.url(name)) as client:
        assert client.setup() == [f"create the bucket {name}"]
        assert client.setup() == []
    return name


def patient(store: leaselock.Store) -> leaselock.Client:
    """A client for a machine under load."""
    return leaselock.Client(store, op_timeout=60)


def node(server: ObjectStore, bucket: str) -> Bucket:
    """The store, without the protocol."""
    login = (LOGIN["aws_access_key_id"], LOGIN["aws_secret_access_key"], None)
    settings = Settings("s3", REGION, server.endpoint, login=login)
    return Bucket(settings, bucket, "locks/", f"s3://{bucket}/locks", time.monotonic)


def soon() -> float:
    """A deadline."""
    return time.monotonic() + 60


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://", "names a bucket"),
        ("s3://UPPER", "names a bucket"),
        ("s3://bucket/a//b", "prefix"),
        ("s3://bucket/../b", "prefix"),
        (f"s3://bucket/{'x' * 301}", "prefix"),
        ("s3://bucket?prefix=x", "unknown option 'prefix'"),
        ("s3://key@bucket", "write both or none"),
    ],
)
def test_invalid_urls_are_refused(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_store(url, time.monotonic)


def test_opening_says_what_it_is_for() -> None:
    with pytest.warns(UserWarning, match="held for seconds and more"):
        open_store("s3://bucket/prefix", time.monotonic)


def test_a_url_is_shown_without_its_secrets() -> None:
    with leaselock.Client("s3://AKIAEXAMPLE:hidden@bucket/a?region=eu-west-1") as client:
        assert "hidden" not in repr(client)
        assert "s3://bucket/a?region=eu-west-1" in repr(client)


@pytest.mark.parametrize(
    "name", ["a", "größe/5", "..", ".", "a+b%", "x" * 512, "." * 200, "é" * 256, "\U0001f600" * 9]
)
def test_a_key_is_that_of_one_name(name: str) -> None:
    key = key_of(name)
    assert name_of(key) == name
    assert len(key.encode()) <= 1024 - 300 - 1
    assert all(0 < len(part.encode()) <= 255 for part in key.split("/"))
    assert not any(part.startswith(".") for part in key.split("/"))


def test_doctor_finds_that_conditions_are_compared(object_store: ObjectStore, bucket: str) -> None:
    with patient(object_store.url(bucket)) as client:
        findings = client.doctor()
    assert {finding.level for finding in findings} <= {"ok", "skip"}
    assert sum("conditional" in finding.what for finding in findings) == 2


@pytest.mark.parametrize(
    ("operation", "word", "ignored"),
    [
        ("put_object", "writes", ("IfMatch", "IfNoneMatch")),
        ("put_object", "writes", ("IfNoneMatch",)),
        ("delete_object", "del", ("IfMatch",)),
    ],
)
def test_a_service_that_ignores_conditions_is_refused(
    object_store: ObjectStore,
    bucket: str,
    operation: str,
    word: str,
    ignored: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As older services do: the same server, with the conditions removed on the way."""
    store = node(object_store, bucket)
    call = store.connection.call

    def without_conditions(
        name: str, until: float, expected: tuple[str, ...] = (), **arguments: Any
    ) -> dict[str, Any]:
        if name == operation:
            arguments = {k: v for k, v in arguments.items() if k not in ignored}
        return call(name, until, expected, **arguments)

    monkeypatch.setattr(store.connection, "call", without_conditions)
    request = Put("a", b"{}", None, None) if operation == "put_object" else Delete("a", "any")
    with pytest.raises(leaselock.NotApplied, match=f"ignores the conditions of {word}") as caught:
        store.call(request, soon())
    assert caught.value.reason == "misconfigured"
    assert store.list(None, soon()).documents == []
    store.close()


def test_a_bucket_of_boto3_names_the_store(object_store: ObjectStore, bucket: str) -> None:
    with (
        patient(object_store.resource().Bucket(bucket)) as mine,
        patient(object_store.url(bucket)) as other,
        mine.lock("a", timeout=60),
    ):
        assert other.lock("a").try_acquire() is None


def test_a_missing_bucket_is_named(object_store: ObjectStore) -> None:
    with (
        patient(object_store.url("missing")) as client,
        pytest.raises(leaselock.NotApplied, match="'missing' does not exist: leaselock setup"),
    ):
        client.lock("a").try_acquire()


def test_holds_outlast_a_restart_of_the_server() -> None:
    with (
        ObjectStore() as server,
        patient(server.url("locks")) as client,
        patient(server.url("locks")) as other,
    ):
        client.setup()
        with client.lock("a", timeout=60, lease=120) as lease:
            server.stop()
            server.start()
            assert other.lock("a").try_acquire() is None
        with other.lock("a", timeout=60) as second:
            assert second.token > lease.token


def test_a_thread_does_not_wait_for_the_examination_by_another_beyond_its_deadline(
    object_store: ObjectStore, bucket: str
) -> None:
    store = node(object_store, bucket)
    with store._one_at_a_time(soon()), ThreadPoolExecutor(1) as another:
        for late in (
            another.submit(store.put, "a", b"{}", None, None, 0.0),
            another.submit(store.delete, "a", "x", 0.0),
        ):
            with pytest.raises(NotApplied, match="still being examined by another thread"):
                late.result()
    store.close()
