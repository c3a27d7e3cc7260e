"""How a lock is acquired.

Invariant 1: a claim is in the table of its client before its first request is sent. Nothing has to
be undone when an acquisition ends early: then nothing has the row in hand, and the renewer ends it.
Invariant 2: a grant is valid from the moment its request was sent (hazard B2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from leaselock._core.client import shared_thread, timing, validity
from leaselock._core.client.events import ask_note
from leaselock._core.client.hold import Hold
from leaselock._core.client.lease_handle import LeaseHandle
from leaselock._core.client.lease_reference import no_operation
from leaselock._core.contract.backend import Grant
from leaselock._core.contract.effects import FOREVER
from leaselock.errors import StoreError

if TYPE_CHECKING:
    import weakref

    from leaselock._core.client.claim_registry import ClaimRegistry
    from leaselock._core.client.options import IfBusy, LockOptions
    from leaselock._core.client.renewer import Renewer
    from leaselock._core.client.waiting import Waiting
    from leaselock._core.contract.backend import Busy, Claim
    from leaselock._core.contract.effects import Owner
    from leaselock.errors import AcquireTimeout


class LockObject(Protocol):
    """What an acquisition needs of the lock object (`Mutex`)."""

    registry: ClaimRegistry
    renewer: Renewer
    name: str
    options: LockOptions
    itself: Owner | None
    """The owner, where that is the lock object."""
    reference: weakref.ref[Any]
    """A reference to it."""

    def claim(self, owner: Owner, permits: int = 1, note: str = "") -> Claim:
        """A new claim of *owner*."""
        ...

    def nest(self, hold: Hold, lease: LeaseHandle) -> bool:
        """Acquire again what this owner holds; False if that takes a request."""
        ...

    async def extend_and_nest(self, hold: Hold, lease: LeaseHandle, deadline: float) -> Busy | None:
        """The same for a stronger mode, or a longer lease."""
        ...

    def begin_lease(self, lease: LeaseHandle, owner: Owner, body: Any) -> LeaseHandle:
        """A lease begins."""
        ...

    def timed_out(self, busy: Busy, limit: float | None) -> AcquireTimeout:
        """The error for a claim that was not granted in time."""
        ...


async def acquire(
    lock: LockObject, limit: float | None, permits: int, if_busy: IfBusy, body: Any = None
) -> Any:
    """Acquire a lock: a lease, or what *if_busy* says if it is not granted within *limit* seconds.
    *body* has the key of the body of a `with`, if it is for one (`Mutex.enter`).
    """
    registry, options = lock.registry, lock.options
    env = registry.env
    now, owner = env.now(), env.owner()
    deadline = FOREVER if limit is None else now + limit
    wait = deadline > now
    lease = LeaseHandle(registry, lock.reference, options.mode)

    # What the owner holds already is acquired again.
    if owner.holds and lock.itself is None and options.mode != "permits":
        outer = registry.of(owner, lock.name)
        if outer is not None:
            if not lock.nest(outer, lease):
                busy = await lock.extend_and_nest(outer, lease, deadline)
                if busy is not None:
                    return _refused(lock, busy, limit, if_busy)
            return lock.begin_lease(lease, owner, body)

    # A new claim. From `enter` on the renewer releases it, unless the lease has it in hand.
    note = "" if registry.note is None else await ask_note(registry.note)
    claim = lock.claim(owner, permits, note)
    hold = lease.hold = Hold(claim)
    hold.lock = lock.reference
    hold.references = (lease.reference,)
    attempts: Waiting | None = None
    if wait and shared_thread.blocked_by(env, owner) is not None:
        attempts = _attempts(registry, hold, options, deadline, wait)
        attempts.beside = shared_thread.check(registry, owner, claim)
        attempts.blocked = owner.thread
    if not registry.renewing.running:
        await lock.renewer.start()
        if registry.closed:
            raise registry.closed_error(claim.name)
    registry.enter(hold, env.now())
    refused = await _obtain(lock, lease, owner, deadline, wait, attempts)
    if refused is None:
        return lock.begin_lease(lease, owner, body)
    lease.reference.ended_by = no_operation
    if claim.id in registry.table:  # the store has not confirmed that the claim has left it
        registry.wake_renewer(0.0)
    return _refused(lock, refused, limit, if_busy)


async def _obtain(
    lock: LockObject,
    lease: LeaseHandle,
    owner: Owner,
    deadline: float,
    wait: bool,
    attempts: Waiting | None,
) -> Busy | None:
    """Ask until the claim is granted, or its deadline has passed: why it was not.

    `Waiting` is made for what is needed only if the lock is not granted at once.
    """
    registry, hold, options = lock.registry, lease.hold, lock.options
    env, backend, claim = registry.env, registry.backend, hold.claim
    sent_at = hold.began
    try:
        if registry.listeners.all:
            attempts = attempts or _attempts(registry, hold, options, deadline, wait)
            await attempts.report("acquiring")
            sent_at = env.now()
            attempts.begin(sent_at)
        give_up = timing.answer_by(sent_at, deadline, registry.op_timeout)
        until = timing.try_until(sent_at, give_up, registry.op_timeout)
        while True:
            try:
                reply = await backend.acquire(claim, wait=wait, until=until)
            except StoreError as refusal:
                attempts = attempts or _attempts(registry, hold, options, deadline, wait)
                attempts.failed(refusal)
                await attempts.pause()
                until = attempts.try_until()
                sent_at = attempts.sent_at
                continue
            if isinstance(reply, Grant):
                valid_until = _valid_until(registry, claim, reply, sent_at)
                if env.now() < valid_until:
                    if attempts is not None and (attempts.queued or registry.listeners.all):
                        await attempts.report("granted", token=reply.token)
                    if registry.closed:
                        raise registry.closed_error(claim.name)
                    _grant(lock, hold, owner, reply, sent_at, valid_until)
                    return None
            attempts = attempts or _attempts(registry, hold, options, deadline, wait)
            attempts.answered()
            if isinstance(reply, Grant):
                attempts.check_late()
            elif env.now() >= deadline:
                await attempts.give_up_after(reply)
                return reply
            else:
                await attempts.wait_for(reply)
                del reply  # its record of the holder: thousands of tasks may wait
            until = attempts.next_request()
            sent_at = attempts.sent_at
    except BaseException as error:
        attempts = attempts or _attempts(registry, hold, options, deadline, wait)
        from leaselock._core.client import withdrawal  # loaded where it is used

        raised = await withdrawal.end_after(attempts, error, lease)
        raise raised from raised.__cause__


def _attempts(
    registry: ClaimRegistry, hold: Hold, options: LockOptions, deadline: float, wait: bool
) -> Waiting:
    from leaselock._core.client.waiting import Waiting  # loaded where it is used

    return Waiting(registry, hold, options, deadline, wait)


def _refused(lock: LockObject, busy: Busy, limit: float | None, if_busy: IfBusy) -> Busy | None:
    if if_busy == "raise":
        raise lock.timed_out(busy, limit)
    return busy if if_busy == "reply" else None


def _valid_until(registry: ClaimRegistry, claim: Claim, grant: Grant, sent_at: float) -> float:
    """Until when a grant is valid; one that arrived later must be confirmed."""
    lease = min(grant.lasts, claim.lease)
    return validity.valid_until(registry.backend.capabilities, min(sent_at, grant.sent_at), lease)


def _grant(
    lock: LockObject, hold: Hold, owner: Owner, grant: Grant, sent_at: float, valid_until: float
) -> None:
    """The store has granted the claim to the request that was sent at *sent_at*."""
    registry, options = lock.registry, lock.options
    hold.slots = grant.slots
    hold.acquirer, hold.thread = owner.reference, owner.thread
    if registry.env.records_call_sites():
        hold.call_site = registry.env.call_site()
    registry.grant(
        hold,
        grant.token,
        valid_until,
        min(sent_at, grant.sent_at),
        grant.lasts,
        options.renew,
        options.max_hold,
        lock.itself or owner,
    )
    registry.backend.forget(hold.claim)
