"""The formats that came before scripts, as the literature describes them, command by command.

They are for fleets that use them, and show what each can lose (docs: redis-formats). The order of
the commands, and what is not atomic about them, is the literature's; each class says what that
costs. None has a queue, so waiters poll. What the literature leaves out is kept beside the key: a
counter for the token, and a record of the holder, both written once the lock is taken.
"""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any, TypeVar

from leaselock._backends.redis import keys as names
from leaselock._backends.redis.backend import RedisBackend
from leaselock._backends.redis.executor import UNREADABLE
from leaselock._backends.redis.index import ActiveIndex
from leaselock._backends.redis.keys import owner_of
from leaselock._backends.redis.lock_reader import LockReader
from leaselock._backends.redis.messages import NotALock
from leaselock._backends.redis.records import held_of, is_record
from leaselock._backends.redis.scripts import IF_OWNER
from leaselock._core.contract.backend import (
    Broken,
    Busy,
    Grant,
    LifetimeSet,
    LockState,
    Released,
    Unreadable,
)
from leaselock._core.contract.effects import Signal, Wait
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from leaselock._backends.redis.codec import Command
    from leaselock._backends.redis.executor import Executor
    from leaselock._backends.redis.keys import Keys
    from leaselock._backends.redis.shared_state import SharedState
    from leaselock._core.contract.backend import (
        Capabilities,
        Claim,
        ErrorReason,
        HoldRecord,
        Lifetime,
    )

T = TypeVar("T")
READING = ("GET", "PTTL", "TTL")
# That a lock is listed is not worth the failure of a grant.
LISTING = ("ZADD",)
# The reply of TTL for a key without an expiry.
NO_EXPIRY = -1
POLL = 0.05
OTHER_TYPE = (
    "the key {key!r}, which belongs to the lock {lock!r}, has a value of another type: delete it "
    "(DEL), and find out which program writes to it"
)


class Request:
    """One request to one lock: its keys, and by when its commands must be answered.

    A refusal means that nothing was applied only if no command has written before.
    """

    __slots__ = ("executor", "lock", "record", "token", "until", "wrote")

    def __init__(self, executor: Executor, keys: Keys, until: float) -> None:
        self.executor = executor
        self.lock, self.token, self.record = keys.lock, keys.token, keys.record
        self.until = until
        self.wrote = False

    async def send(self, *commands: Command) -> list[Any]:
        """Commands sent together; the replies, none of which is an error but that of the index."""
        replies = await self._checked(self.executor.ask(self.lock, commands, self.until))
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(reply, Exception) and command[0] not in LISTING:
                if str(reply).startswith("WRONGTYPE") and not self.wrote:
                    raise Unreadable(OTHER_TYPE.format(key=command[1], lock=self.lock))
                raise self._refusal(f"{self.lock!r}: {reply}")
            self.wrote = self.wrote or command[0] not in READING
        return replies

    async def read(self) -> tuple[Any, bytes]:
        """The value of the lock, and its record. One that cannot be read proves nothing, as one
        that is not there: what a client remembers of its own holds decides without it.
        """
        lock: Command = ("GET", self.lock)
        try:
            value, record = await self.send(lock, ("GET", self.record))
        except Unreadable:
            (value,) = await self.send(lock)
            return value, b""
        return value, record or b""

    async def if_owner(self, *arguments: bytes | int) -> int:
        """Compare the owner, and delete or extend the lock, in one script; its reply."""
        command = IF_OWNER.command((self.lock, self.record), arguments)
        lasts: int = await self._checked(self.executor.evaluate(IF_OWNER, command, self.until))
        self.wrote = self.wrote or lasts >= 0
        return lasts

    async def _checked(self, sending: Awaitable[T]) -> T:
        try:
            return await sending
        except NotApplied as error:
            if isinstance(error, NotALock) and not self.wrote:
                raise
            raise self._refusal(str(error), error.reason) from error

    def _refusal(self, text: str, reason: ErrorReason = "refused") -> NotApplied | OutcomeUnknown:
        if self.wrote:
            said = f"{text} (earlier commands of the request were carried out)"
            return OutcomeUnknown(said, reason)
        return NotApplied(text, reason)


def owner(claim: Claim) -> bytes:
    """The owner as the key has it."""
    return owner_of(claim.id).encode()


def written_by(record: bytes) -> tuple[bytes, bytes]:
    """The owner that a record names, and the mark that it left (`Setnx.mark`)."""
    lines = record.split(b"\n", 5)
    return (lines[3], lines[4]) if len(lines) == 6 else (b"", b"")


class Setnx:
    """SETNX with the owner as value; GET and DEL. The key never expires."""

    danger = "the lock of a holder that crashes stays held until it is broken"
    expires = False

    def __init__(self, wall: Callable[[], float]) -> None:
        self.wall = wall

    async def take(self, request: Request, claim: Claim) -> bool:
        """SETNX. The GET before it finds a hold whose reply was lost."""
        mine = owner(claim)
        before, taken = await request.send(("GET", request.lock), ("SETNX", request.lock, mine))
        return bool(taken == 1 or before == mine)

    async def drop(self, request: Request, claim: Claim) -> bool:
        """GET, and DEL if it is the owner: no other client can take the lock between the two."""
        (value,) = await request.send(("GET", request.lock))
        if value != owner(claim):
            return False
        await request.send(("DEL", request.lock, request.record))
        return True

    async def prolong(self, request: Request, claim: Claim) -> int | None:
        """For how many seconds it holds then: 0, without an end, if it is still the owner."""
        (value,) = await request.send(("GET", request.lock))
        return 0 if value == owner(claim) else None

    def ours(self, value: bytes | None, record: bytes, claim: Claim) -> bool:
        """Whether the claim holds."""
        return value == owner(claim)

    def holder(self, value: bytes, record: bytes) -> bytes:
        """The owner."""
        return value

    def mark(self, claim: Claim) -> str:
        """What the record keeps to show which hold it is of."""
        return ""

    def remaining(self, value: bytes, remaining_ms: int) -> float | None:
        """The seconds that are left of the hold; None without end."""
        return remaining_ms / 1000 if remaining_ms >= 0 else None


class SetnxExpire(Setnx):
    """SETNX, then EXPIRE in whole seconds.

    A crash between the two leaves a lock without an end; the next client that asks for the lock
    sets one. Release and renewal compare the owner first. The literature has WATCH, GET, MULTI and
    EXEC for that; a script does the same, and is never disturbed by another client.
    """

    danger = (
        "a holder that crashes between SETNX and EXPIRE leaves a lock without an end, until "
        "another client asks for it; and a request delayed until after its lease may take it again"
    )
    expires = True

    async def take(self, request: Request, claim: Claim) -> bool:
        """SETNX, and EXPIRE in the next request; or the repair of a lock without an end."""
        taken = await super().take(request, claim)
        if not taken:
            (expiry,) = await request.send(("TTL", request.lock))
            if expiry != NO_EXPIRY:
                return False
        await request.send(("EXPIRE", request.lock, ceil(claim.lease)))
        return taken

    async def drop(self, request: Request, claim: Claim) -> bool:
        """DEL, if the owner is the claim."""
        return await request.if_owner(owner(claim)) >= 0

    async def prolong(self, request: Request, claim: Claim) -> int | None:
        """EXPIRE, if the owner is the claim; the end is never moved forward in time."""
        lasts = await request.if_owner(owner(claim), ceil(claim.lease))
        return lasts if lasts >= 0 else None


class Getset(Setnx):
    """The value is the time of the hold's end, in milliseconds by the client's own clock.

    SETNX; else GET, and if that time has passed GETSET: the client whose GETSET returns the same
    old value holds. A client whose clock runs ahead takes a lock that is held, and the loser of a
    race of two GETSETs has replaced the winner's time with its own.
    """

    danger = (
        "the time of the end is by the clients' own clocks: one that runs ahead takes a lock that "
        "is held; and the loser of a race changes the winner's time"
    )
    expires = True

    def __init__(self, wall: Callable[[], float]) -> None:
        super().__init__(wall)
        self.written: dict[str, bytes] = {}

    def _stamp(self, claim: Claim) -> bytes:
        return b"%d" % int((self.wall() + claim.lease) * 1000)

    def over(self, value: bytes) -> bool:
        """Whether that time has passed; a value that is not a number counts as past."""
        return not value.isdigit() or int(value) < self.wall() * 1000

    async def take(self, request: Request, claim: Claim) -> bool:
        """SETNX, GET, GETSET."""
        known, mine = self.written.get(claim.id), self._stamp(claim)
        self.written[claim.id] = mine
        before, taken = await request.send(("GET", request.lock), ("SETNX", request.lock, mine))
        if taken == 1:
            return True
        if before is not None and before == known and not self.over(before):
            self.written[claim.id] = before
            (record,) = await request.send(("GET", request.record))
            if self.ours(before, record or b"", claim):
                return True
        if before is not None and self.over(before):
            (old,) = await request.send(("GETSET", request.lock, mine))
            if old is None or old == before:
                return True
        self.written.pop(claim.id, None)
        return False

    async def drop(self, request: Request, claim: Claim) -> bool:
        """DEL, if the time is the claim's, and has not passed."""
        value, record = await request.read()
        held = self.ours(value, record, claim) and not self.over(value)
        # From the DEL on the value alone proves nothing: the next hold may end at the same time.
        self.written.pop(claim.id, None)
        if held:
            await request.send(("DEL", request.lock, request.record))
        return held

    async def prolong(self, request: Request, claim: Claim) -> int | None:
        """GETSET with a later time, if the time is the claim's."""
        value, record = await request.read()
        if not self.ours(value, record, claim) or self.over(value):
            return None
        mine = self.written[claim.id] = max(value, self._stamp(claim), key=int)
        await request.send(("GETSET", request.lock, mine))
        return ceil(int(mine) / 1000 - self.wall())

    def ours(self, value: bytes | None, record: bytes, claim: Claim) -> bool:
        """Whether this client wrote the time, by the record of the hold with this time; before
        there is one, by its own memory: two holds may end in the same millisecond.
        """
        name, mark = written_by(record)
        if mark and mark == value:
            return name == owner(claim)
        return value is not None and value == self.written.get(claim.id)

    def holder(self, value: bytes, record: bytes) -> bytes:
        """The owner that the record names, if the record is of this hold; else the value."""
        if self.over(value):
            return b""
        name, mark = written_by(record)
        return name if mark == value else value

    def mark(self, claim: Claim) -> str:
        """The time that was written."""
        return self.written.get(claim.id, b"").decode()

    def remaining(self, value: bytes, remaining_ms: int) -> float | None:
        """By this client's clock."""
        return int(value) / 1000 - self.wall()


class Incr(Setnx):
    """INCR: the client that makes it 1 holds; the others only count up. DEL releases.

    The key has no owner and no end: after a crash, or one lost reply, it stays held, and a DEL by
    any program frees it.
    """

    danger = (
        "after a crash of the holder, or one lost reply, the lock stays held for ever; and the key "
        "does not name its owner, so any program's DEL frees it"
    )

    def __init__(self, wall: Callable[[], float]) -> None:
        super().__init__(wall)
        self.taken: set[str] = set()

    async def take(self, request: Request, claim: Claim) -> bool:
        """INCR."""
        if claim.id in self.taken:
            return True
        (count,) = await request.send(("INCR", request.lock))
        if count == 1:
            self.taken.add(claim.id)
        return bool(count == 1)

    async def drop(self, request: Request, claim: Claim) -> bool:
        """DEL, if the claim is known to hold."""
        value, record = await request.read()
        held = self.ours(value, record, claim)
        # From the DEL on the count alone proves nothing: that of the next hold is 1, too.
        self.taken.discard(claim.id)
        if held:
            await request.send(("DEL", request.lock, request.record))
        return held

    async def prolong(self, request: Request, claim: Claim) -> int | None:
        """0, without an end, if the key is still there."""
        value, record = await request.read()
        return 0 if self.ours(value, record, claim) else None

    def ours(self, value: bytes | None, record: bytes, claim: Claim) -> bool:
        """Whether the record names the claim; before there is one, whether this client took it."""
        name, _ = written_by(record)
        return (
            value is not None
            and (name or owner(claim)) == owner(claim)
            and (bool(name) or claim.id in self.taken)
        )

    def holder(self, value: bytes, record: bytes) -> bytes:
        """The owner that the record names."""
        return written_by(record)[0] or b"unknown"


FORMS: dict[str, type[Setnx]] = {
    "setnx-expire": SetnxExpire,
    "getset": Getset,
    "setnx": Setnx,
    "incr": Incr,
}


class LegacyBackend(RedisBackend):
    """One of these formats."""

    def __init__(
        self,
        shared: SharedState,
        form: str,
        wall: Callable[[], float],
        capabilities: Capabilities,
    ) -> None:
        super().__init__(shared, capabilities)
        self.index = ActiveIndex(shared, "string", LockReader(shared, self._state))
        self.form: Setnx = FORMS[form](wall)
        self.closing = Signal()

    def _request(self, name: str, until: float) -> Request:
        return Request(self.executor, self.keys_of(name), until)

    async def acquire_once(self, claim: Claim, wait: bool, until: float) -> Grant | Busy:
        """Try once; waiters poll."""
        request = self._request(claim.name, until)
        if await self.form.take(request, claim):
            write = self._record(request, claim)
            listed = (
                "ZADD",
                self.index.of(request.lock),
                round(claim.since * 1e6),
                request.lock,
            )
            counter, *_ = await request.send(("INCR", request.token), write, listed)
            self.executor.has_written = True
            return Grant(int(counter), ())
        held = await self._held(request)
        return Busy(held, POLL, ())

    def _record(self, request: Request, claim: Claim, lifetime: Lifetime = "either") -> Command:
        # Without the token: that is the counter as long as the hold lasts.
        member = names.member_of(claim, self.form.mark(claim))
        since = round(claim.since * 1e6)
        write = ("SET", request.record, f"\n{lifetime}\n{since}\n{member}")
        return (*write, "EX", ceil(claim.lease)) if self.form.expires else write

    async def _held(self, request: Request) -> HoldRecord | None:
        """The hold."""
        return self._hold(*await self._read(request))

    async def _read(self, request: Request) -> tuple[Any, int, bytes, bytes]:
        """The value of the lock, the ms that are left of it, its record, and the last token."""
        lock, record_key, token = request.lock, request.record, request.token
        value, remaining_ms, record, counter = await request.send(
            ("GET", lock), ("PTTL", lock), ("GET", record_key), ("GET", token)
        )
        return value, remaining_ms, record or b"", counter or b"0"

    def _hold(
        self, value: Any, remaining_ms: int, record: bytes, counter: bytes
    ) -> HoldRecord | None:
        owner = b"" if value is None else self.form.holder(value, record)
        return held_of(owner, counter + record, remaining_ms)

    async def release_once(self, claim: Claim, tombstone: bool, until: float) -> Released:
        """Release, if it holds. These formats cannot refuse a request that is under way."""
        held = await self.form.drop(self._request(claim.name, until), claim)
        if self.index.count_release(claim):
            await self.index.trim(claim, until)
        return Released("held" if held else "absent", ())

    async def renew(self, claims: Sequence[Claim], until: float) -> tuple[bool | None, ...]:
        """Renew one after the other."""
        requests = [(self._request(claim.name, until), claim) for claim in claims]
        parts = [(r.lock, partial(self._renew, r, claim)) for r, claim in requests]
        return tuple(await self.executor.each(parts))

    async def _renew(self, request: Request, claim: Claim) -> bool:
        lasts = await self.form.prolong(request, claim)
        if lasts:
            await request.send(self._record(request, claim._replace(lease=lasts)))
        return lasts is not None

    async def set_lifetime(self, claim: Claim, lifetime: Lifetime, until: float) -> LifetimeSet:
        """Note that a hold outlives its client; it ends by its own time in any case."""
        request = self._request(claim.name, until)
        value, record = await request.read()
        held = self.form.ours(value, record, claim)
        if held:
            await request.send(self._record(request, claim, lifetime))
        return LifetimeSet(held, ())

    async def inspect(self, name: str | None, pattern: str, until: float) -> tuple[LockState, ...]:
        """One lock, or those in the index."""
        if name is not None:
            return (await self._inspect(name, until),)
        return await self.index.matching(pattern, until)

    async def walk(self, pattern: str, until: float) -> tuple[LockState, ...]:
        """All locks, those of other programs as well."""
        return await self.index.matching(pattern, until, walk=True)

    async def _state(self, name: str, until: float) -> LockState:
        """The state of one lock; one that cannot be read hides no other. Its other keys were found,
        so it is none of the application.
        """
        try:
            return await self._inspect(name, until)
        except (NotALock, Unreadable) as error:
            return LockState(name, (), (), unreadable=str(error))

    async def _inspect(self, name: str, until: float) -> LockState:
        request = self._request(name, until)
        value, remaining_ms, record, counter = await self._read(request)
        held = self._hold(value, remaining_ms, record, counter)
        remaining = None if held is None else self.form.remaining(value, remaining_ms)
        state = LockState.exclusive(name, held, remaining, ())
        if held is None or not record or is_record(counter + record):
            return state
        key, value = (request.record, record) if counter.isdigit() else (request.token, counter)
        what = f"{value.decode('utf-8', 'replace')!r:.80}, which no program of leaselock writes"
        reason = UNREADABLE.format(key=key, lock=request.lock, found=what)
        return state._replace(unreadable=reason)

    async def break_lock(self, name: str, only: int | str | None, until: float) -> Broken:
        """End the hold, or only the one with that token or id."""
        request = self._request(name, until)
        held = await self._held(request)
        if held is None or not held.is_meant(only):
            return Broken(held, False, ())
        await request.send(("DEL", request.lock, request.record))
        return Broken(held, True, ())

    def await_wakeup(self, claim: Claim, until: float) -> Awaitable[object]:
        """Wait until it is time to poll."""
        return self.await_change(claim, until) or Wait(self.closing, until)

    def close(self) -> None:
        """End all waits: the client is closing."""
        self.closing.set()

    def after_fork(self) -> None:
        """After a fork: no claim waits here."""
        self.closing = Signal()
