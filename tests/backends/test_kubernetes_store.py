"""Lease objects as documents: the requests, on a server of the test kit and on a real one."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from testkit.servers.lease_api import LeaseApi
from testkit.servers.process import eventually
from tests.backends.etcds import LIMIT, changes, connect, now, soon
from tests.backends.rivals import Waiter, take

import leaselock
from leaselock._backends.document.adapter import Changed, Conflict, Found, Stored
from leaselock._backends.document.http import Reply
from leaselock._backends.kubernetes.api import error_of
from leaselock._backends.kubernetes.store import KubernetesStore
from leaselock._backends.throttling import Throttled

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["small", pytest.param("kube-apiserver", marks=pytest.mark.heavy)])
def api(request: pytest.FixtureRequest) -> Iterator[Any]:
    """An API server."""
    if request.param == "kube-apiserver":
        yield request.getfixturevalue("kubernetes")
        return
    with LeaseApi() as made:
        yield made


def put(store: Any, name: str, version: Any = None, **fields: object) -> Any:
    """Write a document without holds; return its version."""
    header = {
        "v": "1",
        "n": 1,
        "by": f"x.{now()}",
        "at": 0,
        "token": 0,
        "limit": 0,
        "lapsed_offer": 0,
    }
    value = json.dumps(header | {"holds": [], "queue": []} | fields).encode()
    reply = store.put(name, value, version, None, soon())
    assert isinstance(reply, Stored), reply
    return reply.version


# --- requests and watches -------------------------------------------------------------------------


def test_a_write_compares_the_version(api: Any) -> None:
    url = api.url(api.namespace())
    store, _ = connect(url)
    assert store.get("a", soon()).version is None
    first = put(store, "a")
    assert store.put("a", b'{"holds":[]}', None, None, soon()) == Conflict(None)
    second = put(store, "a", first)
    stranger, _ = connect(url)
    assert isinstance(stranger.put("a", b'{"holds":[]}', first, None, soon()), Conflict)
    assert isinstance(store.put("a", b'{"holds":[]}', first, None, soon()), Conflict)
    found = stranger.get("a", soon())
    assert found.version == second
    assert found.now is not None
    third = put(stranger, "a", second)
    # This one does not know of the third.
    assert store.put("a", b'{"holds":[]}', second, None, soon()) == Conflict(None)
    assert not store.delete("a", second, soon())
    assert store.delete("a", third, soon())
    gone = stranger.put("a", b'{"holds":[]}', third, None, soon())
    assert isinstance(gone, Conflict)
    assert stranger.get("a", soon()).version is None
    store.close()
    stranger.close()


def test_another_thread_that_reads_meanwhile_makes_a_write_a_conflict(
    api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object that a write changes is the one of its version, or none is written."""
    url = api.url(api.namespace())
    store: Any = connect(url)[0]
    stranger, _ = connect(url)
    first = put(store, "a")
    store.known.clear()
    get = KubernetesStore.get

    def overtaken(self: KubernetesStore, name: str, until: float) -> Found:
        found = get(self, name, until)
        monkeypatch.setattr(KubernetesStore, "get", get)
        if forgotten:
            self.known.clear()
        else:
            put(stranger, "a", first)
            self.get(name, until)
        return found

    for each in (True, False):
        forgotten = each
        monkeypatch.setattr(KubernetesStore, "get", overtaken)
        assert store.put("a", b'{"holds":[]}', first, None, soon()) == Conflict(None)
        store.known.clear()
    store.close()
    stranger.close()


def test_a_list_has_several_pages_and_only_locks(api: Any) -> None:
    namespace = api.namespace()
    opened: Any = connect(api.url(namespace))[0]
    store = KubernetesStore(opened.api, page_size=2)
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    foreign = {"metadata": {"name": "foreign"}, "spec": {"holderIdentity": "pod-1"}}
    api.must("POST", leases, foreign)
    names = ["a", "b.c", "Größe", "order:5", "x y"]
    for name in names:
        put(store, name)
    found: list[str] = []
    position = None
    while True:
        page = store.list(position, soon())
        found += [name for name, _ in page.documents]
        position = page.position
        if position is None:
            break
    assert sorted(found) == sorted(names)
    store.close()


def test_gc_deletes_no_lease_that_another_program_has_created(api: Any) -> None:
    namespace = api.namespace()
    store, _ = connect(api.url(namespace))
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    api.must("POST", leases, {"metadata": {"name": "theirs"}, "spec": {}})
    version = put(store, "theirs", store.get("theirs", soon()).version)
    assert not store.delete("theirs", version, soon())
    assert api.lease(namespace, "theirs")
    store.close()


def test_changes_are_reported(api: Any) -> None:
    store, listener = connect(api.url(api.namespace()))
    versions = {name: put(store, name) for name in ("a", "B")}
    assert changes(listener, versions, 0.0) == ()
    new = put(store, "B", versions["B"])
    (changed,) = changes(listener, versions)
    assert (changed.name, changed.found and changed.found.version) == ("B", new)
    # What has happened before the watch, of one that is new to the listener.
    c = put(store, "c")
    newer = put(store, "c", c)
    (changed,) = changes(listener, {"c": c})
    assert (changed.name, changed.found and changed.found.version) == ("c", newer)
    assert store.delete("c", newer, soon())
    assert changes(listener, {"c": newer}) == (Changed("c", Found(None, None)),)
    put(store, "d")
    (changed,) = changes(listener, {"d": None})
    assert changed.name == "d"
    listener.close()
    store.close()


def test_what_a_watch_has_reported_is_written_without_a_read() -> None:
    with LeaseApi() as api:
        url = api.url(api.namespace())
        store, listener = connect(url)
        stranger, _ = connect(url)
        first = put(store, "a")
        second = put(stranger, "a", first)
        (changed,) = changes(listener, {"a": first})
        assert changed.found is not None
        assert changed.found.version == second
        api.requests.clear()
        third = put(store, "a", second)
        assert [method for method, _ in api.requests] == ["PUT"]
        # What an event reports after the reply to a later write.
        old = {"metadata": {"name": "a", "resourceVersion": second}, "spec": {}}
        assert store.reported("a", old).version == second  # type: ignore[attr-defined]
        put(store, "a", third)
        assert [method for method, _ in api.requests] == ["PUT", "PUT"]
        listener.close()
        store.close()
        stranger.close()


def test_a_version_that_is_too_old_is_read_again(api: Any) -> None:
    store, listener = connect(api.url(api.namespace()))
    version = put(store, "a")
    found = changes(listener, {"a": "1"}, LIMIT)
    assert [one.name for one in found] == ["a"]
    assert changes(listener, {"a": version}, 0.0) == ()
    listener.close()
    store.close()


def test_a_watch_of_a_version_that_is_gone_is_begun_again() -> None:
    with LeaseApi() as api:
        store, listener = connect(api.url(api.namespace()))
        version = put(store, "a")
        api.compact()
        assert changes(listener, {"a": version}) == (Changed("a", None),)
        newest = put(store, "a", version)
        api.compacted = 0
        (changed,) = changes(listener, {"a": version})
        assert (changed.name, changed.found and changed.found.version) == ("a", newest)
        listener.close()
        store.close()


@pytest.mark.parametrize(
    ("status", "kind", "reason"),
    [
        (401, leaselock.NotApplied, "denied"),
        (403, leaselock.NotApplied, "denied"),
        (404, leaselock.NotApplied, "misconfigured"),
        (422, leaselock.NotApplied, "refused"),
        (429, Throttled, "unreachable"),
        (500, leaselock.OutcomeUnknown, "unreachable"),
    ],
)
def test_each_status_is_an_error_with_a_reason(
    status: int, kind: type[leaselock.StoreError], reason: str
) -> None:
    body = json.dumps({"message": "because"}).encode()
    error = error_of(Reply(status, body, "host:443", None, 3.0))
    assert (type(error), error.reason) == (kind, reason)
    assert "host:443: because" in str(error)
    assert ("in 3 s" in str(error)) == (status == 429)


def test_a_request_that_is_one_too_many_is_sent_again_when_the_server_says() -> None:
    """API priority and fairness answers 429 with Retry-After in whole seconds."""
    with LeaseApi() as api:
        store, _ = connect(api.url(api.namespace()))
        api.busy = [1, 0]
        began = now()
        put(store, "a")
        assert now() - began >= 1.0
        assert [method for method, _ in api.requests] == ["POST"] * 3
        # A pause that is longer than the time that is left would be in vain.
        api.busy = [60]
        with pytest.raises(Throttled, match="come again, in 60 s"):
            store.get("a", soon())
        # The end of the client ends a pause.
        api.busy = [2, 60]
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(store.get, "a", soon(120))
            eventually(lambda: len(api.busy) == 1, LIMIT)
            store.wake()
            with pytest.raises(Throttled):
                waiting.result(LIMIT)
        store.close()
        api.busy.clear()
        assert store.get("a", soon()).version is not None
        store.close()


def test_clients_hand_a_lock_over_and_see_each_other(api: Any) -> None:
    namespace = api.namespace()
    url = api.url(namespace)
    with leaselock.Client(url) as holder, leaselock.Client(url) as rival:
        lease, waiter = take(holder, "Order 5"), Waiter(rival, "Order 5")
        eventually(lambda: len(holder.lock("Order 5").waiters()) == 1)
        assert [lock.name for lock in rival.locks()] == ["Order 5"]
        lease.release()
        assert waiter.join().token > lease.token
        waiter.join().release()
        assert rival.locks() == []
        assert {finding.level for finding in rival.doctor()} <= {"ok", "warn"}
