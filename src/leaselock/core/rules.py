"""Who holds a lock, and who is next: the decisions of a store, written once.

Each function carries out one request on a `LockRow`, which is where a store keeps one lock. It runs
alone on that row (in a transaction, under a mutex), so it is one atomic step of the store. The
memory store and the SQLite file run these functions in production; so do the simulator's models.

Waiters are served in the order of their arrival. A release grants the lock to the first waiter
whose client is alive, for CONFIRM_WITHIN seconds. The waiter is notified and asks again, which
confirms the grant for the whole lease. So a dead waiter delays nobody, and a frozen one no longer
than CONFIRM_WITHIN.
"""

from __future__ import annotations

from typing import Protocol

from leaselock.core.backend import (
    Acquire,
    BreakLock,
    Broken,
    Busy,
    Claim,
    Grant,
    HoldRecord,
    Lifetime,
    LifetimeSet,
    Release,
    Released,
)

# Seconds.
CONFIRM_WITHIN = 2.0
RECHECK_INTERVAL = 5.0
NEVER = 1e9


class LockRow(Protocol):
    """One lock in a store, for the length of one transaction."""

    now: float
    """The store's clock, in seconds."""

    def held(self) -> HoldRecord | None:
        """The hold on record, which may have expired."""
        ...

    def grant(self, claim: Claim, expires: float) -> HoldRecord:
        """Record a hold with a new token, greater than all before."""
        ...

    def save(self, held: HoldRecord) -> None:
        """Record changes of the same hold."""
        ...

    def free(self) -> None:
        """Delete the hold on record."""
        ...

    def first(self) -> Claim | None:
        """The head of the queue."""
        ...

    def before(self, claim_id: str) -> Claim | None:
        """The waiter directly ahead of *claim_id*."""
        ...

    def after(self, claim_id: str) -> Claim | None:
        """The waiter directly behind *claim_id*."""
        ...

    def join(self, claim: Claim) -> None:
        """Put at the tail of the queue; one that is queued keeps its place."""
        ...

    def quit(self, claim_id: str) -> bool:
        """Take out of the queue; return whether it was there."""
        ...

    def alive(self, client: str) -> bool:
        """Whether the client is alive."""
        ...

    def has_tombstone(self, claim_id: str) -> bool:
        """Whether the claim is refused for good."""
        ...

    def tombstone(self, claim_id: str) -> None:
        """Refuse the claim from now on."""
        ...

    def watch(self, client: str) -> None:
        """Notify the requesting client when *client* dies."""
        ...

    def notify(self, claim: Claim) -> None:
        """Notify the claim's client, after this transaction, that asking again may help."""
        ...

    def notified(self) -> tuple[str, ...]:
        """The ids of the notified claims that belong to the requesting client itself."""
        ...


def expired(row: LockRow, held: HoldRecord) -> bool:
    """Whether a hold on record has ended by itself."""
    if held.lifetime != "client" and held.expires <= row.now:
        return True
    return held.lifetime != "lease" and not row.alive(held.client)


def expire_and_grant(row: LockRow) -> HoldRecord | None:
    """Delete an expired hold and grant the lock to the next waiter; return the present hold."""
    held = row.held()
    if held is not None and not expired(row, held):
        return held
    if held is not None:
        row.free()
    return grant_next(row)


def grant_next(row: LockRow) -> HoldRecord | None:
    """Grant the lock to the first waiter whose client is alive; dead waiters are removed."""
    while (claim := row.first()) is not None:
        row.quit(claim.id)
        if row.alive(claim.client):
            row.notify(claim)
            return row.grant(claim, row.now + min(claim.lease, CONFIRM_WITHIN))
    return None


def acquire(row: LockRow, request: Acquire) -> Grant | Busy:
    """Grant, confirm a grant, or queue."""
    claim = request.claim
    if row.has_tombstone(claim.id):
        return Busy(None, NEVER, ())
    held = expire_and_grant(row)
    if held is None:
        held = row.grant(claim, row.now + claim.lease)
    elif held.id == claim.id:
        row.save(held._replace(expires=max(held.expires, row.now + claim.lease)))
    else:
        return enqueue(row, request, held)
    return Grant(held.token, row.notified())


def enqueue(row: LockRow, request: Acquire, held: HoldRecord) -> Busy:
    """Queue the claim, if it waits; reply the hold, and when to ask again."""
    if held.cached:
        row.notify(request.claim._replace(id=held.id, client=held.client))
    recheck = NEVER if held.lifetime == "client" else held.expires - row.now
    if request.wait:
        row.join(request.claim)
        ahead = _alive_before(row, request.claim.id)
        # The first waiter asks again at the end of the lease; the others only in case that the
        # first one does not. None asks much later: the next holder's lease may be shorter.
        if ahead:
            recheck += CONFIRM_WITHIN
        recheck = min(recheck, RECHECK_INTERVAL)
        # A detached hold outlives its client, whose death would be reported to every request.
        if ahead or held.lifetime != "lease":
            row.watch(ahead.client if ahead else held.client)
    return Busy(held, recheck, row.notified())


def _alive_before(row: LockRow, claim_id: str) -> Claim | None:
    """The waiter directly ahead whose client is alive. Watching a dead client would cause endless
    spurious wake-ups.
    """
    ahead = row.before(claim_id)
    while ahead is not None and not row.alive(ahead.client):
        row.quit(ahead.id)
        ahead = row.before(claim_id)
    return ahead


def renew(row: LockRow, claim: Claim) -> bool:
    """Make the lease end no sooner than its length from now; False if the claim does not hold."""
    held = row.held()
    if held is None or held.id != claim.id:
        return False
    row.save(held._replace(expires=max(held.expires, row.now + claim.lease)))
    return True


def release(row: LockRow, request: Release) -> Released:
    """Release, or leave the queue."""
    claim_id = request.claim.id
    if request.tombstone:
        row.tombstone(claim_id)
    held = row.held()
    if held is not None and held.id == claim_id:
        row.free()
        grant_next(row)
        return Released("held", row.notified())
    behind = row.after(claim_id)
    if not row.quit(claim_id):
        return Released("absent", row.notified())
    # The waiter that watched this one must watch another one now.
    if behind is not None:
        row.notify(behind)
    return Released("waiting", row.notified())


def set_lifetime(row: LockRow, claim_id: str, lifetime: Lifetime) -> LifetimeSet:
    """Change what ends a hold."""
    held = row.held()
    if held is None or held.id != claim_id:
        return LifetimeSet(False, ())
    row.save(held._replace(lifetime=lifetime))
    return LifetimeSet(True, ())


def break_lock(row: LockRow, request: BreakLock) -> Broken:
    """End the hold and grant the lock to the next waiter."""
    held = expire_and_grant(row)
    if held is None or not (request.token is None or held.has_token(request.token)):
        return Broken(held, False, row.notified())
    row.free()
    grant_next(row)
    return Broken(held, True, row.notified())
