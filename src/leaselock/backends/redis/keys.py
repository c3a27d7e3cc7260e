"""What a lock is called in Redis: keys, channels, owners, records. Pure text, to the byte.

The lock itself, its token counter and its release channel are Redisson's `RFencedLock`
(`RedissonObject.prefixName`); the rest is ours, and begins with ``leaselock:``. A name with braces
of its own gets a second colon in our keys, for Redisson gives ``a`` and ``{a}`` the same ones.

A name that Redisson could not lock, or that would be a key of another lock, is kept under a key
of ours, escaped; so any text is a name.
"""

from __future__ import annotations

from binascii import crc_hqx
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from leaselock.core.backend import Claim

SLOTS = 16384
OURS = "leaselock:"
RESERVED = (OURS, "redisson_")
ESCAPED = f"{OURS}lock:{{"
# A token of microseconds and milliseconds of a lease have fewer characters than this.
LONGEST_GRANT = 40


class Keys(NamedTuple):
    """The keys of one lock."""

    lock: str
    token: str
    queue: str
    record: str


def raw_of(name: str, divided: bool) -> str:
    """The key of the lock *name*, from which the others are made: the name, where that is fit."""
    if name.startswith(RESERVED) or (divided and _spread(name)):
        return f"{ESCAPED}{quote(name, safe='')}}}"
    return name


def _spread(name: str) -> bool:
    """Whether the braces in a name would spread Redisson's keys over several slots."""
    return slot_of(name) != slot_of(redissons("redisson_lock_token", name))


@lru_cache(maxsize=1024)
def keys_of(name: str, divided: bool) -> Keys:
    """The keys of the lock *name*."""
    raw = raw_of(name, divided)
    token = redissons("redisson_lock_token", raw)
    return Keys(raw, token, our("queue", raw), our("holder", raw))


def redissons(prefix: str, raw: str) -> str:
    """Redisson's `prefixName`."""
    return f"{prefix}:{raw}" if "{" in raw else f"{prefix}:{{{raw}}}"


def our(kind: str, raw: str) -> str:
    """A key of ours in the slot of *raw*."""
    return f"{OURS}{kind}::{raw}" if "{" in raw else f"{OURS}{kind}:{{{raw}}}"


def name_in(key: str) -> str | None:
    """The name of the lock that a key of ours belongs to; None for other keys."""
    if not key.startswith(OURS):
        return None
    _, _, rest = key[len(OURS) :].partition(":")
    if rest.startswith(f":{ESCAPED}"):
        return unquote(rest[1 + len(ESCAPED) : -1])
    if rest.startswith(":"):
        return rest[1:]
    return rest[1:-1] if rest.startswith("{") and rest.endswith("}") else None


@lru_cache(maxsize=1024)
def _graves(raw: str) -> str:
    return our("grave", raw)


def grave(raw: str, owner: str) -> str:
    """The key that says that a claim was given up for good."""
    return f"{_graves(raw)}:{owner}"


@lru_cache(maxsize=1024)
def release_channel(raw: str) -> str:
    """Where Redisson's waiters, and ours, hear of a release with nobody in our queue."""
    return redissons("redisson_lock__channel", raw)


@lru_cache(maxsize=1024)
def wake_channel(raw: str) -> str:
    """The beginning of the channels of those who wait in our queue; their address follows."""
    return f"{our('wake', raw)}:"


def owner_of(holder: str) -> str:
    """A holder as Redisson writes one: a UUID, a colon, a number."""
    client, _, serial = holder.partition(":")
    return f"{_uuid_of(client)}:{serial}"


@lru_cache(maxsize=64)
def _uuid_of(client: str) -> str:
    return "-".join((client[:8], client[8:12], client[12:16], client[16:20], client[20:]))


def holder_of(owner: str) -> str:
    """The inverse."""
    client, _, serial = owner.partition(":")
    return f"{client.replace('-', '')}:{serial}"


def message_of(word: str) -> tuple[str, int, float]:
    """What a message in the queue says: to whom, and the token and the seconds of its grant; both 0
    in one that only says to look.
    """
    owner, _, rest = word.partition("\n")
    token, _, ms = rest.partition("\n")
    # Anybody who may publish can write one of any length.
    granted = token.isdecimal() and ms.isdecimal() and len(rest) <= LONGEST_GRANT
    return holder_of(owner), int(token) if granted else 0, int(ms) / 1000 if granted else 0.0


def member_of(claim: Claim, address: str) -> str:
    """A claim as it stands in the queue: who, where to wake it, its terms, what people are told."""
    return f"{owner_of(claim.id)}\n{address}\n{terms_of(claim)}\n{claim.since}\n{claim.metadata}"


def terms_of(claim: Claim) -> str:
    """The length of a lease in ms; how many tokens a grant reserves, if not one; and whether its
    client is to be told who else asks.
    """
    ms = round(claim.lease * 1000)
    if claim.tokens == 1:
        return str(ms)
    return f"{ms} {claim.tokens} sticky" if claim.cached else f"{ms} {claim.tokens}"


def slot_of(key: str) -> int:
    """The cluster's slot of a key: of the text in its first braces, if there is any."""
    start = key.find("{")
    if start >= 0:
        end = key.find("}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key.encode(), 0) % SLOTS
