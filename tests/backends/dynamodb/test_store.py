"""DynamoDB: URLs, clients of boto3, the table, its doctor, and what its errors mean."""

from __future__ import annotations

import json
import os
import time
import traceback
import uuid
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any, Self

import boto3
import botocore.session
import pytest
from boto3.session import Session
from botocore.credentials import DeferredRefreshableCredentials
from testkit.servers.dynamodb import LOGIN, REGION, DynamoDB, environment
from testkit.servers.process import HOST, eventually

import leaselock
from leaselock._backends import open_store
from leaselock._backends.aws import Settings
from leaselock._backends.dynamodb.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.heavy

THROTTLED = "ProvisionedThroughputExceededException"
DOCUMENT = b'{"some": "document"}'


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of AWS but those of the test."""
    for name in set(os.environ) - set(environment()):
        monkeypatch.delenv(name)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def table(dynamodb: DynamoDB) -> str:
    """The name of a table that is set up."""
    name = f"table-{uuid.uuid4().hex[:8]}"
    with patient(dynamodb.url(name)) as client:
        client.setup()
    return name


def boto(server: DynamoDB) -> Any:
    """A client of the user's."""
    return server.client()


def patient(store: leaselock.Store) -> leaselock.Client:
    """A client for a machine under load."""
    return leaselock.Client(store, op_timeout=60)


def settings_of(endpoint: str) -> Settings:
    """How to reach a server."""
    login = (LOGIN["aws_access_key_id"], LOGIN["aws_secret_access_key"], None)
    return Settings("dynamodb", REGION, endpoint, login=login)


def node(server: DynamoDB, table: str, endpoint: str | None = None) -> Table:
    """The store, without the protocol."""
    settings = settings_of(endpoint or server.endpoint)
    return Table(settings, table, "", f"dynamodb://{table}", time.monotonic)


def soon(seconds: float = 30.0) -> float:
    """A deadline."""
    return time.monotonic() + seconds


class Faults:
    """A server before the real one. *fault* decides what is done with an operation: None passes it
    on; a pair of a status and an error answers it, and so do bytes; "lost" passes it on and drops
    the reply.
    """

    def __init__(self, server: DynamoDB) -> None:
        faults = self
        self.fault: Callable[[str], tuple[int, str] | str | bytes | None] = lambda operation: None
        self.message = "no"
        self.seen: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                operation = self.headers["X-Amz-Target"].partition(".")[2]
                faults.seen.append(operation)
                body = self.rfile.read(int(self.headers["Content-Length"]))
                fault = faults.fault(operation)
                if isinstance(fault, bytes):
                    self._reply(200, fault)
                    return
                if isinstance(fault, tuple):
                    status, code = fault
                    reply = json.dumps(
                        {"__type": f"com.amazonaws#{code}", "message": faults.message}
                    )
                    self._reply(status, reply.encode())
                    return
                behind = HTTPConnection(HOST, server.port)
                headers = {name: value for name, value in self.headers.items() if name != "Host"}
                behind.request("POST", "/", body, headers)
                with behind.getresponse() as response:
                    text = response.read()
                    if fault == "lost":
                        self.close_connection = True
                    else:
                        self._reply(response.status, text)
                behind.close()

            def _reply(self, status: int, text: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/x-amz-json-1.0")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self.server = ThreadingHTTPServer((HOST, 0), Handler)
        self.endpoint = f"http://{HOST}:{self.server.server_address[1]}"
        self.thread = Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class Provider:
    """Credentials that are fetched when they are needed."""

    def __init__(self, refresh: Callable[[], dict[str, str]]) -> None:
        self.refresh = refresh

    def load_credentials(self) -> object:
        """Return them."""
        return DeferredRefreshableCredentials(self.refresh, "test")


class First:
    """The fault of the first *times* operations of a kind."""

    def __init__(self, kind: str, times: int, fault: tuple[int, str] | str) -> None:
        self.kind, self.times, self.fault = kind, times, fault

    def __call__(self, operation: str) -> tuple[int, str] | str | None:
        """What to do."""
        if operation != self.kind or not self.times:
            return None
        self.times -= 1
        return self.fault


# --- the URL, and clients


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("dynamodb://", "names a table, of 3 to 255"),
        ("dynamodb://ab", "names a table, of 3 to 255"),
        ("dynamodb://a,b", "names a table, of 3 to 255"),
        ("dynamodb://locks/path", "no path"),
        ("dynamodb://locks?regoin=x", "unknown option 'regoin'"),
        ("dynamodb://locks?protocol=hash", "no protocol 'hash'"),
        ("dynamodb://locks?endpoint=localhost", "must be http://host:port"),
        ("dynamodb://locks?endpoint=ftp://localhost", "must be http://host:port"),
        ("dynamodb://locks?region=", "is empty"),
        ("dynamodb://key@locks", "write both or none"),
        ("dynamodb://key:secret@locks?profile=x", "one source of credentials"),
        ("dynamodb://locks?session_token=x", "belongs to the id"),
        ("dynamodb://locks?poll=no", "must be 0.02 to 60 seconds"),
        ("dynamodb://locks?poll=0.01", "must be 0.02 to 60 seconds"),
        (f"dynamodb://locks?prefix={'x' * 513}", "at most 512 bytes"),
    ],
)
def test_invalid_urls_are_refused(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_store(url, time.monotonic)


def test_a_url_is_shown_without_its_secrets() -> None:
    url = "dynamodb://AKIAEXAMPLE:hidden@locks?region=eu-west-1&session_token=hidden2&prefix=a:"
    with leaselock.Client(url) as client:
        assert "hidden" not in repr(client)
        assert "dynamodb://locks?region=eu-west-1&prefix=a%3A" in repr(client)
    assert "hidden" not in repr(open_store(url, time.monotonic))


def test_a_client_of_boto3_names_the_server(dynamodb: DynamoDB) -> None:
    with patient(boto(dynamodb)) as client:
        assert client.setup()
        with client.lock("a", timeout=30) as lease:
            assert lease.token


def test_a_table_of_boto3_names_the_table(dynamodb: DynamoDB, table: str) -> None:
    resource = boto3.resource(
        "dynamodb", region_name=REGION, endpoint_url=dynamodb.endpoint, **LOGIN
    )
    with (
        patient(resource.Table(table)) as mine,
        patient(dynamodb.url(table)) as other,
        mine.lock("a", timeout=30),
    ):
        assert other.lock("a").try_acquire() is None


def test_a_client_of_another_service_is_refused() -> None:
    other = boto3.client("sts", region_name=REGION, **LOGIN)
    with pytest.raises(TypeError, match=r"boto3 \(DynamoDB, S3\)"):
        leaselock.Client(other)
    other.close()


def test_the_credentials_come_from_where_boto3_finds_them(
    dynamodb: DynamoDB, table: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"dynamodb://{table}?region={REGION}&endpoint={dynamodb.endpoint}"
    with patient(url) as client, pytest.raises(leaselock.NotApplied) as caught:
        client.lock("a").try_acquire()
    assert caught.value.reason == "denied"
    assert "credentials" in str(caught.value)
    file = tmp_path / "credentials"
    file.write_text("[tests]\naws_access_key_id = a\naws_secret_access_key = b\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    with patient(f"{url}&profile=tests") as client:
        client.lock("a").acquire(timeout=30).release()
    with patient(f"{url}&profile=none") as client:
        with pytest.raises(leaselock.NotApplied, match="profile") as caught:
            client.lock("a").try_acquire()
        assert caught.value.reason == "misconfigured"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with patient(url) as client:
        client.lock("a").acquire(timeout=30).release()


def test_credentials_that_a_session_refreshes_are_used(dynamodb: DynamoDB, table: str) -> None:
    """Not a copy of the ones at the time when the client was given."""
    asked = []

    def refresh() -> dict[str, str]:
        asked.append(1)
        login = {"access_key": "a", "secret_key": "b", "token": "c"}
        return login | {"expiry_time": "2100-01-01T00:00:00Z"}

    core = botocore.session.Session()
    core.register_component("credential_provider", Provider(refresh))
    user = Session(botocore_session=core, region_name=REGION)
    resource = user.resource("dynamodb", endpoint_url=dynamodb.endpoint)
    with patient(resource.Table(table)) as client:
        client.lock("a").acquire(timeout=30).release()
    assert asked


# --- the table


def test_a_list_has_the_names_and_documents_of_a_prefix(dynamodb: DynamoDB, table: str) -> None:
    settings = settings_of(dynamodb.endpoint)
    mine, other = (
        Table(settings, table, prefix, "", time.monotonic) for prefix in ("mine:", "other:")
    )
    names = {f"größe/{i}": b'"%d"' % i for i in range(5)}
    for name, value in names.items():
        mine.put(name, value, None, None, soon())
    other.put("a", DOCUMENT, None, None, soon())
    page = mine.list(None, soon())
    assert {name: found.value for name, found in page.documents if found} == names
    assert page.position is None
    mine.close()
    other.close()


def test_unused_items_have_the_time_from_which_they_may_be_deleted(
    dynamodb: DynamoDB, table: str
) -> None:
    with patient(dynamodb.url(table, token_ttl="1h")) as client:
        client.lock("a").acquire(timeout=30).release()
    item = boto(dynamodb).get_item(TableName=table, Key={"id": {"S": "a"}})["Item"]
    assert 3000 < float(item["expires"]["N"]) - time.time() < 4000
    with patient(dynamodb.url(table, token_ttl="0")) as client:
        client.lock("b").acquire(timeout=30).release()
    item = boto(dynamodb).get_item(TableName=table, Key={"id": {"S": "b"}})["Item"]
    assert "expires" not in item


def test_a_lock_goes_on_when_dynamodb_deletes_its_item_early(
    dynamodb: DynamoDB, table: str
) -> None:
    """The clock of who wrote it was wrong, for example. The tokens go on rising."""
    user = boto(dynamodb)
    with patient(dynamodb.url(table)) as one, patient(dynamodb.url(table)) as two:
        first = one.lock("a").acquire(timeout=30)
        first.release()
        user.delete_item(TableName=table, Key={"id": {"S": "a"}})
        with one.lock("a", timeout=30) as second:
            assert second.token > first.token
            assert two.lock("a").try_acquire() is None
        user.delete_item(TableName=table, Key={"id": {"S": "a"}})
        with two.lock("a", timeout=30) as third:
            assert third.token > second.token


def test_a_lock_goes_on_when_dynamodb_deletes_its_item_late(dynamodb: DynamoDB, table: str) -> None:
    """Its time has passed long ago, and it is there still."""
    user = boto(dynamodb)
    with patient(dynamodb.url(table)) as client:
        first = client.lock("a").acquire(timeout=30)
        first.release()
        item = user.get_item(TableName=table, Key={"id": {"S": "a"}})["Item"]
        user.put_item(TableName=table, Item=item | {"expires": {"N": "1000"}})
        with client.lock("a", timeout=30) as second:
            assert second.token > first.token
            held = user.get_item(TableName=table, Key={"id": {"S": "a"}})["Item"]
            assert float(held.get("expires", {}).get("N", "inf")) > time.time() + 86400


def test_a_hold_whose_item_is_deleted_is_lost_and_said_to_be(
    dynamodb: DynamoDB, table: str
) -> None:
    user = boto(dynamodb)
    with patient(dynamodb.url(table)) as client:
        lease = client.lock("a", lease=1.5).acquire(timeout=30)
        user.delete_item(TableName=table, Key={"id": {"S": "a"}})
        eventually(lambda: lease.lost)
        with pytest.raises(leaselock.LeaseLost):
            lease.release()


def test_an_item_of_others_is_not_overwritten(dynamodb: DynamoDB, table: str) -> None:
    user = boto(dynamodb)
    user.put_item(TableName=table, Item={"id": {"S": "a"}, "colour": {"S": "red"}})
    with (
        patient(dynamodb.url(table)) as client,
        pytest.raises(leaselock.StoreError, match="delete-item --table-name"),
    ):
        client.lock("a").try_acquire()
    item = user.get_item(TableName=table, Key={"id": {"S": "a"}})["Item"]
    assert item["colour"] == {"S": "red"}


# --- doctor and setup


def test_a_missing_table_is_named_with_the_command_that_creates_it(dynamodb: DynamoDB) -> None:
    with patient(dynamodb.url("missing")) as client:
        with pytest.raises(
            leaselock.NotApplied, match="leaselock setup 'dynamodb://miss"
        ) as caught:
            client.lock("a").try_acquire()
        assert caught.value.reason == "misconfigured"
        assert LOGIN["aws_secret_access_key"] not in str(caught.value).partition("?")[0]


def test_setup_creates_the_table_once(dynamodb: DynamoDB) -> None:
    with patient(dynamodb.url("made-once")) as client:
        planned = client.setup(dry_run=True)
        assert "create the table made-once" in planned[0]
        assert client.setup() == planned
        assert client.setup() == []
        assert {finding.level for finding in client.doctor()} == {"ok"}


def test_doctor_says_what_is_wrong_with_a_table(dynamodb: DynamoDB) -> None:
    user = boto(dynamodb)
    user.create_table(
        TableName="fixed",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        ProvisionedThroughput={"ReadCapacityUnits": 5, "WriteCapacityUnits": 5},
    )
    user.create_table(
        TableName="other-key",
        KeySchema=[{"AttributeName": "name", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "name", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    with patient(dynamodb.url("fixed")) as client:
        warned = [finding.what for finding in client.doctor() if finding.level == "warn"]
    assert "fixed capacity: 5 write and 5 read units" in warned[0]
    assert "time to live is off" in warned[1]
    with patient(dynamodb.url("other-key")) as client:
        failed = [finding.what for finding in client.doctor() if finding.level == "fail"]
        assert "another key" in failed[0]
        with pytest.raises(leaselock.StoreError):
            client.lock("a").try_acquire()


# --- faults


def test_throttling_is_answered_by_later_requests(dynamodb: DynamoDB, table: str) -> None:
    with Faults(dynamodb) as faults:
        url = dynamodb.url(table, endpoint=faults.endpoint)
        with patient(url) as client:
            faults.fault = First("PutItem", 3, (400, THROTTLED))
            with client.lock("a", timeout=60):
                pass
    assert faults.seen.count("PutItem") >= 4


def test_throttling_that_does_not_end_is_named(dynamodb: DynamoDB, table: str) -> None:
    with Faults(dynamodb) as faults:
        url = dynamodb.url(table, endpoint=faults.endpoint)
        with leaselock.Client(url, op_timeout=1) as client:
            faults.fault = lambda operation: (400, THROTTLED)
            with pytest.raises(leaselock.NotApplied, match="throttled") as caught:
                client.lock("a").try_acquire()
            assert caught.value.reason == "unreachable"
    # Between the tries there are pauses, which grow.
    assert len(faults.seen) < 60


@pytest.mark.parametrize("fault", ["lost", (500, "InternalServerError")])
def test_an_acquire_without_a_reply_is_repeated(
    dynamodb: DynamoDB, table: str, fault: str | tuple[int, str]
) -> None:
    with Faults(dynamodb) as faults, ExitStack() as stack:
        url = dynamodb.url(table, endpoint=faults.endpoint)
        client = stack.enter_context(patient(url))
        other = stack.enter_context(patient(dynamodb.url(table)))
        faults.fault = First("PutItem", 1, fault)
        with client.lock("a", timeout=60):
            assert other.lock("a").try_acquire() is None
        faults.fault = First("PutItem", 1, fault)
        client.lock("a").acquire(timeout=60).release()
        other.lock("a").acquire(timeout=60).release()


@pytest.mark.parametrize(
    ("status", "code", "reason", "unknown"),
    [
        (400, "AccessDeniedException", "denied", False),
        (400, "UnrecognizedClientException", "denied", False),
        (400, "ExpiredTokenException", "denied", False),
        (400, "ResourceNotFoundException", "misconfigured", False),
        (400, "ValidationException", "refused", False),
        (400, "TransactionConflictException", "unreachable", False),
        (500, "InternalServerError", "unreachable", True),
        (503, "ServiceUnavailable", "unreachable", True),
    ],
)
def test_what_an_error_means(
    dynamodb: DynamoDB, table: str, status: int, code: str, reason: str, unknown: bool
) -> None:
    with Faults(dynamodb) as faults:
        faults.fault = lambda operation: (status, code)
        store = node(dynamodb, table, faults.endpoint)
        with pytest.raises(leaselock.StoreError) as caught:
            store.get("a", soon())
        assert caught.value.reason == reason
        assert isinstance(caught.value, leaselock.OutcomeUnknown) is unknown
        assert len(faults.seen) == 1  # boto3 has not repeated it
        store.close()


def test_a_reply_that_is_no_text_leaves_the_outcome_unknown(dynamodb: DynamoDB, table: str) -> None:
    with Faults(dynamodb) as faults:
        faults.fault = lambda operation: b"\xff{}"
        store = node(dynamodb, table, faults.endpoint)
        with pytest.raises(leaselock.OutcomeUnknown) as caught:
            store.get("a", soon())
        assert caught.value.reason == "unreachable"
        store.close()


def test_a_refusal_does_not_show_what_was_sent(dynamodb: DynamoDB, table: str) -> None:
    """A text of the service may quote the request, with the token of the session."""
    with Faults(dynamodb) as faults:
        faults.fault = lambda operation: (400, "InvalidSignatureException")
        faults.message = "The signature does not match.\n\nx-amz-security-token:HIDDEN"
        store = node(dynamodb, table, faults.endpoint)
        with pytest.raises(leaselock.StoreError) as caught:
            store.get("a", soon())
        assert "HIDDEN" not in "".join(traceback.format_exception(caught.value))
        store.close()


@contextmanager
def private(*, durable: bool = False) -> Iterator[DynamoDB]:
    """A server of the test's own, with the table ``locks``."""
    with DynamoDB(durable=durable) as server:
        with patient(server.url("locks")) as client:
            client.setup()
        yield server


def test_holds_outlast_a_restart_of_the_server() -> None:
    with (
        private(durable=True) as server,
        patient(server.url("locks")) as client,
        patient(server.url("locks")) as other,
    ):
        with client.lock("a", timeout=60, lease=60) as lease:
            server.stop()
            with pytest.raises(leaselock.StoreError):
                node(server, "locks").get("a", soon(1))
            server.start()
            assert other.lock("a").try_acquire() is None
            lease.ensure()
        with other.lock("a", timeout=60) as next_lease:
            assert next_lease.token > lease.token
