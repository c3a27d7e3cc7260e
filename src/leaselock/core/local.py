"""The layer between a client's threads or tasks and its store: they pass a lease among themselves.

It is a backend that wraps another one, and speaks to it with one claim for each lock (`turns` has
the state, `shared` what concerns those who have a lease). A claim that reserves no tokens, and all
that nobody here knows, goes through it.

Law 1: what is passed on is a lease that the store has granted, with the time that is left of it.
Law 2: an anchor is out of its line before it is given back: nobody takes what may be gone.
Law 3: whatever becomes of a member, the first of those that remain is woken.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from leaselock.core.backend import Busy, Grant
from leaselock.core.cached_lease import start
from leaselock.core.effects import Wait
from leaselock.core.shared import Shared
from leaselock.core.turns import Anchor, Line, Member, granted
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from leaselock.core.backend import Claim
    from leaselock.core.effects import Process


class Local(Shared):
    """A backend whose claims share a lease, where they may."""

    def acquire(self, claim: Claim, *, wait: bool, until: float) -> Awaitable[Grant | Busy]:
        """One try."""
        if claim.tokens == 1:
            return self.backend.acquire(claim, wait=wait, until=until)
        return self._ask(claim, wait, until)

    async def _ask(self, claim: Claim, wait: bool, until: float) -> Grant | Busy:
        fresh = claim.id not in self.members
        try:
            return await self._try(claim, wait, until, fresh)
        except NotApplied as error:
            if fresh and claim.id in self.members:
                # It has yet to give back what it took out of the line: nobody may forget it.
                raise OutcomeUnknown(str(error)) from error
            raise

    async def _try(self, claim: Claim, wait: bool, until: float, fresh: bool) -> Grant | Busy:
        member = self.members.get(claim.id) or self.member_for(claim)
        line, now = member.line, self.env.now()
        if member.anchor is None:
            line.take(member, now)
        if member.anchor is not None and now < member.anchor.until:
            return granted(member, member.anchor, now)
        if wait or claim.cached or member.anchor is not None:
            await self._clear(member, until)
        if line.lets_lead(member, self.env.now(), wait=wait):
            return await self._lead(member, wait, until, fresh)
        refusal = line.refusal(now)
        if wait:
            line.join(member)
        else:
            await self._go(member, fresh, until)
        return refusal

    def member_for(self, claim: Claim) -> Member:
        """A new one."""
        line = self.lines.get(claim.name)
        if line is None:
            line = self.lines[claim.name] = Line()
        member = self.members[claim.id] = Member(claim, line)
        return member

    async def _clear(self, member: Member, until: float) -> None:
        """What stands in the way of asking the store goes back to it."""
        line, late = member.line, member.anchor
        if late is not None:
            # It was given the lease, and comes too late to believe in it.
            member.anchor = None
            late.end()
            if line.anchor in (None, late):
                line.anchor = late
                line.put_first(member)
            else:
                # Others have gone on without it: nobody is to be overtaken who asks already.
                member.debt, member.token = late, 0
                line.join(member)
        elif line.in_the_way(member):
            line.join(member)
            member.debt = line.anchor
        try:
            await self._pay(member, until)
        except StoreError:
            return  # it is asked for again when that one leaves

    async def _pay(self, member: Member, until: float) -> None:
        """Give back what that one has taken out of the line."""
        if member.debt is not None:
            await self.give_back(member.line, member.debt, until)
            member.debt = None

    async def _lead(self, member: Member, wait: bool, until: float, fresh: bool) -> Grant | Busy:
        """Ask the store for all. Whoever led before has left the anchor its place in the queue."""
        line = member.line
        line.join(member)
        anchor = line.anchor
        if anchor is None:
            anchor = line.anchor = Anchor(member.own)
        asked = self.env.now()
        try:
            reply = await self.backend.acquire(anchor.claim, wait=wait, until=until)
        except BaseException as error:
            self._failed(member, anchor, error, fresh)
            raise
        if isinstance(reply, Grant):
            grant = self._seated(member, anchor, reply, asked)
            if anchor.claim.cached:
                await start(self, line, anchor)
            return grant
        anchor.queued = anchor.queued or wait
        member.leads, line.busy = anchor.queued, reply
        if not wait:
            await self._go(member, not anchor.unsure(), until)
        return reply

    async def _go(self, member: Member, untold: bool, until: float) -> None:
        """A try that was refused leaves nothing behind; least of all where the store was told."""
        if untold and member.debt is None:
            self._desert(member)
        else:
            await self._leave(member.claim, tombstone=False, until=until)

    def _desert(self, member: Member) -> None:
        """The store has nothing of it."""
        line = member.line
        if line.anchor is not None and line.anchor.claim is member.own:
            line.anchor = None
        self.backend.forget(member.own)
        self._dismiss(member)

    def _failed(self, member: Member, anchor: Anchor, error: BaseException, fresh: bool) -> None:
        if not isinstance(error, NotApplied):
            anchor.doubtful = True
        elif fresh and member.debt is None:
            self._desert(member)

    def _seated(self, member: Member, anchor: Anchor, grant: Grant, asked: float) -> Grant:
        """The store has granted the anchor; the one that asked has it first."""
        asked, lasts = min(asked, grant.asked), min(anchor.claim.lease, grant.lasts)
        until = self._proven(asked, lasts)
        if anchor.begin(grant.token, self.env.now(), asked, until):
            member.token = 0
        if anchor.queued:
            self.backend.forget(anchor.claim)
            anchor.queued = False
        member.line.give(anchor, member)
        return grant._replace(token=member.token, asked=asked, lasts=lasts)

    def await_wakeup(self, claim: Claim, until: float) -> Awaitable[object]:
        """Wait for the store, if that one asked it; else to be woken by another of the client."""
        member = self.members.get(claim.id)
        if member is None:
            return self.backend.await_wakeup(claim, until)
        if member.leads and member.line.anchor is not None:
            return self.backend.await_wakeup(member.line.anchor.claim, until)
        return Wait(member.signal, until)

    async def close(self, until: float) -> None:
        """The client closes: what it keeps and does not use goes back."""
        for line in list(self.lines.values()):
            if line.anchor is not None and line.anchor.holds and line.anchor.owner is None:
                with suppress(StoreError):
                    await self.give_back(line, line.anchor, until)

    def release(self, claim: Claim, *, tombstone: bool, until: float) -> Process[bool]:
        """Pass the lease on, or give it back; or stand in line no more."""
        if claim.tokens == 1:
            return self.backend.release(claim, tombstone=tombstone, until=until)
        return self._leave(claim, tombstone, until)

    async def _leave(self, claim: Claim, tombstone: bool, until: float) -> bool:
        member = self.members.get(claim.id)
        if member is None:
            return False
        await self._pay(member, until)
        line, anchor = member.line, member.anchor
        if anchor is None:
            line.quit(member)
            anchor = line.anchor
            if line.members or anchor is None or anchor.owner is not None:
                self._dismiss(member)
                return False
            # Nobody else wants it: what the client has or waits for goes back.
            member.anchor = anchor
        elif line.pass_on(anchor, self.env.now()):
            del self.members[member.claim.id]
            return True
        anchor.doubtful = anchor.doubtful or tombstone
        held = await self.give_back(line, anchor, until)
        self._dismiss(member)
        return held

    async def give_back(self, line: Line, anchor: Anchor, until: float) -> bool:
        """Let the store have it."""
        if line.anchor is anchor:
            line.anchor = None
        if anchor.unsure():
            # What is buried is never granted again, also to one of ours that still wants the lock.
            line.renounce(anchor.claim, self.with_new_id)
        line.leaving += 1
        try:
            return await self.backend.release(anchor.claim, tombstone=anchor.unsure(), until=until)
        except BaseException:
            anchor.doubtful = True
            raise
        finally:
            line.leaving -= 1
            self.backend.forget(anchor.claim)
            line.wake_first()

    def forget(self, claim: Claim) -> None:
        """The claim waits no more: it has the lease, or somebody will have it leave."""
        if claim.tokens == 1:
            self.backend.forget(claim)
            return
        member = self.members.get(claim.id)
        if member is not None and member.anchor is None:
            member.line.quit(member)
