"""What the renewer does for the rows of the table that are not renewed: it reports those that were
lost, and ends those that are not in hand. `late_requests` sends what that takes.

A row is not in hand when its user has dropped the lease, and when the operation that asked for it
or was to end it was interrupted, cancelled or dropped (`hold`). It is seen here, and need not be
told. All are released at once, but for a lease that its user has dropped: that one when it expires,
because the user may still count on it.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from leaselock._core.client import validity
from leaselock._core.client.hold import CLIENT_CLOSED, State
from leaselock._core.client.late_requests import LateRequests
from leaselock._core.client.lease_reference import LeaseReference

if TYPE_CHECKING:
    from leaselock._core.client.claim_registry import ClaimRegistry
    from leaselock._core.client.hold import Hold


class Unfinished:
    """The rows of one client that an operation has begun and not ended."""

    def __init__(self, registry: ClaimRegistry) -> None:
        self.registry = registry
        self.late = LateRequests(registry)

    # --- looking through the table ----------------------------------------------------------------

    def look(self) -> None:
        """Look at each row, in one step."""
        registry, now = self.registry, self.registry.env.now()
        for hold in list(registry.table.values()):
            if hold.release_until:
                continue
            in_hand = hold.in_hand()
            # The drop of a fixed lease may be seen no sooner than at its end: warn of it first.
            dropped = not in_hand and self._was_dropped(hold)
            hold.expire(now)
            if hold.prolonged:
                hold.end_prolonging()  # unless a lease that needs it is left
            if not in_hand:
                self._take_over(hold, dropped)
            elif hold.state is State.LOST:
                self._lost(hold)
            elif hold.state is State.HELD and not hold.has_lease():
                # An operation is about to end it. Look again later, in case it is interrupted.
                can, lease = registry.backend.capabilities, hold.claim.lease
                hold.next_check = max(hold.next_check, validity.renew_at(can, now, lease))
            elif hold in registry.with_danger_callbacks:
                registry.notices.callbacks += hold.take_danger_callbacks(now)

    def _lost(self, hold: Hold) -> None:
        """Report the loss. The row stays until its owner has released the lease, too."""
        registry = self.registry
        registry.notices.add_loss(hold)
        # A hold that ends with its session may still exist: it may be found again.
        if not registry.backend.capabilities.holds_expire:
            registry.release_later(hold, lost=True)

    def _take_over(self, hold: Hold, dropped: bool) -> None:
        """Nothing has the row in hand: end it."""
        registry, lost = self.registry, hold.state is State.LOST
        registry.end(hold)
        if not self._needs_release(hold):
            registry.remove(hold)
            return
        hold.dropped = dropped and not lost
        hold.transition("release")
        registry.release_later(hold, lost=lost)
        if hold.dropped:
            # A session may have to be confirmed more often than a fixed lease lasts.
            hold.release_from = hold.max_valid_until if hold.fixed else hold.valid_until

    def _needs_release(self, hold: Hold) -> bool:
        """Whether it is to be released: it is ours, and was not lost where it ends by itself."""
        gone = hold.state is State.LOST and self.registry.backend.capabilities.holds_expire
        return hold.owned and not gone

    def _was_dropped(self, hold: Hold) -> bool:
        """Whether its user has dropped a lease that is held, and ours; warn of that."""
        dropped = any(map(LeaseReference.was_dropped, hold.references))
        if not (dropped and hold.owned and hold.state is State.HELD):
            return False
        site = f", acquired at:\n{hold.call_site}" if hold.call_site else ""
        text = f"the lease on {hold.claim.name!r} (token {hold.token}) was dropped while held"
        self.registry.notices.callbacks.append((_warn, f"{text}{site}"))
        return True

    # --- the end of the client --------------------------------------------------------------------

    async def close(self, until: float) -> None:
        """Release everything, as far as the store answers before *until*; the client closes."""
        registry = self.registry
        for hold in list(registry.table.values()):
            if hold.dropped:  # no thread or task counts on a lease of a closed client
                hold.dropped, hold.release_from = False, 0.0
            if not hold.release_until:
                self._end(hold)
        await self.late.release_all(until)
        await registry.notices.call_here()

    def _end(self, hold: Hold) -> None:
        registry = self.registry
        if not hold.in_hand():
            self._was_dropped(hold)
        needs_release = self._needs_release(hold)
        hold.lose(CLIENT_CLOSED)
        registry.end(hold)
        if needs_release:
            registry.release_later(hold)
        else:
            registry.remove(hold)


def _warn(text: str) -> None:
    """A callback: the user may have made an error of the warning."""
    warnings.warn(text, ResourceWarning, stacklevel=2)
