"""The content of a document, and its form as JSON.

Fields with their usual value are left out: some stores charge by the size.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock._core.contract.backend import Claim, HoldRecord
from leaselock._core.contract.layout import Layout, layout_problem, parsed
from leaselock._core.rows.records import (
    checked,
    is_count,
    is_duration,
    is_text,
    is_time,
    unreadable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LAYOUT = Layout(1, 1)
OLDER = "let its locks be released, and delete it"


class Held(NamedTuple):
    """A hold. Documents contain lengths of time; *record* has no times of its own."""

    record: HoldRecord
    beat: int
    """The number of the write that changed the hold last."""
    lasts: float
    """For how many seconds the hold goes on after that write."""
    free: float | None
    """For how many seconds the lock stays taken after it, even if the hold is released."""
    stamp: float | None
    """The latest time that the store's clock may have shown at that write, if it has a clock."""


class Content(NamedTuple):
    """A document."""

    n: int = 0
    """The number of its last write; 0 of a document that does not exist. The first one has Unix
    time in microseconds, so that the numbers go on rising if the document is deleted.
    """
    by: str = ""
    """The id of its last write, which no other write has."""
    at: float = 0.0
    """Unix time of its last write, by the clock of its writer."""
    token: int = 0
    """The last fencing token."""
    limit: int = 0
    """How many permits the name has as a semaphore."""
    lapsed_offer: int = 0
    """The `beat` of the last offer that was not confirmed: waiters with a lower one are passed
    over. 0 if there are none.
    """
    holds: tuple[Held, ...] = ()
    queue: tuple[Claim, ...] = ()
    """The waiters. `Claim.last_seen` is the number of the write in which each was last seen."""
    layout: Layout = LAYOUT
    """Its marker. A write keeps the one that it found, which stands for programs that may run."""
    stamps: Mapping[str, float] = MappingProxyType({})
    """By the id of a waiter: `Held.stamp` of the write in which it was last seen."""

    def same(self, other: Content) -> bool:
        """Whether there is no difference that must be written."""
        return self[3:] == other[3:]

    @property
    def idle(self) -> bool:
        """Whether the lock is neither held nor waited for."""
        return not (self.holds or self.queue)


EMPTY = Content()


def _is_switch(value: object) -> bool:
    return type(value) is bool


def _is_positive(value: object) -> bool:
    return is_count(value) and value != 0


# What else than `checked` checks. Each field: its usual value, and what it may be.
COMMON: Mapping[str, tuple[Any, Callable[[object], bool]]] = {
    "mode": ("exclusive", is_text),
    "permits": (1, is_count),
}
HELD: Mapping[str, tuple[Any, Callable[[object], bool]]] = {
    **COMMON,
    "lifetime": ("either", is_text),
    "step": (0, is_count),
    "offered": (False, _is_switch),
}
QUEUED: Mapping[str, tuple[Any, Callable[[object], bool]]] = {
    **COMMON,
    "min_hold": (0.0, is_duration),
    "aligned": (False, _is_switch),
}
HEADER: Mapping[str, Callable[[object], bool]] = {
    "n": _is_positive,
    "by": is_text,
    "at": is_time,
    "token": is_count,
    "limit": is_count,
    "lapsed_offer": is_count,
}


def encoded(content: Content) -> bytes:
    """The text of a document."""
    document = {
        "v": str(content.layout),
        **dict(zip(HEADER, content[:6], strict=True)),
        "holds": [_hold(held) for held in content.holds],
        "queue": [_waiter(claim, content.stamps.get(claim.id)) for claim in content.queue],
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def _hold(held: Held) -> dict[str, Any]:
    record, beat, lasts, free, stamp = held
    fields: dict[str, Any] = {
        "id": record.id,
        "client": record.client,
        "token": record.token,
        "beat": beat,
        "lasts": lasts,
        "since": record.since,
        "metadata": record.metadata,
    }
    if free is not None:
        fields["free"] = free
    if stamp is not None:
        fields["stamp"] = stamp
    return fields | _unusual(record, HELD)


def _waiter(claim: Claim, stamp: float | None) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": claim.id,
        "client": claim.client,
        "beat": claim.last_seen,
        "lease": claim.lease,
        "since": claim.since,
        "metadata": claim.metadata,
    }
    if stamp is not None:
        fields["stamp"] = stamp
    return fields | _unusual(claim, QUEUED)


def _unusual(record: HoldRecord | Claim, fields: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    return {
        field: value
        for field, (usual, _) in fields.items()
        if (value := getattr(record, field)) != usual
    }


def decoded(text: bytes | None, name: str, where: str, removal: str) -> Content:
    """The content of the document of the lock *name*; Unreadable if that cannot be read. *where*
    says which document it is, and *removal* how to remove it.
    """
    if text is None:
        return EMPTY
    try:
        document = json.loads(text)
        problem = layout_problem(_marker(document), LAYOUT, OLDER)
        if problem is None:
            return _content(document, name, where, removal)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        problem = f"{type(error).__name__}: {error!s:.80}"
    raise unreadable(where, problem, removal)


def _marker(document: dict[str, Any]) -> str:
    marker = document["v"]
    return marker if isinstance(marker, str) else repr(marker)


def _content(document: dict[str, Any], name: str, where: str, removal: str) -> Content:
    header = {field: _field(document, field, valid) for field, valid in HEADER.items()}
    holds = [_read_hold(fields, where, removal) for fields in document["holds"]]
    queue = [_read_waiter(fields, name, where, removal) for fields in document["queue"]]
    stamps = {
        fields["id"]: _field(fields, "stamp", is_time)
        for fields in document["queue"]
        if "stamp" in fields
    }
    ids = [held.record.id for held in holds] + [claim.id for claim in queue]
    if len(ids) != len(set(ids)):
        raise ValueError("an id occurs twice")
    layout = parsed(_marker(document)) or LAYOUT
    return Content(**header, holds=tuple(holds), queue=tuple(queue), layout=layout, stamps=stamps)


def _field(fields: dict[str, Any], field: str, valid: Callable[[object], bool]) -> Any:
    value = fields[field]
    if not valid(value):
        raise ValueError(f"{field} is {value!r:.60}")
    return value


def _usual(
    fields: dict[str, Any], known: Mapping[str, tuple[Any, Callable[[object], bool]]]
) -> dict[str, Any]:
    return {
        field: _field(fields, field, valid) if field in fields else usual
        for field, (usual, valid) in known.items()
    }


def _read_hold(fields: dict[str, Any], where: str, removal: str) -> Held:
    record = HoldRecord(
        id=fields["id"],
        client=fields["client"],
        token=fields["token"],
        expires=0.0,
        metadata=fields["metadata"],
        since=fields["since"],
        **_usual(fields, HELD),
    )
    beat, lasts = _field(fields, "beat", is_count), _field(fields, "lasts", is_duration)
    free = _field(fields, "free", is_duration) if "free" in fields else None
    stamp = _field(fields, "stamp", is_time) if "stamp" in fields else None
    return Held(checked(record, where, removal), beat, lasts, free, stamp)


def _read_waiter(fields: dict[str, Any], name: str, where: str, removal: str) -> Claim:
    claim = Claim(
        name=name,
        id=fields["id"],
        client=fields["client"],
        lease=fields["lease"],
        metadata=fields["metadata"],
        since=fields["since"],
        **_usual(fields, QUEUED),
    )
    return checked(claim, where, removal)._replace(last_seen=_field(fields, "beat", is_count))
