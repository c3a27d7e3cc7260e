"""Locks in Lease objects on a real kube-apiserver, beside kubectl and elections of client-go."""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import yaml
from testkit.proxy import Proxy
from testkit.servers.kubernetes import ADMIN, VERBS, Elector, KubeApiserver
from testkit.servers.process import eventually
from tests.backends.etcd.etcds import LIMIT, changes, connect, now, soon
from tests.backends.kubernetes.test_store import put
from tests.backends.rivals import Waiter, assert_survived, extended, loss_time, take
from tests.test_examples import EXAMPLES

import leaselock
from leaselock._backends.document.adapter import Changed
from leaselock._backends.kubernetes.objects import object_name

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.heavy

LEASE = 3.0
LONG = 60.0
# The server's upper limit of all annotations of an object.
ANNOTATIONS = 262_144


@pytest.fixture
def url(kubernetes: KubeApiserver) -> str:
    """A new namespace."""
    return kubernetes.url(kubernetes.namespace())


# --- users ----------------------------------------------------------------------------------------


def test_the_rights_of_the_example_are_those_of_the_tests() -> None:
    documents = list(yaml.safe_load_all((EXAMPLES / "kubernetes-rbac.yaml").read_text("utf-8")))
    (rule,) = documents[1]["rules"]
    assert rule["apiGroups"] == ["coordination.k8s.io"]
    assert rule["resources"] == ["leases"]
    assert tuple(rule["verbs"]) == VERBS


def test_a_user_without_rights_is_told_which_are_missing(kubernetes: KubeApiserver) -> None:
    with leaselock.Client(kubernetes.url(kubernetes.namespace(()))) as client:
        with denied("get"):
            client.lock("a").acquire()
        failed = [finding for finding in client.doctor() if finding.level == "fail"]
        assert any("may not get, list, watch, create, update" in one.what for one in failed)
    with leaselock.Client(kubernetes.url("no-such-namespace", ADMIN)) as client:
        with pytest.raises(leaselock.NotApplied, match="not found") as caught:
            client.lock("a").acquire()
        assert caught.value.reason == "misconfigured"


@contextmanager
def denied(verb: str) -> Iterator[None]:
    """The body must end with the error of a user who may not do that."""
    with pytest.raises(leaselock.NotApplied, match=f'cannot {verb} resource "leases"') as caught:
        yield
    assert caught.value.reason == "denied"


@pytest.mark.parametrize("missing", VERBS)
def test_each_missing_right_is_named(kubernetes: KubeApiserver, missing: str) -> None:
    """What a user can still do, and the error of what it cannot."""
    rights = tuple(verb for verb in VERBS if verb != missing)
    namespace = kubernetes.namespace(rights)
    url = kubernetes.url(namespace)
    with leaselock.Client(kubernetes.url(namespace, ADMIN)) as admin:
        admin.lock("old").acquire().release()
        store, _ = connect(kubernetes.url(namespace, ADMIN))
        put(store, "unused")  # a document of 1970, which gc deletes
        store.close()
    with leaselock.Client(url) as client, leaselock.Client(url) as rival:
        if missing in ("get", "create", "update"):
            with denied(missing):
                client.lock("old" if missing == "update" else "new").acquire()
        else:
            lease, waiter = take(client, "new"), Waiter(rival, "new")
            eventually(lambda: len(client.lock("new").waiters()) == 1)
            lease.extend(LONG)
            lease.release()
            waiter.join().release()
        if missing == "list":
            for ask in (client.locks, client.gc):
                with denied("list"):
                    ask()
        elif missing == "delete":
            with denied("delete"):
                client.gc()
        # Without `delete` only gc fails.
        level, word = ("ok", "but not") if missing == "delete" else ("fail", "may not")
        found = [(one.level, one.what) for one in client.doctor()]
        assert any(one == level and f"{word} {missing}" in what for one, what in found), found


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
        assert_survived(holder, rival, "a", kubernetes.restart)


def test_a_restart_of_its_etcd_ends_no_hold(kubernetes: KubeApiserver, url: str) -> None:
    with leaselock.Client(url) as holder, leaselock.Client(url) as rival:
        assert_survived(holder, rival, "a", kubernetes.etcd.restart)


def test_a_watch_is_begun_again_when_its_version_was_compacted(
    kubernetes: KubeApiserver,
) -> None:
    """A server that has just started has no versions in memory, and its etcd has none either."""
    namespace = kubernetes.namespace()
    url = kubernetes.url(namespace)
    store, listener = connect(url)
    first = put(store, "a")
    second = put(store, "a", first)
    put(store, "b")
    with leaselock.Client(url) as holder, leaselock.Client(url) as rival:
        lease, waiter = take(holder, "c"), Waiter(rival, "c")
        eventually(lambda: len(holder.lock("c").waiters()) == 1)
        kubernetes.etcd.compact()
        kubernetes.restart()
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        old = f"{leases}?watch=1&resourceVersion={first}&timeoutSeconds=1"
        status, answer = kubernetes.ask("GET", old)
        assert 410 in (status, answer.get("object", {}).get("code")), answer
        # The listener reports that it does not know what is there, and goes on from what is read.
        assert changes(listener, {"a": first}) == (Changed("a", None),)
        assert store.get("a", soon()).version == second
        eventually(lambda: extended(lease))
        lease.release()
        assert waiter.join().token > lease.token
        waiter.join().release()
    listener.close()
    store.close()


def test_a_document_that_is_too_large_for_annotations_is_refused(url: str) -> None:
    store, _ = connect(url)
    version = put(store, "a", padding="x" * (ANNOTATIONS - 10_000))
    with pytest.raises(leaselock.NotApplied, match=f"{ANNOTATIONS} bytes") as caught:
        put(store, "a", version, padding="x" * ANNOTATIONS)
    assert caught.value.reason == "refused"
    assert store.get("a", soon()).version == version
    store.close()


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
