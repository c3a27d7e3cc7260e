"""What a client has yet to give back to masters that did not answer.

Such a vote holds nobody up for longer than its lease; but while another master is away, too, it
may be the one that a majority needs. One process per client tries until then, and a little longer:
the question that the vote was the answer to may have been under way when its asker gave it up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core import timing
from leaselock.core.backend import Release, ReleaseGrant
from leaselock.core.effects import Call, Wait
from leaselock.core.singleton_process import Background
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock.backends.redlock.masters import Master
    from leaselock.core.backend import Claim
    from leaselock.core.effects import Signal

MOST = 10_000
PATIENCE = 1.0


class Debts:
    """Votes that are owed to masters, each until its lease is over."""

    def __init__(
        self, masters: Sequence[Master], now: Callable[[], float], closing: Signal
    ) -> None:
        self.masters = masters
        self.now = now
        self.closing = closing
        self.owed: dict[int, dict[str, tuple[Release | ReleaseGrant, float]]] = {}
        self.repaying = Background()

    def owe(self, master: int, claim: Claim, token: int | None = None) -> None:
        """Give it back as soon as the master answers: the claim for good, or one grant of it."""
        owed = self.owed.setdefault(master, {})
        before, _ = owed.get(claim.id, (None, 0.0))
        request: Release | ReleaseGrant = Release(claim, tombstone=True)
        # Who leaves for good ends every grant; to end one only would leave later ones standing.
        if token is not None and not isinstance(before, Release):
            request = ReleaseGrant(claim, token)
        owed[claim.id] = (request, self.now() + claim.lease + timing.RELEASE_GRACE)
        if len(owed) > MOST:
            del owed[next(iter(owed))]

    async def start(self) -> None:
        """See that somebody pays."""
        if any(self.owed.values()) and not self.closing.is_set:
            await self.repaying.start(self._repay_all, "debts")

    async def _repay_all(self) -> None:
        tries = 0
        while any(self.owed.values()) and not self.closing.is_set:
            paid = False
            for master in list(self.owed):
                paid = await self.repay(master) or paid
            tries = 0 if paid else tries + 1
            await Wait(self.closing, self.now() + timing.pause(tries + 4, 0.5))

    async def repay(self, master: int) -> bool:
        """Pay until the master does not answer; says whether it did."""
        owed = self.owed.get(master, {})
        while owed:
            holder, (request, until) = next(iter(owed.items()))
            try:
                if self.now() < until:
                    await Call(self.masters[master].node, request, self.now() + PATIENCE)
            except StoreError:
                return False
            if owed.get(holder) == (request, until):
                del owed[holder]
        return True
