"""Lease objects as documents: the requests, on a server of the test kit and on a real one."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from testkit.servers.lease_api import LEASES, LeaseApi
from testkit.servers.process import eventually
from tests.backends.etcd.etcds import LIMIT, changes, connect, now, soon

import leaselock
from leaselock._backends.document.adapter import Changed, Conflict, Found, Stored
from leaselock._backends.document.http import Reply
from leaselock._backends.kubernetes.api import error_of
from leaselock._backends.kubernetes.objects import written
from leaselock._backends.kubernetes.store import KubernetesStore
from leaselock._backends.throttling import Throttled

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["small", pytest.param("kube-apiserver", marks=pytest.mark.nightly)])
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


# --- a leader of client-go that has died ----------------------------------------------------------


def leader(api: LeaseApi, namespace: str, renewed: float) -> str:
    """Write what client-go writes, and return the URL."""
    api.must(
        "POST",
        f"{LEASES}{namespace}/leases?fieldManager=leader",
        {
            "metadata": {"name": "job"},
            "spec": {
                "holderIdentity": "pod-1",
                "leaseDurationSeconds": 15,
                "acquireTime": written(renewed),
                "renewTime": written(renewed),
                "leaseTransitions": 1,
            },
        },
    )
    return api.url(namespace)


def test_a_single_try_takes_over_what_a_dead_leader_has_left() -> None:
    """The server says when the object was written, and what time it is."""
    with LeaseApi() as api:
        url = leader(api, api.namespace(), api.time())
        with leaselock.Client(url) as client:
            assert client.lock("job").try_acquire() is None
        api.ahead = 3600.0
        with leaselock.Client(url) as client:
            lease = client.lock("job").try_acquire()
            assert lease is not None
            lease.release()


def test_a_try_takes_it_over_although_a_waiter_has_written_the_object() -> None:
    with LeaseApi() as api:
        url = leader(api, api.namespace(), api.time())
        with leaselock.Client(url) as client, pytest.raises(leaselock.AcquireTimeout):
            client.lock("job").acquire(timeout=0.1)
        api.ahead = 3600.0
        with leaselock.Client(url) as client:
            lease = client.lock("job").try_acquire()
            assert lease is not None
            lease.release()


@pytest.mark.parametrize("wrong", [-3600.0, 7200.0])
def test_the_clock_of_a_leader_alone_proves_nothing(wrong: float) -> None:
    """A late one is not believed: the server has seen the write. An early one keeps its time."""
    with LeaseApi() as api:
        url = leader(api, api.namespace(), api.time() + wrong)
        api.ahead = 10.0 if wrong < 0 else 3600.0
        with leaselock.Client(url) as client:
            assert client.lock("job").try_acquire() is None


def test_a_change_of_the_spec_is_noted_with_the_time_of_the_server(api: Any) -> None:
    """A renewal moves the time of the entry of its manager, on a real server, too."""
    namespace = api.namespace()
    url = leader(api, namespace, 1.0)
    path = f"{LEASES}{namespace}/leases/job"

    def moved() -> bool:
        lease = api.lease(namespace, "job")
        (before,) = lease["metadata"]["managedFields"]
        lease["spec"]["renewTime"] = written(2.0)
        lease["metadata"].pop("managedFields")
        lease = api.must("PUT", f"{path}?fieldManager=leader", lease)
        after = [each for each in lease["metadata"]["managedFields"] if each["manager"] == "leader"]
        lease["spec"]["renewTime"] = written(1.0)
        api.must("PUT", f"{path}?fieldManager=leader", lease)
        return bool(after[0]["time"] > before["time"])

    eventually(moved)
    with leaselock.Client(url) as client:
        assert client.lock("job").try_acquire() is None
