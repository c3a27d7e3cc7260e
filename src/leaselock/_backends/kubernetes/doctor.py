"""What `leaselock doctor` finds out about an API server, and about the rights of a user."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from leaselock._backends.kubernetes.api import UNAUTHORIZED
from leaselock._core.contract.backend import Finding
from leaselock._core.rows.maintenance import clock_finding, tls_finding
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaselock._backends.kubernetes.api import Api

NEEDED = ("get", "list", "watch", "create", "update")
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
SLOW = 0.2


def examine(api: Api, until: float) -> Iterator[Finding]:
    """One finding for each check."""
    began = api.pool.now()
    answer = api.ask("GET", "/version", until)
    took = api.pool.now() - began
    version = answer.body.get("gitVersion", "of unknown version")
    level: Any = "ok" if took < SLOW else "warn"
    advice = "" if level == "ok" else "locks need a server that is less busy, or nearer"
    where = answer.server
    yield Finding(level, f"{where}: Kubernetes {version}, {took:.3f} s", advice, where)
    if answer.date is not None:
        ours = time.time()
        late = answer.date + 1.0 - ours
        offset = max(0.0, answer.date - ours) + min(0.0, late)
        yield clock_finding(where, offset, 0.0)._replace(server=where)
    if api.access.tls is not None:
        problem = "" if api.access.verified else "insecure-skip-tls-verify"
        yield tls_finding(where, problem, True, "certificate-authority-data in the kubeconfig")
    yield from _rights(api, until)


def _rights(api: Api, until: float) -> Iterator[Finding]:
    try:
        missing = [verb for verb in (*NEEDED, "delete") if not _may(api, verb, until)]
    except StoreError as error:
        if error.reason == "denied" and f" {UNAUTHORIZED}" in str(error):
            raise
        yield Finding("skip", f"the rights could not be examined: {error}")
        return
    where = f"Leases in the namespace {api.namespace}"
    needed = [verb for verb in missing if verb in NEEDED]
    if needed:
        advice = "bind a Role with these verbs: examples/kubernetes-rbac.yaml"
        yield Finding("fail", f"this user may not {', '.join(needed)} {where}", advice)
    elif missing:
        advice = "only `leaselock gc` needs it"
        yield Finding("ok", f"this user may use {where}, but not delete them", advice)
    else:
        yield Finding("ok", f"this user may use {where}")


def _may(api: Api, verb: str, until: float) -> bool:
    attributes = {
        "namespace": api.namespace,
        "verb": verb,
        "group": "coordination.k8s.io",
        "resource": "leases",
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = api.ask("POST", REVIEWS, until, review)
    return bool(answer.body["status"].get("allowed"))
