"""The wait of an acquisition for its turn, and why it must not go on: a deadlock in this thread or
among clients, the end of the client, a cancellation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.client import shared_thread, withdrawal
from leaselock._core.client.attempts import Attempts
from leaselock._core.client.events import LONG_WAIT
from leaselock._core.client.inspection import waiter_of
from leaselock._core.contract.effects import FOREVER
from leaselock.errors import DeadlockDetected, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaselock._core.client.hold import Hold
    from leaselock._core.contract.backend import Busy
    from leaselock._core.contract.effects import OwnerThread


class Waiting(Attempts):
    """The requests of one acquisition, and the waits between them."""

    long_reported = False
    """It was reported that the wait is long."""
    next_search = FOREVER
    """When to look for a deadlock."""
    blocked: OwnerThread | None = None
    """The thread that the wait blocks, if it has other owners."""
    beside: Sequence[Hold] = ()
    """Holds that cannot be released while this thread waits, and do not exclude the claim."""

    async def wait_for(self, busy: Busy) -> None:
        """Wait until asking again may help."""
        hold, registry = self.hold, self.registry
        if self.beside or (not self.queued and (self.blocked or registry.listeners.all)):
            await self._check_busy(busy)
        await self._report_long(busy)
        hold.transition("busy")
        wakes_at = self._ask_again_at(busy)
        del busy  # its record of the holder: thousands of tasks may wait
        if not (hold.cancelled or registry.closed):
            await self.backend.await_wakeup(self.claim, wakes_at)
        if hold.cancelled or registry.closed or self.env.now() >= self.next_search:
            await self._check_wait()

    def _ask_again_at(self, busy: Busy) -> float:
        """Until when to wait: for another request, or for a search for a deadlock."""
        timeout = self.registry.deadlock_timeout
        if timeout is not None and self.next_search == FOREVER:
            self.next_search = self.first_asked + timeout
        long = FOREVER if self.long_reported else self.first_asked + LONG_WAIT
        return min(self.deadline, self.sent_at + busy.retry_after, self.next_search, long)

    async def _report_long(self, busy: Busy) -> None:
        """Report once that the wait is long, and who holds the lock."""
        if not self.long_reported and self.env.now() >= self.first_asked + LONG_WAIT:
            self.long_reported = True
            await self.report("waiting", holder=busy.held)

    async def _check_wait(self) -> None:
        """Raise if the wait must not go on. Called where it was ended, or it is time to look for a
        deadlock.
        """
        if self.hold.cancelled:
            await withdrawal.withdraw(self)
        self.check_open()
        await self._end_deadlock()

    async def _check_busy(self, busy: Busy) -> None:
        """Report the first refusal. Raise WouldDeadlock if the holder, or a claim ahead that waits
        for a hold, needs this thread to go on.
        """
        if not self.queued:
            await self.report("busy", holder=busy.held)
        beside: Sequence[Hold] = ()
        if self.blocked is not None and not self.queued:
            beside = shared_thread.holder_beside(self.blocked, self.env, self.claim, busy.held)
        if self.beside and await shared_thread.is_blocked(self.registry, self.claim, self.beside):
            beside = self.beside
        if beside:
            await withdrawal.withdraw(self)
            raise shared_thread.refusal(self.claim, beside)

    async def _end_deadlock(self) -> None:
        """Raise DeadlockDetected if this wait is the youngest of a deadlock. All members see the
        same cycle, so one of them ends it. Otherwise search again after *deadlock_timeout*.
        """
        from leaselock._core.client import deadlocks  # loaded where it is used

        timeout = self.registry.deadlock_timeout
        self.next_search = FOREVER if timeout is None else self.env.now() + timeout
        try:
            held = self.registry.env.owner().held()
            found = await deadlocks.find_for(self.registry, self.claim, held)
        except StoreError:
            return  # The next search asks again; the wait goes on.
        own = deadlocks.owner_of(waiter_of(self.claim))
        for deadlock in found:
            first = deadlock[0]
            if first.name == self.claim.name and deadlocks.owner_of(first.waiter) == own:
                await withdrawal.withdraw(self)
                description = deadlocks.description(deadlock)
                raise DeadlockDetected(self.claim.name, description, deadlock)

    async def give_up_after(self, busy: Busy) -> None:
        """The time has passed: leave the queue, and report it."""
        await self._report_long(busy)
        await withdrawal.withdraw(self)
        await self.report("timed_out", holder=busy.held, reason=self.registry.left([self.hold]))
