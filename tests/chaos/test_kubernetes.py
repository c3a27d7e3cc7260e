"""Locks in Lease objects on a real kube-apiserver, beside kubectl and elections of client-go."""

from __future__ import annotations

import json
import time
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from testkit.proxy import Proxy
from testkit.servers.kubernetes import ADMIN, VERBS, Elector, KubeApiserver
from testkit.servers.process import eventually
from tests.backends.etcds import LIMIT, changes, connect, now, soon
from tests.backends.rivals import Waiter, loss_time, take
from tests.test_examples import EXAMPLES

import leaselock
from leaselock._backends.document.adapter import Changed, Conflict, Found, Stored
from leaselock._backends.kubernetes.objects import object_name
from leaselock._backends.kubernetes.store import KubernetesStore

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.heavy

LEASE = 3.0
LONG = 60.0


@pytest.fixture
def url(kubernetes: KubeApiserver) -> str:
    """A new namespace."""
    return kubernetes.url(kubernetes.namespace())


def put(store: Any, name: str, version: Any = None, **fields: object) -> Any:
    """Write a document without holds; return its version."""
    header = {"v": "1", "n": 1, "by": f"x.{now()}", "at": 0, "token": 0, "limit": 0, "doubt": 0}
    value = json.dumps(header | {"holds": [], "queue": []} | fields).encode()
    reply = store.put(name, value, version, None, soon())
    assert isinstance(reply, Stored), reply
    return reply.version


# --- requests and watches -------------------------------------------------------------------------


def test_a_write_compares_the_version(url: str) -> None:
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


def test_a_list_has_several_pages_and_only_locks(kubernetes: KubeApiserver) -> None:
    namespace = kubernetes.namespace()
    opened: Any = connect(kubernetes.url(namespace))[0]
    store = KubernetesStore(opened.api, page_size=2)
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    foreign = {"metadata": {"name": "foreign"}, "spec": {"holderIdentity": "pod-1"}}
    kubernetes.must("POST", leases, foreign)
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


def test_gc_deletes_no_lease_that_another_program_has_created(kubernetes: KubeApiserver) -> None:
    namespace = kubernetes.namespace()
    store, _ = connect(kubernetes.url(namespace))
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    kubernetes.must("POST", leases, {"metadata": {"name": "theirs"}, "spec": {}})
    version = put(store, "theirs", store.get("theirs", soon()).version)
    assert not store.delete("theirs", version, soon())
    assert kubernetes.lease(namespace, "theirs")
    store.close()


def test_changes_are_reported(url: str) -> None:
    store, listener = connect(url)
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


def test_a_version_that_is_too_old_is_read_again(url: str) -> None:
    store, listener = connect(url)
    version = put(store, "a")
    found = changes(listener, {"a": "1"}, LIMIT)
    assert [one.name for one in found] == ["a"]
    assert changes(listener, {"a": version}, 0.0) == ()
    listener.close()
    store.close()


# --- users ----------------------------------------------------------------------------------------


def test_the_rights_of_the_example_are_those_of_the_tests() -> None:
    documents = list(yaml.safe_load_all((EXAMPLES / "kubernetes-rbac.yaml").read_text("utf-8")))
    (rule,) = documents[1]["rules"]
    assert rule["apiGroups"] == ["coordination.k8s.io"]
    assert rule["resources"] == ["leases"]
    assert tuple(rule["verbs"]) == VERBS


def test_missing_rights_are_named(kubernetes: KubeApiserver) -> None:
    with leaselock.Client(kubernetes.url(kubernetes.namespace(()))) as client:
        with pytest.raises(leaselock.NotApplied, match='cannot get resource "leases"') as caught:
            client.lock("a").acquire()
        assert caught.value.reason == "denied"
        failed = [finding for finding in client.doctor() if finding.level == "fail"]
        assert any("may not get, list, watch, create, update" in one.what for one in failed)
    with leaselock.Client(kubernetes.url("no-such-namespace", ADMIN)) as client:
        with pytest.raises(leaselock.NotApplied, match="not found") as caught:
            client.lock("a").acquire()
        assert caught.value.reason == "misconfigured"


def test_a_token_that_is_refused_is_not_shown(kubernetes: KubeApiserver) -> None:
    with leaselock.Client(kubernetes.url("default", "hidden-word")) as client:
        with pytest.raises(leaselock.NotApplied, match="Unauthorized") as caught:
            client.lock("a").acquire()
        assert caught.value.reason == "denied"
        assert "hidden-word" not in str(caught.value).replace("kubeconfig-hidden-word", "")


def test_a_doctor_finds_nothing_to_change(url: str) -> None:
    with leaselock.Client(url) as client:
        assert {finding.level for finding in client.doctor()} <= {"ok", "warn"}


# --- faults ---------------------------------------------------------------------------------------


def test_a_restart_of_the_server_ends_no_hold(kubernetes: KubeApiserver, url: str) -> None:
    with leaselock.Client(url) as holder, leaselock.Client(url) as rival:
        lease, waiter = take(holder, "a"), Waiter(rival, "a")
        eventually(lambda: len(holder.lock("a").waiters()) == 1)
        kubernetes.restart()
        eventually(partial(extended, lease))
        assert waiter.granted == float("inf")
        lease.release()
        assert waiter.join().token > lease.token


def extended(lease: leaselock.Lease) -> bool:
    """Extend the lease; False while the store does not answer."""
    try:
        lease.extend(LONG)
    except leaselock.StoreError:
        return False
    return True


def test_a_partition_is_a_loss_in_time_and_the_next_grant_is_later(
    kubernetes: KubeApiserver,
) -> None:
    namespace = kubernetes.namespace()
    with (
        Proxy(kubernetes.port) as proxy,
        leaselock.Client(kubernetes.url(namespace)) as rival,
    ):
        far = f"kubernetes://{namespace}?kubeconfig={kubernetes.kubeconfig(port=proxy.port)}"
        with leaselock.Client(far, op_timeout=1.0) as holder:
            lease = holder.lock("a", lease=LEASE).acquire()
            when, waiter = loss_time(lease), Waiter(rival, "a")
            eventually(lambda: len(rival.lock("a").waiters()) == 1)
            proxy.silence()
            assert waiter.join().token > lease.token
            assert when() < waiter.granted
            proxy.heal()
            with pytest.raises(leaselock.LeaseLost):
                lease.release()


# --- beside other programs ------------------------------------------------------------------------


def test_the_object_shows_the_holder(kubernetes: KubeApiserver) -> None:
    namespace = kubernetes.namespace()
    with leaselock.Client(kubernetes.url(namespace)) as client:
        for name in ("a", "Order 5"):
            with client.lock(name, lease=20):
                spec = kubernetes.lease(namespace, object_name(name))["spec"]
                host, pid, _ = spec["holderIdentity"].split("_")
                holder = client.lock(name).holder()
                assert holder is not None
                assert (host, int(pid)) == (holder.host, holder.pid)
                assert spec["leaseDurationSeconds"] == 20
            assert kubernetes.lease(namespace, object_name(name))["spec"]["holderIdentity"] == ""


def lead_again(electors: list[Elector], before: int) -> bool:
    """Whether one of them has led since they had led *before* times in all."""
    return sum(len(elector.terms()) for elector in electors) > before


@pytest.fixture
def electors(kubernetes: KubeApiserver) -> Iterator[tuple[str, list[Elector]]]:
    """A namespace, and two candidates of client-go for the Lease `shared` in it."""
    namespace = kubernetes.namespace()
    made = [Elector(kubernetes, namespace, "shared", f"elector-{n}-{namespace}", 0.2) for n in "ab"]
    yield namespace, made
    for elector in made:
        elector.process.kill()


def test_an_election_of_client_go_and_a_lock_exclude_each_other(
    kubernetes: KubeApiserver, electors: tuple[str, list[Elector]]
) -> None:
    """No term of theirs overlaps with a hold of ours; both make progress; tokens rise."""
    namespace, made = electors
    eventually(lambda: any(elector.terms() for elector in made))
    holds: list[tuple[float, float]] = []
    tokens = []
    with leaselock.Client(kubernetes.url(namespace)) as client:
        for number in range(6):
            led = sum(len(elector.terms()) for elector in made)
            with client.lock("shared", lease=10, timeout=LIMIT) as lease:
                began = time.time()
                if number:
                    lease.extend(10)
                holds.append((began, time.time()))
                tokens.append(lease.token)
            eventually(partial(lead_again, made, led))
    assert tokens == sorted(set(tokens))
    for elector in made:
        elector.process.kill()
    intervals = sorted([*holds, *(term for elector in made for term in elector.terms())])
    for (_, ended), (began, _) in pairwise(intervals):
        assert ended <= began


def test_a_dead_leader_of_client_go_is_succeeded(
    kubernetes: KubeApiserver, electors: tuple[str, list[Elector]]
) -> None:
    namespace, made = electors
    for elector in made:
        elector.process.kill()
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    stamp = "2026-01-01T00:00:00.000000Z"
    dead = {
        "holderIdentity": "pod-1",
        "leaseDurationSeconds": 2,
        "acquireTime": stamp,
        "renewTime": stamp,
        "leaseTransitions": 4,
    }
    kubernetes.must("POST", leases, {"metadata": {"name": "dead"}, "spec": dead})
    with leaselock.Client(kubernetes.url(namespace)) as client:
        holder = client.lock("dead").holder()
        assert holder is not None
        assert (holder.host, holder.token) == ("pod-1", None)
        began = now()
        with client.lock("dead", timeout=LIMIT):
            assert now() - began >= 2.0
            assert kubernetes.lease(namespace, "dead")["spec"]["leaseTransitions"] == 5


def test_a_lock_that_another_program_takes_is_lost(kubernetes: KubeApiserver) -> None:
    """As by `kubectl edit`: what the spec says is true."""
    namespace = kubernetes.namespace()
    with leaselock.Client(kubernetes.url(namespace)) as client:
        lease = client.lock("a", lease=LEASE).acquire()
        found = kubernetes.lease(namespace, "a")
        found["spec"]["holderIdentity"] = "somebody"
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/a"
        kubernetes.must("PUT", path, found)
        eventually(lambda: lease.lost)
        with pytest.raises(leaselock.LeaseLost):
            lease.release()
