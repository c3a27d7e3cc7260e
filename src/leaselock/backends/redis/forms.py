"""How each of the older protocols takes, prolongs and drops a lock: its commands and no others.

The order of the commands, and what is not atomic about them, is the literature's; what that costs
stands in each class.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

from leaselock.backends.redis.keys import owner_of
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.backends.redis.keys import Keys
    from leaselock.backends.redis.steps import Command, Steps
    from leaselock.backends.redis.talk import Talk
    from leaselock.core.backend import Claim

FOREVER_KEPT = -1


def sent(talk: Talk, keys: Keys, *commands: Command) -> Steps[list[Any]]:
    """Commands sent together; the replies, none of them an error."""
    replies = yield from talk.ask(keys.lock, commands)
    for reply in replies:
        if isinstance(reply, Exception):
            raise NotApplied(f"{keys.lock!r}: {reply}")
    return replies


def owner(claim: Claim) -> bytes:
    """The owner as it is written."""
    return owner_of(claim.id).encode()


def written_by(record: bytes) -> tuple[bytes, bytes]:
    """Whom a record names, and the mark it left there."""
    lines = record.split(b"\n", 5)
    return (lines[3], lines[4]) if len(lines) == 6 else (b"", b"")


class Setnx:
    """SETNX with the owner as value; GET and DEL. It never expires: a crash holds for ever."""

    danger = "a holder that crashes holds the lock for ever, until somebody breaks it"
    expires = False

    def __init__(self, wall: Callable[[], float]) -> None:
        self.wall = wall

    def take(self, talk: Talk, keys: Keys, claim: Claim) -> Steps[bool]:
        """SETNX. The GET before it tells whether a reply was lost."""
        mine = owner(claim)
        before, taken = yield from sent(talk, keys, ("GET", keys.lock), ("SETNX", keys.lock, mine))
        return bool(taken == 1 or before == mine)

    def drop(self, talk: Talk, keys: Keys, claim: Claim) -> Steps[bool]:
        """GET, and DEL if it is the owner: nobody else can take it between the two."""
        (value,) = yield from sent(talk, keys, ("GET", keys.lock))
        if value != owner(claim):
            return False
        yield from sent(talk, keys, ("DEL", keys.lock, keys.record))
        return True

    def prolong(self, talk: Talk, keys: Keys, claim: Claim) -> Steps[int | None]:
        """There is nothing to prolong: is it still the owner? Then 0, for a hold without an end."""
        (value,) = yield from sent(talk, keys, ("GET", keys.lock))
        return 0 if value == owner(claim) else None

    def ours(self, value: bytes | None, record: bytes, claim: Claim) -> bool:
        """Whether the claim holds."""
        return value == owner(claim)

    def holder(self, value: bytes, record: bytes) -> bytes:
        """Who holds."""
        return value

    def mark(self, claim: Claim) -> str:
        """What the record keeps to be recognized by."""
        return ""

    def left(self, value: bytes, left: int) -> float | None:
        """For how many seconds it is held yet; None without end."""
        return left / 1000 if left >= 0 else None


class SetnxExpire(Setnx):
    """SETNX, then EXPIRE in whole seconds. A crash between the two leaves a lock without an end,
    which whoever finds it gives one. Release and renewal look first and act in a transaction that
    fails if somebody has written meanwhile: WATCH, GET, MULTI, EXEC.
    """

    danger = (
        "a holder that crashes between SETNX and EXPIRE leaves a lock without an end, until "
        "somebody asks for it; and a request delayed until after its lease may take it again"
    )
    expires = True

    def take(self, talk: Talk, keys: Keys, claim: Claim) -> Steps[bool]:
        """SETNX, and EXPIRE in the next request; or the repair of a lock without an end."""
        taken = yield from super().take(talk, keys, claim)
        if not taken:
            (left,) = yield from sent(talk, keys, ("TTL", keys.lock))
            if left != FOREVER_KEPT:
                return False
        yield from sent(talk, keys, ("EXPIRE", keys.lock, ceil(claim.lease)))
        return taken

    def drop(self, talk: Talk, keys: Keys, claim: Claim) -> Steps[bool]:
        """DEL, if the owner is the claim."""
        remove: Command = ("DEL", keys.lock, keys.record)
        return (yield from talk.guarded(keys.lock, owner(claim), (remove,)))

    def prolong(self, talk: Talk, keys: Keys, claim: Claim) -> Steps[int | None]:
        """EXPIRE, if the owner is the claim; in how many seconds it ends then, none the sooner."""
        (left,) = yield from sent(talk, keys, ("TTL", keys.lock))
        lasts = max(left, ceil(claim.lease))
        renew: Command = ("EXPIRE", keys.lock, lasts)
        return lasts if (yield from talk.guarded(keys.lock, owner(claim), (renew,))) else None


class Getset(Setnx):
    """The value is the time of its end, in milliseconds by the client's own clock. SETNX; else
    GET, and if that time has passed GETSET, which is the holder's who finds the old value still.
    A client whose clock runs ahead takes a lock that is held; and the loser of a GETSET has put
    its own time in place of the winner's.
    """

    danger = (
        "the time of its end is by the clients' own clocks: one that runs ahead takes a lock that "
        "is held; and the loser of a race changes the winner's time"
    )
    expires = True

    def __init__(self, wall: Callable[[], float]) -> None:
        super().__init__(wall)
        self.written: dict[str, bytes] = {}

    def _stamp(self, claim: Claim) -> bytes:
        return b"%d" % int((self.wall() + claim.lease) * 1000)

    def over(self, value: bytes) -> bool:
        """Whether that time has passed; what is no number is nobody's."""
        return not value.isdigit() or int(value) < self.wall() * 1000

    def take(self, talk: Talk, keys: Keys, claim: Claim) -> Steps[bool]:
        """SETNX, GET, GETSET."""
        known, mine = self.written.get(claim.id), self._stamp(claim)
        self.written[claim.id] = mine
        before, taken = yield from sent(talk, keys, ("GET", keys.lock), ("SETNX", keys.lock, mine))
        if taken == 1:
            return True
        if before is not None and before == known and not self.over(before):
            self.written[claim.id] = before
            return True
        if before is not None and self.over(before):
            (old,) = yield from sent(talk, keys, ("GETSET", keys.lock, mine))
            if old is None or old == before:
                return True
        self.written.pop(claim.id, None)
        return False

    def drop(self, talk: Talk, keys: Keys, claim: Claim) -> Steps[bool]:
        """DEL, if the time is the claim's, and has not passed."""
        value, record = yield from sent(talk, keys, ("GET", keys.lock), ("GET", keys.record))
        held = self.ours(value, record or b"", claim) and not self.over(value)
        if held:
            yield from sent(talk, keys, ("DEL", keys.lock, keys.record))
        self.written.pop(claim.id, None)
        return held

    def prolong(self, talk: Talk, keys: Keys, claim: Claim) -> Steps[int | None]:
        """GETSET with a later time, if the time is the claim's."""
        value, record = yield from sent(talk, keys, ("GET", keys.lock), ("GET", keys.record))
        if not self.ours(value, record or b"", claim) or self.over(value):
            return None
        mine = self.written[claim.id] = max(value, self._stamp(claim), key=int)
        yield from sent(talk, keys, ("GETSET", keys.lock, mine))
        return ceil(int(mine) / 1000 - self.wall())

    def ours(self, value: bytes | None, record: bytes, claim: Claim) -> bool:
        """Whether the time is one that this client wrote, or that the record says it wrote."""
        if value is None:
            return False
        wrote = self.written.get(claim.id)
        return value == wrote or written_by(record) == (owner(claim), value)

    def holder(self, value: bytes, record: bytes) -> bytes:
        """Who holds, if the record is of this hold."""
        if self.over(value):
            return b""
        name, mark = written_by(record)
        return name if mark == value else value

    def mark(self, claim: Claim) -> str:
        """The time that was written."""
        return self.written.get(claim.id, b"").decode()

    def left(self, value: bytes, left: int) -> float | None:
        """By this client's clock."""
        return int(value) / 1000 - self.wall()


class Incr(Setnx):
    """INCR: who makes it 1 holds, the others only count. DEL. It has no owner and no end: a crash,
    or one lost reply, holds for ever, and anybody's DEL frees it.
    """

    danger = (
        "a holder that crashes, or a reply that is lost, holds the lock for ever; and the key does "
        "not say who holds, so any program's DEL frees it"
    )

    def __init__(self, wall: Callable[[], float]) -> None:
        super().__init__(wall)
        self.taken: set[str] = set()

    def take(self, talk: Talk, keys: Keys, claim: Claim) -> Steps[bool]:
        """INCR."""
        if claim.id in self.taken:
            return True
        (count,) = yield from sent(talk, keys, ("INCR", keys.lock))
        if count == 1:
            self.taken.add(claim.id)
        return bool(count == 1)

    def drop(self, talk: Talk, keys: Keys, claim: Claim) -> Steps[bool]:
        """DEL, if it is known that the claim had it."""
        value, record = yield from sent(talk, keys, ("GET", keys.lock), ("GET", keys.record))
        held = self.ours(value, record or b"", claim)
        if held:
            yield from sent(talk, keys, ("DEL", keys.lock, keys.record))
        self.taken.discard(claim.id)
        return held

    def prolong(self, talk: Talk, keys: Keys, claim: Claim) -> Steps[int | None]:
        """Is it still there?"""
        value, record = yield from sent(talk, keys, ("GET", keys.lock), ("GET", keys.record))
        return 0 if self.ours(value, record or b"", claim) else None

    def ours(self, value: bytes | None, record: bytes, claim: Claim) -> bool:
        """Whether the record says so, or, before there is one, this client knows."""
        name, _ = written_by(record)
        return (
            value is not None
            and (name or owner(claim)) == owner(claim)
            and (bool(name) or claim.id in self.taken)
        )

    def holder(self, value: bytes, record: bytes) -> bytes:
        """Who holds, as the record has it."""
        return written_by(record)[0] or b"somebody"


FORMS: dict[str, type[Setnx]] = {
    "setnx-expire": SetnxExpire,
    "getset": Getset,
    "setnx": Setnx,
    "incr": Incr,
}
