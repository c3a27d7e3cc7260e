"""A lock with a queue in Redis: each request of the core as a script, each reply as an answer.

A lock is a hash with one field, its owner, as Redisson has it (`RedissonLock`,
`RedissonFencedLock`); or, in the form "string", that owner as a string, which redis-py's `Lock`,
redsync and node-redlock keep, too. `keys` says what else there is. The client's own depth of
nesting never reaches the server, so every script says what shall be, never how much more, and can
be repeated.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from leaselock.backends.redis import keys as names
from leaselock.backends.redis.places import Places
from leaselock.backends.redis.ready import Ready
from leaselock.backends.redis.records import held_of, waiter_of
from leaselock.backends.redis.scan import sights
from leaselock.backends.redis.scripts import ACQUIRE, EVICT, FENCE, LOOK, RELEASE, RENEW, RETIE
from leaselock.backends.redis.steps import Deaf, Unreachable, Waiting
from leaselock.core.backend import Broken, Busy, Grant, LifetimeSet, LockState, Release, Released
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock.backends.redis.keys import Keys
    from leaselock.backends.redis.steps import Command, Steps, Word
    from leaselock.backends.redis.talk import Talk
    from leaselock.core.backend import (
        Acquire,
        BreakLock,
        Claim,
        Inspect,
        RaiseToken,
        ReleaseGrant,
        Renew,
        SetLifetime,
    )

# A waiter that is handed the lock must confirm within this time, or the next one has it; and no
# waiter looks later than this, so each has looked before a grant that it did not see can be over.
CLAIM_MS = 3000
LOOK_AGAIN_MS = 3000
STAGGER_MS = 20
BURIED_MS = 120_000
# Less than a try that does not wait has time for.
REPLICAS_MS = 300
NEVER = 1e9
# One server's part in a Redlock, which asks it of several (backends/redlock).
VOTE = "vote"
LOOK_AT_STRANGERS = 0.1
WAS = (Released("absent", ()), Released("held", ()), Released("waiting", ()))


class Hash:
    """The conversations of the default protocol."""

    def __init__(
        self,
        talk: Talk,
        address_of: Callable[[Claim], str],
        replicas: int,
        form: str,
        now: Callable[[], float],
    ) -> None:
        self.talk = talk
        self.form = form
        self.address_of = address_of
        self.replicas = replicas
        self.places = Places(now)
        # The tokens of grants that were given back, of claims that go on.
        self.undone: dict[str, set[bytes]] = {}
        self.ready = Ready(talk.route, self.places, address_of, self._taking, self._giving)

    def _keys(self, name: str) -> Keys:
        return names.keys_of(name, self.talk.route.divided)

    def _verb(self) -> str:
        return "SPUBLISH" if self.talk.route.sharded else "PUBLISH"

    def settled(self, request: Acquire | Release, reply: Any) -> Grant | Busy | Released | None:
        """What the reply to the brief command means; None if one has to stand in the queue."""
        if isinstance(request, Release):
            return WAS[reply]
        if reply[0] == 1:
            return Grant(int(reply[1]), ())
        return None if request.wait else self._answer(reply)

    def ask(self, request: Acquire, waits: bool) -> Steps[Grant | Busy]:
        """Try; if it is taken and shall be waited for, listen and stand in the queue."""
        claim = request.claim
        if not waits and not (request.wait and claim.cached):
            reply = yield from self._try(claim, wait=False)
            if reply[0] == 1:
                return Grant(int(reply[1]), ())
            if not request.wait:
                return self._answer(reply)
        told = self.places.told(claim.id)
        if told is not None:
            return told
        asked = self.places.now()
        try:
            reply = yield from self._try(claim, wait=True)
        except Deaf:
            member = names.member_of(claim, self.address_of(claim))
            yield from self._undo(claim, member, BURIED_MS)
            raise
        self.places.leave(claim.id)
        if reply[0] == 0:
            self.places.take(claim.id, reply[3], asked)
        if reply[0] < 0:
            raise NotApplied(f"the claim to {claim.name!r} was given up already")
        return self._answer(reply)

    def heard(self, holder: str, token: int, seconds: float) -> None:
        """A message, to one in line: it was granted the lock, for so long."""
        # Replicas are asked, and several masters agree, with the question only.
        if not self.replicas and self.form != VOTE:
            self.places.heard(holder, token, seconds)

    def _answer(self, reply: Sequence[Any]) -> Grant | Busy:
        if reply[0] == 1:
            return Grant(int(reply[1]), ())
        if reply[0] < 0:
            return Busy(None, NEVER, ())
        _, left, rank, _, owner, record, token = reply
        held = held_of(owner, record, token, left)
        recheck = _recheck(left, rank)
        if self.form == "string" and rank == 0 and held is not None and not held.client:
            # Who else keeps a lock as a string tells nobody of a release.
            recheck = min(recheck, LOOK_AT_STRANGERS)
        return Busy(held, recheck, ())

    def _try(self, claim: Claim, *, wait: bool) -> Steps[Any]:
        if not self.replicas:
            return (yield from self._acquire(claim, wait, ()))
        wait_for_them: Command = ("WAIT", self.replicas, REPLICAS_MS)
        reply, copies = yield from self._acquire(claim, wait, (wait_for_them,))
        if reply[0] != 1:
            return reply
        undone = self.undone.setdefault(claim.id, set())
        if isinstance(copies, int) and copies >= self.replicas and reply[1] not in undone:
            return reply
        # Never a grant again, for what gives it back may arrive late (hazard D2).
        undone.add(reply[1])
        yield from self._undo(claim, token=reply[1])
        raise NotApplied(
            f"{claim.name!r} was granted and given back: {copies} of {self.replicas} "
            f"replicas confirmed the grant within {REPLICAS_MS} ms"
        )

    def _undo(
        self, claim: Claim, member: str = "", has_tombstone: int = 0, token: Word = ""
    ) -> Steps[None]:
        """Give back what nobody is told of; Unknown where that fails, so that it is tried again."""
        try:
            yield from self._leave(claim, member, has_tombstone, token)
        except (NotApplied, Unreachable) as error:
            raise OutcomeUnknown(f"{claim.name!r} could not be given back: {error}") from error

    def _acquire(self, claim: Claim, wait: bool, then: Sequence[Command]) -> Steps[Any]:
        address = self.address_of(claim)
        waiting = None
        if wait:
            lock = self._keys(claim.name).lock
            channels = (names.wake_channel(lock) + address, names.release_channel(lock))
            waiting = Waiting(claim, channels, self.talk.route.sharded)
        command = self._taking(
            claim.name,
            names.owner_of(claim.id),
            round(claim.lease * 1000),
            names.member_of(claim, address),
            claim.tokens,
            int(wait),
            self.places.tickets.get(claim.id, b""),
        )
        return (yield from self.talk.evaluate(ACQUIRE, command, waiting=waiting, then=then))

    def _taking(
        self, name: str, owner: str, ms: int, member: str, tokens: int, *place: Word
    ) -> Command:
        wait, ticket = place or (0, b"")
        keys = self._keys(name)
        wake = names.wake_channel(keys.lock)
        words = (owner, ms, member, wait, ticket, CLAIM_MS, self._verb(), wake, LOOK_AGAIN_MS)
        grave = names.grave(keys.lock, owner)
        return ACQUIRE.command((*keys, grave), (*words, self.form, tokens))

    def _giving(
        self, name: str, owner: str, member: str = "", has_tombstone: int = 0, token: Word = ""
    ) -> Command:
        keys = self._keys(name)
        wake, freed = names.wake_channel(keys.lock), names.release_channel(keys.lock)
        words = (owner, member, has_tombstone, CLAIM_MS, self._verb(), wake, freed, LOOK_AGAIN_MS)
        grave = names.grave(keys.lock, owner)
        return RELEASE.command((*keys, grave), (*words, self.form, token))

    def leave(self, request: Release) -> Steps[Released]:
        """Release, or leave the queue."""
        claim = request.claim
        # One that never stood in the queue need not be looked for there.
        if not request.tombstone and claim.id not in self.places.tickets:
            return (yield from self._leave(claim))
        member = names.member_of(claim, self.address_of(claim))
        left = yield from self._leave(claim, member, BURIED_MS if request.tombstone else 0)
        self.places.leave(claim.id)
        return left

    def undo(self, request: ReleaseGrant) -> Steps[Released]:
        """Give up one grant; the claim itself goes on."""
        left = yield from self._leave(request.claim, token=str(request.token))
        self.places.leave(request.claim.id)
        return left

    def _leave(
        self, claim: Claim, member: str = "", has_tombstone: int = 0, token: Word = ""
    ) -> Steps[Released]:
        owner = names.owner_of(claim.id)
        command = self._giving(claim.name, owner, member, has_tombstone, token)
        return WAS[(yield from self.talk.evaluate(RELEASE, command))]

    def fence(self, request: RaiseToken) -> Steps[bool]:
        """Lift the token to the one that the servers agreed upon."""
        keys = self._keys(request.claim.name)
        words = (names.owner_of(request.claim.id), request.token)
        command = FENCE.command((keys.lock, keys.token, keys.record), words)
        reply = yield from self.talk.evaluate(FENCE, command)
        return bool(reply == 1)

    def renew(self, request: Renew) -> Steps[tuple[bool | None, ...]]:
        """Renew many; in a cluster, those of each slot together."""
        slots: dict[int, list[Claim]] = {}
        for claim in request.claims:
            slot = names.slot_of(self._keys(claim.name).lock) if self.talk.route.divided else 0
            slots.setdefault(slot, []).append(claim)
        parts = [(self._keys(c[0].name).lock, partial(self._renew, c)) for c in slots.values()]
        answers = yield from self.talk.each(parts)
        held: dict[str, bool] = {}
        for claims, replies in zip(slots.values(), answers, strict=True):
            if replies is not None:
                held |= {c.id: r == 1 for c, r in zip(claims, replies, strict=True)}
        return tuple(held.get(claim.id) for claim in request.claims)

    def _renew(self, claims: Sequence[Claim]) -> Steps[Any]:
        keys = [self._keys(claim.name) for claim in claims]
        both = [key for lock in keys for key in (lock.lock, lock.record)]
        words: list[str | int] = []
        for claim in claims:
            words += (round(claim.lease * 1000), names.owner_of(claim.id))
        return (yield from self.talk.evaluate(RENEW, RENEW.command(both, (*words, self.form))))

    def set_lifetime(self, request: SetLifetime) -> Steps[LifetimeSet]:
        """Note that a hold outlives its client, or that it does not."""
        keys = self._keys(request.claim.name)
        words = (names.owner_of(request.claim.id), request.lifetime, self.form)
        command = RETIE.command((keys.lock, keys.record), words)
        reply = yield from self.talk.evaluate(RETIE, command)
        return LifetimeSet(reply == 1, ())

    def break_lock(self, request: BreakLock) -> Steps[Broken]:
        """Take the lock away."""
        keys = self._keys(request.name)
        wake, release = names.wake_channel(keys.lock), names.release_channel(keys.lock)
        token = "" if request.token is None else str(request.token)
        words = (token, CLAIM_MS, self._verb(), wake, release, LOOK_AGAIN_MS, self.form)
        done, owner, record, token = yield from self.talk.evaluate(
            EVICT, EVICT.command(keys, words)
        )
        return Broken(held_of(owner, record, token, 0), done == 1, ())

    def inspect(self, request: Inspect) -> Steps[tuple[LockState, ...]]:
        """One lock, or all that leave a trace of ours."""
        if request.name is not None:
            return ((yield from self._sight(request.name)),)
        return (yield from sights(self.talk, request.pattern, self._sight))

    def _sight(self, name: str) -> Steps[LockState]:
        numsub = "SHARDNUMSUB" if self.talk.route.sharded else "NUMSUB"
        keys = self._keys(name)
        words = (numsub, names.wake_channel(keys.lock), self.form)
        reply = yield from self.talk.evaluate(LOOK, LOOK.command(keys, words))
        left, owner, record, token, *members = reply
        held = held_of(owner, record, token, left)
        remaining = left / 1000 if held and left >= 0 else None
        waiting = tuple(waiter_of(name, member) for member in members)
        return LockState.exclusive(name, held, remaining, waiting)

    def forget(self, holder: str) -> bool:
        """The claim waits no more; says whether it stood in the queue still."""
        self.undone.pop(holder, None)
        return self.places.leave(holder)


def _recheck(left: int, rank: int) -> float:
    """When to ask again without a message: the head of the queue when the lease ends, and the
    others one after the other behind it, for the queue may have moved up to them by then.
    """
    if left < 0:
        left = LOOK_AGAIN_MS
    stagger = max(1, min(STAGGER_MS * rank, CLAIM_MS))
    return min(left + stagger, LOOK_AGAIN_MS) / 1000
