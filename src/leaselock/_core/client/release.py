"""How a lease ends, and with its last lease the hold.

The end of a lease is one assignment: `LeaseReference.ended_by` refers to the operation that carries
it out, which is `release` below. Whatever interrupts that, nothing has the row in hand any more,
and the renewer releases it. There is nothing to undo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from leaselock._core.client import conversion, timing
from leaselock._core.client.events import hold_event
from leaselock._core.client.hold import NOT_OURS, RAN_OUT, UNCONFIRMED, State
from leaselock._core.client.lease_reference import no_operation
from leaselock._core.client.timing import Retry
from leaselock.errors import NotHeld, StoreError

if TYPE_CHECKING:
    from leaselock._core.client.claim_registry import ClaimRegistry
    from leaselock._core.client.hold import Hold
    from leaselock._core.client.lease_reference import LeaseReference, UnderWay
    from leaselock._core.contract.backend import Mode
    from leaselock.errors import LeaseLost


class Lease(Protocol):
    """What the release needs of a lease (`LeaseHandle`)."""

    hold: Hold
    registry: ClaimRegistry
    reference: LeaseReference
    prolongs: bool
    failed: bool

    def leave_lock(self) -> None:
        """The lock object keeps it no longer."""
        ...

    def is_last(self) -> bool:
        """Whether no other lease of the hold is left, and no other operation ends the hold."""
        ...

    def weaker_mode(self) -> Mode | None:
        """The mode to convert the hold to, now that this lease has ended."""
        ...

    def lost_error(self) -> LeaseLost:
        """The error of a lease that was lost; the loss is reported."""
        ...


async def release(lease: Lease, ending: UnderWay) -> None:
    """End *lease*, which refers to *ending* already; the last one of a hold frees the lock.

    LeaseLost if the store has not confirmed that the lock was held until now, whatever the reason:
    its cause is the error of the store, if there was one.
    """
    hold, registry = lease.hold, lease.registry
    ended_by = lease.reference.ended_by
    if ended_by is None or ended_by() is not ending:
        raise NotHeld(hold.claim.name, f"{hold.claim.name!r} was released already")
    began = registry.env.now()
    lease.leave_lock()
    if hold.upgrade is not None:
        registry.backend.wake([hold.claim.id])  # those that upgrade this lease
    if not lease.is_last():
        await _end_nested(lease, began)
        return
    if hold.is_valid(began):
        hold.transition("release")
    registry.end(hold)
    if hold.claim.id not in registry.table:
        # Its client was closed, or its process is a forked one.
        hold.lose(RAN_OUT)
        raise lease.lost_error()
    retry: Retry | None = None
    until = timing.try_until(began, began + registry.op_timeout, registry.op_timeout)
    try:
        while True:
            try:
                confirmed = await registry.backend.release(
                    hold.claim, tombstone=hold.uncertain, until=until
                )
                break
            except StoreError as failed:
                give_up = began + registry.op_timeout
                retry = retry or Retry(registry.env, registry.op_timeout, give_up)
                _failed(lease, retry, failed)
                await retry.pause()
                until = retry.try_until()
    except BaseException:
        # The renewer goes on: at once, and not only when this frame is gone.
        lease.reference.ended_by = no_operation
        registry.wake_renewer(0.0)
        raise
    # If a repeated release finds nothing, an earlier one was applied.
    lost = not confirmed and retry is None
    if not lost:
        hold.transition("done")
    registry.remove(hold)
    if lost:
        from leaselock._core.client import break_notice  # loaded where it is used

        await break_notice.lose(registry, [hold], NOT_OURS)
    if hold.state is not State.ENDED:
        hold.lose(RAN_OUT)
        raise lease.lost_error()
    if registry.listeners.all:
        now = registry.env.now()
        event = hold_event("released", hold, now, now - hold.began)
        await registry.listeners.report(event, rare=False)


def _failed(lease: Lease, retry: Retry, failed: StoreError) -> None:
    """Count a failed try; LeaseLost if it was the last one: the renewer goes on."""
    hold, registry = lease.hold, lease.registry
    try:
        retry.failed(failed)
    except StoreError as last:
        registry.release_later(hold)
        valid = registry.env.now() < hold.valid_until
        hold.lose(UNCONFIRMED if valid else RAN_OUT)
        raise lease.lost_error() from last


async def _end_nested(lease: Lease, began: float) -> None:
    """Others share the hold, or another operation ends it."""
    hold, registry = lease.hold, lease.registry
    if lease.prolongs:
        hold.end_prolonging()
    if hold.state is State.ENDING:
        return
    valid = hold.is_valid(began)
    lease.failed = hold.state is State.LOST
    hold.check(began, registry.store)
    if valid and (mode := lease.weaker_mode()) is not None:
        await conversion.weaken(registry, hold, mode)
