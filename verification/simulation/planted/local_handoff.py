"""Planted bugs of the local hand-off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite
from verification.simulation.plant import planted

from leaselock._backends.document.row import DocumentRow
from leaselock._backends.memory.store import MemoryRow
from leaselock._core import local_handoff
from leaselock._core.backend import Busy, Claim, Grant
from leaselock._core.local_handoff import LocalHandoff, LocalQueue, LocalWaiter, SharedLease

if TYPE_CHECKING:
    import pytest


@planted("local handoff")
def cancelled_waiter_gets_lease(patch: pytest.MonkeyPatch) -> None:
    """A cancelled or timed-out waiter stays in the local queue."""

    def remove(self: LocalQueue, waiter: LocalWaiter) -> None:
        waiter.asks_store = False

    patch.setattr(LocalQueue, "remove", remove)


@planted("local handoff")
def child_hands_off(patch: pytest.MonkeyPatch) -> None:
    """After a fork the child hands off the lease of its parent (hazard F6)."""

    def after_fork(self: LocalHandoff) -> None:
        for waiter in self.waiters.values():
            if waiter.lease is not None:
                waiter.lease.holder = None
        self.backend.after_fork()

    patch.setattr(LocalHandoff, "after_fork", after_fork)


@planted("local handoff", faults={"freeze": 0.05, "freeze_mean": 4.0})
def dead_owner_keeps_lease(patch: pytest.MonkeyPatch) -> None:
    """A lease whose owner ended stays with that owner."""
    real = SharedLease.grant

    def grant(
        self: SharedLease, first_token: int, now: float, asked: float, valid_until: float
    ) -> bool:
        new = real(self, first_token, now, asked, valid_until)
        self.valid_until += 1000.0
        return new

    patch.setattr(SharedLease, "grant", grant)


@planted("yields cached")
def first_local_waiter_not_reported(patch: pytest.MonkeyPatch) -> None:
    """A hand-off wakes the holder that follows the queue, and the first local waiter does not."""
    real = LocalHandoff._try

    async def silent(
        self: LocalHandoff, claim: Claim, wait: bool, until: float, new: bool
    ) -> Grant | Busy:
        watching = self.watching.pop(claim.name, None)
        try:
            return await real(self, claim, wait, until, new)
        finally:
            if watching:
                self.watching.setdefault(claim.name, set()).update(watching)

    patch.setattr(LocalHandoff, "_try", silent)


@planted("local handoff")
def handoffs_not_counted(patch: pytest.MonkeyPatch) -> None:
    """The number of hand-offs is not limited."""

    def fits(self: SharedLease, lease: float, now: float) -> bool:
        return now < self.handoff_until and lease == self.claim.lease

    patch.setattr(SharedLease, "fits", fits)


@planted("local handoff")
def no_successor(patch: pytest.MonkeyPatch) -> None:
    """When the local waiter that asks the store gives up, no other one continues."""

    def remove(self: LocalQueue, waiter: LocalWaiter) -> None:
        self.waiters.pop(waiter.claim.id, None)
        waiter.asks_store = False

    patch.setattr(LocalQueue, "remove", remove)


@planted("local handoff")
def no_time_limit(patch: pytest.MonkeyPatch) -> None:
    """Hand-offs have no limit in time."""

    def fits(self: SharedLease, lease: float, now: float) -> bool:
        return self.token < self.last_token and lease == self.claim.lease

    patch.setattr(SharedLease, "fits", fits)


@planted("local handoff")
def taken_during_release(patch: pytest.MonkeyPatch) -> None:
    """A lease can be taken while it is being released to the store."""

    async def release_lease(
        self: LocalHandoff, queue: LocalQueue, lease: SharedLease, until: float
    ) -> bool:
        lease.holder, lease.handoff_until = None, until
        tombstone = lease.may_be_in_flight()
        held = await self.backend.release(lease.claim, tombstone=tombstone, until=until)
        queue.lease = None
        queue.wake_first()
        return held

    patch.setattr(LocalHandoff, "release_lease", release_lease)


@planted("local handoff")
def taken_from_owner(patch: pytest.MonkeyPatch) -> None:
    """A lease in use by one owner is given to another owner of the client."""
    real = LocalQueue.take

    def take(self: LocalQueue, waiter: LocalWaiter, now: float) -> bool:
        if self.lease is not None:
            self.lease.holder = None
        return real(self, waiter, now)

    patch.setattr(LocalQueue, "take", take)


@planted("local handoff")
def token_repeated(patch: pytest.MonkeyPatch) -> None:
    """A hand-off repeats the token of the previous owner."""
    real = LocalQueue.give

    def give(self: LocalQueue, lease: SharedLease, waiter: LocalWaiter) -> None:
        real(self, lease, waiter)
        lease.token = lease.first_token

    patch.setattr(LocalQueue, "give", give)


@planted("local handoff")
def tokens_not_reserved(patch: pytest.MonkeyPatch) -> None:
    """The store does not reserve the tokens of a grant."""
    real = MemoryRow.draw
    patch.setattr(MemoryRow, "draw", lambda self, count: real(self, 1))


@planted("local handoff redis")
def tokens_not_reserved_in_redis(patch: pytest.MonkeyPatch) -> None:
    """The Redis script does not reserve the tokens of a grant."""
    rewrite(
        patch,
        "ACQUIRE RELEASE",
        "string.format('%.0f', first + tokens - 1)",
        "string.format('%.0f', first)",
    )


@planted("local handoff document")
def tokens_not_reserved_in_documents(patch: pytest.MonkeyPatch) -> None:
    """A write of a document does not reserve the tokens of its grant."""
    real = DocumentRow.draw
    patch.setattr(DocumentRow, "draw", lambda self, count: real(self, 1))


@planted("local handoff document")
def tokens_of_a_waiter_not_kept(patch: pytest.MonkeyPatch) -> None:
    """A waiter in a document has lost how many tokens it is to be granted."""
    real = DocumentRow.join

    def join(self: DocumentRow, claim: Claim) -> None:
        real(self, claim._replace(tokens=1))

    patch.setattr(DocumentRow, "join", join)


@planted("local handoff")
def uncertain_request_without_tombstone(patch: pytest.MonkeyPatch) -> None:
    """The shared claim is released without a tombstone although a request of it is uncertain."""

    def failed(
        self: LocalHandoff, waiter: LocalWaiter, lease: SharedLease, error: BaseException, new: bool
    ) -> None:
        """Ignore the error."""

    patch.setattr(LocalHandoff, "_failed", failed)


@planted("local handoff", faults={"freeze": 0.05, "freeze_mean": 4.0})
def validity_restarted(patch: pytest.MonkeyPatch) -> None:
    """A hand-off restarts the validity for the whole lease."""

    def granted(waiter: LocalWaiter, lease: SharedLease, now: float) -> Grant:
        return Grant(waiter.token, ())

    patch.setattr(local_handoff, "granted", granted)


@planted("local handoff")
def waiter_not_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A local waiter that has left its queue stays on record."""
    patch.setattr(LocalHandoff, "_remove", lambda self, waiter: waiter.queue.remove(waiter))
