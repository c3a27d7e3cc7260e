"""Locks in Kubernetes: one Lease object for each lock, written by compare and set.

The options in the URL ``kubernetes://namespace?…``; without a namespace it is that of the pod, or
of the context of the kubeconfig:

kubeconfig=FILE      by default $KUBECONFIG, or ~/.kube/config
context=NAME         by default the current-context
watch=yes|no         whether waiters are told of changes, or read at intervals (?poll=)
poll=, token_ttl=    as for every store of the protocol `document`

In a pod with a service account, and without the first two options, the API server of the cluster
is used, with the token of the pod.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from leaselock._backends.document.adapter import (
    Conflict,
    DocumentStore,
    Found,
    Page,
    Stored,
    Traits,
)
from leaselock._backends.document.http import Pool
from leaselock._backends.document.store import COMMON_OPTIONS, document_store, opened
from leaselock._backends.kubernetes.access import find
from leaselock._backends.kubernetes.api import CONFLICT, NOT_FOUND, Api
from leaselock._backends.kubernetes.doctor import examine
from leaselock._backends.kubernetes.listener import KubernetesListener
from leaselock._backends.kubernetes.objects import (
    CLOCK_UNCERTAINTY,
    CREATED,
    LABEL,
    OURS,
    changed,
    document,
    lock_name,
    object_name,
)
from leaselock._backends.throttling import Repeater
from leaselock._backends.url import parse, yes_or_no

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leaselock._backends import Opened
    from leaselock._core.contract.backend import Finding

OPTIONS = ("kubeconfig", "context", "watch")
TRAITS = Traits(soonest_poll=0.05, clock_uncertainty=CLOCK_UNCERTAINTY)
PAGE_SIZE = 500
# How many objects a client remembers, to write them without reading them again.
MOST_KNOWN = 2_000


class KubernetesStore(DocumentStore):
    """Carries out requests."""

    def __init__(self, api: Api, page_size: int = PAGE_SIZE) -> None:
        super().__init__(TRAITS)
        self.api = api
        self.page_size = page_size
        # The objects as they were last seen, by the names of the locks.
        self.known: dict[str, dict[str, Any]] = {}

    def describe(self, name: str) -> tuple[str, str]:
        """The object of the lock, and the command that deletes it."""
        namespace, lease = self.api.namespace, object_name(name)
        return f"the Lease {namespace}/{lease}", f"kubectl -n {namespace} delete lease {lease}"

    def path(self, name: str) -> str:
        """The path of an object."""
        return f"{self.api.leases}/{object_name(name)}"

    def get(self, name: str, until: float) -> Found:
        """Read the object: without a resourceVersion the read is linearizable."""
        answer = self.api.ask("GET", self.path(name), until, expected=(NOT_FOUND,))
        if answer.status == NOT_FOUND:
            self.known.pop(name, None)
            return Found(None, None, answer.date)
        return self._found(name, answer.body, answer.date)

    def put(
        self, name: str, value: bytes, version: Any, unused_after: float | None, until: float
    ) -> Stored | Conflict:
        """Create the object, or replace it if it has this *version*."""
        lease = self.known.get(name)
        if version is not None and (lease is None or _version(lease) != version):
            current = self.get(name, until)
            lease = self.known.get(name)
            # Another thread may have written, read or forgotten it since.
            if current.version != version or lease is None or _version(lease) != version:
                return Conflict(current if current.version != version else None)
        if version is None:
            method, path, lease = "POST", self.api.leases, None
        else:
            method, path = "PUT", self.path(name)
        body = changed(lease, name, value, time.time())
        # A creation finds nothing where there is no such namespace.
        expected = (CONFLICT,) if version is None else (CONFLICT, NOT_FOUND)
        answer = self.api.ask(
            method, path, until, body, expected=expected, fieldManager="leaselock"
        )
        if answer.status in expected:
            missing = Found(None, None, answer.date) if answer.status == NOT_FOUND else None
            return Conflict(missing)
        return Stored(self._found(name, answer.body, None).version, answer.date)

    def delete(self, name: str, version: Any, until: float) -> bool:
        """Delete the object if it has this *version*, and was created by leaselock."""
        if self.get(name, until).version != version:
            return False
        lease = self.known.pop(name, None)
        if lease is None or CREATED not in (lease["metadata"].get("annotations") or {}):
            return False
        condition = {"preconditions": {"resourceVersion": version}}
        answer = self.api.ask(
            "DELETE", self.path(name), until, condition, expected=(NOT_FOUND, CONFLICT)
        )
        return answer.status not in (NOT_FOUND, CONFLICT)

    def list(self, position: Any, until: float) -> Page:
        """Up to *page_size* objects that leaselock has written."""
        query: dict[str, Any] = {"limit": self.page_size, "labelSelector": f"{LABEL}={OURS}"}
        if position is not None:
            query["continue"] = position
        answer = self.api.ask("GET", self.api.leases, until, **query)
        documents = [
            (lock_name(lease), Found(document(lease), _version(lease), answer.date))
            for lease in answer.body["items"]
        ]
        return Page(documents, answer.body["metadata"].get("continue") or None)

    def doctor(self, until: float) -> tuple[Finding, ...]:
        """Examine the server, and the rights of the user."""
        return tuple(examine(self.api, until))

    def setup(self, dry: bool, until: float) -> tuple[str, ...]:
        """Nothing is needed: the first write of a lock creates its object."""
        return ()

    def _found(self, name: str, lease: dict[str, Any], date: float | None) -> Found:
        if len(self.known) >= MOST_KNOWN:
            self.known.clear()
        value = document(lease)
        lease["metadata"].pop("managedFields", None)  # most of the object
        self.known[name] = lease
        return Found(value, _version(lease), date)

    def reported(self, name: str, lease: dict[str, Any]) -> Found:
        """The whole object, as a watch has reported it: perhaps later than a newer one was read."""
        known = self.known.get(name)
        if known is not None and _number(known) > _number(lease):
            return Found(document(lease), _version(lease))
        return self._found(name, lease, None)

    def wake(self) -> None:
        """End the pauses between requests; refuse those to come until `close`."""
        super().wake()
        self.api.repeater.wake()

    def close(self) -> None:
        """Close the connections."""
        super().close()
        self.api.repeater.close()
        self.api.pool.close()

    def after_fork(self) -> None:
        """Drop the connections of the parent."""
        self.api.pool.after_fork()
        self.api.access.credentials.after_fork()
        self.api.repeater = Repeater(self.api.pool.now)


def _version(lease: Mapping[str, Any]) -> str:
    return str(lease["metadata"]["resourceVersion"])


def _number(lease: Mapping[str, Any]) -> int:
    """The order of the versions of an object; 0 if its server does not number them."""
    version = _version(lease)
    return int(version) if version.isdigit() else 0


def open_store(named: str, now: Callable[[], float], *, aio: bool = False) -> Opened:
    """The store of a URL. Nothing is connected yet."""
    url = parse(named)
    STORE.protocol_of(url)
    if url.path.strip("/") or url.user is not None or url.fragment is not None:
        raise ValueError(
            "the URL of a Kubernetes store is kubernetes://namespace, or kubernetes:/// for the "
            "namespace of the pod or of the kubeconfig"
        )
    access = find(url.options.get("kubeconfig"), url.options.get("context"), now)
    namespace = url.authority or access.namespace
    if object_name(namespace) != namespace or "." in namespace:
        raise ValueError(f"{namespace!r} is not the name of a namespace")
    api = Api(Pool([access.server], now, access.tls), access, namespace)
    store = KubernetesStore(api)
    watches = url.option("watch", yes_or_no, default=True)
    listener = KubernetesListener(api, store.reported) if watches else None
    shown = url._replace(authority=namespace, path="").shown((*OPTIONS, *COMMON_OPTIONS))
    return opened(STORE, url, store, listener, now, shown=shown)


STORE = document_store("Kubernetes", open_store, OPTIONS, listens=True)
