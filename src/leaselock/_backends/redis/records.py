"""Parsing the records of holders and waiters.

Other programs and other versions write to these keys, too, so any bytes must be accepted.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from zlib import crc32

from leaselock._backends.redis.keys import holder_of
from leaselock._core.contract.backend import Claim, HoldRecord, Lifetime, Mode

MODES: dict[str, Mode] = {
    "shared": "shared",
    "update": "update",
    "upgrading": "upgrading",
    "permits": "permits",
}
LIFETIMES: dict[str, Lifetime] = {"lease": "lease", "cooling": "cooling"}
# The greatest number that Redis counts to.
LARGEST = 2**63
# The owner of a lock of Redisson: its client, and the number of the thread.
REDISSON = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:\d+")
NO_EXPIRY = ", without an expiry: only `leaselock break` frees it"


def held_of(owner: bytes, record: bytes, remaining_ms: int) -> HoldRecord | None:
    """The hold of *owner*; without a record of the same owner it is another program's, which has no
    token and an unknown start.
    """
    if not owner:
        return None
    hold = _hold(owner, record)
    if remaining_ms < 0 and not hold.client:
        hold = hold._replace(metadata=_foreign_metadata(hold.id, NO_EXPIRY))
    return hold._replace(expires=remaining_ms / 1000)


# The record of a claim: owner, channel, fields of the lease (`keys.lease_fields`), start, metadata.
_LEASE_FIELDS = rb"\d+( \d+( (cached|exclusive|shared|update|upgrading|permits)( \d+)*)?)?"
_CLAIM = rb"[^\n]*\n[^\n]*\n" + _LEASE_FIELDS + rb"\n[^\n]*\n"
CLAIM = re.compile(_CLAIM)
RECORD = re.compile(rb"\d+\n[a-z]+\n\d+\n" + _CLAIM)


def is_record(record: bytes) -> bool:
    """Whether it is what this library writes beside a hold. Another program's has none."""
    return not record or RECORD.match(record) is not None


def is_foreign(owner: bytes, record: bytes) -> bool:
    """Whether another program holds the lock."""
    return bool(owner) and not _hold(owner, record).client


# Thousands may wait for one holder: they share one parsed record.
@lru_cache(maxsize=64)
def _hold(owner: bytes, record: bytes) -> HoldRecord:
    who = owner.decode("utf-8", "replace")
    parts = record.decode("utf-8", "replace").split("\n", 7)
    if len(parts) != 8 or parts[3] != who or not parts[2].isdecimal():
        return HoldRecord(who, "", "either", 0, 0.0, _foreign_metadata(who), 0.0)
    holder = holder_of(who)
    lifetime: Lifetime = LIFETIMES.get(parts[1], "either")
    client = holder.partition(":")[0]
    since = _seconds(parts[2]) / 1e6
    _, mode, permits, step = _lease_fields(parts[5])
    return HoldRecord(
        holder,
        client,
        lifetime,
        _number(parts[0]),
        0.0,
        parts[7],
        since,
        mode=mode,
        permits=permits,
        step=step,
    )


def waiter_of(name: str, member: bytes) -> Claim | None:
    """The claim that a member of the queue is; None if it is none."""
    if CLAIM.match(member) is None:
        return None
    parts = member.decode("utf-8", "replace").split("\n", 4)
    holder = holder_of(parts[0])
    client = holder.partition(":")[0]
    ms, mode, permits, _ = _lease_fields(parts[2])
    since = _seconds(parts[3])
    return Claim(name, holder, client, ms / 1000, parts[4], since, mode=mode, permits=permits)


def _lease_fields(text: str) -> tuple[int, Mode, int, int]:
    """Lease in ms, mode, permits and number of conversions (`keys.lease_fields`)."""
    parts = text.split(" ")
    parts += [""] * (6 - len(parts))
    ms, _, mode, permits, _, step = parts[:6]
    permitted = max(1, _number(permits))
    return (
        _number(ms),
        MODES.get(mode, "exclusive"),
        permitted,
        _number(step),
    )


def _number(text: bytes | str) -> int:
    try:
        number = int(text)
    except ValueError:
        return 0
    return number if 0 <= number < LARGEST else 0


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return seconds if abs(seconds) < LARGEST else 0.0


def _foreign_metadata(owner: str, more: str = "") -> str:
    """The metadata to show for an owner without a record of ours, such as a Java program. Who knows
    the value of a string can release the lock: it is not shown.
    """
    secret = f"a value with CRC-32 {crc32(owner.encode()):08x}"
    shown = owner if REDISSON.fullmatch(owner) else secret
    fields = {"host": f"another program ({shown}{more})", "pid": 0, "thread": "", "label": None}
    return json.dumps(fields, ensure_ascii=False)
