"""Parsing the records of holders and waiters.

Other programs and other versions write to these keys, too, so any bytes must be accepted.
"""

from __future__ import annotations

import json
from functools import lru_cache

from leaselock.backends.redis.keys import holder_of
from leaselock.core.backend import Claim, HoldRecord, Lifetime

# The greatest number that Redis counts to.
LARGEST = 2**63


def held_of(owner: bytes, record: bytes, token: bytes, left: int) -> HoldRecord | None:
    """The hold of *owner*; the record adds to it if it is of the same owner."""
    if not owner:
        return None
    return _hold(owner, record, token)._replace(expires=left / 1000)


# Thousands may wait for one holder: they share one parsed record.
@lru_cache(maxsize=64)
def _hold(owner: bytes, record: bytes, token: bytes) -> HoldRecord:
    who = owner.decode("utf-8", "replace")
    parts = record.decode("utf-8", "replace").split("\n", 7)
    if len(parts) != 8 or parts[3] != who or not parts[2].isdecimal():
        return HoldRecord(who, "", "either", _number(token), 0.0, _foreign_metadata(who), 0.0)
    holder = holder_of(who)
    lifetime: Lifetime = "lease" if parts[1] == "lease" else "either"
    client = holder.partition(":")[0]
    since = _seconds(parts[2]) / 1e6
    tokens = max(1, _number(parts[5].partition(" ")[2].partition(" ")[0]))
    return HoldRecord(holder, client, lifetime, _number(parts[0]), 0.0, parts[7], since, tokens)


def waiter_of(name: str, member: bytes) -> Claim:
    """The claim of a member of the queue."""
    parts = member.decode("utf-8", "replace").split("\n", 4)
    if len(parts) != 5:
        return Claim(name, parts[0], "", 0.0, _foreign_metadata(parts[0]), 0.0)
    holder = holder_of(parts[0])
    client = holder.partition(":")[0]
    ms = _number(parts[2].partition(" ")[0])
    return Claim(name, holder, client, ms / 1000, parts[4], _seconds(parts[3]))


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


def _foreign_metadata(owner: str) -> str:
    """The metadata to show for an owner without a record of ours, such as a Java program."""
    client, _, thread = owner.rpartition(":")
    words = {"host": f"another program ({client})", "pid": 0, "thread": thread, "label": None}
    return json.dumps(words, ensure_ascii=False)
