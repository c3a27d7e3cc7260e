"""What a Lease object and a document have to do with each other.

The fields of `spec` are what client-go writes in an election: they say who holds the lock, so that
`kubectl get lease` shows it, and so that an election of client-go and a lock of ours exclude each
other. The document, with tokens, queue and modes, is an annotation. Another annotation has the spec
that belongs to it: where the object has another one, a program that knows the spec alone has
written it since, and what it says about the holder is true.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

API_VERSION, KIND = "coordination.k8s.io/v1", "Lease"
DOCUMENT, SPEC, NAME = "leaselock/document", "leaselock/spec", "leaselock/name"
# On objects that leaselock has created: only these are ever deleted.
CREATED = "leaselock/created"
LABEL, OURS = "app.kubernetes.io/managed-by", "leaselock"
HASHED = "leaselock-"
FOREIGN = "foreign-"
# What is known of a holder that writes the spec alone, besides its identity.
ABOUT_FOREIGN = {"pid": 0, "thread": "", "label": "another program"}
# Seconds: the header Date and the times of changes have whole seconds, and the clocks of several
# API servers may differ by one.
CLOCK_UNCERTAINTY = 2.0
VALID = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LONGEST_NAME = 253
LONGEST_DURATION = 2**31 - 1
TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


def object_name(name: str) -> str:
    """The name of the object: that of the lock, where it can be the name of an object."""
    if len(name) <= LONGEST_NAME and VALID.fullmatch(name) and not name.startswith(HASHED):
        return name
    return HASHED + sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:40]


def lock_name(lease: Mapping[str, Any]) -> str:
    """The name of the lock that the object is for."""
    metadata = lease["metadata"]
    return str((metadata.get("annotations") or {}).get(NAME) or metadata["name"])


def written(seconds: float) -> str:
    """A time as the API has it."""
    return datetime.fromtimestamp(seconds, UTC).strftime(TIME)


def micros(text: str | None) -> int:
    """A time of the API in microseconds; 0 if there is none."""
    if not text:
        return 0
    moment = datetime.fromisoformat(text)
    return round(moment.timestamp() * 1e6)


def fingerprint(spec: Mapping[str, Any]) -> str:
    """The part of a spec that shows whether another program has written it."""
    fields = ("holderIdentity", "leaseDurationSeconds", "renewTime", "leaseTransitions")
    return json.dumps([spec.get(field) or 0 for field in fields], separators=(",", ":"))


def document(lease: Mapping[str, Any]) -> bytes:
    """The document of an object."""
    metadata, spec = lease["metadata"], lease.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    text = annotations.get(DOCUMENT)
    if text is not None and annotations.get(SPEC) == fingerprint(spec):
        return str(text).encode()
    try:
        known = json.loads(text) if text is not None else {}
        changed = _of_another(known, metadata, spec)
        return json.dumps(changed, separators=(",", ":"), ensure_ascii=False).encode()
    except (ValueError, LookupError, TypeError, AttributeError):
        return str(text).encode()  # decoding it reports what is wrong with it


def _of_another(
    known: dict[str, Any], metadata: Mapping[str, Any], spec: Mapping[str, Any]
) -> dict[str, Any]:
    """The document after another program has written the spec: its queue and token stay."""
    created = micros(metadata.get("creationTimestamp"))
    beat = micros(spec.get("renewTime")) or micros(spec.get("acquireTime")) or created or 1
    new = {"v": "1", "by": "", "at": 0.0, "token": 0, "limit": 0, "lapsed_offer": 0, "queue": []}
    stamp = _written_before(metadata, beat)
    holds = [_foreign_hold(spec, beat) | stamp] if spec.get("holderIdentity") else []
    return new | known | {"n": max(known.get("n", 0), beat), "holds": holds}


def _written_before(metadata: Mapping[str, Any], beat: int) -> dict[str, float]:
    """The latest time of the server's clock at which the spec was written: so that a client that
    sees it for the first time knows how long its holder was silent. The server notes when a program
    changed a field. The holder's own time may be wrong, and only makes it later.
    """
    entries = metadata.get("managedFields") or ()
    times = [micros(each.get("time")) for each in entries]
    if not times:
        return {}
    return {"stamp": round(max(beat, *times) / 1e6 + CLOCK_UNCERTAINTY, 3)}


def _foreign_hold(spec: Mapping[str, Any], beat: int) -> dict[str, Any]:
    identity = str(spec["holderIdentity"])
    # A term of the same identity is another hold.
    term = sha256(f"{identity} {spec.get('leaseTransitions') or 0}".encode()).hexdigest()[:20]
    client = f"{FOREIGN}{term}"
    since = micros(spec.get("acquireTime")) / 1e6
    return {
        "id": f"{client}:0",
        "client": client,
        "token": 0,
        "beat": beat,
        "lasts": float(spec.get("leaseDurationSeconds") or 1),
        "since": since,
        "metadata": json.dumps(ABOUT_FOREIGN | {"host": identity}),
    }


def is_foreign(hold: Mapping[str, Any]) -> bool:
    """Whether a hold is that of another program, which writes the spec alone."""
    return str(hold["client"]).startswith(FOREIGN)


def changed(
    lease: Mapping[str, Any] | None, name: str, value: bytes, wall: float
) -> dict[str, Any]:
    """The object with another document; None is the object of a new lock."""
    content = json.loads(value)
    metadata: dict[str, Any] = {"name": object_name(name)}
    if lease is not None:
        metadata = dict(lease["metadata"])
    metadata.pop("managedFields", None)
    spec = _spec(lease, content["holds"], written(wall))
    annotations = dict(metadata.get("annotations") or {})
    annotations |= {DOCUMENT: value.decode(), SPEC: fingerprint(spec)}
    if lease is None:
        annotations[CREATED] = "true"
    if metadata["name"] != name:
        annotations[NAME] = name
    metadata["annotations"] = annotations
    metadata["labels"] = dict(metadata.get("labels") or {}) | {LABEL: OURS}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def _spec(
    lease: Mapping[str, Any] | None, holds: Sequence[Mapping[str, Any]], now: str
) -> dict[str, Any]:
    before = dict((lease or {}).get("spec") or {})
    holder = before.get("holderIdentity") or ""
    if holds and is_foreign(holds[0]):
        return before  # its holder renews it by itself
    if not holds:
        if lease is not None and not holder:
            return before
        # As client-go releases.
        free = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now}
        return before | free | {"acquireTime": now}
    if lease is not None and _beats(lease) == [(hold["id"], hold["beat"]) for hold in holds]:
        return before  # to others a change of the time would be a renewal
    identity = _identity(holds[0])
    longest = max(max(hold["lasts"], hold.get("free", 0.0)) for hold in holds)
    spec = before | {
        "holderIdentity": identity,
        "leaseDurationSeconds": min(LONGEST_DURATION, max(1, math.ceil(longest))),
        "renewTime": now,
    }
    if identity != holder:
        spec["acquireTime"] = now
        spec["leaseTransitions"] = int(before.get("leaseTransitions") or 0) + 1
    return spec


def _beats(lease: Mapping[str, Any]) -> list[tuple[str, int]]:
    holds = json.loads(document(lease))["holds"]
    return [(hold["id"], hold["beat"]) for hold in holds]


def _identity(hold: Mapping[str, Any]) -> str:
    """How `kubectl get lease` shows the holder: the host, the process, and the id of the hold."""
    try:
        about = json.loads(hold["metadata"])
        where = f"{about['host']}_{about['pid']}_"
    except (ValueError, LookupError, TypeError):
        where = ""
    return where + str(hold["id"])
