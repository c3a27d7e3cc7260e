"""The default format, and those like it: a lock with a queue, changed by scripts only.

A lock is a hash with a field named after its owner, as in Redisson (`RedissonLock`,
`RedissonFencedLock`), and beside it the record of the hold and the mode; in the format "string" it
is a string, as in redis-py's `Lock`, redsync and node-redlock. `keys` lists the other keys. The
depth of reentrant locks stays in the client, so each script states what shall be, never how much
more, and can be repeated.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from leaselock._backends.redis import keys as names
from leaselock._backends.redis.backend import RedisBackend
from leaselock._backends.redis.executor import PARTIAL, UNREADABLE, is_partial
from leaselock._backends.redis.index import ActiveIndex
from leaselock._backends.redis.listener import WaitersRequest
from leaselock._backends.redis.lock_reader import Inspection, LockReader
from leaselock._backends.redis.messages import (
    Connection,
    ScriptFailed,
    SubscribeFailed,
    Unreachable,
    Waiting,
)
from leaselock._backends.redis.packed_commands import PackedCommands
from leaselock._backends.redis.records import held_of, is_foreign, is_record, waiter_of
from leaselock._backends.redis.replies import GivenUp, Granted, OtherUse, Refused, acquired
from leaselock._backends.redis.scripts import (
    ACQUIRE,
    BREAK_LOCK,
    CONVERT,
    COOL_DOWN,
    INSPECT,
    RAISE_TOKEN,
    RELEASE,
    RENEW,
    RESIZE,
    SET_LIFETIME,
)
from leaselock._backends.redis.waiters import NEVER, RECHECK_MS
from leaselock._core.contract.backend import (
    Broken,
    Busy,
    Converted,
    Grant,
    HoldState,
    LifetimeSet,
    LockState,
    Mismatch,
    Released,
    Resized,
    Unreadable,
)
from leaselock._core.contract.effects import Call
from leaselock.errors import LimitMismatch, NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from leaselock._backends.redis.codec import Command, Word
    from leaselock._backends.redis.keys import Keys
    from leaselock._backends.redis.scripts import Script
    from leaselock._backends.redis.shared_state import SharedState
    from leaselock._core.contract.backend import Capabilities, Claim, HoldRecord, Lifetime, Mode

# A waiter that was granted the lock must confirm within this time, or the next one gets it.
CONFIRM_WITHIN_MS = 3000
STAGGER_MS = 20
TOMBSTONE_MS = 120_000
# Less than the time of a try that does not wait.
REPLICAS_MS = 300
# The format of one server of a Redlock, which asks several (backends/redlock).
VOTE = "vote"
HASH = "hash"
# How soon to ask again while another program holds the lock, which sends no message.
RECHECK_FOREIGN = 0.1
# By the reply of the release script.
RELEASED = (Released("absent", ()), Released("held", ()), Released("waiting", ()))


class ScriptedBackend(RedisBackend):
    """The formats "hash", "string" and "vote".

    A claim is asked for, and released, in this order: by one packed command on a connection that is
    open; by the same after connecting; by `_acquire`, or `_release_anyhow`, through the executor.
    Where one of the first two returns None, nothing was granted, and the next one follows. Who has
    made a `Call` gives its connection back: after a reply, or drops it without one.

    | of a claim | is in | from | until |
    |---|---|---|---|
    | it listens before it asks | `to_listen` | a refused try that may wait | `forget` |
    | its place | `queue` | the answer to its wait | it leaves |
    | its subscription | `listener` | the first wait | `forget` |
    | grants with too few copies | `given_back` | WAIT has counted them | `forget` |
    """

    def __init__(
        self, shared: SharedState, form: str, replicas: int, capabilities: Capabilities
    ) -> None:
        super().__init__(shared, capabilities)
        self.form = form
        self.replicas = replicas
        self.token_ttl = round(shared.settings.token_ttl * 1000)
        self.prefix = shared.settings.prefix
        self.pool = shared.pool
        self.queue = shared.queue
        self.listener = shared.listener
        kind = HASH if form == HASH else "string"
        inspection = Inspection(self._look, self._found)
        self.index = ActiveIndex(shared, kind, LockReader(shared, self._state, inspection))
        # The claims that are to listen before they ask: others wait for their locks.
        self.to_listen: set[str] = set()
        # The tokens of grants that were given back, of claims that are still in use.
        self.given_back: dict[str, set[bytes]] = {}
        self.packed = PackedCommands(
            self.prefix,
            self.topology,
            self.listener.address_of,
            self._acquire_command,
            self._release_command,
        )

    def _verb(self) -> str:
        return "SPUBLISH" if self.topology.sharded else "PUBLISH"

    # --- acquiring ------------------------------------------------------------------------------

    def acquire_once(self, claim: Claim, wait: bool, until: float) -> Awaitable[Grant | Busy]:
        """Try; if the lock is taken and is to be waited for, listen and enter the queue.

        One command nearly always settles it, on a connection that is open: a try; or, where others
        wait for the lock, one that enters the queue as well.
        """
        call = self._acquire_call(claim, wait, until)
        if call is None:
            return self._acquire_slowly(claim, wait, until)
        return self._acquire_by(call, claim, wait)

    def _acquire_call(self, claim: Claim, wait: bool, until: float) -> Call[Any] | None:
        if claim.id in self.listener.waiting or not self._is_packed(claim, wait):
            return None
        if not self.listener.listens_first(claim, wait):
            if claim.id in self.queue.tickets:
                return None
            return self._call(*self.packed.acquire(claim, False), until)
        call = None if self.form == VOTE else self._enqueue(claim, until)
        if call is None:
            self.to_listen.add(claim.id)
        return call

    async def _acquire_by(self, call: Call[Any], claim: Claim, wait: bool) -> Grant | Busy:
        """Send that command. What its reply leaves to be done follows."""
        try:
            replies = await call
        except BaseException as error:
            self._unanswered(call, error)
            raise
        answer = self._granted_or_busy(call, claim, wait, replies)
        if answer is None:
            return self._settled(claim, await self._acquire(claim, wait, call.until))
        return answer

    def _is_packed(self, claim: Claim, wait: bool) -> bool:
        """Whether there is such a command for the claim, which has not been decided yet."""
        usual = claim.mode == "exclusive" and not (self.replicas or claim.min_hold)
        return usual and claim.id not in self.to_listen

    def _call(self, key: str, data: bytes, until: float) -> Call[Any] | None:
        """A command for the server of *key*, if there is a connection to it."""
        address = self.topology.known(key)
        connection = None if address is None else self.pool.take(address)
        # The type of `Call` names a request; one packed command is sent as it is.
        message: Any = data
        return None if connection is None else Call(connection, message, until)

    def _enqueue(self, claim: Claim, until: float) -> WaitersRequest | None:
        """A command that enters the queue, if the channels of the claim are listened to already."""
        address = self.topology.known(self.keys_of(claim.name).lock)
        waiter = None if address is None else self.listener.ready(claim, address)
        if waiter is None:
            return None
        data = self.packed.acquire(claim, True)[1]
        return WaitersRequest(self.listener, claim.id, waiter, data, until)

    def _granted_or_busy(
        self, call: Call[Any], claim: Claim, wait: bool, replies: list[Any]
    ) -> Grant | Busy | None:
        """The reply to that command; None if more has to be done."""
        if isinstance(call, WaitersRequest):
            try:
                (reply,) = call.end(replies)
            except SubscribeFailed:
                return None  # the first claim of the group subscribed; this one asks by itself
            found = acquired(reply) if type(reply) is list else None
            if not isinstance(found, Granted | Refused):
                return None
            if isinstance(found, Refused):
                self.queue.enqueue(claim.id, found.ticket, call.sent_at)
            return self._settled(claim, self._answer(found))
        self.pool.put(call.node)
        (reply,) = replies
        if type(reply) is not list:
            return None
        found = acquired(reply)
        if type(found) is Granted:
            self.executor.has_written = True
            return Grant(int(found.token), ())
        if wait:
            self.to_listen.add(claim.id)
            return None
        return self._settled(claim, self._answer(found))

    def _unanswered(self, call: Call[Any], error: BaseException) -> None:
        if not isinstance(call, WaitersRequest):
            self.pool.drop(call.node)
            return
        call.fail()
        if isinstance(error, OutcomeUnknown):
            self.topology.forget(call.node.address)

    async def _connect(self, claim: Claim, until: float) -> float:
        """Wait for a connection to the server of the lock, if that is known; until when a request
        may take.
        """
        address = self.topology.known(self.keys_of(claim.name).lock)
        if address is not None:
            try:
                connection, until = await self.pool.get(address, until)
            except Unreachable:
                self.topology.forget(address)
            else:
                self.pool.put(connection)
        return until

    async def _acquire_slowly(self, claim: Claim, wait: bool, until: float) -> Grant | Busy:
        if claim.id not in self.listener.waiting and self._is_packed(claim, wait):
            until = await self._connect(claim, until)
            call = self._acquire_call(claim, wait, until)
            if call is not None:
                return await self._acquire_by(call, claim, wait)
        return self._settled(claim, await self._acquire(claim, wait, until))

    def _settled(self, claim: Claim, answer: Grant | Busy | Mismatch) -> Grant | Busy:
        if isinstance(answer, Busy):
            return self.listener.watched(claim, answer)
        self.listener.forget_address(claim)
        if isinstance(answer, Mismatch):
            wanted = claim.limit if claim.mode == "permits" else None
            raise LimitMismatch(claim.name, wanted, answer.limit, claim.permits)
        return answer

    async def _acquire(self, claim: Claim, wait: bool, until: float) -> Grant | Busy | Mismatch:
        listens = claim.id in self.to_listen or self.listener.listens_first(claim, wait)
        if not listens:
            found = await self._try_or_undo(claim, False, until)
            if isinstance(found, Granted) or not wait:
                return self._answer(found)
        self.listener.drain_for(claim)
        granted = self.queue.grant(claim.id)
        # Replicas, and the other servers of a Redlock, confirm only a grant that is asked for; the
        # message does not keep the lock taken for a while, and does not number the permits.
        confirms = self.replicas or self.form == VOTE or claim.min_hold or claim.is_numbered
        if granted is not None and not confirms:
            return granted
        sent_at = self.queue.now()
        found = await self._try_or_undo(claim, True, until)
        self.queue.leave(claim.id)
        if isinstance(found, Refused):
            self.executor.has_written = True
            self.queue.enqueue(claim.id, found.ticket, sent_at)
        if isinstance(found, GivenUp):
            raise NotApplied(f"the claim to {claim.name!r} was given up already")
        return self._answer(found)

    def _answer(self, found: Granted | Refused | GivenUp | OtherUse) -> Grant | Busy | Mismatch:
        if isinstance(found, Granted):
            self.executor.has_written = True
            return Grant(int(found.token), (), slots=found.slots)
        if isinstance(found, GivenUp):
            return Busy(None, NEVER, ())
        if isinstance(found, OtherUse):
            return Mismatch(None if found.permits < 0 else found.permits)
        recheck = _recheck(found.remaining_ms, found.rank)
        polls = self.form in ("string", VOTE) and found.rank in (0, 1)
        if polls and is_foreign(found.owner, found.record):
            recheck = min(recheck, RECHECK_FOREIGN)
        held = held_of(found.owner, found.record, found.remaining_ms)
        return Busy(held, recheck, (), holds=found.holds)

    async def _try_or_undo(
        self, claim: Claim, wait: bool, until: float
    ) -> Granted | Refused | GivenUp | OtherUse:
        """Try. What the script has done before it failed, or without a subscription, is undone."""
        try:
            return await self._try(claim, wait, until)
        except (ScriptFailed, SubscribeFailed) as error:
            member = names.member_of(claim, self.listener.address_of(claim))
            await self._give_back(claim, self._release(claim, until, member, TOMBSTONE_MS))
            raise NotApplied(str(error), error.reason) from error

    async def _try(
        self, claim: Claim, wait: bool, until: float
    ) -> Granted | Refused | GivenUp | OtherUse:
        if not self.replicas:
            return acquired(await self._run_acquire(claim, wait, until))
        confirm: Command = ("WAIT", self.replicas, REPLICAS_MS)
        reply, copies = await self._run_acquire(claim, wait, until, (confirm,))
        found = acquired(reply)
        if not isinstance(found, Granted):
            return found
        given_back = self.given_back.setdefault(claim.id, set())
        if isinstance(copies, int) and copies >= self.replicas and found.token not in given_back:
            return found
        # Never a grant again: the request that gives it back may arrive late (hazard D2).
        given_back.add(found.token)
        await self._give_back(claim, self._release(claim, until, token=found.token))
        raise NotApplied(
            f"{claim.name!r} was granted and given back: {copies} of {self.replicas} "
            f"replicas confirmed the grant within {REPLICAS_MS} ms",
            "unreachable",
        )

    async def _give_back(self, claim: Claim, release: Awaitable[Released]) -> None:
        """Release a grant that is not reported; OutcomeUnknown if that fails, to be repeated."""
        try:
            await release
        except (NotApplied, Unreachable) as error:
            raise OutcomeUnknown(f"{claim.name!r} could not be given back: {error}") from error

    async def _run_acquire(
        self, claim: Claim, wait: bool, until: float, then: Sequence[Command] = ()
    ) -> Any:
        waiting = None
        if wait:
            address, waiting = self._listen(claim)
        else:
            address = self.listener.address_of(claim)
        command = self._acquire_command(
            claim.name,
            names.owner_of(claim.id),
            round(claim.lease * 1000),
            names.member_of(claim, address),
            int(claim.mode == "exclusive"),
            int(wait),
            self.queue.tickets.get(claim.id, b""),
            *((round(claim.min_hold * 1000), int(claim.aligned)) if claim.min_hold else ()),
        )
        return await self.executor.evaluate(ACQUIRE, command, until, waiting=waiting, then=then)

    def _listen(self, claim: Claim) -> tuple[str, Waiting]:
        """The address of a claim that waits, and the channels to listen to."""
        address = self.listener.take_address(claim)
        lock = self.keys_of(claim.name).lock
        wake = names.wake_channel(lock)
        # The second says how many of the subscribers to Redisson's channel are ours.
        channels = (wake + address, wake, names.release_channel(lock))
        return address, Waiting(claim, channels, self.topology.sharded)

    def _acquire_command(self, name: str, owner: str, ms: int, member: str, *more: Word) -> Command:
        lock = self.keys_of(name).lock
        others = (names.tombstone(lock, owner), self.index.of(lock))
        return self._command(ACQUIRE, name, others, owner, ms, member, *more)

    def _command(self, script: Script, name: str, others: tuple[str, ...], *own: Word) -> Command:
        """A script that may grant the lock: the keys and arguments of keys.lua, then its own."""
        keys = self.keys_of(name)
        wake, freed = names.wake_channel(keys.lock), names.release_channel(keys.lock)
        arguments = (CONFIRM_WITHIN_MS, RECHECK_MS, self._verb(), wake, freed)
        return script.command(
            (*keys[:4], self._record_or_limit(keys), *others),
            (self.form, self.token_ttl, *arguments, *own),
        )

    def _record_or_limit(self, keys: Keys) -> str:
        return keys.limit if self.form == HASH else keys.record

    def _record(self, keys: Keys) -> tuple[str, ...]:
        """The key of the record; a hash has the record in itself."""
        return () if self.form == HASH else (keys.record,)

    # --- releasing ------------------------------------------------------------------------------

    def release_once(self, claim: Claim, tombstone: bool, until: float) -> Awaitable[Released]:
        """Release, or leave the queue. One command nearly always settles it."""
        call = None if tombstone else self._release_call(claim, until)
        if call is None:
            return self._release_slowly(claim, tombstone, until)
        return self._release_by(call, claim)

    async def _release_by(self, call: Call[Any], claim: Claim) -> Released:
        try:
            replies = await call
        except BaseException:
            self.pool.drop(call.node)
            raise
        released = self._released(claim, call.node, replies)
        if released is None:
            return await self._release_anyhow(claim, False, call.until)
        return released

    def _release_call(self, claim: Claim, until: float) -> Call[Any] | None:
        queued = claim.id in self.queue.tickets
        if queued or claim.mode != "exclusive" or claim.min_hold or self.index.is_nearly_due:
            return None
        return self._call(*self.packed.release(claim), until)

    def _released(
        self, claim: Claim, connection: Connection, replies: list[Any]
    ) -> Released | None:
        """The reply to that command; None if more has to be done."""
        self.pool.put(connection)
        (reply,) = replies
        if isinstance(reply, Exception) and is_partial(reply):
            # Repeated, it would not find the hold.
            raise ScriptFailed(PARTIAL.format(reply), "refused")
        if type(reply) is not int:
            return None
        self.index.count_release(claim)
        released = RELEASED[reply]
        if self.listener.waiting:
            self.listener.forget(claim.id, gave_up=released.was != "held")
        return released

    async def _release_slowly(self, claim: Claim, tombstone: bool, until: float) -> Released:
        if not tombstone:
            until = await self._connect(claim, until)
            call = self._release_call(claim, until)
            if call is not None:
                return await self._release_by(call, claim)
        return await self._release_anyhow(claim, tombstone, until)

    async def _release_anyhow(self, claim: Claim, tombstone: bool, until: float) -> Released:
        if claim.min_hold and await self._cool_down(claim, tombstone, until):
            released = RELEASED[1]
        else:
            released = await self._leave(claim, tombstone, until)
        if self.index.count_release(claim):
            await self.index.trim(claim, until)
        return released

    async def _leave(self, claim: Claim, tombstone: bool, until: float) -> Released:
        member = ""
        # A claim that never was in the queue need not be looked for there.
        if tombstone or claim.id in self.queue.tickets:
            member = names.member_of(claim, self.listener.address_of(claim))
        released = await self._release(claim, until, member, TOMBSTONE_MS if tombstone else 0)
        self.queue.leave(claim.id)
        self.listener.forget_address(claim)
        if self.listener.waiting:
            self.listener.forget(claim.id, gave_up=released.was != "held")
        return released

    async def _cool_down(self, claim: Claim, tombstone: bool, until: float) -> bool:
        """Release a hold whose lock stays taken; False if it is to be released as usual."""
        keys, owner = self.keys_of(claim.name), names.owner_of(claim.id)
        own = (owner, TOMBSTONE_MS if tombstone else 0)
        arguments = (*own, self._verb(), names.wake_channel(keys.lock))
        where = (keys.lock, names.tombstone(keys.lock, owner), keys.queue)
        command = COOL_DOWN.command(where, arguments)
        return bool(await self.executor.evaluate(COOL_DOWN, command, until))

    async def release_grant(self, claim: Claim, token: int, until: float) -> Released:
        """End one grant; the claim itself goes on."""
        released = await self._release(claim, until, token=str(token))
        self.queue.leave(claim.id)
        return released

    async def _release(
        self,
        claim: Claim,
        until: float,
        member: str = "",
        tombstone_ms: int = 0,
        token: Word = "",
    ) -> Released:
        owner = names.owner_of(claim.id)
        command = self._release_command(claim.name, owner, member, tombstone_ms, token)
        return RELEASED[await self.executor.evaluate(RELEASE, command, until)]

    def _release_command(
        self, name: str, owner: str, member: str = "", tombstone_ms: int = 0, token: Word = ""
    ) -> Command:
        tombstone = names.tombstone(self.keys_of(name).lock, owner)
        return self._command(RELEASE, name, (tombstone,), owner, member, tombstone_ms, token)

    # --- what a hold and a lock can be asked ----------------------------------------------------

    async def raise_token(self, claim: Claim, token: int, until: float) -> bool:
        """Raise the token to the one that the servers of a Redlock agreed upon."""
        keys = self.keys_of(claim.name)
        arguments = (names.owner_of(claim.id), token, self.token_ttl)
        command = RAISE_TOKEN.command((keys.lock, keys.token, keys.record), arguments)
        return bool(await self.executor.evaluate(RAISE_TOKEN, command, until) == 1)

    async def renew(self, claims: Sequence[Claim], until: float) -> tuple[bool | None, ...]:
        """Renew many; in a cluster, those of each slot together."""
        slots: dict[int, list[Claim]] = {}
        for claim in claims:
            slot = names.slot_of(self.keys_of(claim.name).lock) if self.topology.divided else 0
            slots.setdefault(slot, []).append(claim)
        parts = [
            (self.keys_of(group[0].name).lock, partial(self._renew, group, until))
            for group in slots.values()
        ]
        answers = await self.executor.each(parts)
        held: dict[str, bool] = {}
        for group, replies in zip(slots.values(), answers, strict=True):
            if replies is not None:
                held |= {c.id: r == 1 for c, r in zip(group, replies, strict=True)}
        return tuple(held.get(claim.id) for claim in claims)

    async def _renew(self, claims: Sequence[Claim], until: float) -> Any:
        keys: list[str] = []
        arguments: list[str | int] = [self.form]
        for claim in claims:
            own = self.keys_of(claim.name)
            keys += (own.lock, *self._record(own))
            arguments += (round(claim.lease * 1000), names.owner_of(claim.id))
        command = RENEW.command(keys, arguments)
        return await self.executor.evaluate(RENEW, command, until)

    async def convert(self, claim: Claim, step: int, mode: Mode, until: float) -> Converted:
        """Change the mode of a hold. One that is to be exclusive listens before it asks."""
        address, waiting = self.listener.address_of(claim), None
        if mode == "exclusive":
            address, waiting = self._listen(claim)
        own = (names.owner_of(claim.id), address, step, mode)
        command = self._command(CONVERT, claim.name, (), *own)
        confirm: list[Command] = []
        if self.replicas and mode == "exclusive":
            confirm.append(("WAIT", self.replicas, REPLICAS_MS))
        reply = await self.executor.evaluate(CONVERT, command, until, waiting=waiting, then=confirm)
        copies: Any = self.replicas
        if confirm:
            reply, copies = reply
        done, *found = reply
        if not done:
            return Converted(None, NEVER, ())
        left, owner, record = found
        held = held_of(owner, record, 0)
        if held is None or held.mode != "upgrading":
            self.listener.forget_address(claim)
            if confirm and not (isinstance(copies, int) and copies >= self.replicas):
                # Repeated, it asks them again; in the end the client converts it back.
                raise OutcomeUnknown(
                    f"{copies} of {self.replicas} replicas confirmed the upgrade of {claim.name!r}"
                )
        return Converted(held, max(1, left) / 1000, ())

    async def resize(self, name: str, limit: int, until: float) -> Resized:
        """Change the number of permits of a semaphore."""
        command = self._command(RESIZE, name, (), limit)
        reply = await self.executor.evaluate(RESIZE, command, until)
        return Resized(None if reply < 0 else reply, ())

    async def set_lifetime(self, claim: Claim, lifetime: Lifetime, until: float) -> LifetimeSet:
        """Note that a hold outlives its client, or that it does not."""
        keys = self.keys_of(claim.name)
        arguments = (names.owner_of(claim.id), lifetime, self.form)
        command = SET_LIFETIME.command((keys.lock, *self._record(keys)), arguments)
        reply = await self.executor.evaluate(SET_LIFETIME, command, until)
        return LifetimeSet(reply == 1, ())

    async def break_lock(self, name: str, only: int | str | None, until: float) -> Broken:
        """End the holds, or only the one with that token or id."""
        holds = [hold.record for hold in (await self._inspect(name, until)).holds]
        broken = []
        for held in holds:
            if held.is_meant(only):
                found, done = await self._break(name, held, until)
                if done:
                    broken.append(found)
                elif only is None and found is not None and len(holds) == 1:
                    return Broken(found, False, ())
        first = next(iter(broken or holds), None)
        return Broken(first, bool(broken), ())

    async def _break(
        self, name: str, held: HoldRecord, until: float
    ) -> tuple[HoldRecord | None, bool]:
        # The id of another program's hold is its owner.
        owner = names.owner_of(held.id) if held.client else held.id
        command = self._command(BREAK_LOCK, name, (), owner)
        done, owner, record = await self.executor.evaluate(BREAK_LOCK, command, until)
        return held_of(owner, record, 0), done == 1

    async def inspect(self, name: str | None, pattern: str, until: float) -> tuple[LockState, ...]:
        """One lock, or those in the index."""
        if name is not None:
            return (await self._state(name, until),)
        return await self.index.matching(pattern, until)

    async def walk(self, pattern: str, until: float) -> tuple[LockState, ...]:
        """All locks, those of other programs as well."""
        return await self.index.matching(pattern, until, walk=True)

    async def _state(self, name: str, until: float) -> LockState:
        """The state of one lock; one that cannot be read hides no other."""
        try:
            return await self._inspect(name, until)
        except Unreadable as error:
            return LockState(name, (), (), unreadable=str(error))

    async def _inspect(self, name: str, until: float) -> LockState:
        reply = await self.executor.evaluate(INSPECT, self._look(name), until)
        return self._found(name, reply)

    def _look(self, name: str) -> Command:
        """The command that reads the state of a lock."""
        numsub = "SHARDNUMSUB" if self.topology.sharded else "NUMSUB"
        keys = self.keys_of(name)
        arguments = (self.form, numsub, names.wake_channel(keys.lock))
        where = (keys.lock, keys.queue, self._record_or_limit(keys), keys.token)
        return INSPECT.command(where, arguments)

    def _found(self, name: str, reply: Sequence[Any]) -> LockState:
        """The state of a lock, from the reply."""
        keys = self.keys_of(name)
        limit, found, clock, *members = reply
        holds: list[HoldState] = []
        reasons: list[str] = []
        for left, owner, record in found:
            if left is None or not is_record(record):
                key = keys.lock if self.form == HASH else keys.record
                what = f"the hold of {owner.decode('utf-8', 'replace')!r:.80}, which is no record"
                reasons.append(UNREADABLE.format(key=key, lock=keys.lock, found=what))
            held = held_of(owner, record, left or 0)
            if held is not None:
                holds.append(HoldState(held, left / 1000 if left and left >= 0 else None))
        holds.sort(key=lambda hold: hold.record.token)
        waiting: list[Claim] = []
        for member in members:
            claim = waiter_of(name, member)
            if claim is None:
                what = f"the member {member.decode('utf-8', 'replace')!r:.80}, which is no claim"
                reasons.append(UNREADABLE.format(key=keys.queue, lock=keys.lock, found=what))
            else:
                waiting.append(claim)
        modes = [hold.record.mode for hold in holds] + [claim.mode for claim in waiting]
        limit = limit if modes[:1] == ["permits"] else 0
        unreadable = "".join(reasons[:1])
        return LockState(
            name, tuple(holds), tuple(waiting), limit, unreadable, read_at=clock / 1000
        )

    # --- waiting --------------------------------------------------------------------------------

    def await_wakeup(self, claim: Claim, until: float) -> Awaitable[object]:
        """Wait for a message, or until it is time to poll."""
        return self.await_change(claim, until) or self.listener.await_wakeup(claim, until)

    def forget(self, claim: Claim) -> None:
        """The claim waits or watches no more."""
        super().forget(claim)
        if not (self.queue.tickets or self.listener.waiting or self.given_back or self.to_listen):
            return
        self.to_listen.discard(claim.id)
        self.given_back.pop(claim.id, None)
        gave_up = self.queue.leave(claim.id)
        self.listener.forget(claim.id, gave_up=gave_up)

    def wake(self, claim_ids: Iterable[str]) -> None:
        """Let these claims ask again, those that watch a key, too."""
        claim_ids = tuple(claim_ids)
        super().wake(claim_ids)
        self.listener.wake(claim_ids)

    def close(self) -> None:
        """End all waits: the client is closing."""
        self.listener.end_waits()

    def after_fork(self) -> None:
        """Forget the claims of the parent; `SharedState.after_fork` does so for what it has."""
        self.to_listen.clear()
        self.given_back.clear()


def _recheck(left: int, rank: int) -> float:
    """When to ask again without a message: the first of the queue when the lease ends, the others
    one after the other behind it, as the queue may have moved up to them by then.
    """
    if left < 0:
        left = RECHECK_MS
    stagger = max(1, min(STAGGER_MS * rank, CONFIRM_WITHIN_MS))
    return min(left + stagger, RECHECK_MS) / 1000
