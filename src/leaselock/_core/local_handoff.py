"""Local hand-off: the threads or tasks of one client pass a lease among themselves.

`LocalHandoff` is a backend that wraps another one. For each lock it sends the store one claim, that
of a `SharedLease`, on behalf of all local claims that want the lock: the `LocalWaiter`s in a
`LocalQueue`. When one of them releases, the next one gets the rest of the lease, with the next of
the fencing tokens that the grant has reserved. A claim that reserves no tokens goes straight to the
wrapped backend.

With `cached` the client also keeps a lease that no local claim wants, until another client waits
for the lock: the next local acquire then needs no request.

Invariants:
1. Only a lease that the store has granted is handed on, with the time that is left of it.
2. A token is used once, and none beyond the reserved ones.
3. A shared lease is out of its queue before it is released: it cannot be taken any more.
4. While the shared lease is not granted, the first local waiter is the one that asks the store;
   whatever becomes of it, the next one is woken.
5. No hand-off takes place after `handoff_until`, so that other clients get their turn.
6. A lease is cached only while contention notifications arrive; otherwise it is released.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from leaselock._core import timing, validity
from leaselock._core.backend import (
    Backend,
    BreakLock,
    Busy,
    Grant,
    HoldRecord,
    Inspect,
    Renew,
    SetLifetime,
    Walk,
    Watch,
)
from leaselock._core.effects import Signal, Spawn, Wait
from leaselock._core.hold import TAKEN
from leaselock._core.rules import NEVER, RECHECK_INTERVAL
from leaselock._core.timing import Retry
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from leaselock._core.backend import Broken, Claim, Lifetime, LifetimeSet, LockState, Watched
    from leaselock._core.effects import Env, Operation, Request

R = TypeVar("R")

# The requests that concern shared leases.
HERE = (BreakLock, Inspect, Renew, SetLifetime, Walk, Watch)
# Seconds after its grant for which a lease is handed on: long holds are then served in the order of
# the store, and short ones share the price of one grant.
MAX_HANDOFF = 0.1
# And only in this part of the granted time, so that the last waiter has the rest.
HANDOFF_FRACTION = 0.5
# Seconds after a hand-off for which the same thread may take the lease again before the next one,
# which would have to be woken first: a switch of threads costs as much as several short holds.
REACQUIRE_WINDOW = 0.001


class SharedLease:
    """One claim to the store, for all local claims that want the lock."""

    __slots__ = (
        *("claim", "first_token", "granted", "handoff_until", "holder", "last_token"),
        *("open_requests", "queued", "token", "uncertain", "valid_until"),
    )

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.uncertain = False
        """The outcome of a request is unknown, so its release must leave a tombstone."""
        self.open_requests = 0
        """How many requests of its observer were not answered, or not yet."""
        self.queued = False
        """It is in the store's queue."""
        self.granted = False
        self.holder: LocalWaiter | None = None
        """Which local claim has the lease; None while the next one may take it."""
        self.first_token = self.token = self.last_token = 0
        self.valid_until = self.handoff_until = 0.0

    def grant(self, first_token: int, now: float, sent_at: float, valid_until: float) -> bool:
        """The store has granted it, with the tokens from *first_token* on.

        Return False for a repeated confirmation of the same grant: then the tokens that were used
        stay used.
        """
        self.granted = True
        new = first_token != self.first_token
        if new:
            self.first_token, self.token = first_token, first_token - 1
            self.last_token = first_token - 1 + self.claim.tokens
        self.valid_until = valid_until
        half = sent_at + (valid_until - sent_at) * HANDOFF_FRACTION
        # A cached lease is released as soon as another client waits, so it needs no other bound.
        self.handoff_until = half if self.claim.cached else min(now + MAX_HANDOFF, half)
        return new

    def may_be_in_flight(self) -> bool:
        """Whether a request of it may still reach the store."""
        return self.uncertain or self.open_requests > 0

    def may_be_cached(self, now: float) -> bool:
        """Whether the client may keep the lease while no local claim wants it."""
        return self.claim.cached and self.fits(self.claim.lease, now)

    def expire(self) -> None:
        """Its time has passed: the store must be asked again."""
        self.granted = False
        self.holder = None

    def stop_handoff(self) -> None:
        """Do not hand it on any more."""
        self.handoff_until = 0.0

    def fits(self, lease: float, now: float) -> bool:
        """Whether it can be handed to a claim of that *lease*. One with a shorter lease must not
        get more than it asked for, even if this one was extended, and one with a longer not less.
        """
        alike = lease == self.claim.lease and self.valid_until <= now + lease
        return alike and now < self.handoff_until and self.token < self.last_token


# The signal of a waiter that has never waited.
NEVER_SET = Signal()


class LocalWaiter:
    """One claim of a thread or task that wants the lock, or has it through the shared lease."""

    __slots__ = (
        "asks_store",
        "claim",
        "lease",
        "own_claim",
        "queue",
        "signal",
        "to_release",
        "token",
    )

    def __init__(self, claim: Claim, queue: LocalQueue) -> None:
        self.claim = claim
        # The claim that it sends to the store, if it is the one that asks.
        self.own_claim = claim
        self.queue = queue
        self.signal = NEVER_SET
        self.lease: SharedLease | None = None
        """The lease that it has."""
        self.to_release: SharedLease | None = None
        """A lease that it has taken out of the queue and must release."""
        self.asks_store = False
        """It has asked the store, and waits for its notification."""
        self.token = 0


class LocalQueue:
    """All local claims that want one lock, in the order of arrival. Pure: the time is handed in."""

    __slots__ = ("last_busy", "lease", "reacquire_until", "releases", "waiters")

    def __init__(self) -> None:
        self.lease: SharedLease | None = None
        self.waiters: dict[str, LocalWaiter] = {}
        # How many requests are in flight that release a shared lease.
        self.releases = 0
        self.reacquire_until = 0.0
        self.last_busy = Busy(None, NEVER, ())

    def is_idle(self) -> bool:
        """Whether no local claim has or wants the lock."""
        return self.lease is None and not self.waiters and not self.releases

    def first(self) -> LocalWaiter | None:
        """The next waiter."""
        return next(iter(self.waiters.values()), None)

    def enqueue(self, waiter: LocalWaiter) -> None:
        """Put at the end; one that is queued keeps its position. Its signal is cleared."""
        if waiter.signal is NEVER_SET:
            waiter.signal = Signal()
        self.waiters.setdefault(waiter.claim.id, waiter)
        waiter.signal.is_set = waiter.asks_store = False

    def put_first(self, waiter: LocalWaiter) -> None:
        """Put at the head."""
        self.waiters.pop(waiter.claim.id, None)
        self.waiters = {waiter.claim.id: waiter} | self.waiters

    def remove(self, waiter: LocalWaiter) -> None:
        """Take out of the queue; a new head is woken."""
        if waiter.claim.id in self.waiters:
            was_first = waiter is self.first()
            del self.waiters[waiter.claim.id]
            waiter.asks_store = False
            if was_first:
                self.wake_first()

    def replace_claim(self, claim: Claim, with_new_id: Callable[[Claim], Claim]) -> None:
        """Let no waiter send that claim any more."""
        for waiter in self.waiters.values():
            if waiter.own_claim is claim:
                waiter.own_claim = with_new_id(claim)

    def wake_first(self) -> None:
        """Wake the head of the queue."""
        waiter = self.first()
        if waiter is not None and not waiter.signal.is_set:
            waiter.signal.set()

    def give(self, lease: SharedLease, waiter: LocalWaiter) -> None:
        """The waiter has the lease now, with a token of its own."""
        self.waiters.pop(waiter.claim.id, None)
        if not waiter.token:
            lease.token += 1
            waiter.token = lease.token
        waiter.lease, lease.holder = lease, waiter
        waiter.asks_store = False

    def take(self, waiter: LocalWaiter, now: float) -> bool:
        """Take the lease if it is free; one that has waited gets a window to reacquire it."""
        lease = self.lease
        if lease is None or not lease.granted or lease.holder is not None:
            return False
        if not lease.fits(waiter.claim.lease, now):
            return False
        if waiter.claim.id in self.waiters:
            self.reacquire_until = now + REACQUIRE_WINDOW
        self.give(lease, waiter)
        return True

    def cached_lease(self, lease_time: float, now: float) -> SharedLease | None:
        """The lease, if the client has cached it and no waiter comes first."""
        lease = self.lease
        if lease is None or lease.holder is not None or self.waiters or not lease.granted:
            return None
        return lease if lease.fits(lease_time, now) else None

    def hand_over(self, lease: SharedLease, now: float) -> bool:
        """The holder of the lease has released it: hand it to the next waiter, if that may be."""
        if lease is not self.lease:
            return False
        waiter = self.first()
        if waiter is None:
            if not lease.may_be_cached(now):
                return False
            lease.holder = None
            return True
        if not lease.fits(waiter.claim.lease, now):
            return False
        if now < self.reacquire_until:
            lease.holder = None
        else:
            self.reacquire_until = now + REACQUIRE_WINDOW
            self.give(lease, waiter)
        if not waiter.signal.is_set:
            waiter.signal.set()
        return True

    def may_ask_store(self, waiter: LocalWaiter, now: float, *, wait: bool) -> bool:
        """Whether that waiter is to ask the store. A shared lease whose time has passed without a
        renewal is void: its holder is not valid either. A try does not overtake a waiter.
        """
        lease = self.lease
        if lease is not None and lease.granted and now >= lease.valid_until:
            self.lease = lease = None
        if self.releases or self.first() not in (None, waiter):
            return False
        if lease is None:
            return True
        return not lease.granted and (wait or lease.claim is waiter.own_claim)

    def must_release_first(self, waiter: LocalWaiter) -> bool:
        """Whether the shared lease must be released before that waiter can ask the store: it is
        free but cannot be handed on, or it waits for a lease of another length.
        """
        lease = self.lease
        if lease is None or lease.holder is not None:
            return False
        return lease.granted or (
            lease.claim.lease != waiter.claim.lease and self.first() in (None, waiter)
        )

    def refusal(self, now: float) -> Busy:
        """The reply for a claim that must wait for another one of this client."""
        lease = self.lease
        if lease is None or not lease.granted:
            return self.last_busy._replace(retry_after=RECHECK_INTERVAL, notified=())
        return Busy(hold_of(lease), min(lease.valid_until - now, RECHECK_INTERVAL), ())

    def shown(self, state: LockState) -> LockState:
        """The state of the lock with the local claims in place of the shared one."""
        if self.lease is None:
            return state
        shared = self.lease.claim.id
        ours = tuple(waiter.claim for waiter in self.waiters.values())
        if state.held is not None and state.held.id == shared:
            shown = state.replace_hold(hold_of(self.lease) or state.held)
            return shown._replace(waiting=(*ours, *state.waiting))
        waiting = [(claim,) if claim.id != shared else ours for claim in state.waiting]
        return state._replace(waiting=tuple(claim for claims in waiting for claim in claims))


def hold_of(lease: SharedLease) -> HoldRecord | None:
    """The hold as users see it: that of the local claim that has the lease."""
    holder = lease.holder
    if holder is None:
        return None
    claim, details = holder.claim, (holder.claim.metadata, holder.claim.since)
    return HoldRecord(claim.id, claim.client, "either", holder.token, lease.valid_until, *details)


def granted(waiter: LocalWaiter, lease: SharedLease, now: float) -> Grant:
    """The reply for a claim that has the lease: it lasts as long as the shared one."""
    return Grant(waiter.token, (), lasts=lease.valid_until - now)


class LocalHandoff(Backend):
    """A backend whose claims share the leases of the wrapped backend."""

    def __init__(self, env: Env, backend: Backend, with_new_id: Callable[[Claim], Claim]) -> None:
        super().__init__(backend.capabilities)
        self.env = env
        self.backend = backend
        self.with_new_id = with_new_id
        self.queues: dict[str, LocalQueue] = {}
        self.waiters: dict[str, LocalWaiter] = {}
        # The claims that watch, by the names of their locks: the store sees no hand-off, and no
        # local waiter.
        self.watching: dict[str, set[str]] = {}

    # --- acquire ----------------------------------------------------------------------------------

    def acquire(self, claim: Claim, *, wait: bool, until: float) -> Awaitable[Grant | Busy]:
        """One try."""
        if claim.tokens == 1:
            return self.backend.acquire(claim, wait=wait, until=until)
        return self._acquire(claim, wait, until)

    async def _acquire(self, claim: Claim, wait: bool, until: float) -> Grant | Busy:
        new = claim.id not in self.waiters
        try:
            return await self._try(claim, wait, until, new)
        except NotApplied as error:
            if new and claim.id in self.waiters:
                # It must still release what it took out of the queue, so it must not be forgotten.
                raise OutcomeUnknown(str(error)) from error
            raise

    async def _try(self, claim: Claim, wait: bool, until: float, new: bool) -> Grant | Busy:
        waiter = self.waiters.get(claim.id) or self.waiter_for(claim)
        queue, now = waiter.queue, self.env.now()
        if waiter.lease is None and queue.take(waiter, now):
            self._wake_watchers(claim.name)
        if waiter.lease is not None and now < waiter.lease.valid_until:
            return granted(waiter, waiter.lease, now)
        if wait or claim.cached or waiter.lease is not None:
            await self._make_way(waiter, until)
        if queue.may_ask_store(waiter, self.env.now(), wait=wait):
            return await self._ask_store(waiter, wait, until, new)
        refusal = queue.refusal(now)
        if wait:
            first = not queue.waiters
            queue.enqueue(waiter)
            if first:
                self._wake_watchers(claim.name)  # its holder may follow the queue
        else:
            await self._withdraw(waiter, new, until)
        return refusal

    def waiter_for(self, claim: Claim) -> LocalWaiter:
        """A new waiter."""
        queue = self.queues.get(claim.name)
        if queue is None:
            queue = self.queues[claim.name] = LocalQueue()
        waiter = self.waiters[claim.id] = LocalWaiter(claim, queue)
        return waiter

    async def _make_way(self, waiter: LocalWaiter, until: float) -> None:
        """Release what keeps the waiter from asking the store."""
        queue, late = waiter.queue, waiter.lease
        if late is not None:
            # It was given the lease, and has come too late for it to be valid.
            waiter.lease = None
            late.expire()
            if queue.lease in (None, late):
                queue.lease = late
                queue.put_first(waiter)
            else:
                # Others have gone on meanwhile: it must not overtake one that asks already.
                waiter.to_release, waiter.token = late, 0
                queue.enqueue(waiter)
        elif queue.must_release_first(waiter):
            queue.enqueue(waiter)
            waiter.to_release = queue.lease
        # A failed release is repeated when the waiter leaves.
        with suppress(StoreError):
            await self._release_taken(waiter, until)

    async def _release_taken(self, waiter: LocalWaiter, until: float) -> None:
        """Release what the waiter has taken out of the queue."""
        if waiter.to_release is not None:
            await self.release_lease(waiter.queue, waiter.to_release, until)
            waiter.to_release = None

    async def _ask_store(
        self, waiter: LocalWaiter, wait: bool, until: float, new: bool
    ) -> Grant | Busy:
        """Ask the store for all. The shared claim keeps its position in the store's queue, even if
        another waiter has asked with it before.
        """
        queue = waiter.queue
        queue.enqueue(waiter)
        lease = queue.lease
        if lease is None:
            lease = queue.lease = SharedLease(waiter.own_claim)
        sent_at = self.env.now()
        try:
            reply = await self.backend.acquire(lease.claim, wait=wait, until=until)
        except BaseException as error:
            self._failed(waiter, lease, error, new)
            raise
        if isinstance(reply, Grant):
            grant = self._granted(waiter, lease, reply, sent_at)
            if lease.claim.cached:
                await start_observer(self, queue, lease)
            return grant
        lease.queued = lease.queued or wait
        waiter.asks_store, queue.last_busy = lease.queued, reply
        if not wait:
            await self._withdraw(waiter, not lease.may_be_in_flight(), until)
        return reply

    def _failed(
        self, waiter: LocalWaiter, lease: SharedLease, error: BaseException, new: bool
    ) -> None:
        if not isinstance(error, NotApplied):
            lease.uncertain = True
        elif new and waiter.to_release is None:
            self._discard(waiter)

    def _granted(
        self, waiter: LocalWaiter, lease: SharedLease, grant: Grant, sent_at: float
    ) -> Grant:
        """The store has granted the shared claim; the waiter that asked gets the lease first."""
        sent_at, lasts = min(sent_at, grant.sent_at), min(lease.claim.lease, grant.lasts)
        until = validity.lease_end(self.capabilities, sent_at, lasts)
        if lease.grant(grant.token, self.env.now(), sent_at, until):
            waiter.token = 0
        if lease.queued:
            self.backend.forget(lease.claim)
            lease.queued = False
        waiter.queue.give(lease, waiter)
        return grant._replace(token=waiter.token, sent_at=sent_at, lasts=lasts)

    async def _withdraw(self, waiter: LocalWaiter, unknown_to_store: bool, until: float) -> None:
        """A try that was refused leaves nothing behind."""
        if unknown_to_store and waiter.to_release is None:
            self._discard(waiter)
        else:
            await self._release(waiter.claim, tombstone=False, until=until)

    def _discard(self, waiter: LocalWaiter) -> None:
        """Forget a waiter of which the store knows nothing."""
        queue = waiter.queue
        if queue.lease is not None and queue.lease.claim is waiter.own_claim:
            queue.lease = None
        self.backend.forget(waiter.own_claim)
        self._remove(waiter)

    def _remove(self, waiter: LocalWaiter) -> None:
        """Forget a waiter; the queue goes with the last one."""
        queue = waiter.queue
        self.waiters.pop(waiter.claim.id, None)
        queue.remove(waiter)
        self._remove_idle(waiter.claim.name, queue)

    def _remove_idle(self, name: str, queue: LocalQueue) -> None:
        if queue.is_idle() and self.queues.get(name) is queue:
            del self.queues[name]

    def await_wakeup(self, claim: Claim, until: float) -> Awaitable[object]:
        """Wait for the store, if this waiter asks it; otherwise for another local claim."""
        waiter = self.waiters.get(claim.id)
        if waiter is None:
            return self.backend.await_wakeup(claim, until)
        if waiter.asks_store and waiter.queue.lease is not None:
            return self.backend.await_wakeup(waiter.queue.lease.claim, until)
        return Wait(waiter.signal, until)

    # --- release ----------------------------------------------------------------------------------

    def release(self, claim: Claim, *, tombstone: bool, until: float) -> Operation[bool]:
        """Hand the lease on, release it, or leave the queue."""
        if claim.tokens == 1:
            return self.backend.release(claim, tombstone=tombstone, until=until)
        return self._release(claim, tombstone, until)

    async def _release(self, claim: Claim, tombstone: bool, until: float) -> bool:
        waiter = self.waiters.get(claim.id)
        if waiter is None:
            return False
        await self._release_taken(waiter, until)
        queue, lease = waiter.queue, waiter.lease
        if lease is None:
            queue.remove(waiter)
            lease = queue.lease
            if queue.waiters or lease is None or lease.holder is not None:
                self._remove(waiter)
                return False
            # No other local claim wants it: release what the client has or waits for.
            waiter.lease = lease
        elif queue.hand_over(lease, self.env.now()):
            del self.waiters[waiter.claim.id]
            self._wake_watchers(claim.name)
            return True
        lease.uncertain = lease.uncertain or tombstone
        held = await self.release_lease(queue, lease, until)
        self._remove(waiter)
        return held

    async def release_lease(self, queue: LocalQueue, lease: SharedLease, until: float) -> bool:
        """Release the shared lease to the store."""
        if queue.lease is lease:
            queue.lease = None
        if lease.may_be_in_flight():
            # A claim with a tombstone is never granted again, so no waiter may go on with it.
            queue.replace_claim(lease.claim, self.with_new_id)
        queue.releases += 1
        try:
            tombstone = lease.may_be_in_flight()
            return await self.backend.release(lease.claim, tombstone=tombstone, until=until)
        except BaseException:
            lease.uncertain = True
            raise
        finally:
            queue.releases -= 1
            self.backend.forget(lease.claim)
            queue.wake_first()
            self._remove_idle(lease.claim.name, queue)

    def forget(self, claim: Claim) -> None:
        """Stop waiting: the claim was granted, or its release is already scheduled."""
        if claim.tokens == 1:
            watching = self.watching.get(claim.name)
            if watching is not None:
                watching.discard(claim.id)
                if not watching:
                    del self.watching[claim.name]
            self.backend.forget(claim)
            return
        waiter = self.waiters.get(claim.id)
        if waiter is not None and waiter.lease is None:
            waiter.queue.remove(waiter)

    async def release_cached(self, until: float) -> None:
        """Release the cached leases; the client closes."""
        for queue in list(self.queues.values()):
            if queue.lease is not None and queue.lease.granted and queue.lease.holder is None:
                with suppress(StoreError):
                    await self.release_lease(queue, queue.lease, until)

    # --- cached leases ----------------------------------------------------------------------------

    def take_cached(self, queue: LocalQueue, lease: SharedLease, claim: Claim) -> int:
        """Take the cached lease of a queue; return the fencing token."""
        waiter = self.waiters[claim.id] = LocalWaiter(claim, queue)
        queue.give(lease, waiter)
        if self.watching:
            self._wake_watchers(claim.name)
        return waiter.token

    # --- leases in use ----------------------------------------------------------------------------

    async def renew(self, claims: Sequence[Claim], until: float) -> Sequence[bool | None]:
        """Renew; for a claim that has a shared lease, renew that."""
        sent_at = self.env.now()
        leases = [self._lease_of(claim) for claim in claims]
        wanted = [
            claim if lease is None else lease.claim._replace(lease=claim.lease)
            for claim, lease in zip(claims, leases, strict=True)
        ]
        answers = await self.backend.request(Renew(wanted), until)
        for claim, lease, renewed in zip(wanted, leases, answers, strict=True):
            if lease is not None and renewed is not None:
                end = validity.lease_end(self.capabilities, sent_at, claim.lease)
                self._renewed(lease, end, held=renewed)
        return answers

    def _lease_of(self, claim: Claim) -> SharedLease | None:
        waiter = self.waiters.get(claim.id)
        return None if waiter is None else waiter.lease

    def _renewed(self, lease: SharedLease, until: float, *, held: bool) -> None:
        if held:
            lease.valid_until = max(lease.valid_until, until)
            return
        lease.stop_handoff()
        # Its holder may be another claim than the one that was renewed.
        if lease.holder is not None:
            self.lose(lease.holder.claim.id, TAKEN)

    async def set_lifetime(self, claim: Claim, lifetime: Lifetime, until: float) -> LifetimeSet:
        """Change what ends the hold; it is not handed on any more."""
        lease = self._lease_of(claim)
        if lease is None:
            return await self.backend.request(SetLifetime(claim, lifetime), until)
        lease.stop_handoff()
        reply = await self.backend.request(SetLifetime(lease.claim, lifetime), until)
        if reply.held and lifetime == "lease":
            waiter = self.waiters[claim.id]
            if waiter.queue.lease is lease:
                waiter.queue.lease = None
            waiter.queue.wake_first()
            self._remove(waiter)
        return reply

    def request(self, request: Request[R], until: float) -> Awaitable[R]:
        """Carry out what concerns shared leases here; the store does all else."""
        here = isinstance(request, HERE)
        return super().request(request, until) if here else self.backend.request(request, until)

    async def break_lock(self, name: str, token: int | str | None, until: float) -> Broken:
        """End the hold of the lock; if that is a shared lease, it is not handed on any more."""
        broken = await self.backend.request(BreakLock(name, token), until)
        queue = self.queues.get(name)
        if broken.done and queue is not None and queue.lease is not None and queue.lease.granted:
            queue.lease.stop_handoff()
        return broken

    async def inspect(self, name: str | None, pattern: str, until: float) -> Sequence[LockState]:
        """The states in the store, with the local claims in place of the shared ones."""
        states = await self.backend.request(Inspect(name, pattern), until)
        return [self._shown(state) for state in states]

    async def walk(self, pattern: str, until: float) -> Sequence[LockState]:
        """The same of all locks, those of other programs as well."""
        states = await self.backend.request(Walk(pattern), until)
        return [self._shown(state) for state in states]

    async def watch_lock(self, claim: Claim, until: float) -> Watched:
        """The same of one lock, whose watcher is woken by each hand-off, and by the first local
        waiter, from now on.
        """
        self.watching.setdefault(claim.name, set()).add(claim.id)
        watched = await self.backend.request(Watch(claim), until)
        return watched._replace(state=self._shown(watched.state))

    def _wake_watchers(self, name: str) -> None:
        if self.watching:
            self.backend.wake(self.watching.get(name, ()))

    def _shown(self, state: LockState) -> LockState:
        queue = self.queues.get(state.name)
        return state if queue is None else queue.shown(state)

    # --- what the wrapped backend does ------------------------------------------------------------

    def wait_and_listen(self, changed: Signal, until: float) -> Awaitable[object]:
        """Wait as the wrapped backend does."""
        return self.backend.wait_and_listen(changed, until)

    def wake(self, claim_ids: Iterable[str]) -> None:
        """Let these claims ask again. One that asks the store waits there as the shared claim."""
        in_store = []
        for claim_id in claim_ids:
            waiter = self.waiters.get(claim_id)
            if waiter is None:
                in_store.append(claim_id)
            else:
                waiter.signal.set()
                if waiter.asks_store and waiter.queue.lease is not None:
                    in_store.append(waiter.queue.lease.claim.id)
        self.backend.wake(in_store)

    def close(self) -> None:
        """End all waits: the client is closing."""
        for waiter in list(self.waiters.values()):
            waiter.signal.set()
        self.backend.close()

    def after_fork(self) -> None:
        """Forget the queues; the claims that are still ours will be released one by one."""
        self.queues, self.watching = {}, {}
        for waiter in self.waiters.values():
            queue, waiter.queue = waiter.queue, LocalQueue()
            if waiter.lease is None and queue.lease is not None and queue.lease.holder is None:
                waiter.lease, queue.lease = queue.lease, None
        self.backend.after_fork()


# --- the observer of a cached lease ---------------------------------------------------------------


async def start_observer(local: LocalHandoff, queue: LocalQueue, lease: SharedLease) -> None:
    """Start the observer of a cached lease that was granted just now."""
    try:
        await Spawn(observe_contention(local, queue, lease), "watcher")
    except BaseException:
        lease.stop_handoff()
        raise


async def observe_contention(local: LocalHandoff, queue: LocalQueue, lease: SharedLease) -> None:
    """Wait until another client waits for the lock, or the lease was released.

    Then the lease is not handed on any more: if it is in use it is released with its holder's
    release, otherwise at once.
    """
    with suppress(StoreError):
        alone = queue.lease is lease and await is_alone(local, lease)
        if alone and queue.lease is lease:
            await local.backend.await_wakeup(lease.claim, lease.valid_until)
    lease.stop_handoff()
    if queue.lease is not lease:
        local.backend.forget(lease.claim)  # it may have been released before the first request
    elif lease.holder is None and lease.granted:  # otherwise a waiter asks what became of it
        with suppress(StoreError):
            await _release_cached(local, queue, lease)


async def _release_cached(local: LocalHandoff, queue: LocalQueue, lease: SharedLease) -> None:
    """Release until it is answered, at least once, even if the lease has ended: a request of it may
    be in flight, and must be refused.
    """
    give_up = lease.valid_until + timing.RELEASE_GRACE
    retry = Retry(local.env, 2 * timing.TRY_TIMEOUT, give_up)
    # As if a request had failed: a refusal is no reason to stop.
    retry.tries = 1
    await retry.until_answered(partial(local.release_lease, queue, lease))


async def is_alone(local: LocalHandoff, lease: SharedLease) -> bool:
    """Begin to listen for contention; return whether no client has come before."""
    # If a release overtakes this request it must leave a tombstone, or this would acquire again.
    lease.open_requests += 1
    until = local.env.now() + timing.TRY_TIMEOUT
    reply = await local.backend.acquire(lease.claim, wait=True, until=until)
    lease.open_requests -= 1
    if not isinstance(reply, Grant):
        lease.uncertain = True
        return False
    until = local.env.now() + timing.TRY_TIMEOUT
    (state,) = await local.backend.request(Inspect(lease.claim.name, "*"), until)
    return not state.waiting
