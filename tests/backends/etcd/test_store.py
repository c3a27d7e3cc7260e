"""What the adapter of etcd does with requests, users, certificates, members and watches."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
from testkit.proxy import Proxy
from testkit.servers.etcd import Etcd
from testkit.servers.process import HOST, closed_port, eventually
from testkit.servers.tls import Certificates
from tests.backends.etcd.etcds import changes, connect, now, soon

import leaselock
from leaselock._backends import open_store
from leaselock._backends.document.adapter import Changed, Found, Stored
from leaselock._backends.document.http import Reply
from leaselock._backends.etcd.gateway import store_error
from leaselock._backends.etcd.store import EtcdStore
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECRET = "pw-that-nobody-may-see"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Etcd]:
    """An etcd with a user who may only use the keys below mine/."""
    with Etcd() as server:
        server.require_login()
        server.add_user("ann", SECRET, "mine/")
        yield server


def put(store: EtcdStore, name: str, value: bytes, version: Any = None) -> Any:
    """The new version."""
    reply = store.put(name, value, version, None, soon())
    assert isinstance(reply, Stored), reply
    return reply.version


# --- requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["error", "message"])
def test_errors_of_both_versions_of_the_gateway_are_understood(key: str) -> None:
    """Since etcd 3.6 the text is under another key."""

    def error(code: int, text: str) -> StoreError:
        body = json.dumps({key: f"etcdserver: {text}", "code": code}).encode()
        return store_error(Reply(400, body, "m1", None))

    denied = error(7, "permission denied")
    assert (type(denied), denied.reason) == (NotApplied, "denied")
    full = error(8, "mvcc: database space exceeded")
    assert isinstance(full, OutcomeUnknown)
    assert "etcdctl alarm disarm" in str(full)


def test_a_list_has_several_pages_and_no_foreign_keys(etcd: Etcd) -> None:
    opened, _ = connect(etcd.url("pages"))
    store = EtcdStore(opened.gateway, "pages", page_size=2)
    etcd.print("put", "pages0", "not below the prefix")
    names = ["a", "b/c", "größe", "\N{SNOWMAN}", "a b"]
    for name in names:
        put(store, name, name.encode())
    found: dict[str, Found | None] = {}
    position = None
    while True:
        page = store.list(position, soon())
        assert len(page.documents) <= 2
        found |= dict(page.documents)
        position = page.position
        if position is None:
            break
    assert sorted(found) == sorted(names)
    assert all(each and each.value == name.encode() for name, each in found.items())
    store.close()


def test_the_path_of_the_url_is_the_prefix_of_the_keys(etcd: Etcd) -> None:
    for path, key in (
        ("some/where", "some/where/x"),
        ("/rooted", "/rooted/x"),
        ("", "leaselock/x"),
    ):
        store, _ = connect(etcd.url(path))
        put(store, "x", b"here")
        assert etcd.print("get", "--print-value-only", key) == "here\n"
        store.close()


def test_a_document_that_is_too_large_is_refused(etcd: Etcd) -> None:
    store, _ = connect(etcd.url("large"))
    with pytest.raises(NotApplied, match="request is too large") as caught:
        store.put("a", b"x" * 2_000_000, None, None, soon())
    assert caught.value.reason == "refused"
    store.close()


def test_a_connection_that_was_closed_while_idle_is_replaced(etcd: Etcd) -> None:
    with Proxy(etcd.members[0].port) as proxy:
        store, _ = connect(f"etcd://{HOST}:{proxy.port}/idle")
        version = put(store, "a", b"1")
        proxy.cut_all()
        (idle,) = store.gateway.pool.idle
        eventually(lambda: not idle.is_open())
        put(store, "a", b"2", version)
        store.close()


# --- users and certificates -----------------------------------------------------------------------


def test_a_user_needs_the_rights_on_the_prefix_alone(guarded: Etcd) -> None:
    store, listener = connect(guarded.url("mine", f"ann:{SECRET}"))
    version = put(store, "rights", b"1")
    changed = put(store, "rights", b"2", version)
    assert changes(listener, {"rights": version}) == (Changed("rights", Found(b"2", changed)),)
    assert [name for name, _ in store.list(None, soon()).documents] == ["rights"]
    assert {finding.level for finding in store.doctor(soon())} <= {"ok", "warn"}
    listener.close()
    store.close()


@pytest.mark.parametrize(
    ("login", "prefix", "words"),
    [
        ("ann:wrong", "mine", "invalid user ID or password"),
        ("bob:wrong", "mine", "invalid user ID or password"),
        ("", "mine", "requires a login"),
        (f"ann:{SECRET}", "yours", "permission denied"),
    ],
)
def test_who_may_not_is_told_so(guarded: Etcd, login: str, prefix: str, words: str) -> None:
    store, listener = connect(guarded.url(prefix, login))
    for act in (
        lambda: store.get("a", soon()),
        lambda: store.put("a", b"1", None, None, soon()),
        lambda: changes(listener, {"a": None}),
    ):
        with pytest.raises(NotApplied, match=words) as caught:
            act()
        assert caught.value.reason == "denied"
        assert SECRET not in str(caught.value)
        assert "wrong" not in str(caught.value)
    listener.close()
    store.close()


def test_an_expired_login_is_renewed(guarded: Etcd) -> None:
    store, listener = connect(guarded.url("mine", f"ann:{SECRET}"))
    version = put(store, "expired", b"1")
    store.gateway.token = "no-such-token.1"
    version = put(store, "expired", b"2", version)
    # A change of any user outdates all logins.
    guarded.print("user", "add", f"eve{now()}:x")
    version = put(store, "expired", b"3", version)
    store.gateway.token = "no-such-token.1"
    with pytest.raises(NotApplied, match="invalid auth token"):
        changes(listener, {"expired": version})
    changed = put(store, "expired", b"4", version)
    assert changes(listener, {"expired": version}) == (Changed("expired", Found(b"4", changed)),)
    listener.close()
    store.close()


def test_a_login_may_be_wanted_later(guarded: Etcd) -> None:
    """An operator enables authentication while clients run."""
    store, _ = connect(guarded.url("mine", f"ann:{SECRET}"))
    version = put(store, "later", b"1")
    store.gateway.token, store.gateway.auth_is_off = None, True
    put(store, "later", b"2", version)
    assert not store.gateway.auth_is_off
    store.close()


@pytest.mark.heavy
def test_a_restarted_member_has_forgotten_the_login(guarded: Etcd) -> None:
    store, _ = connect(guarded.url("mine", f"ann:{SECRET}"))
    version = put(store, "restarted", b"1")
    guarded.restart()
    put(store, "restarted", b"2", version)
    store.close()


def test_a_login_that_is_not_wanted_is_a_finding(etcd: Etcd) -> None:
    store, _ = connect(etcd.url("unwanted", "ann:pw"))
    put(store, "a", b"1")
    assert any("authentication is off" in finding.what for finding in store.doctor(soon()))
    store.close()


def test_the_secret_is_nowhere_to_be_seen(guarded: Etcd) -> None:
    opened = open_store(guarded.url("mine", f"ann:{SECRET}"), now)
    store, _ = connect(guarded.url("mine", f"ann:{SECRET}"))
    put(store, "secret", b"1")
    token = str(store.gateway.token)
    for text in (opened.shown, repr(opened), repr(store), repr(store.gateway)):
        assert SECRET not in text
        assert token not in text
    store.close()


@pytest.mark.parametrize(
    "mutual", [pytest.param(False, marks=pytest.mark.heavy), True], ids=["server", "mutual"]
)
def test_tls_verifies_the_server_and_shows_a_certificate(mutual: bool, tmp_path: Path) -> None:
    with Etcd(tls=True, mutual=mutual) as server:
        store, listener = connect(server.url("tls"))
        version = put(store, "a", b"1")
        changed = put(store, "a", b"2", version)
        assert changes(listener, {"a": version}) == (Changed("a", Found(b"2", changed)),)
        assert any("TLS, and the server's" in finding.what for finding in store.doctor(soon()))
        listener.close()
        store.close()
        other = Certificates(tmp_path)
        misused = [f"etcds://{server.hosts}/tls?ca={other.ca}"]
        if mutual:
            assert server.certificates is not None
            misused.append(f"etcds://{server.hosts}/tls?ca={server.certificates.ca}")
        for url in misused:
            store, _ = connect(url)
            with pytest.raises(NotApplied, match="TLS: ") as caught:
                store.get("a", soon())
            assert caught.value.reason == "misconfigured"
            store.close()
        store, _ = connect(f"etcd://{server.hosts}/tls")
        with pytest.raises(OutcomeUnknown, match="does it use TLS"):
            store.get("a", soon())
        store.close()


def test_tls_is_not_spoken_by_a_server_without(etcd: Etcd) -> None:
    store, _ = connect(f"etcds://{etcd.hosts}/tls")
    with pytest.raises(NotApplied, match="TLS"):
        store.get("a", soon())
    store.close()


# --- the URL --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("etcd:///prefix", "names a host"),
        ("etcd://h?lease=3", "unknown option"),
        ("etcd://ann@h", "a user and a password"),
        ("etcd://h?ca=/x", "write etcds://"),
        ("etcds://h?key=/x", "without \\?cert="),
        ("etcds://h?ca=/no/such/file", "\\?ca= must be a file"),
        ("etcds://h?cert=/no/such/file", "\\?cert= and \\?key= must be"),
        ("etcd://h?watch=perhaps", "yes or no"),
        ("etcd://h#x", "%23"),
        ("etcd://h?protocol=lease", "no protocol 'lease'"),
    ],
)
def test_a_url_that_is_wrong_says_what_to_write(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        open_store(url, now)


# --- members --------------------------------------------------------------------------------------


def test_a_member_that_does_not_run_is_passed_over(etcd: Etcd) -> None:
    with closed_port() as port:
        store, listener = connect(f"etcd://{HOST}:{port},{etcd.hosts}/members")
        for number in range(4):
            version = put(store, f"n{number}", b"1")
            assert changes(listener, {f"n{number}": version}, 0.0) == ()
        listener.close()
        store.close()
        store, _ = connect(f"etcd://{HOST}:{port}/members")
        with pytest.raises(StoreUnreachable, match="Connection refused"):
            store.get("a", soon())
        store.close()


def test_a_program_that_is_no_etcd_is_named(etcd: Etcd) -> None:
    store, _ = connect(etcd.url("paths"))
    with pytest.raises(NotApplied, match=r"no etcd 3\.4 or later") as caught:
        store.gateway.post("no/such/path", {}, soon())
    assert caught.value.reason == "misconfigured"
    store.close()


def fill(store: EtcdStore) -> None:
    for number in range(1000):
        put(store, f"n{number}", b"x" * 50_000)


@pytest.mark.heavy
def test_an_alarm_is_named_with_its_remedy() -> None:
    with Etcd(quota_backend_bytes=2**18) as server:
        store, _ = connect(server.url("full"))
        version = put(store, "mine", b"1")
        with pytest.raises(OutcomeUnknown, match="alarm disarm") as caught:
            fill(store)
        assert caught.value.reason == "refused"
        failed = [finding for finding in store.doctor(soon()) if finding.level == "fail"]
        assert any("alarm NOSPACE" in finding.what for finding in failed)
        server.make_room("full/n")
        put(store, "mine", b"2", version)
        store.close()


# --- watches --------------------------------------------------------------------------------------


@pytest.fixture
def watching(etcd: Etcd) -> Iterator[tuple[Any, Any, Proxy]]:
    """A store, a listener whose connections pass through a proxy, and that proxy."""
    with Proxy(etcd.members[0].port) as proxy:
        store, _ = connect(etcd.url("watch"))
        far, listener = connect(f"etcd://{HOST}:{proxy.port}/watch")
        yield store, listener, proxy
        listener.close()
        far.close()
        store.close()


def later(act: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=act)
    thread.start()
    return thread


def test_a_document_that_is_not_there_is_watched_too(watching: Any) -> None:
    store, listener, _ = watching
    assert changes(listener, {"new": None}) == (Changed("new", None),)
    assert changes(listener, {"new": None}, 0.0) == ()
    version = put(store, "new", b"1")
    assert changes(listener, {"new": None}) == (Changed("new", Found(b"1", version)),)


def test_a_compaction_does_not_hide_a_change(etcd: Etcd, watching: Any) -> None:
    store, listener, _ = watching
    old = put(store, "compacted", b"1")
    new = put(store, "compacted", b"2", put(store, "compacted", b"1", old))
    etcd.print("compaction", str(new))
    assert changes(listener, {"compacted": old}) == (Changed("compacted", None),)
    assert changes(listener, {"compacted": new}, 0.0) == ()
    newest = put(store, "compacted", b"3", new)
    assert changes(listener, {"compacted": new}) == (Changed("compacted", Found(b"3", newest)),)


def test_a_few_streams_watch_many_documents(watching: Any) -> None:
    store, listener, _ = watching
    versions = {}
    for number in range(20):
        name = f"many{number}"
        versions[name] = put(store, name, b"1")
        assert changes(listener, versions, 0.0) == ()
    assert len(listener.streams) <= 4
    assert len(listener.gateway.pool.open) <= 4
    new = put(store, "many3", b"2", versions["many3"])
    assert changes(listener, versions) == (Changed("many3", Found(b"2", new)),)
    for name in list(versions)[1:]:
        del versions[name]
    assert changes(listener, versions, 0.0) == ()
    assert set(listener.by_name) == {"many0"}
    assert changes(listener, {}, 0.0) == ()
    assert not listener.streams


def test_a_name_that_is_waited_for_again_has_missed_nothing(watching: Any) -> None:
    store, listener, _ = watching
    a, b = put(store, "again", b"1"), put(store, "other", b"1")
    assert changes(listener, {"again": a, "other": b}, 0.0) == ()
    assert changes(listener, {"other": b}, 0.0) == ()
    new = put(store, "again", b"2", a)
    assert changes(listener, {"again": a, "other": b}) == (Changed("again", Found(b"2", new)),)


def test_a_stream_of_a_server_that_has_failed_is_replaced(etcd: Etcd) -> None:
    with Proxy(etcd.members[0].port) as proxy:
        store, listener = connect(f"etcd://{HOST}:{proxy.port}/silent")
        version = put(store, "silent", b"1")
        assert changes(listener, {"silent": version}, 0.0) == ()
        (before,) = listener.streams
        fault = proxy.lose_reply(b"kv/range")
        with pytest.raises(OutcomeUnknown):
            store.get("silent", soon(0.3))
        fault.wait()
        assert changes(listener, {"silent": version}, 0.0) == ()
        assert before not in listener.streams
        listener.close()
        store.close()


# --- the end --------------------------------------------------------------------------------------


def used() -> tuple[int, int]:
    """The descriptors and the threads of this process."""
    return len(os.listdir("/proc/self/fd")), threading.active_count()


def test_after_close_no_descriptor_and_no_thread_is_left(etcd: Etcd) -> None:
    url = etcd.url("after-close")

    def contend(client: leaselock.Client) -> None:
        for number in range(4):
            with client.lock(f"n{number % 2}"):
                pass

    async def tasks() -> None:
        async def contend(client: leaselock.AsyncClient) -> None:
            for number in range(4):
                async with client.lock(f"n{number % 2}"):
                    pass

        async with leaselock.AsyncClient(url, op_timeout=60) as client:
            await asyncio.gather(*(contend(client) for _ in range(4)))

    before = used()
    for _ in range(2):
        with leaselock.Client(url, op_timeout=60) as client:
            threads = [threading.Thread(target=contend, args=(client,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        asyncio.run(tasks())
    eventually(lambda: used() == before)
