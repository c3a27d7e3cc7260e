"""Who holds a lock, and who is next: the one text of these decisions.

Each function is one request, carried out on a `Shelf`: where a store keeps one lock. It runs
alone on that shelf (a transaction, a mutex), so it is one atomic step of the store. Memory and
the SQLite file run these functions in production; the models of the simulator run the same.

The queue is served first come, first served. Whoever frees a lock grants it to the first waiter
alive, for a short claim time; the waiter is woken and asks again, which confirms the grant for
the whole lease. So a dead waiter delays nobody, and a frozen one no longer than the claim time.
"""

from __future__ import annotations

from typing import Protocol

from leaselock.core.backend import (
    Ask,
    Break,
    Broken,
    Busy,
    Claim,
    Grant,
    Held,
    Leave,
    Left,
    Retied,
    Tie,
)

CLAIM_TIME = 2.0
LOOK_AGAIN = 5.0
NEVER = 1e9


class Shelf(Protocol):
    """One lock in a store, for the length of one transaction."""

    now: float
    """The store's clock, in seconds."""

    def held(self) -> Held | None:
        """The hold on record, which may be over."""
        ...

    def grant(self, claim: Claim, expires: float) -> Held:
        """Record a hold with a new token, greater than all before."""
        ...

    def keep(self, held: Held) -> None:
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

    def buried(self, holder: str) -> bool:
        """Whether the claim was given up for good."""
        ...

    def bury(self, holder: str) -> None:
        """Remember that the claim was given up for good."""
        ...

    def watch(self, client: str) -> None:
        """Have the asking client told when *client* dies."""
        ...

    def wake(self, claim: Claim) -> None:
        """Have the claim's client told, after this transaction, that asking again helps."""
        ...

    def woken(self) -> tuple[str, ...]:
        """The holders among the woken that belong to the asking client itself."""
        ...


def over(shelf: Shelf, held: Held) -> bool:
    """Whether a hold on record has ended by itself."""
    if held.tie != "life" and held.expires <= shelf.now:
        return True
    return held.tie != "lease" and not shelf.alive(held.client)


def settle(shelf: Shelf) -> Held | None:
    """Bring the lock up to date; who holds it now?"""
    held = shelf.held()
    if held is not None and not over(shelf, held):
        return held
    if held is not None:
        shelf.free()
    return _hand_over(shelf)


def _hand_over(shelf: Shelf) -> Held | None:
    while (claim := shelf.first()) is not None:
        shelf.quit(claim.holder)
        if shelf.alive(claim.client):
            shelf.wake(claim)
            return shelf.grant(claim, shelf.now + min(claim.lease, CLAIM_TIME))
    return None


def ask(shelf: Shelf, request: Ask) -> Grant | Busy:
    """Grant, confirm a grant, or queue."""
    claim = request.claim
    if shelf.buried(claim.holder):
        return Busy(None, NEVER, ())
    held = settle(shelf)
    if held is None:
        held = shelf.grant(claim, shelf.now + claim.lease)
    elif held.holder == claim.holder:
        shelf.keep(held._replace(expires=max(held.expires, shelf.now + claim.lease)))
    else:
        return _line_up(shelf, request, held)
    return Grant(held.token, shelf.woken())


def _line_up(shelf: Shelf, request: Ask, held: Held) -> Busy:
    if held.sticky:
        shelf.wake(request.claim._replace(holder=held.holder, client=held.client))
    recheck = NEVER if held.tie == "life" else held.expires - shelf.now
    if request.wait:
        shelf.join(request.claim)
        ahead = _alive_before(shelf, request.claim.holder)
        # The head of the queue looks first when the lease is over; the others only in case
        # that it does not. None looks much later, for the next holder's lease may be shorter.
        recheck = min(recheck + CLAIM_TIME, LOOK_AGAIN) if ahead else min(recheck, LOOK_AGAIN)
        # A detached hold outlives its client, whose death would be told again at every question.
        if ahead or held.tie != "lease":
            shelf.watch(ahead.client if ahead else held.client)
    return Busy(held, recheck, shelf.woken())


def _alive_before(shelf: Shelf, holder: str) -> Claim | None:
    """Who waits ahead and lives. To watch a dead one would be to be woken for nothing, for ever."""
    ahead = shelf.before(holder)
    while ahead is not None and not shelf.alive(ahead.client):
        shelf.quit(ahead.holder)
        ahead = shelf.before(holder)
    return ahead


def renew(shelf: Shelf, claim: Claim) -> bool:
    """Let the lease end no sooner than its length from now; False when the hold is another's."""
    held = shelf.held()
    if held is None or held.holder != claim.holder:
        return False
    shelf.keep(held._replace(expires=max(held.expires, shelf.now + claim.lease)))
    return True


def leave(shelf: Shelf, request: Leave) -> Left:
    """Release, or leave the queue."""
    holder = request.claim.holder
    if request.bury:
        shelf.bury(holder)
    held = shelf.held()
    if held is not None and held.holder == holder:
        shelf.free()
        _hand_over(shelf)
        return Left("held", shelf.woken())
    behind = shelf.after(holder)
    if not shelf.quit(holder):
        return Left("absent", shelf.woken())
    # Whoever watched us must watch another one now.
    if behind is not None:
        shelf.wake(behind)
    return Left("waiting", shelf.woken())


def retie(shelf: Shelf, holder: str, tie: Tie) -> Retied:
    """Change what ends a hold."""
    held = shelf.held()
    if held is None or held.holder != holder:
        return Retied(False, ())
    shelf.keep(held._replace(tie=tie))
    return Retied(True, ())


def evict(shelf: Shelf, request: Break) -> Broken:
    """Free the lock whoever holds it, and hand it on."""
    held = settle(shelf)
    if held is None or not (request.token is None or held.named(request.token)):
        return Broken(held, False, shelf.woken())
    shelf.free()
    _hand_over(shelf)
    return Broken(held, True, shelf.woken())
