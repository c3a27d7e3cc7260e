"""Claims that must still be released: the outcome of a request was unknown, or the operation that
made it was cancelled, interrupted or dropped.

Adding one is a plain change of data, so it works where no effect can be awaited any more. The
renewer sends the releases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import timing
from leaselock._core.effects import FOREVER
from leaselock._named_tuple import NamedTuple
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leaselock._core.backend import Backend, Claim
    from leaselock._core.effects import Env


# For how many seconds the release of a lost hold waits for the callbacks that report the loss.
REPORT_TIME = 0.5


class PendingRelease(NamedTuple):
    """A claim to release, and until when to try."""

    claim: Claim
    until: float
    report_until: float = 0.0
    """Until when it waits for callbacks that run."""


class PendingReleases:
    """The claims that one client must still release, in the order of the next tries."""

    def __init__(self, env: Env, op_timeout: float) -> None:
        self.env = env
        self.op_timeout = op_timeout
        self.by_id: dict[str, PendingRelease] = {}
        self.failures = 0
        # The callbacks of the client that have not returned.
        self.callbacks: set[int] = set()

    def __len__(self) -> int:
        return len(self.by_id)

    def __contains__(self, claim_id: str) -> bool:
        return claim_id in self.by_id

    def left(self, claims: Iterable[Claim]) -> str:
        """What to say of the claims that must still be released; empty if there are none."""
        names = ", ".join(repr(claim.name) for claim in claims if claim.id in self)
        return names and f"the store has not confirmed yet that the claim to {names} has left it"

    def __iter__(self) -> Iterator[PendingRelease]:
        return iter(self.by_id.values())

    def add(self, claim: Claim, *, ends_by_itself: bool, lost: bool = False) -> None:
        """Release *claim* soon. A hold that *ends_by_itself* is not tried for ever. The release of
        a *lost* one lets the next owner in, so it waits for the callbacks that report the loss.
        """
        now = self.env.now()
        until = now + claim.lease + timing.RELEASE_GRACE if ends_by_itself else FOREVER
        self.by_id[claim.id] = PendingRelease(claim, until, now + REPORT_TIME if lost else 0.0)

    def _due(self, pending: PendingRelease) -> float:
        return pending.report_until if self.callbacks else 0.0

    def next_try(self) -> float:
        """When to send the next release."""
        due = min(map(self._due, self), default=FOREVER)
        return max(due, self.retry_at()) if self.failures else due

    def retry_at(self) -> float:
        """When to try again after a failure."""
        return self.env.now() + timing.pause(self.failures, self.env.random())

    async def send(self, backend: Backend, free_until: float) -> None:
        """Send the releases, each for as long as the renewer is free.

        The first one that is not answered goes to the end, and the rest waits for the next turn:
        a silent store must not keep the renewer from its holds.
        """
        now = self.env.now()
        for pending in [pending for pending in self if self._due(pending) <= now]:
            done = await self._send(backend, pending, free_until)
            left = self.by_id.pop(pending.claim.id, None)
            if not done:
                self.by_id[pending.claim.id] = left or pending
                break

    async def _send(self, backend: Backend, pending: PendingRelease, free_until: float) -> bool:
        """Return whether the claim is done: it was answered, or its last try failed."""
        now = self.env.now()
        until = now + min(self.op_timeout, timing.TRY_TIMEOUT)
        until = min(until, max(free_until, now + timing.SHORTEST_TRY))
        try:
            await backend.release(pending.claim, tombstone=True, until=until)
        except StoreError:
            self.failures += 1
            return now >= pending.until
        self.failures = 0
        return True
