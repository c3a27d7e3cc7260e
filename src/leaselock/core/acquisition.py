"""One claim on its way to a grant.

Invariant 1: a claim exists before the first request is sent, and `obtain` either returns a hold or
releases the claim, immediately or through the pending releases.
Invariant 2: a grant is valid from the moment its request was sent (hazard B2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leaselock.core import timing, validity
from leaselock.core.backend import Busy, Grant, PoolExhausted
from leaselock.core.effects import FOREVER
from leaselock.core.timing import Retry
from leaselock.errors import AcquireCancelled, ClientClosed, NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from leaselock.core.backend import Claim
    from leaselock.core.effects import Owner
    from leaselock.core.hold import Hold
    from leaselock.core.hold_registry import HoldRegistry
    from leaselock.core.renewer import Renewer

# How many grants in a row may arrive too late to be valid.
MOST_LATE_GRANTS = 3


class LockOptions(NamedTuple):
    """How a lock is acquired, as the user said."""

    lease: float
    renew: bool
    timeout: float | None
    reentrant: bool
    label: str | None
    tokens: int = 1
    """How many tokens a grant reserves: its own, and one for each local hand-off."""
    owned_by_lock: bool = False
    """Whether the lock object is the owner, instead of the thread or task."""
    cached: bool = False
    """Whether the client keeps the lease after a release until another client waits."""


class Acquisition(Retry):
    """One claim on its way to a grant, and what is known about it between its requests."""

    __slots__ = (
        *("answered", "backend", "began", "claim", "deadline", "late", "options", "placed"),
        *("cancelled", "queued", "registry", "uncertain", "valid_until", "wait"),
    )

    def __init__(
        self, registry: HoldRegistry, options: LockOptions, claim: Claim, deadline: float
    ) -> None:
        super().__init__(registry.env, registry.op_timeout, deadline)
        self.registry = registry
        self.backend = registry.backend
        self.options = options
        self.claim = claim
        self.deadline = deadline
        self.wait = deadline == FOREVER or deadline > registry.env.now()
        # When the first try of the present request was sent.
        self.began = 0.0
        # The store may know the claim; it certainly does once a request was answered.
        self.placed = self.answered = False
        self.cancelled = False
        # A request has been answered with Busy before.
        self.queued = False
        # The outcome of some request is unknown.
        self.uncertain = False
        self.late = 0
        self.valid_until = 0.0

    async def obtain(self, renewer: Renewer, owner: Owner) -> Hold | Busy:
        """Acquire the lock until the deadline: the hold, or why there is none."""
        registry, in_flight = self.registry, self.registry.in_flight
        # In the step that made the claim: a client that is closed now waits for the end of this.
        in_flight.active += 1
        try:
            if not registry.renewing.running:
                await renewer.start()
                self._check_open()
            while True:
                self._next_request()
                reply = await self.until_answered(self._send)
                self.answered = True
                if isinstance(reply, Grant):
                    if self._is_valid(reply):
                        hold = registry.add(
                            self.claim,
                            reply.token,
                            self.valid_until,
                            asked=self.asked,
                            lasts=reply.lasts,
                            renew=self.options.renew,
                            owner=owner,
                        )
                        hold.uncertain = self.uncertain
                        return hold
                    self._check_late()
                elif self.env.now() >= self.deadline:
                    await self._withdraw()
                    return reply
                else:
                    self.queued = True
                    recheck = self.asked + reply.retry_after
                    await self.backend.await_wakeup(self.claim, min(self.deadline, recheck))
                    if self.cancelled:
                        await self._withdraw()
                        self.placed = False
                    self._check_open()
        except BaseException:
            # Cancelled, interrupted, dropped or refused: the claim must not stay behind.
            if self.placed:
                registry.release_later(self.claim)
            raise
        finally:
            self.backend.forget(self.claim)
            in_flight.exit()

    def _next_request(self) -> None:
        """Begin a request, which is repeated until `give_up`.

        A queued client tolerates a store that does not answer (a restart, a failover) for as long
        as the lease: after that the earlier holder is gone.
        """
        self.tries = 0
        self.began = now = self.env.now()
        limit = self._longest() if self.queued else self.op_timeout
        self.give_up = timing.answer_by(now, self.deadline, limit)

    def _longest(self) -> float:
        return max(self.op_timeout, self.claim.lease)

    def _send(self, until: float) -> Awaitable[Grant | Busy]:
        self.placed = True
        return self.backend.acquire(self.claim, wait=self.wait, until=until)

    def failed(self, error: StoreError) -> None:
        """Count a failed try; raise when it was the last one."""
        exhausted = isinstance(error, PoolExhausted)
        if exhausted and self.wait:
            # The store is not at fault, only the client's own connections are too few: wait for
            # one as long as for a queued request.
            self.give_up = timing.answer_by(self.began, self.deadline, self._longest())
        if self.tries or self.queued or not isinstance(error, NotApplied):
            self.uncertain = True
            self.count(error)
        else:
            self.placed = self.answered
            if not exhausted or self.env.now() >= self.give_up:
                raise error
        self._check_open()

    def _check_open(self) -> None:
        if self.cancelled:
            raise AcquireCancelled(self.claim.name)
        if self.registry.closed:
            raise ClientClosed(f"the client was closed while it waited for {self.claim.name!r}")

    def _is_valid(self, grant: Grant) -> bool:
        """Whether a grant arrived early enough to be valid; otherwise it must be confirmed."""
        lease = self.claim.lease
        if grant.lasts < lease:
            lease = grant.lasts
        if grant.asked < self.asked:
            self.asked = grant.asked
        self.valid_until = validity.valid_until(self.backend.capabilities, self.asked, lease)
        return self.env.now() < self.valid_until

    def _check_late(self) -> None:
        self.late += 1
        if self.late > MOST_LATE_GRANTS:
            raise OutcomeUnknown(
                f"the store grants {self.claim.name!r}, but its replies take longer than the "
                f"lease of {self.claim.lease:g} s: ask for a longer one"
            )

    async def _withdraw(self) -> None:
        """Leave the queue at the deadline. A try that was refused has left nothing there."""
        if not self.wait and not self.uncertain:
            return
        until = self.env.now() + min(self.op_timeout, timing.TRY_TIMEOUT)
        try:
            await self.backend.release(self.claim, tombstone=self.uncertain, until=until)
        except StoreError:
            self.registry.release_later(self.claim)
