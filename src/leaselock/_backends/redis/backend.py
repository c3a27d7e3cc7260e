"""What the `Backend`s of all formats on a Redis store have in common."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, TypeVar

from leaselock._backends.redis.counters import COUNTERS, collect_counters
from leaselock._backends.redis.index import RepairPosition
from leaselock._backends.redis.messages import PRIVATE, public_error
from leaselock._core.contract.backend import (
    WATCH_INTERVAL,
    Acquire,
    Backend,
    Busy,
    Capabilities,
    Claim,
    Collected,
    Finding,
    Grant,
    LockState,
    Release,
    Watched,
)
from leaselock.errors import LimitMismatch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from leaselock._backends.redis.index import ActiveIndex
    from leaselock._backends.redis.shared_state import SharedState
    from leaselock._core.contract.backend import Released
    from leaselock._core.contract.effects import Operation, Request

R = TypeVar("R")

# The server measures time to live by its wall clock: the drift covers a clock that is slewed, not
# one that jumps. Its granularity is a millisecond.
CAPABILITIES = Capabilities(
    clock_drift=0.001,
    clock_margin=0.005,
    detects_death=False,
    inheritable=False,
    notifies_changes=True,
    indexed=True,
)


class RedisBackend(Backend):
    """Locks of one format. Every request passes `_carry_out`, which no private error leaves."""

    index: ActiveIndex

    def __init__(self, shared: SharedState, capabilities: Capabilities) -> None:
        super().__init__(capabilities)
        self.executor = shared.executor
        self.topology = shared.topology
        self.keys_of = shared.keys_of
        self.tracking = shared.listener.tracking
        self.settings = shared.settings
        self.without_login = shared.without_login

    # --- what a format has of its own -----------------------------------------------------------

    @abc.abstractmethod
    def acquire_once(self, claim: Claim, wait: bool, until: float) -> Awaitable[Grant | Busy]:
        """One try."""

    @abc.abstractmethod
    def release_once(self, claim: Claim, tombstone: bool, until: float) -> Awaitable[Released]:
        """Release, or leave the queue."""

    @abc.abstractmethod
    async def inspect(self, name: str | None, pattern: str, until: float) -> tuple[LockState, ...]:
        """One lock, or those in the index."""

    # --- requests -------------------------------------------------------------------------------

    def acquire(self, claim: Claim, *, wait: bool, until: float) -> Operation[Grant | Busy]:
        """One try. A waiter listens before it enters the queue, so it misses no message (E1)."""
        return self._carry_out(self.acquire_once, (claim, wait), until)

    async def release(self, claim: Claim, *, tombstone: bool, until: float) -> bool:
        """Release, or leave the queue."""
        released = await self._carry_out(self.release_once, (claim, tombstone), until)
        return released.was == "held"

    def request(self, request: Request[R], until: float) -> Operation[R]:
        """Carry out one request. A Redlock also sends `Acquire` and `Release`."""
        method: Callable[..., Awaitable[Any]]
        if isinstance(request, Acquire):
            method = self.acquire_once
        elif isinstance(request, Release):
            method = self.release_once
        else:
            method = getattr(self, request.method)
        fields: Any = request
        return self._carry_out(method, fields, until)

    async def _carry_out(
        self, method: Callable[..., Awaitable[R]], fields: Sequence[Any], until: float
    ) -> R:
        """Carry out a request, once it is known what kind of servers there are. Its error is one of
        `leaselock.errors`.
        """
        try:
            if not self.topology.is_known:
                await self.executor.prepare(until)
            return await method(*fields, until)
        except LimitMismatch:
            raise
        except PRIVATE as error:
            raise public_error(error) from error

    async def watch_lock(self, claim: Claim, until: float) -> Watched:
        """The state of the claim's lock, and a notification of the next change of its key."""
        name = claim.name
        own = self.keys_of(name)
        # A holder wants to know of waiters, too.
        keys = (own.lock, own.queue) if claim.observes_queue else (own.lock,)
        notified = await self.tracking.watch(self.executor.ask, claim.id, keys, until)
        (state,) = await self.inspect(name, "*", until)
        ends = [hold.remaining for hold in state.holds if hold.remaining is not None]
        return Watched(state, min([WATCH_INTERVAL, *ends]), notified)

    def doctor(self, until: float) -> Operation[Sequence[Finding]]:
        """Report how the servers are set up."""
        from leaselock._backends.redis.doctor import examine  # loaded where it is used

        return examine(
            self.executor,
            self.settings,
            self.inspect,
            self.tracking,
            self.without_login,
            until,
        )

    async def setup(self, dry: bool, until: float) -> Sequence[str]:
        """Nothing has to be created."""
        return ()

    async def collect_garbage(self, position: object, until: float) -> Collected:
        """Delete the names of idle locks in the index, and the token counters that do not expire
        and were last used long ago. Everything else expires by itself.
        """
        if position is None or isinstance(position, RepairPosition):
            removed, following = await self.index.repair(position, until)
            return Collected(removed, COUNTERS if following is None else following)
        return await collect_counters(self.executor, self.settings, position, until)

    # --- waiting --------------------------------------------------------------------------------

    def await_change(self, claim: Claim, until: float) -> Awaitable[object] | None:
        """Wait until a key that the claim watches has changed; None if it watches none."""
        return self.tracking.await_change(claim.id, until) if self.tracking.watches else None

    def forget(self, claim: Claim) -> None:
        """The claim waits or watches no more."""
        if self.tracking.watches:
            self.tracking.forget(claim.id)

    def wake(self, claim_ids: Iterable[str]) -> None:
        """Let these claims ask again, those that watch a key, too."""
        self.tracking.wake(claim_ids)
