"""A client's claims that share a lease, once they have it: renewed, looked at, taken away as one.

Law: what is done to one of them is done to the anchor, which is all that the store knows; and what
becomes of the anchor, whoever has the lease then is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core import timing
from leaselock.core.renewer import TAKEN
from leaselock.core.turns import Line, seen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from leaselock.core.backend import (
        Backend,
        Broken,
        Claim,
        Finding,
        Lifetime,
        LifetimeSet,
        LockState,
    )
    from leaselock.core.effects import Env
    from leaselock.core.turns import Anchor, Member


class Shared:
    """The lines of a client, and who stands in them or has what they share."""

    def __init__(self, env: Env, backend: Backend, with_new_id: Callable[[Claim], Claim]) -> None:
        self.env = env
        self.backend = backend
        # A claim like another one, but with an identity of its own.
        self.with_new_id = with_new_id
        self.capabilities = backend.capabilities
        self.lines: dict[str, Line] = {}
        self.members: dict[str, Member] = {}
        self.lose: Callable[[str, str], None] | None = None

    def report_to(self, lose: Callable[[str, str], None]) -> None:
        """Whom to tell that a lease is lost which was passed on while its renewal was under way."""
        self.lose = lose

    def _dismiss(self, member: Member) -> None:
        """Nothing is left to be said about it."""
        line = member.line
        self.members.pop(member.claim.id, None)
        line.quit(member)
        if line.idle() and self.lines.get(member.claim.name) is line:
            del self.lines[member.claim.name]

    def _proven(self, asked: float, lease: float) -> float:
        return timing.believed_until(asked, lease, *self.capabilities[:2])

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
        member = self.members.get(claim.id)
        return None if member is None else member.anchor

    def _renewed(self, anchor: Anchor, until: float, *, held: bool) -> None:
        if held:
            anchor.until = max(anchor.until, until)
            return
        anchor.close()
        # Whoever has it now may be another one than the one that the renewal was for.
        if anchor.owner is not None and self.lose is not None:
            self.lose(anchor.owner.claim.id, TAKEN)

    async def set_lifetime(self, claim: Claim, tie: Lifetime, until: float) -> LifetimeSet:
        """Change what ends the hold; it is passed on no more."""
        anchor = self._anchor_of(claim)
        if anchor is None:
            return await self.backend.set_lifetime(claim, tie, until)
        anchor.close()
        reply = await self.backend.set_lifetime(anchor.claim, tie, until)
        if reply.held and tie == "lease":
            member = self.members[claim.id]
            if member.line.anchor is anchor:
                member.line.anchor = None
            member.line.wake_first()
            self._dismiss(member)
        return reply

    async def break_lock(self, name: str, token: int | None, until: float) -> Broken:
        """Take the lock away from its holder; if that is one of ours, it passes nothing on."""
        broken = await self.backend.break_lock(name, token, until)
        line = self.lines.get(name)
        if broken.done and line is not None and line.anchor is not None and line.anchor.holds:
            line.anchor.close()
        return broken

    def doctor(self, until: float) -> Awaitable[Sequence[Finding]]:
        """Report how the store is set up."""
        return self.backend.doctor(until)

    def setup(self, dry: bool, until: float) -> Awaitable[Sequence[str]]:
        """Create what the store needs."""
        return self.backend.setup(dry, until)

    def collect_garbage(self, until: float) -> Awaitable[int]:
        """Remove records that are no longer needed."""
        return self.backend.collect_garbage(until)

    async def inspect(self, name: str | None, pattern: str, until: float) -> Sequence[LockState]:
        """What the store says, with our members in the place of their anchors."""
        sights = await self.backend.inspect(name, pattern, until)
        return [seen(self.lines.get(sight.name), sight) for sight in sights]

    def wake_all(self) -> None:
        """Wake every waiter: the client is closing."""
        for member in list(self.members.values()):
            member.signal.set()
        self.backend.wake_all()

    def reset_identity(self) -> None:
        """Nobody here has anything any more; what is still ours will be asked to leave."""
        self.lines = {}
        for member in self.members.values():
            line, member.line = member.line, Line()
            if member.anchor is None and line.anchor is not None and line.anchor.owner is None:
                member.anchor, line.anchor = line.anchor, None
        self.backend.reset_identity()
