"""The keys, channels, owners and records of a lock in Redis, to the byte. Pure functions.

A lock's key is the prefix of the store and its name, so that it is not a key of the application.
Its token counter and its release channel are those of Redisson's `RFencedLock` of that key
(`RedissonObject.prefixName`); the others begin with ``leaselock:``. A key that contains braces
gets a second colon in our keys, because Redisson uses the same keys for ``a`` and ``{a}``.

A key that Redisson cannot lock, or that equals a key of another lock, is escaped and replaced by
one of ours; so any text is a valid name.
"""

from __future__ import annotations

from binascii import crc_hqx
from functools import lru_cache
from itertools import product
from string import ascii_lowercase
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from leaselock._core.contract.backend import Claim

SLOTS = 16384
OURS = "leaselock:"
RESERVED = (OURS, "redisson_")
PREFIX = "lock:"
# What the keys beside a lock begin with.
COUNTER = "redisson_lock_token"
QUEUE, RECORD, INDEX = f"{OURS}queue", f"{OURS}holder", f"{OURS}active"
ESCAPED = f"{OURS}lock:{{"
# A token in microseconds and a lease in milliseconds are shorter than this.
LONGEST_GRANT = 40


class Keys(NamedTuple):
    """The keys of one lock. Only the formats whose lock is a string have a record of their own, and
    only idle semaphores a limit.
    """

    lock: str
    token: str
    queue: str
    handoff: str
    record: str
    limit: str


def key_of(name: str, prefix: str, divided: bool) -> str:
    """The key of the lock *name*: prefix and name, escaped where that is necessary."""
    key = prefix + name
    if key.startswith(RESERVED) or (divided and _spread(key)):
        return f"{ESCAPED}{quote(key, safe='')}}}"
    return key


def is_escaped(key: str) -> bool:
    """Whether a lock with this key may be stored under other keys than those in a usual form."""
    return key.startswith(RESERVED) or "{" in key or "}" in key


def _spread(key: str) -> bool:
    """Whether the braces in a key put Redisson's keys into different slots."""
    return slot_of(key) != slot_of(redissons(COUNTER, key))


@lru_cache(maxsize=1024)
def keys_of(name: str, prefix: str = PREFIX, divided: bool = False) -> Keys:
    """The keys of the lock *name*."""
    raw = key_of(name, prefix, divided)
    token = redissons(COUNTER, raw)
    others = [our(kind, raw) for kind in ("queue", "handoff", "holder", "limit")]
    return Keys(raw, token, *others)


def redissons(prefix: str, raw: str) -> str:
    """Redisson's `prefixName`."""
    return f"{prefix}:{raw}" if "{" in raw else f"{prefix}:{{{raw}}}"


def our(kind: str, raw: str) -> str:
    """A key of ours, in the slot of *raw*."""
    return f"{OURS}{kind}::{raw}" if "{" in raw else f"{OURS}{kind}:{{{raw}}}"


def index_of(slot: int | None, prefix: str) -> str:
    """The index of the locks with this prefix; where keys are divided, of those in a slot."""
    return f"{INDEX}:{f'{{{tag_of(slot)}}}' if slot is not None else ''}:{prefix}"


@lru_cache(maxsize=SLOTS)
def tag_of(slot: int) -> str:
    """The text of four small letters, the first by alphabet, that is in that slot."""
    ends = _ends()
    # The checksum is linear: that of a text is the sum of those of its halves.
    for start in _pairs():
        end = ends.get(slot ^ crc_hqx(start + b"\0\0", 0) % SLOTS)
        if end is not None:
            return (start + end).decode()
    raise ValueError(f"there is no slot {slot}")


@lru_cache(maxsize=1)
def _ends() -> dict[int, bytes]:
    return {crc_hqx(end, 0) % SLOTS: end for end in reversed(_pairs())}


@lru_cache(maxsize=1)
def _pairs() -> tuple[bytes, ...]:
    return tuple(bytes(pair) for pair in product(ascii_lowercase.encode(), repeat=2))


def name_of(key: str, prefix: str) -> str | None:
    """The name of the lock with that key; None if it is no key of a lock with this prefix."""
    if key.startswith(ESCAPED):
        key = unquote(key[len(ESCAPED) : -1])
    elif key.startswith(RESERVED):
        return None
    return key[len(prefix) :] if key.startswith(prefix) else None


def lock_in(key: str, kind: str) -> str | None:
    """The key of the lock that a key of that *kind* belongs to; None for other keys."""
    start = f"{kind}:"
    if not key.startswith(start):
        return None
    rest = key[len(start) :]
    if rest.startswith(":"):
        return rest[1:]
    inner = rest[1:-1]
    enclosed = rest.startswith("{") and rest.endswith("}") and "{" not in inner
    if kind == COUNTER and not enclosed:
        return rest  # a key with braces of its own, which Redisson does not enclose in others
    return inner if enclosed else None


def expected_types(key: str) -> tuple[str, ...]:
    """The types that the value of a key of a lock, or of a key beside one, may have."""
    if key.startswith((f"{QUEUE}:", f"{INDEX}:")):
        return ("zset",)
    beside = key.startswith((OURS, COUNTER)) and not key.startswith(ESCAPED)
    return ("string",) if beside else ("hash", "string")


@lru_cache(maxsize=1024)
def _tombstones(raw: str) -> str:
    return our("tombstone", raw)


def tombstone(raw: str, owner: str) -> str:
    """The key whose existence refuses all later requests of a claim."""
    return f"{_tombstones(raw)}:{owner}"


@lru_cache(maxsize=1024)
def release_channel(raw: str) -> str:
    """The channel of a release while our queue is empty; Redisson's waiters listen to it, too."""
    return redissons("redisson_lock__channel", raw)


@lru_cache(maxsize=1024)
def wake_channel(raw: str) -> str:
    """The start of the channels of the waiters in our queue (`Listener.address_of` follows).

    All of them subscribe to this channel itself, too, which tells their number.
    """
    return f"{our('wake', raw)}:"


def owner_of(holder: str) -> str:
    """The owner, in Redisson's form, of a claim's id: a UUID, a colon, a number."""
    client, _, serial = holder.partition(":")
    return f"{_uuid_of(client)}:{serial}"


@lru_cache(maxsize=64)
def _uuid_of(client: str) -> str:
    return "-".join((client[:8], client[8:12], client[12:16], client[16:20], client[20:]))


def holder_of(owner: str) -> str:
    """The claim's id of an owner."""
    client, _, serial = owner.partition(":")
    return f"{client.replace('-', '')}:{serial}"


def message_of(word: str) -> tuple[str, int, float]:
    """The claim that a message names, and the token and seconds of its grant; both are 0 in a
    message that only asks the claim to try again.
    """
    owner, _, rest = word.partition("\n")
    token, _, ms = rest.partition("\n")
    # Any program that may publish can send a number of any length.
    granted = token.isdecimal() and ms.isdecimal() and len(rest) <= LONGEST_GRANT
    return holder_of(owner), int(token) if granted else 0, int(ms) / 1000 if granted else 0.0


def member_of(claim: Claim, address: str) -> str:
    """A claim as the queue has it: owner, channel, fields of the lease, start, metadata."""
    return (
        f"{owner_of(claim.id)}\n{address}\n{lease_fields(claim)}\n{claim.since}\n{claim.metadata}"
    )


def lease_fields(claim: Claim) -> str:
    """The lease in ms; in another mode than exclusive also a 1, its mode, its permits and the limit
    that its client knows. Earlier versions had other numbers there, and "cached" for the mode.
    """
    ms = round(claim.lease * 1000)
    if claim.mode != "exclusive":
        return f"{ms} 1 {claim.mode} {claim.permits} {claim.limit}"
    return str(ms)


def slot_of(key: str) -> int:
    """The cluster's slot of a key: that of the text in its first braces, if there is any."""
    start = key.find("{")
    if start >= 0:
        end = key.find("}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key.encode(), 0) % SLOTS
