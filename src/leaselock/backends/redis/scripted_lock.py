"""The default format: a lock with a queue, changed by scripts only.

A lock is a hash with one field, its owner, as in Redisson (`RedissonLock`, `RedissonFencedLock`);
in the format "string" it is a string, as in redis-py's `Lock`, redsync and node-redlock. `keys`
lists the other keys. The depth of reentrant locks stays in the client, so each script states what
shall be, never how much more, and can be repeated.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from leaselock.backends.redis import keys as names
from leaselock.backends.redis.listener import AT_ONCE, NEVER, RECHECK_MS
from leaselock.backends.redis.messages import Send, SubscribeFailed, Unreachable, Waiting
from leaselock.backends.redis.packed_commands import PackedCommands
from leaselock.backends.redis.records import held_of, waiter_of
from leaselock.backends.redis.scan import matching
from leaselock.backends.redis.scripts import (
    ACQUIRE,
    BREAK_LOCK,
    INSPECT,
    RAISE_TOKEN,
    RELEASE,
    RENEW,
    SET_LIFETIME,
)
from leaselock.core.backend import Broken, Busy, Grant, LifetimeSet, LockState, Released
from leaselock.core.effects import Call
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from leaselock.backends.redis.keys import Keys
    from leaselock.backends.redis.messages import Command, Word
    from leaselock.backends.redis.shared_state import SharedState
    from leaselock.core.backend import Claim, Lifetime

# A waiter that was granted the lock must confirm within this time, or the next one gets it.
CONFIRM_WITHIN_MS = 3000
STAGGER_MS = 20
TOMBSTONE_MS = 120_000
# Less than the time of a try that does not wait.
REPLICAS_MS = 300
# The format of one server of a Redlock, which asks several (backends/redlock).
VOTE = "vote"
# How soon to ask again while another program holds the lock, which sends no message.
RECHECK_FOREIGN = 0.1
# By the reply of the release script.
RELEASED = (Released("absent", ()), Released("held", ()), Released("waiting", ()))


class ScriptedLock:
    """The protocol of the formats "hash", "string" and "vote"."""

    def __init__(self, shared: SharedState, form: str, replicas: int) -> None:
        self.form = form
        self.replicas = replicas
        self.topology = shared.topology
        self.executor = shared.executor
        self.pool = shared.pool
        self.queue = shared.queue
        self.listener = shared.listener
        self.closing = False
        # The tokens of grants that were given back, of claims that are still in use.
        self.undone: dict[str, set[bytes]] = {}
        self.packed = PackedCommands(
            self.topology, self.listener.channel_of, self._acquire_command, self._release_command
        )

    def _keys(self, name: str) -> Keys:
        return names.keys_of(name, self.topology.divided)

    def _verb(self) -> str:
        return "SPUBLISH" if self.topology.sharded else "PUBLISH"

    # --- acquiring ------------------------------------------------------------------------------

    async def acquire(self, claim: Claim, wait: bool, until: float) -> Grant | Busy:
        """Try; if the lock is taken and is to be waited for, listen and enter the queue."""
        listen = self.listener.listens_first(claim, wait)
        if not listen and not self.replicas and not (wait and claim.cached):
            reply = await self._packed_acquire(claim, until)
            if type(reply) is list:
                if reply[0] == 1:
                    return Grant(int(reply[1]), ())
                if not wait:
                    return self._answer(reply)
                listen = True
        answer = await self._acquire(claim, wait, listen, until)
        return self.listener.watched(claim, answer) if type(answer) is Busy else answer

    async def _packed_acquire(self, claim: Claim, until: float) -> Any:
        """One command that nearly always settles it; None or an error: more has to be done."""
        if claim.id in self.queue.tickets:
            return None
        key, data = self.packed.acquire(claim)
        return await self._send_packed(key, data, until, limited=True)

    async def _send_packed(self, key: str, data: bytes, until: float, *, limited: bool) -> Any:
        address = self.topology.known(key)
        if address is None:
            return None
        connection = self.pool.take(address, limited=limited)
        if connection is None:
            try:
                connection, until = await self.pool.get(address, until, limited=limited)
            except Unreachable:
                self.topology.forget(address)
                return None
        try:
            (reply,) = await Call(connection, Send(data, 1, ()), until)
        except BaseException:
            self.pool.drop(connection)
            raise
        self.pool.put(connection)
        return reply

    async def _acquire(self, claim: Claim, wait: bool, listen: bool, until: float) -> Grant | Busy:
        if not listen and not (wait and claim.cached):
            reply = await self._try(claim, False, until)
            if reply[0] == 1:
                return Grant(int(reply[1]), ())
            if not wait:
                return self._answer(reply)
        self.listener.drain_for(claim)
        granted = self.queue.grant(claim.id)
        # Replicas, and the other servers of a Redlock, confirm only a grant that is asked for.
        if granted is not None and not self.replicas and self.form != VOTE:
            return granted
        asked = self.queue.now()
        try:
            reply = await self._try(claim, True, until)
        except SubscribeFailed:
            member = names.member_of(claim, self.listener.channel_of(claim))
            await self._give_back(claim, until, member, TOMBSTONE_MS)
            raise
        self.queue.leave(claim.id)
        if reply[0] == 0:
            self.queue.enqueue(claim.id, reply[3], asked)
        if reply[0] < 0:
            raise NotApplied(f"the claim to {claim.name!r} was given up already")
        return self._answer(reply)

    def _answer(self, reply: Sequence[Any]) -> Grant | Busy:
        if reply[0] == 1:
            return Grant(int(reply[1]), ())
        if reply[0] < 0:
            return Busy(None, NEVER, ())
        _, left, rank, _, owner, record, token = reply
        held = held_of(owner, record, token, left)
        recheck = _recheck(left, rank)
        if self.form == "string" and rank in (0, 1) and held is not None and not held.client:
            recheck = min(recheck, RECHECK_FOREIGN)
        return Busy(held, recheck, ())

    async def _try(self, claim: Claim, wait: bool, until: float) -> Any:
        if not self.replicas:
            return await self._run_acquire(claim, wait, until)
        confirm: Command = ("WAIT", self.replicas, REPLICAS_MS)
        reply, copies = await self._run_acquire(claim, wait, until, (confirm,))
        if reply[0] != 1:
            return reply
        undone = self.undone.setdefault(claim.id, set())
        if isinstance(copies, int) and copies >= self.replicas and reply[1] not in undone:
            return reply
        # Never a grant again: the request that gives it back may arrive late (hazard D2).
        undone.add(reply[1])
        await self._give_back(claim, until, token=reply[1])
        raise NotApplied(
            f"{claim.name!r} was granted and given back: {copies} of {self.replicas} "
            f"replicas confirmed the grant within {REPLICAS_MS} ms"
        )

    async def _give_back(
        self,
        claim: Claim,
        until: float,
        member: str = "",
        tombstone_ms: int = 0,
        token: Word = "",
    ) -> None:
        """Release a grant that is not reported; OutcomeUnknown if that fails, to be repeated."""
        try:
            await self._release(claim, until, member, tombstone_ms, token)
        except (NotApplied, Unreachable) as error:
            raise OutcomeUnknown(f"{claim.name!r} could not be given back: {error}") from error

    async def _run_acquire(
        self, claim: Claim, wait: bool, until: float, then: Sequence[Command] = ()
    ) -> Any:
        channel = self.listener.channel_of(claim)
        waiting = None
        if wait:
            lock = self._keys(claim.name).lock
            channels = (names.wake_channel(lock) + channel, names.release_channel(lock))
            waiting = Waiting(claim, channels, self.topology.sharded)
        command = self._acquire_command(
            claim.name,
            names.owner_of(claim.id),
            round(claim.lease * 1000),
            names.member_of(claim, channel),
            claim.tokens,
            int(wait),
            self.queue.tickets.get(claim.id, b""),
        )
        return await self.executor.evaluate(ACQUIRE, command, until, waiting=waiting, then=then)

    def _acquire_command(
        self, name: str, owner: str, ms: int, member: str, tokens: int, *place: Word
    ) -> Command:
        wait, ticket = place or (0, b"")
        keys = self._keys(name)
        wake = names.wake_channel(keys.lock)
        words = (owner, ms, member, wait, ticket, CONFIRM_WITHIN_MS, self._verb(), wake, RECHECK_MS)
        tombstone = names.tombstone(keys.lock, owner)
        return ACQUIRE.command((*keys, tombstone), (*words, self.form, tokens))

    # --- releasing ------------------------------------------------------------------------------

    async def release(self, claim: Claim, tombstone: bool, until: float) -> Released:
        """Release, or leave the queue."""
        queued = claim.id in self.queue.tickets
        reply = None
        if not queued and not tombstone:
            key, data = self.packed.release(claim)
            reply = await self._send_packed(key, data, until, limited=False)
        if type(reply) is int:
            released = RELEASED[reply]
        else:
            # A claim that never was in the queue need not be looked for there.
            member = ""
            if queued or tombstone:
                member = names.member_of(claim, self.listener.channel_of(claim))
            released = await self._release(claim, until, member, TOMBSTONE_MS if tombstone else 0)
            self.queue.leave(claim.id)
        self.listener.forget(claim.id, gave_up=released.was != "held")
        return released

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
        keys = self._keys(name)
        wake, freed = names.wake_channel(keys.lock), names.release_channel(keys.lock)
        words = (owner, member, tombstone_ms, CONFIRM_WITHIN_MS, self._verb(), wake, freed)
        tombstone = names.tombstone(keys.lock, owner)
        return RELEASE.command((*keys, tombstone), (*words, RECHECK_MS, self.form, token))

    # --- what a hold and a lock can be asked ----------------------------------------------------

    async def raise_token(self, claim: Claim, token: int, until: float) -> bool:
        """Raise the token to the one that the servers of a Redlock agreed upon."""
        keys = self._keys(claim.name)
        words = (names.owner_of(claim.id), token)
        command = RAISE_TOKEN.command((keys.lock, keys.token, keys.record), words)
        return bool(await self.executor.evaluate(RAISE_TOKEN, command, until) == 1)

    async def renew(self, claims: Sequence[Claim], until: float) -> tuple[bool | None, ...]:
        """Renew many; in a cluster, those of each slot together."""
        slots: dict[int, list[Claim]] = {}
        for claim in claims:
            slot = names.slot_of(self._keys(claim.name).lock) if self.topology.divided else 0
            slots.setdefault(slot, []).append(claim)
        parts = [
            (self._keys(group[0].name).lock, partial(self._renew, group, until))
            for group in slots.values()
        ]
        answers = await self.executor.each(parts)
        held: dict[str, bool] = {}
        for group, replies in zip(slots.values(), answers, strict=True):
            if replies is not None:
                held |= {c.id: r == 1 for c, r in zip(group, replies, strict=True)}
        return tuple(held.get(claim.id) for claim in claims)

    async def _renew(self, claims: Sequence[Claim], until: float) -> Any:
        keys = [self._keys(claim.name) for claim in claims]
        both = [key for lock in keys for key in (lock.lock, lock.record)]
        words: list[str | int] = []
        for claim in claims:
            words += (round(claim.lease * 1000), names.owner_of(claim.id))
        command = RENEW.command(both, (*words, self.form))
        return await self.executor.evaluate(RENEW, command, until)

    async def set_lifetime(self, claim: Claim, lifetime: Lifetime, until: float) -> LifetimeSet:
        """Note that a hold outlives its client, or that it does not."""
        keys = self._keys(claim.name)
        words = (names.owner_of(claim.id), lifetime, self.form)
        command = SET_LIFETIME.command((keys.lock, keys.record), words)
        reply = await self.executor.evaluate(SET_LIFETIME, command, until)
        return LifetimeSet(reply == 1, ())

    async def break_lock(self, name: str, only: int | None, until: float) -> Broken:
        """End the hold, or only the grant with that token."""
        keys = self._keys(name)
        wake, freed = names.wake_channel(keys.lock), names.release_channel(keys.lock)
        word = "" if only is None else str(only)
        words = (word, CONFIRM_WITHIN_MS, self._verb(), wake, freed, RECHECK_MS, self.form)
        command = BREAK_LOCK.command((keys.lock, keys.token, keys.queue, keys.record), words)
        reply = await self.executor.evaluate(BREAK_LOCK, command, until)
        done, owner, record, token = reply
        return Broken(held_of(owner, record, token, 0), done == 1, ())

    async def inspect(self, name: str | None, pattern: str, until: float) -> tuple[LockState, ...]:
        """One lock, or all whose keys of ours are found."""
        if name is not None:
            return (await self._inspect(name, until),)
        return await matching(self.executor, pattern, self._inspect, until)

    async def _inspect(self, name: str, until: float) -> LockState:
        numsub = "SHARDNUMSUB" if self.topology.sharded else "NUMSUB"
        keys = self._keys(name)
        words = (numsub, names.wake_channel(keys.lock), self.form)
        reply = await self.executor.evaluate(INSPECT, INSPECT.command(keys, words), until)
        left, owner, record, token, *members = reply
        held = held_of(owner, record, token, left)
        remaining = left / 1000 if held and left >= 0 else None
        waiting = tuple(waiter_of(name, member) for member in members)
        return LockState.exclusive(name, held, remaining, waiting)

    # --- waiting --------------------------------------------------------------------------------

    def await_wakeup(self, claim: Claim, until: float) -> Awaitable[object]:
        """Wait for a message; not at all if the client began to close during the last request."""
        return AT_ONCE if self.closing else self.listener.await_wakeup(claim, until)

    def forget(self, claim: Claim) -> None:
        """The claim waits no more."""
        self.undone.pop(claim.id, None)
        gave_up = self.queue.leave(claim.id)
        self.listener.forget(claim.id, gave_up=gave_up)

    def wake_all(self) -> None:
        """Wake all waiting claims: the client is closing."""
        self.closing = True
        self.listener.wake_all()

    def reset(self) -> None:
        """After a fork: no claim waits here."""
        self.closing = False


def _recheck(left: int, rank: int) -> float:
    """When to ask again without a message: the first of the queue when the lease ends, the others
    one after the other behind it, as the queue may have moved up to them by then.
    """
    if left < 0:
        left = RECHECK_MS
    stagger = max(1, min(STAGGER_MS * rank, CONFIRM_WITHIN_MS))
    return min(left + stagger, RECHECK_MS) / 1000
