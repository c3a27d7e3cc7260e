"""Who of one client has a lease, and who is next: the state of the local hand-over. Pure.

To the store the client is one claim for each lock, the anchor: it holds, or it waits. A turn is
the time from its grant until it is given back. Within a turn the lease passes from one thread or
task of the client to the next, each with the next token of those that the grant reserved.

Law 1: a token is given once, and none beyond the reserved ones.
Law 2: whoever is first in line while the anchor does not hold is the one that asks the store.
Law 3: nothing is passed on after the end of the turn, so that other clients have theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.backend import Busy, Grant, HoldRecord
from leaselock.core.effects import Signal
from leaselock.core.rules import NEVER, RECHECK_INTERVAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.core.backend import Claim, LockState

# No longer than this is a lease passed on, counted from its grant: long holds are served in the
# order of the store, and short ones share the price of one grant.
MAX_HANDOFF = 0.1
# And no longer than this part of what the store has granted, so that the last one has the rest.
HANDOFF_FRACTION = 0.5
# For so long whoever has it may take it again before the next one, who would have to be woken
# first: one switch of threads costs as much as several short holds.
REACQUIRE_WINDOW = 0.001


# Of those who never stood in line.
NEVER_HEARD = Signal()


class Anchor:
    """One claim to the store, for all of the client that want the lock."""

    __slots__ = (
        *("claim", "doubtful", "first", "holds", "last", "open", "owner", "queued", "token"),
        *("turn", "until"),
    )

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.doubtful = False
        """A question about it got no answer, so it must be buried when it leaves."""
        self.open = 0
        """How many questions of those who watch over it have no answer yet, or never had one."""
        self.queued = False
        """It stands in the store's queue."""
        self.holds = False
        self.owner: Member | None = None
        """Who has the lease; None while it is open to the next one."""
        self.first = self.token = self.last = 0
        self.until = self.turn = 0.0

    def begin(self, first: int, now: float, asked: float, until: float) -> bool:
        """The store has granted it, with the tokens from *first* on, to be believed until then.
        Says whether that is news: a grant that is confirmed has those of its tokens left that
        were left before.
        """
        self.holds = True
        news = first != self.first
        if news:
            self.first, self.token = first, first - 1
            self.last = first - 1 + self.claim.tokens
        self.until = until
        half = asked + (until - asked) * HANDOFF_FRACTION
        # One that is sticky goes back as soon as anybody else asks; it needs no other bound.
        self.turn = half if self.claim.cached else min(now + MAX_HANDOFF, half)
        return news

    def unsure(self) -> bool:
        """Whether a question may yet reach the store."""
        return self.doubtful or self.open > 0

    def keeps(self, now: float) -> bool:
        """Whether the client may keep the lease while none of it wants it."""
        return self.claim.cached and self.fits(self.claim.lease, now)

    def end(self) -> None:
        """Its time has passed: nobody has it, and the store is to be asked what became of it."""
        self.holds = False
        self.owner = None

    def close(self) -> None:
        """Pass it on no more."""
        self.turn = 0.0

    def fits(self, lease: float, now: float) -> bool:
        """Whether it can be passed on to a claim of that *lease*. One with a shorter lease must not
        get more than it asked for, also of one that was extended, and one with a longer not less.
        """
        alike = lease == self.claim.lease and self.until <= now + lease
        return alike and now < self.turn and self.token < self.last


class Member:
    """One claim of a thread or task that wants the lock, or has it by the anchor."""

    __slots__ = ("anchor", "claim", "debt", "leads", "line", "own", "signal", "token")

    def __init__(self, claim: Claim, line: Line) -> None:
        self.claim = claim
        # What it asks the store with, where it is the one that asks.
        self.own = claim
        self.line = line
        self.signal = NEVER_HEARD
        self.anchor: Anchor | None = None
        # One that it has yet to give back, and does not have.
        self.debt: Anchor | None = None
        self.leads = False
        """It has asked the store, and listens to it."""
        self.token = 0
        """Its own, once it has been given the lease."""


class Line:
    """All of the client that want one lock, in the order they came."""

    __slots__ = ("anchor", "busy", "leaving", "members", "slice")

    def __init__(self) -> None:
        self.anchor: Anchor | None = None
        self.members: dict[str, Member] = {}
        # How many questions are under way that give an anchor back.
        self.leaving = 0
        self.slice = 0.0
        # What the store said last.
        self.busy: Busy = Busy(None, NEVER, ())

    def idle(self) -> bool:
        """Nobody has or wants the lock."""
        return self.anchor is None and not self.members and not self.leaving

    def first(self) -> Member | None:
        """Who is next."""
        return next(iter(self.members.values()), None)

    def join(self, member: Member) -> None:
        """Stand in line; who stands there keeps the place. What was heard before is no news."""
        if member.signal is NEVER_HEARD:
            member.signal = Signal()
        self.members.setdefault(member.claim.id, member)
        member.signal.is_set = member.leads = False

    def put_first(self, member: Member) -> None:
        """Stand ahead of all."""
        self.members.pop(member.claim.id, None)
        self.members = {member.claim.id: member} | self.members

    def quit(self, member: Member) -> None:
        """Want it no more; whoever is first then has to know that."""
        if member.claim.id in self.members:
            was_first = member is self.first()
            del self.members[member.claim.id]
            member.leads = False
            if was_first:
                self.wake_first()

    def renounce(self, claim: Claim, with_new_id: Callable[[Claim], Claim]) -> None:
        """Ask with that claim no more."""
        for member in self.members.values():
            if member.own is claim:
                member.own = with_new_id(claim)

    def wake_first(self) -> None:
        """Have the next one look."""
        for member in self.members.values():
            if not member.signal.is_set:
                member.signal.set()
            return

    def give(self, anchor: Anchor, member: Member) -> None:
        """The lease is that member's now, with a token of its own."""
        self.members.pop(member.claim.id, None)
        if not member.token:
            anchor.token += 1
            member.token = anchor.token
        member.anchor, anchor.owner = anchor, member
        member.leads = False

    def take(self, member: Member, now: float) -> bool:
        """Take the lease if it is open; whoever waited for it begins a slice of its own."""
        anchor = self.anchor
        if anchor is None or not anchor.holds or anchor.owner is not None:
            return False
        if not anchor.fits(member.claim.lease, now):
            return False
        if member.claim.id in self.members:
            self.slice = now + REACQUIRE_WINDOW
        self.give(anchor, member)
        return True

    def at_hand(self, lease: float, now: float) -> Anchor | None:
        """The lease, if the client keeps it and nobody is before whoever asks."""
        anchor = self.anchor
        if anchor is None or anchor.owner is not None or self.members or not anchor.holds:
            return None
        return anchor if anchor.fits(lease, now) else None

    def pass_on(self, anchor: Anchor, now: float) -> bool:
        """Whoever has the lease is done with it: let the next one have it, if it may be."""
        member = self.first()
        if anchor is not self.anchor:
            return False
        if member is None and anchor.keeps(now):
            anchor.owner = None
            return True
        if member is None or not anchor.fits(member.claim.lease, now):
            return False
        if now < self.slice:
            anchor.owner = None
        else:
            self.slice = now + REACQUIRE_WINDOW
            self.give(anchor, member)
        if not member.signal.is_set:
            member.signal.set()
        return True

    def lets_lead(self, member: Member, now: float, *, wait: bool) -> bool:
        """Whether that one, which wants the lock, is to ask the store. An anchor whose time has
        passed without a renewal is void: whoever has the lease does not believe in it either.
        Who does not want to wait does not take another's place.
        """
        anchor = self.anchor
        if anchor is not None and anchor.holds and now >= anchor.until:
            self.anchor = anchor = None
        if self.leaving or self.first() not in (None, member):
            return False
        if anchor is None:
            return True
        return not anchor.holds and (wait or anchor.claim is member.own)

    def in_the_way(self, member: Member) -> bool:
        """Whether the anchor is to go before that one can ask: it is open, but cannot be passed
        on; or it waits for a lease of another length.
        """
        anchor = self.anchor
        if anchor is None or anchor.owner is not None:
            return False
        return anchor.holds or (
            anchor.claim.lease != member.claim.lease and self.first() in (None, member)
        )

    def refusal(self, now: float) -> Busy:
        """What to tell one who is to wait for another of this client."""
        anchor = self.anchor
        if anchor is None or not anchor.holds:
            return self.busy._replace(retry_after=RECHECK_INTERVAL, notified=())
        return Busy(held_by(anchor), min(anchor.until - now, RECHECK_INTERVAL), ())


def held_by(anchor: Anchor) -> HoldRecord | None:
    """The hold, as people see it: of the one who has the lease."""
    owner = anchor.owner
    if owner is None:
        return None
    claim = owner.claim
    told = (claim.metadata, claim.since)
    return HoldRecord(claim.id, claim.client, "either", owner.token, anchor.until, *told)


def granted(member: Member, anchor: Anchor, now: float) -> Grant:
    """What one is told that has the lease: it is good for as long as the anchor's is."""
    return Grant(member.token, (), lasts=anchor.until - now)


def seen(line: Line | None, sight: LockState) -> LockState:
    """What the store says of a lock, with the members of our line in the place of their anchor."""
    if line is None or line.anchor is None:
        return sight
    holder = line.anchor.claim.id
    ours = tuple(member.claim for member in line.members.values())
    if sight.held is not None and sight.held.id == holder:
        held = held_by(line.anchor) or sight.held
        return sight._replace(held=held, waiting=(*ours, *sight.waiting))
    waiting = [(claim,) if claim.id != holder else ours for claim in sight.waiting]
    return sight._replace(waiting=tuple(claim for claims in waiting for claim in claims))
