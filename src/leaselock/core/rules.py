"""Who holds a lock, and who is next: the one text of these decisions.

Each function is one request, carried out on a `LockRow`: where a store keeps one lock. It runs
alone on that shelf (a transaction, a mutex), so it is one atomic step of the store. Memory and
the SQLite file run these functions in production; the models of the simulator run the same.

The queue is served first come, first served. Whoever frees a lock grants it to the first waiter
alive, for a short claim time; the waiter is woken and asks again, which confirms the grant for
the whole lease. So a dead waiter delays nobody, and a frozen one no longer than the claim time.
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

CONFIRM_WITHIN = 2.0
RECHECK_INTERVAL = 5.0
NEVER = 1e9


class LockRow(Protocol):
    """One lock in a store, for the length of one transaction."""

    now: float
    """The store's clock, in seconds."""

    def held(self) -> HoldRecord | None:
        """The hold on record, which may be over."""
        ...

    def grant(self, claim: Claim, expires: float) -> HoldRecord:
        """Record a hold with a new token, greater than all before."""
        ...

    def keep(self, held: HoldRecord) -> None:
        """Record changes of the same hold."""
        ...

    def free(self) -> None:
        """Record that nobody holds."""
        ...

    def first(self) -> Claim | None:
        """The head of the queue."""
        ...

    def before(self, holder: str) -> Claim | None:
        """Who waits directly ahead of *holder*."""
        ...

    def after(self, holder: str) -> Claim | None:
        """Who waits directly behind *holder*."""
        ...

    def join(self, claim: Claim) -> None:
        """Put at the tail of the queue; one that is queued keeps its place."""
        ...

    def quit(self, holder: str) -> bool:
        """Take out of the queue; says whether it was there."""
        ...

    def alive(self, client: str) -> bool:
        """Whether the client lives."""
        ...

    def has_tombstone(self, holder: str) -> bool:
        """Whether the claim was given up for good."""
        ...

    def tombstone(self, holder: str) -> None:
        """Remember that the claim was given up for good."""
        ...

    def watch(self, client: str) -> None:
        """Have the asking client told when *client* dies."""
        ...

    def notify(self, claim: Claim) -> None:
        """Have the claim's client told, after this transaction, that asking again helps."""
        ...

    def notified(self) -> tuple[str, ...]:
        """The holders among the woken that belong to the asking client itself."""
        ...


def expired(shelf: LockRow, held: HoldRecord) -> bool:
    """Whether a hold on record has ended by itself."""
    if held.lifetime != "client" and held.expires <= shelf.now:
        return True
    return held.lifetime != "lease" and not shelf.alive(held.client)


def expire_and_grant(shelf: LockRow) -> HoldRecord | None:
    """Bring the lock up to date; who holds it now?"""
    held = shelf.held()
    if held is not None and not expired(shelf, held):
        return held
    if held is not None:
        shelf.free()
    return grant_next(shelf)


def grant_next(shelf: LockRow) -> HoldRecord | None:
    """Grant the lock to the first waiter whose client is alive; dead waiters are removed."""
    while (claim := shelf.first()) is not None:
        shelf.quit(claim.id)
        if shelf.alive(claim.client):
            shelf.notify(claim)
            return shelf.grant(claim, shelf.now + min(claim.lease, CONFIRM_WITHIN))
    return None


def acquire(shelf: LockRow, request: Acquire) -> Grant | Busy:
    """Grant, confirm a grant, or queue."""
    claim = request.claim
    if shelf.has_tombstone(claim.id):
        return Busy(None, NEVER, ())
    held = expire_and_grant(shelf)
    if held is None:
        held = shelf.grant(claim, shelf.now + claim.lease)
    elif held.id == claim.id:
        shelf.keep(held._replace(expires=max(held.expires, shelf.now + claim.lease)))
    else:
        return enqueue(shelf, request, held)
    return Grant(held.token, shelf.notified())


def enqueue(shelf: LockRow, request: Acquire, held: HoldRecord) -> Busy:
    """Queue the claim, if it waits; say who holds and when to ask again."""
    if held.cached:
        shelf.notify(request.claim._replace(id=held.id, client=held.client))
    recheck = NEVER if held.lifetime == "client" else held.expires - shelf.now
    if request.wait:
        shelf.join(request.claim)
        ahead = _alive_before(shelf, request.claim.id)
        # The head of the queue looks first when the lease is over; the others only in case
        # that it does not. None looks much later, for the next holder's lease may be shorter.
        recheck = (
            min(recheck + CONFIRM_WITHIN, RECHECK_INTERVAL)
            if ahead
            else min(recheck, RECHECK_INTERVAL)
        )
        # A detached hold outlives its client, whose death would be told again at every question.
        if ahead or held.lifetime != "lease":
            shelf.watch(ahead.client if ahead else held.client)
    return Busy(held, recheck, shelf.notified())


def _alive_before(shelf: LockRow, holder: str) -> Claim | None:
    """Who waits ahead and lives. To watch a dead one would be to be woken for nothing, for ever."""
    ahead = shelf.before(holder)
    while ahead is not None and not shelf.alive(ahead.client):
        shelf.quit(ahead.id)
        ahead = shelf.before(holder)
    return ahead


def renew(shelf: LockRow, claim: Claim) -> bool:
    """Let the lease end no sooner than its length from now; False when the hold is another's."""
    held = shelf.held()
    if held is None or held.id != claim.id:
        return False
    shelf.keep(held._replace(expires=max(held.expires, shelf.now + claim.lease)))
    return True


def release(shelf: LockRow, request: Release) -> Released:
    """Release, or leave the queue."""
    holder = request.claim.id
    if request.tombstone:
        shelf.tombstone(holder)
    held = shelf.held()
    if held is not None and held.id == holder:
        shelf.free()
        grant_next(shelf)
        return Released("held", shelf.notified())
    behind = shelf.after(holder)
    if not shelf.quit(holder):
        return Released("absent", shelf.notified())
    # Whoever watched us must watch another one now.
    if behind is not None:
        shelf.notify(behind)
    return Released("waiting", shelf.notified())


def set_lifetime(shelf: LockRow, holder: str, tie: Lifetime) -> LifetimeSet:
    """Change what ends a hold."""
    held = shelf.held()
    if held is None or held.id != holder:
        return LifetimeSet(False, ())
    shelf.keep(held._replace(lifetime=tie))
    return LifetimeSet(True, ())


def break_lock(shelf: LockRow, request: BreakLock) -> Broken:
    """Free the lock whoever holds it, and hand it on."""
    held = expire_and_grant(shelf)
    if held is None or not (request.token is None or held.named(request.token)):
        return Broken(held, False, shelf.notified())
    shelf.free()
    grant_next(shelf)
    return Broken(held, True, shelf.notified())
