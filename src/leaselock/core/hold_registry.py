"""What one client holds, and what it has yet to give back.

Holds are known weakly: the handles that the user keeps, or the lock object and the thread or
task that took it, keep a hold alive. When they are gone, nobody renews it any more (C6, F10).

An orphan is a claim whose fate was left open: its question got no answer, or its asker was
cancelled, interrupted or dropped. Making one is a plain change of data, so it works where no
effect can be awaited any more; the keeper gives orphans back.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, NamedTuple

from leaselock.core import timing
from leaselock.core.backend import Backend, Claim, Watchful
from leaselock.core.effects import FOREVER, Env, Owner, Signal, Sleep, Wait
from leaselock.core.inspection import quoted
from leaselock.core.singleton_process import Background
from leaselock.core.validation import shortened
from leaselock.errors import ClientClosed, OutcomeUnknown
from leaselock.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaselock.core.backend import LockState
    from leaselock.core.hold import Callback, Hold


class PendingRelease(NamedTuple):
    """A claim to give back, and until when that makes sense."""

    claim: Claim
    until: float


class InFlight:
    """The processes with a claim that are under way; a closing client waits for the last.

    Each counts itself in when it begins, and calls `exit` at its end.
    """

    def __init__(self) -> None:
        self.active = 0
        self.idle = Signal()

    def exit(self) -> None:
        """One ends. It counts where it began, should its client have begun anew since."""
        self.active -= 1
        if not self.active and self.idle.wakers:
            self.idle.set()


class HoldRegistry:
    """The books of one client."""

    def __init__(self, env: Env, backend: Backend, patience: float, label: str | None) -> None:
        self.env = env
        self.backend = backend
        self.drift, self.margin = backend.capabilities[:2]
        self.op_timeout = patience
        self.label = label
        self.changed = Signal()
        self.planned = FOREVER
        self.renewing = Background()
        self.closed = False
        if isinstance(backend, Watchful):
            backend.report_to(self.on_store_loss)
        self.begin()

    def begin(self) -> None:
        """A fresh start: of a new client, or of a forked child's copy of one."""
        self.client = self.env.random_id()
        self.serial = 0
        self.in_flight = InFlight()
        self.holds: dict[str, weakref.ref[Hold]] = {}
        self.pending_releases: dict[str, PendingRelease] = {}
        self.bereaved: list[Callback] = []
        # How what is told of a claim begins: where this process is.
        self.place = ""

    def abandon(self, reason: str, ours: bool) -> None:
        """Nobody here holds anything any more: a forked child, or the tasks of a closed loop.

        What stayed with the process that forked us is its own; what is still *ours* is given back.
        """
        left = [hold for hold in self.held() if ours and hold.owned]
        pending_releases = self.pending_releases if ours else {}
        for hold in self.held():
            hold.lose(reason)
        self.changed = Signal()
        self.planned = FOREVER
        self.renewing = Background()
        self.begin()
        self.backend.reset_identity()
        for hold in left:
            self.release_later(hold.claim)
        # Given up when their loop was over, or shortly before.
        for release_later in pending_releases.values():
            self.release_later(release_later.claim)

    def claim(
        self,
        name: str,
        lease: float,
        label: str | None,
        caller: Owner,
        tokens: int = 1,
        cached: bool = False,
    ) -> Claim:
        """A fresh claim, known to nobody yet."""
        if self.closed:
            raise ClientClosed(f"the client was closed; {name!r} cannot be locked with it any more")
        self.serial += 1
        holder = f"{self.client}:{self.serial}"
        about = self._about(label or self.label, caller)
        return Claim(name, holder, self.client, lease, about, self.env.wall(), tokens, cached)

    def with_new_id(self, claim: Claim) -> Claim:
        """The same wish, by an identity that nobody knows yet."""
        self.serial += 1
        return claim._replace(id=f"{self.client}:{self.serial}")

    def _about(self, label: str | None, caller: Owner) -> str:
        known, text = caller.about
        if not text or known != label:
            if not self.place:
                host, pid = self.env.host_and_pid()
                host = shortened(host)
                self.place = f'{{"host": {quoted(host)}, "pid": {pid}, "version": "{__version__}"'
            title = shortened(caller.title)
            words = f'"thread": {quoted(title)}, "label": {quoted(label)}'
            text = f"{self.place}, {words}}}"
            caller.about = label, text
        return text

    def add(self, hold: Hold, caller: Owner | None, asked: float, lasts: float = FOREVER) -> None:
        """A hold begins; the keeper learns of it in the same step."""
        reference = weakref.ref(hold)
        self.holds[hold.claim.id] = reference
        if caller is not None:
            hold.owner = weakref.ref(caller)
            caller.holds[hold.claim.client, hold.claim.name] = reference
        self.schedule(hold, asked, lasts)

    def schedule(self, hold: Hold, asked: float, lasts: float = FOREVER) -> None:
        """Have the keeper look at the hold when it must; it is woken only if it sleeps longer.
        One that the store has for a shorter time, *lasts*, must be renewed in the first half.
        """
        until = hold.valid_until
        if until < hold.max_valid_until:
            due = timing.renew_at(asked, self.proof(hold.claim.lease))
            if hold.provisional:
                due = min(due, until - lasts / 2)
            until = due if due < until else until
        hold.next_check = until
        if until < self.planned:
            self.wake_renewer(until)

    def proof(self, lease: float) -> float:
        """For how long one answer of the store is good, of a hold with that lease."""
        session = self.backend.capabilities.session_timeout
        return lease if session == FOREVER else min(lease, session * timing.PROVEN)

    def over(self, asked: float, lease: float) -> float:
        """The end of a lease that was asked for at *asked*, as its holder must see it."""
        return timing.believed_until(asked, lease, self.drift, self.margin)

    def proven(self, asked: float, lease: float) -> float:
        """Until when an answer lets the holder believe; asking again may take it further."""
        over = timing.believed_until(asked, lease, self.drift, self.margin)
        session = self.backend.capabilities.session_timeout
        return over if session == FOREVER else min(over, timing.proven_until(asked, session))

    def wake_renewer(self, when: float) -> None:
        """Wake the keeper, which has something to do at *when*."""
        self.planned = when
        self.changed.set()

    def dismiss(self, hold: Hold) -> None:
        """A hold needs no looking after any more; its caller has yet to put it down."""
        self.holds.pop(hold.claim.id, None)

    def remove(self, hold: Hold) -> None:
        """A hold ends."""
        self.dismiss(hold)
        caller, key = hold.owner(), (hold.claim.client, hold.claim.name)
        if caller is not None and key in caller.holds and caller.holds[key]() in (hold, None):
            del caller.holds[key]

    def on_store_loss(self, holder: str, reason: str) -> None:
        """The store's connection that held for *holder* has ended: nobody needs to be asked."""
        reference = self.holds.get(holder)
        hold = reference() if reference is not None else None
        if hold is not None and hold.lose(reason):
            self.wake_renewer(0.0)

    def notify_lost(self, hold: Hold) -> None:
        """A lost hold has somebody to tell: the keeper does it, even when it is looked after
        by nobody else any more.
        """
        bereaved = hold.bereaved()
        if bereaved:
            self.bereaved += bereaved
            self.wake_renewer(0.0)

    def of(self, caller: Owner, name: str) -> Hold | None:
        """The hold that *caller* has on *name*, if any."""
        reference = caller.holds.get((self.client, name))
        return reference() if reference is not None else None

    def held(self) -> list[Hold]:
        """All holds that somebody still cares for."""
        return [hold for ref in list(self.holds.values()) if (hold := ref()) is not None]

    def release_later(self, claim: Claim) -> None:
        """Leave it to the keeper to give *claim* back."""
        bound = self.backend.capabilities.session_timeout < FOREVER
        # What ends with its session alone must be given back, however long that takes.
        until = FOREVER if bound else self.env.now() + claim.lease + timing.UNDO_PATIENCE
        self.pending_releases[claim.id] = PendingRelease(claim, until)
        self.backend.forget(claim)
        self.wake_renewer(0.0)

    def answer_by(self) -> float:
        """Until when the store may take to answer a question that is asked now."""
        if self.closed:
            raise ClientClosed("the client was closed")
        return self.env.now() + self.op_timeout

    async def inspect(self, name: str | None, pattern: str) -> Sequence[LockState]:
        """Who holds and who waits. It changes nothing, so it is asked until it is answered."""
        give_up = self.answer_by()
        tries = 0
        while True:
            try:
                until = timing.ask_again_by(self.env.now(), give_up)
                return await self.backend.inspect(name, pattern, until)
            except OutcomeUnknown:
                tries += 1
                if self.env.now() >= give_up:
                    raise
            await Sleep(min(give_up, self.env.now() + timing.pause(tries, self.env.random())))

    async def close(self, until: float) -> None:
        """Nobody begins or waits any more; those under way have until *until* to end."""
        self.closed = True
        self.changed.set()
        self.backend.wake_all()
        in_flight = self.in_flight
        while in_flight.active and self.env.now() < until:
            in_flight.idle.clear()
            await Wait(in_flight.idle, until)
