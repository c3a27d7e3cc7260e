"""The layer between a client's threads or tasks and its store: they pass a lease among themselves.

It is a backend that wraps another one, and speaks to it with one claim for each lock (`turns` has
the state). A claim that reserves no tokens, and all that nobody here knows, goes through it.

Law 1: what is passed on is a lease that the store has granted, with the time that is left of it.
Law 2: an anchor is out of its line before it is given back: nobody takes what may be gone.
Law 3: whatever becomes of a member, the first of those that remain is woken.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.core import pace
from holdfast.core.backend import Busy, Grant
from holdfast.core.effects import Wait
from holdfast.core.keeper import TAKEN
from holdfast.core.sticky import start
from holdfast.core.turns import Anchor, Line, Member, granted, seen
from holdfast.errors import Refused, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from holdfast.core.backend import Backend, Broken, Claim, Retied, Sight, Tie
    from holdfast.core.effects import Env, Process


class Local:
    """A backend whose claims share a lease, where they may."""

    def __init__(self, env: Env, backend: Backend) -> None:
        self.env = env
        self.backend = backend
        self.capabilities = backend.capabilities
        self.lines: dict[str, Line] = {}
        self.members: dict[str, Member] = {}
        self.lose: Callable[[str, str], None] | None = None

    def report_to(self, lose: Callable[[str, str], None]) -> None:
        """Whom to tell that a lease is lost which was passed on while its renewal was under way."""
        self.lose = lose

    def ask(self, claim: Claim, *, wait: bool, until: float) -> Awaitable[Grant | Busy]:
        """One try."""
        if claim.tokens == 1:
            return self.backend.ask(claim, wait=wait, until=until)
        return self._ask(claim, wait, until)

    async def _ask(self, claim: Claim, wait: bool, until: float) -> Grant | Busy:
        member = self.members.get(claim.holder)
        fresh = member is None
        if member is None:
            member = self.member_for(claim)
        line, now = member.line, self.env.now()
        if member.anchor is None:
            line.take(member, now)
        if member.anchor is not None and now < member.anchor.until:
            return granted(member, member.anchor, now)
        if wait or claim.sticky or member.anchor is not None:
            await self._clear(member, until)
        if line.lets_lead(member, self.env.now(), wait=wait):
            return await self._lead(member, wait, until, fresh)
        if wait:
            line.join(member)
        elif fresh:
            self._dismiss(member)
        return line.refusal(now)

    def member_for(self, claim: Claim) -> Member:
        """A new one."""
        line = self.lines.get(claim.name)
        if line is None:
            line = self.lines[claim.name] = Line()
        member = self.members[claim.holder] = Member(claim, line)
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
            anchor = line.anchor = Anchor(member.claim)
        asked = self.env.now()
        try:
            reply = await self.backend.ask(anchor.claim, wait=wait, until=until)
        except BaseException as error:
            self._failed(member, anchor, error, fresh)
            raise
        if isinstance(reply, Grant):
            grant = self._seated(member, anchor, reply, asked)
            if anchor.claim.sticky:
                await start(self, line, anchor)
            return grant
        anchor.queued = anchor.queued or wait
        member.leads, line.busy = anchor.queued, reply
        if not wait and not anchor.doubtful:
            # Nothing of it is in the store.
            line.anchor = None
            self._dismiss(member)
        return reply

    def _failed(self, member: Member, anchor: Anchor, error: BaseException, fresh: bool) -> None:
        if not isinstance(error, Refused):
            anchor.doubtful = True
        elif fresh:
            member.line.anchor = None if anchor.claim is member.claim else anchor
            self._dismiss(member)

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

    def _proven(self, asked: float, lease: float) -> float:
        return pace.believed_until(asked, lease, *self.capabilities[:2])

    def hear(self, claim: Claim, until: float) -> Awaitable[object]:
        """Wait for the store, if that one asked it; else to be woken by another of the client."""
        member = self.members.get(claim.holder)
        if member is None:
            return self.backend.hear(claim, until)
        if member.leads and member.line.anchor is not None:
            return self.backend.hear(member.line.anchor.claim, until)
        return Wait(member.signal, until)

    async def close(self, until: float) -> None:
        """The client closes: what it keeps and does not use goes back."""
        for line in list(self.lines.values()):
            if line.anchor is not None and line.anchor.holds and line.anchor.owner is None:
                with suppress(StoreError):
                    await self.give_back(line, line.anchor, until)

    def leave(self, claim: Claim, *, bury: bool, until: float) -> Process[bool]:
        """Pass the lease on, or give it back; or stand in line no more."""
        if claim.tokens == 1:
            return self.backend.leave(claim, bury=bury, until=until)
        return self._leave(claim, bury, until)

    async def _leave(self, claim: Claim, bury: bool, until: float) -> bool:
        member = self.members.get(claim.holder)
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
            del self.members[member.claim.holder]
            return True
        anchor.doubtful = anchor.doubtful or bury
        held = await self.give_back(line, anchor, until)
        self._dismiss(member)
        return held

    async def give_back(self, line: Line, anchor: Anchor, until: float) -> bool:
        """Let the store have it."""
        if line.anchor is anchor:
            line.anchor = None
        line.leaving += 1
        try:
            return await self.backend.leave(anchor.claim, bury=anchor.doubtful, until=until)
        except BaseException:
            anchor.doubtful = True
            raise
        finally:
            line.leaving -= 1
            self.backend.forget(anchor.claim)
            line.wake_first()

    def _dismiss(self, member: Member) -> None:
        """Nothing is left to be said about it."""
        line = member.line
        self.members.pop(member.claim.holder, None)
        line.quit(member)
        if line.idle() and self.lines.get(member.claim.name) is line:
            del self.lines[member.claim.name]

    def forget(self, claim: Claim) -> None:
        """The claim waits no more: it has the lease, or somebody will have it leave."""
        if claim.tokens == 1:
            self.backend.forget(claim)
            return
        member = self.members.get(claim.holder)
        if member is not None and member.anchor is None:
            member.line.quit(member)

    async def renew(self, claims: Sequence[Claim], until: float) -> Sequence[bool | None]:
        """Renew the anchors of those who have a lease by one."""
        asked = self.env.now()
        anchors = [self._anchor_of(claim) for claim in claims]
        wanted = [
            claim if anchor is None else anchor.claim._replace(lease=claim.lease)
            for claim, anchor in zip(claims, anchors, strict=True)
        ]
        answers = await self.backend.renew(wanted, until)
        for claim, anchor, renewed in zip(wanted, anchors, answers, strict=True):
            if anchor is not None and renewed is not None:
                self._renewed(anchor, self._proven(asked, claim.lease), held=renewed)
        return answers

    def _anchor_of(self, claim: Claim) -> Anchor | None:
        member = self.members.get(claim.holder)
        return None if member is None else member.anchor

    def _renewed(self, anchor: Anchor, until: float, *, held: bool) -> None:
        if held:
            anchor.until = max(anchor.until, until)
            return
        anchor.close()
        # Whoever has it now may be another one than the one that the renewal was for.
        if anchor.owner is not None and self.lose is not None:
            self.lose(anchor.owner.claim.holder, TAKEN)

    async def retie(self, claim: Claim, tie: Tie, until: float) -> Retied:
        """Change what ends the hold; it is passed on no more."""
        anchor = self._anchor_of(claim)
        if anchor is None:
            return await self.backend.retie(claim, tie, until)
        anchor.close()
        reply = await self.backend.retie(anchor.claim, tie, until)
        if reply.held and tie == "lease":
            member = self.members[claim.holder]
            if member.line.anchor is anchor:
                member.line.anchor = None
            member.line.wake_first()
            self._dismiss(member)
        return reply

    async def evict(self, name: str, token: int | None, until: float) -> Broken:
        """Take the lock away from its holder; if that is one of ours, it passes nothing on."""
        broken = await self.backend.evict(name, token, until)
        line = self.lines.get(name)
        if broken.done and line is not None and line.anchor is not None and line.anchor.holds:
            line.anchor.close()
        return broken

    async def look(self, name: str | None, pattern: str, until: float) -> Sequence[Sight]:
        """What the store says, with our members in the place of their anchors."""
        sights = await self.backend.look(name, pattern, until)
        return [seen(self.lines.get(sight.name), sight) for sight in sights]

    def disturb(self) -> None:
        """Wake every waiter: the client is closing."""
        for member in list(self.members.values()):
            member.signal.set()
        self.backend.disturb()

    def renewed_identity(self) -> None:
        """Nobody here has anything any more; what is still ours will be asked to leave."""
        self.lines = {}
        for member in self.members.values():
            line, member.line = member.line, Line()
            if member.anchor is None and line.anchor is not None and line.anchor.owner is None:
                member.anchor, line.anchor = line.anchor, None
        self.backend.renewed_identity()
