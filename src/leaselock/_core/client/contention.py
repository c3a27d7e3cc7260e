"""Whether others wait for a lock, for its holder: a long job that can pause, or a leader that hands
over by choice.

A process of its own follows the queue for one hold, from the first question for it on. Until a
waiter is seen, the store notifies it of the first one, where it notifies watchers of a lock. In any
case it looks as often as the lease is renewed, so a lost notification costs time and nothing else.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING

from leaselock._core.client import validity
from leaselock._core.client.callbacks import calls_while_held
from leaselock._core.client.hold import State
from leaselock._core.contract.backend import Inspect, Watch, Watched
from leaselock._core.contract.background import Background
from leaselock._core.contract.effects import Signal, Wait
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from leaselock._core.client.claim_registry import ClaimRegistry
    from leaselock._core.client.hold import Hold
    from leaselock._core.contract.backend import Claim, LockState

# Not more often than this: a lease may be very short.
SHORTEST_INTERVAL = 0.02


class Contention:
    """What is known of the waiters for the lock of one hold."""

    def __init__(self, registry: ClaimRegistry, hold: Hold) -> None:
        self.registry = registry
        # The process must not keep alive, and so have renewed, what the user has dropped.
        self.hold = weakref.ref(hold)
        self.name = hold.claim.name
        self.interval = max(SHORTEST_INTERVAL, self._interval(hold))
        self.seen = False
        self.process = Background()
        self.ended = Signal()
        self.claim: Claim | None = None

    def _interval(self, hold: Hold) -> float:
        can = self.registry.backend.capabilities
        return validity.proof_interval(can, hold.claim.lease) / validity.RENEWALS_PER_LEASE

    def stop(self) -> None:
        """The hold has ended."""
        self.ended.set()
        if self.claim is not None:
            self.registry.backend.wake((self.claim.id,))

    async def start(self) -> None:
        """Begin to follow the queue, unless the hold has ended."""
        if self._goes_on():
            registry = self.registry
            claim = registry.claim(self.name, 0.0)
            # A store may notify it of waiters, too, and not only of holds.
            self.claim = claim = claim._replace(observes_queue=True)
            await self.process.start(partial(self.follow, claim), "contention")

    def _goes_on(self) -> bool:
        hold = self.hold()
        held = hold is not None and hold.state is State.HELD
        return held and not (self.ended.is_set or self.registry.closed)

    async def follow(self, claim: Claim) -> None:
        """Look at the queue until the hold ends. *claim* is what the store notifies."""
        registry = self.registry
        watching, observers = registry.begin_watching(), registry.observers
        observers.add(self)
        try:
            while self._goes_on():
                until = registry.env.now() + self.interval
                try:
                    watched = await self._look(claim)
                except StoreError:
                    # Nothing is known: the renewals report a store that stays out of reach.
                    watched = None
                if watched is not None and not watched.state.unreadable and self._goes_on():
                    self._note(self._is_contended(watched.state))
                if watched is None or not watched.notified or self.seen:
                    await Wait(self.ended, until)
                elif self._goes_on():
                    await registry.backend.await_wakeup(claim, until)
        finally:
            observers.discard(self)
            registry.backend.forget(claim)
            registry.end_watching(watching)

    def _is_contended(self, state: LockState) -> bool:
        """Whether claims are queued, or another hold waits for its upgrade."""
        hold = self.hold()
        own = "" if hold is None else hold.claim.id
        upgrades = [each for each in state.holds if each.record.mode == "upgrading"]
        return bool(state.waiting) or any(each.record.id != own for each in upgrades)

    async def _look(self, claim: Claim) -> Watched:
        registry, backend = self.registry, self.registry.backend
        until = registry.answer_by()
        if backend.capabilities.notifies_changes:
            return await backend.request(Watch(claim), until)
        (state,) = await backend.request(Inspect(self.name, "*"), until)
        return Watched(state, self.interval, notified=False)

    def _note(self, contended: bool) -> None:
        begins = contended and not self.seen
        self.seen = contended
        if begins:
            hold, registry = self.hold(), self.registry
            for lease in [] if hold is None else hold.leases():
                callbacks = calls_while_held(lease, lease.contended_callbacks)
                registry.notices.callbacks += callbacks
            registry.wake_renewer(0.0)
