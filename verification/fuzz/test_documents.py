"""Damaged documents of locks, and Lease objects that other programs have written."""

from __future__ import annotations

import contextlib
import json
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st
from verification.fuzz.properties import holds
from verification.fuzz.test_replies import CLAIM

from leaselock._backends.document.content import Content, decoded, encoded
from leaselock._backends.document.row import DocumentRow, RowContext
from leaselock._backends.kubernetes.objects import document
from leaselock._core.contract.backend import Acquire, BreakLock, Release, Unreadable
from leaselock._core.rows import rules

NOW = 1_795_525_779_236_043
HOLD = {
    **{"id": "x:1", "client": "x", "token": NOW, "beat": NOW, "lasts": 30.0, "since": NOW / 1e6},
    **{"metadata": "{}", "stamp": NOW / 1e6, "free": 3.0, "mode": "shared", "permits": 1},
    **{"lifetime": "either", "step": 0, "offered": True},
}
WAITER = {
    **{"id": "y:1", "client": "y", "beat": NOW, "lease": 30.0, "since": NOW / 1e6},
    **{"metadata": "{}", "mode": "exclusive", "min_hold": 1.0, "aligned": False, "tokens": 2},
}
DOCUMENT = {
    **{
        "v": "1",
        "n": NOW,
        "by": "a.1",
        "at": NOW / 1e6,
        "token": NOW,
        "limit": 0,
        "lapsed_offer": 0,
    },
    **{"holds": [HOLD], "queue": [WAITER]},
}
TIME = "2026-01-01T00:00:00.000000Z"
SPEC = {
    **{"holderIdentity": "h", "leaseDurationSeconds": 15, "leaseTransitions": 3},
    **{"renewTime": TIME, "acquireTime": TIME},
}
# What may stand in a field, and that nothing does.
REMOVED = "removed"
VALUE = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(["\ud800", "permits", "upgrading", "update", 2**63, 10**400, -1e308, REMOVED])
    | st.lists(st.integers(), max_size=2)
    | st.dictionaries(st.text(max_size=2), st.integers(), max_size=2)
)
# Fields to be changed: which one is chosen at each depth, and what stands there.
CHANGES = st.lists(
    st.tuples(st.lists(st.integers(0, 20), min_size=1, max_size=4), VALUE), max_size=3
)


def damaged(whole: Any, changes: list[tuple[list[int], Any]]) -> Any:
    """The same with some fields changed."""
    found = deepcopy(whole)
    for path, value in changes:
        at: Any = found
        for depth, choice in enumerate(path):
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not keys:
                break
            key = keys[choice % len(keys)]
            if depth < len(path) - 1 and isinstance(at[key], (dict, list)):
                at = at[key]
                continue
            if value == REMOVED:
                del at[key]
            else:
                at[key] = value
            break
    return found


def read(text: bytes) -> Content | None:
    """The content of a document, if it can be read."""
    with contextlib.suppress(Unreadable):
        return decoded(text, "a", "the document 'a'", "delete it")
    return None


def carried_out(content: Content, request: Any) -> None:
    """Decide about a request as a client does that has read this; what it writes can be read."""
    context = RowContext({}, CLAIM.client, 100.0, NOW / 1e6, NOW / 1e6 + 2.0, False, False)
    row = DocumentRow(content, context)
    rules.answer(lambda _: row, request)
    changed = row.changed()
    if changed is not None:
        assert read(encoded(changed)) is not None
    shown = context._replace(client="", shown=True)
    rules.state(DocumentRow(content, shown), "a")


REQUESTS = (Acquire(CLAIM, True), Release(CLAIM, True), BreakLock("a", NOW))


@holds(
    changes=CHANGES,
    request=st.sampled_from(REQUESTS),
    other=st.none() | st.tuples(st.integers(0, 2000), st.binary(min_size=1, max_size=1)),
)
def test_any_document_is_understood_or_unreadable(
    changes: list[tuple[list[int], Any]], request: Any, other: tuple[int, bytes] | None
) -> None:
    text = json.dumps(damaged(DOCUMENT, changes)).encode()
    if other is not None:
        at = other[0] % len(text)
        text = text[:at] + other[1] + text[at + 1 :]
    content = read(text)
    if content is not None:
        assert read(encoded(content)) == content or _has_nan(content)
        carried_out(content, request)


def _has_nan(content: Content) -> bool:
    return "nan" in repr(content).lower()


def of_the_api(spec: dict[str, Any]) -> dict[str, Any]:
    """A spec with the types that the server has checked."""
    return {
        field: value
        for field, value in spec.items()
        if field in SPEC and type(value) is type(SPEC[field])
        if not isinstance(value, int) or 0 < value < 2**31
    }


@holds(
    document_changes=CHANGES,
    spec_changes=CHANGES,
    known=st.booleans(),
    request=st.sampled_from(REQUESTS),
)
def test_any_lease_object_is_understood_or_unreadable(
    document_changes: list[tuple[list[int], Any]],
    spec_changes: list[tuple[list[int], Any]],
    known: bool,
    request: Any,
) -> None:
    spec = of_the_api(damaged(SPEC, spec_changes))
    annotations = {"leaselock/document": json.dumps(damaged(DOCUMENT, document_changes))}
    metadata = {"name": "a", "resourceVersion": "5", "creationTimestamp": "2026-01-01T00:00:00Z"}
    lease = {"metadata": metadata | ({"annotations": annotations} if known else {}), "spec": spec}
    content = read(document(lease))
    if content is not None:
        carried_out(content, request)
