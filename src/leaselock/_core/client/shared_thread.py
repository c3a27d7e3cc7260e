"""Waits that block a thread in which other owners run: the tasks of its event loop.

A synchronous wait for a hold of such an owner could never end: while it lasts, that owner cannot
release. So it is refused with `WouldDeadlock`: for the holds of the same client before the store is
asked, for those of other clients, synchronous or not, when the store names one as the holder, or
shows some among several.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.client.claim_registry import REGISTRIES
from leaselock._core.client.inspection import waiter_of
from leaselock._core.contract.backend import compatible
from leaselock.errors import StoreError, WouldDeadlock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaselock._core.client.claim_registry import ClaimRegistry
    from leaselock._core.client.hold import Hold
    from leaselock._core.contract.backend import Claim, HoldRecord
    from leaselock._core.contract.effects import Env, Owner, OwnerThread


def check(registry: ClaimRegistry, owner: Owner, claim: Claim) -> Sequence[Hold]:
    """Raise WouldDeadlock if other owners of this thread have holds of this client that exclude
    *claim*. Return the holds that such owners have of the lock by any client. They may exclude the
    claim together with others, or a claim ahead of it: the store is asked.
    """
    blocking = holds_beside(registry, owner, claim.name)
    if blocking:
        # The number of permits that a semaphore has may be known to the store only.
        known = claim.mode != "permits" or claim.limit
        if known and not compatible([hold.claim for hold in blocking], claim, claim.limit):
            raise refusal(claim, blocking)
    return [*blocking, *holds_of_others(registry, owner, claim.name)]


def holds_beside(registry: ClaimRegistry, owner: Owner, name: str) -> list[Hold]:
    """The valid holds of a lock that other owners of this thread have acquired."""
    thread = owner.thread
    if thread is None or not thread.has_tasks:
        return []
    now = registry.env.now()
    return [
        hold
        for hold in registry.held()
        if hold.thread is thread
        and hold.claim.name == name
        and hold.acquirer is not owner.reference
        and hold.is_valid(now)
    ]


def holds_of_others(registry: ClaimRegistry, owner: Owner, name: str) -> list[Hold]:
    """Those that they have acquired with other clients, first the clients with the same URL. A
    client of another store is not known as such.
    """
    references = REGISTRIES.valuerefs() if len(REGISTRIES) > 1 else ()
    others = [each for reference in references if (each := reference()) not in (None, registry)]
    others.sort(key=lambda each: each.store != registry.store)
    return [hold for each in others for hold in holds_beside(each, owner, name)]


def blocked_by(env: Env, owner: Owner) -> OwnerThread | None:
    """The thread that a wait of *owner* blocks, if it has other owners."""
    thread = owner.thread
    return thread if env.blocks_thread and thread is not None and thread.has_tasks else None


def holder_beside(
    thread: OwnerThread, env: Env, claim: Claim, held: HoldRecord | None
) -> list[Hold]:
    """The valid hold that the store names as the holder, if another owner of this thread acquired
    it, with whichever client, and *claim* cannot be granted beside it. It is found by its token:
    some stores show holds under ids of their own.
    """
    if held is None or (claim.mode == "permits" and not claim.limit):
        return []
    caller, now = env.owner().reference, env.now()
    return [
        hold
        for reference in REGISTRIES.valuerefs()
        if (registry := reference()) is not None
        for hold in registry.held()
        if hold.thread is thread
        and hold.claim.name == claim.name
        and held.has_token(hold.token)
        and hold.acquirer is not caller
        and hold.is_valid(now)
        and not compatible([hold.claim], claim, claim.limit)
    ]


async def is_blocked(registry: ClaimRegistry, claim: Claim, beside: Sequence[Hold]) -> bool:
    """Whether a queued claim, or an upgrade, cannot be granted before the holds *beside* it end:
    they exclude it, or a claim ahead of it waits for them. False if the store does not answer: the
    next look asks again.
    """
    from leaselock._core.client.deadlocks import owner_of  # loaded where it is used

    now = registry.env.now()
    kept = [hold.token for hold in beside if hold.is_valid(now)]
    if not kept:
        return False
    try:
        (state,) = await registry.inspect(claim.name, "*")
    except StoreError:
        return False
    # Some stores show holds and claims under ids of their own; an owner waits for one claim only.
    owner = owner_of(waiter_of(claim))
    kept_records = [each.record for each in state.holds if any(map(each.record.has_token, kept))]
    # An upgrading hold waits for all others to end, and blocks new ones.
    ahead: list[Claim | HoldRecord] = [
        each.record for each in state.holds if kept_records and each.record.mode == "upgrading"
    ]
    for waiting in state.waiting:
        blocked = not compatible([*kept_records, *ahead], waiting, state.limit)
        if owner_of(waiter_of(waiting)) == owner:
            return blocked
        if blocked:
            ahead.append(waiting)
    # An upgrade is not in the queue, and some stores show none. A claim that was granted meanwhile
    # is compatible with all holds.
    return not compatible(kept_records, claim, state.limit)


def refusal(claim: Claim, beside: Sequence[Hold]) -> WouldDeadlock:
    """The error for a claim that waits for holds of this thread."""
    return WouldDeadlock(claim.name, claim.mode, waiter_of(beside[0].claim).thread)
