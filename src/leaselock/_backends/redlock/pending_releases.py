"""Votes that masters still have because they did not answer when they were given back.

Such a vote delays other clients until its lease ends at most; but while another master is away,
too, it may be the one that a majority needs. One process for each client repeats the releases until
then, and a little longer, because the request that was granted may have been under way when its
caller gave up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.redlock.master import ReleaseGrant
from leaselock._core.client import timing
from leaselock._core.contract.backend import Release
from leaselock._core.contract.background import Background
from leaselock._core.contract.effects import Wait
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock._backends.redlock.master import Master
    from leaselock._core.contract.backend import Claim
    from leaselock._core.contract.effects import Signal

MOST = 10_000
TIMEOUT = 1.0


class PendingReleases:
    """What is to be released on each master, until its lease is over."""

    def __init__(
        self,
        masters: Sequence[Master],
        now: Callable[[], float],
        random: Callable[[], float],
        closing: Signal,
    ) -> None:
        self.masters = masters
        self.now = now
        self.random = random
        self.closing = closing
        # By master and claim: the request, and until when it is repeated.
        self.requests: dict[int, dict[str, tuple[Release | ReleaseGrant, float]]] = {}
        self.process = Background()

    def add(self, master: int, claim: Claim, token: int | None = None) -> None:
        """Release the claim for good, or only its grant with that token."""
        requests = self.requests.setdefault(master, {})
        before, _ = requests.get(claim.id, (None, 0.0))
        request: Release | ReleaseGrant = Release(claim, tombstone=True)
        # A release for good ends every grant; replaced by one of a grant, it would leave others.
        if token is not None and not isinstance(before, Release):
            request = ReleaseGrant(claim, token)
        requests[claim.id] = (request, self.now() + claim.lease + timing.RELEASE_GRACE)
        if len(requests) > MOST:
            del requests[next(iter(requests))]

    async def start(self) -> None:
        """Start the process that repeats them."""
        if any(self.requests.values()) and not self.closing.is_set:
            await self.process.start(self._repeat, "releases")

    async def _repeat(self) -> None:
        tries = 0
        while any(self.requests.values()) and not self.closing.is_set:
            answered = False
            for master in list(self.requests):
                answered = await self.send(master) or answered
            tries = 0 if answered else tries + 1
            await Wait(self.closing, self.now() + timing.pause(tries + 4, self.random()))

    async def send(self, master: int) -> bool:
        """Send the requests to one master, until it does not answer; says whether it did."""
        requests = self.requests.get(master, {})
        while requests:
            holder, (request, until) = next(iter(requests.items()))
            try:
                if self.now() < until:
                    locks = self.masters[master].locks
                    await locks.request(request, self.now() + TIMEOUT)
            except StoreError:
                return False
            if requests.get(holder) == (request, until):
                del requests[holder]
        return True
