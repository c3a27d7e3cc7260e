"""What a lock is called in Redis: keys, channels, owners, records. Pure text, to the byte.

The lock itself, its token counter and its release channel are Redisson's `RFencedLock`
(`RedissonObject.prefixName`); the rest is ours, and begins with ``holdfast:``. A name with braces
of its own gets a second colon in our keys, for Redisson gives ``a`` and ``{a}`` the same ones.
"""

from __future__ import annotations

from binascii import crc_hqx
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import InvalidName

if TYPE_CHECKING:
    from holdfast.core.backend import Claim

SLOTS = 16384
OURS = "holdfast:"
RESERVED = (OURS, "redisson_")


class Keys(NamedTuple):
    """The keys of one lock."""

    lock: str
    token: str
    queue: str
    record: str


def keys_of(name: str) -> Keys:
    """The keys of the lock *name*; InvalidName where a name would be a key of another lock."""
    if name.startswith(RESERVED):
        raise InvalidName(
            f"{name!r} is no name for a lock in Redis: keys that begin with "
            f"{' or '.join(RESERVED)} belong to other locks"
        )
    token = redissons("redisson_lock_token", name)
    return Keys(name, token, our("queue", name), our("holder", name))


def redissons(prefix: str, name: str) -> str:
    """Redisson's `prefixName`."""
    return f"{prefix}:{name}" if "{" in name else f"{prefix}:{{{name}}}"


def our(kind: str, name: str) -> str:
    """A key of ours in the slot of *name*."""
    return f"{OURS}{kind}::{name}" if "{" in name else f"{OURS}{kind}:{{{name}}}"


def name_in(key: str) -> str | None:
    """The name of the lock that a key of ours belongs to; None for other keys."""
    if not key.startswith(OURS):
        return None
    _, _, rest = key[len(OURS) :].partition(":")
    if rest.startswith(":"):
        return rest[1:]
    return rest[1:-1] if rest.startswith("{") and rest.endswith("}") else None


def grave(name: str, owner: str) -> str:
    """The key that says that a claim was given up for good."""
    return f"{our('grave', name)}:{owner}"


def release_channel(name: str) -> str:
    """Where Redisson's waiters, and ours, hear of a release with nobody in our queue."""
    return redissons("redisson_lock__channel", name)


def wake_channel(name: str) -> str:
    """The beginning of the channels of those who wait in our queue; their address follows."""
    return f"{our('wake', name)}:"


def owner_of(holder: str) -> str:
    """A holder as Redisson writes one: a UUID, a colon, a number."""
    client, _, serial = holder.partition(":")
    parts = (client[:8], client[8:12], client[12:16], client[16:20], client[20:])
    return f"{'-'.join(parts)}:{serial}"


def holder_of(owner: str) -> str:
    """The inverse."""
    client, _, serial = owner.partition(":")
    return f"{client.replace('-', '')}:{serial}"


def member_of(claim: Claim, address: str) -> str:
    """A claim as it stands in the queue: who, where to wake it, and what people are told."""
    lease = round(claim.lease * 1000)
    return f"{owner_of(claim.holder)}\n{address}\n{lease}\n{claim.since}\n{claim.about}"


def slot_of(key: str) -> int:
    """The cluster's slot of a key: of the text in its first braces, if there is any."""
    start = key.find("{")
    if start >= 0:
        end = key.find("}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key.encode(), 0) % SLOTS


def check_one_slot(name: str, keys: Keys) -> None:
    """InvalidName for a name with braces that would spread its keys over a cluster."""
    if len({slot_of(key) for key in keys}) > 1:
        raise InvalidName(
            f"{name!r} is no name for a lock in a Redis cluster: its braces spread the keys of "
            "the lock over several slots; use none, or one pair with text inside"
        )
