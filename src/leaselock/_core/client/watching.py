"""Watching a lock: who holds it, and each change of that.

Where the store notifies of changes, the watcher waits for a notification. Otherwise it looks again
at intervals that grow. A notification is only a hint to look, so a lost one costs time and nothing
else.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from leaselock._core.client.inspection import lock_change
from leaselock._core.client.timing import Retry, concerning
from leaselock._core.contract.backend import Inspect, LockState, Watch, Watched
from leaselock._core.contract.effects import Wait
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from leaselock._core.client.claim_registry import ClaimRegistry
    from leaselock._core.client.inspection import LockChange
    from leaselock._core.client.renewer import Renewer
    from leaselock._core.contract.backend import Claim

# Seconds between two looks at a store that sends no notification, at first and at most.
FIRST_INTERVAL = 0.05
LONGEST_INTERVAL = 1.0
GROWTH = 1.5
# The end of a lease is looked at a moment later.
SHORTEST_INTERVAL = 0.01
# Seconds for which a store may be silent, or refuse connections, after the first look: a restart,
# a failover.
TOLERATED_SILENCE = 30.0

Holds = tuple[tuple[str, int], ...]


class Watcher:
    """Follows the holds of one lock."""

    def __init__(self, registry: ClaimRegistry, renewer: Renewer, name: str) -> None:
        self.registry = registry
        self.renewer = renewer
        self.name = name
        # The holds that were reported last; None before the first report.
        self.known: Holds | None = None
        # The same one for all steps: a store remembers it for a while.
        self.claim: Claim | None = None
        self.interval = FIRST_INTERVAL

    async def next(self) -> LockChange | None:
        """The state of the lock as soon as it differs from the one reported before; None when the
        client is closed. The first call returns at once.
        """
        registry = self.registry
        if registry.closed:
            return None
        claim = self.claim
        if claim is None or claim.client != registry.client:
            claim = self.claim = registry.claim(self.name, 0.0)
        watching = registry.begin_watching()
        try:
            await self.renewer.start()  # some stores are listened to by it
            with concerning(self.name):
                return await self._next(claim)
        except StoreError:
            if not registry.closed:
                raise
            return None
        finally:
            registry.backend.forget(claim)
            registry.end_watching(watching)

    async def _next(self, claim: Claim) -> LockChange | None:
        registry = self.registry
        while not registry.closed:
            sent_at, watched = await self._look(claim)
            if not watched.state.holds:
                watched.state.readable()
            holds = _holds_of(watched.state)
            if holds != self.known:
                self.known = holds
                self.interval = FIRST_INTERVAL
                return lock_change(watched.state)
            until = sent_at + max(SHORTEST_INTERVAL, watched.retry_after)
            if watched.notified and not registry.closed:
                await registry.backend.await_wakeup(claim, until)
            else:
                await Wait(registry.ending, until)
        return None

    async def _look(self, claim: Claim) -> tuple[float, Watched]:
        """When the request was sent, and its reply."""
        registry, backend = self.registry, self.registry.backend
        first = self.known is None
        timeout = registry.op_timeout if first else TOLERATED_SILENCE
        retry = Retry(registry.env, registry.op_timeout, registry.env.now() + timeout)
        retry.refusals_are_final = first
        if backend.capabilities.notifies_changes:
            watched = await retry.until_answered(partial(backend.request, Watch(claim)))
            if watched.notified:
                return retry.sent_at, watched
            state = watched.state
        else:
            look = partial(backend.request, Inspect(self.name, "*"))
            (state,) = await retry.until_answered(look)
        interval = min([self.interval, *_ends_of(state)])
        self.interval = min(LONGEST_INTERVAL, self.interval * GROWTH)
        return retry.sent_at, Watched(state, interval, notified=False)


def _holds_of(state: LockState) -> Holds:
    return tuple((hold.record.id, hold.record.token) for hold in state.holds)


def _ends_of(state: LockState) -> list[float]:
    return [hold.remaining for hold in state.holds if hold.remaining is not None]


def or_stop(change: LockChange | None, stop: type[Exception]) -> LockChange:
    """The change; *stop* is raised where there is none, to end an iteration."""
    if change is None:
        raise stop
    return change
