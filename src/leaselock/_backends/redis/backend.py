"""The `Backend` of one protocol on a Redis store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from leaselock._backends.redis.counters import COUNTERS, collect_counters
from leaselock._backends.redis.doctor import examine
from leaselock._backends.redis.index import RepairPosition
from leaselock._backends.redis.messages import PRIVATE, PUBLIC_ERRORS, public_error
from leaselock._core.backend import (
    WATCH_INTERVAL,
    Backend,
    Busy,
    Capabilities,
    Claim,
    Collected,
    Finding,
    Grant,
    Watched,
)
from leaselock.errors import LimitMismatch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from leaselock._backends.redis.legacy_formats import LegacyLock
    from leaselock._backends.redis.scripted_lock import ScriptedLock
    from leaselock._backends.redis.shared_state import SharedState
    from leaselock._core.effects import Call, Operation, Request

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
# The legacy formats draw a token after the lock was taken, one for each grant.
WITH_TOKEN_RANGES = CAPABILITIES._replace(token_ranges=True)


class RedisBackend(Backend):
    """Locks of one protocol; errors that are private to this package do not leave it."""

    def __init__(
        self, shared: SharedState, locks: ScriptedLock | LegacyLock, capabilities: Capabilities
    ) -> None:
        super().__init__(capabilities)
        self.executor = shared.executor
        self.keys_of = shared.keys_of
        self.tracking = shared.listener.tracking
        self.settings = shared.settings
        self.without_login = shared.without_login
        self.locks = locks

    async def acquire(self, claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        """One try. A waiter listens before it enters the queue, so it misses no message (E1)."""
        with PUBLIC_ERRORS:
            return await self.locks.acquire(claim, wait, until)

    def await_wakeup(self, claim: Claim, until: float) -> Awaitable[object]:
        """Wait for a message, or until it is time to poll."""
        if self.tracking.watches:
            change = self.tracking.await_change(claim.id, until)
            if change is not None:
                return change
        return self.locks.await_wakeup(claim, until)

    async def release(self, claim: Claim, *, tombstone: bool, until: float) -> bool:
        """Release, or leave the queue."""
        with PUBLIC_ERRORS:
            return (await self.locks.release(claim, tombstone, until)).was == "held"

    async def request(self, request: Request[R], until: float) -> R:
        """Carry out one request. What depends on the format is a method of its locks."""
        with PUBLIC_ERRORS:
            name: str = request.method
            carry_out: Any = getattr(self.locks, name, None) or getattr(self, name)
            fields: Any = request
            answer: R = await carry_out(*fields, until)
        return answer

    async def watch_lock(self, claim: Claim, until: float) -> Watched:
        """The state of the claim's lock, and a notification of the next change of its key."""
        name = claim.name
        own = self.keys_of(name)
        # A holder wants to know of waiters, too.
        keys = (own.lock, own.queue) if claim.cached else (own.lock,)
        notified = await self.tracking.watch(self.executor.ask, claim.id, keys, until)
        (state,) = await self.locks.inspect(name, "*", until)
        ends = [hold.remaining for hold in state.holds if hold.remaining is not None]
        return Watched(state, min([WATCH_INTERVAL, *ends]), notified)

    def doctor(self, until: float) -> Operation[Sequence[Finding]]:
        """Report how the servers are set up."""
        return examine(
            self.executor,
            self.settings,
            self.locks.inspect,
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
            removed, following = await self.locks.index.repair(position, until)
            return Collected(removed, COUNTERS if following is None else following)
        return await collect_counters(self.executor, self.settings, position, until)

    def forget(self, claim: Claim) -> None:
        """The claim waits or watches no more."""
        if self.tracking.watches:
            self.tracking.forget(claim.id)
        self.locks.forget(claim)

    def wake(self, claim_ids: Iterable[str]) -> None:
        """Let these claims ask again, those that watch a key, too."""
        claim_ids = tuple(claim_ids)
        self.tracking.wake(claim_ids)
        self.locks.wake(claim_ids)

    def close(self) -> None:
        """End all waits: the client is closing."""
        self.locks.close()

    def after_fork(self) -> None:
        """After a fork: the store has let go of everything by itself."""
        self.locks.after_fork()


class ScriptedBackend(RedisBackend):
    """Locks of a protocol in which one script acquires, and one releases."""

    def __init__(
        self, shared: SharedState, locks: ScriptedLock, capabilities: Capabilities
    ) -> None:
        super().__init__(shared, locks, capabilities)
        self.scripted = locks

    def begin_acquire(self, claim: Claim, *, wait: bool, until: float) -> Call[Any] | None:
        """One packed command, on a connection that is open."""
        return self.scripted.begin_acquire(claim, wait, until)

    def finish_acquire(
        self, claim: Claim, call: Call[Any], reply: Any, *, wait: bool
    ) -> Grant | Busy | None:
        """Its reply."""
        try:  # what PUBLIC_ERRORS does, without its two calls
            return self.scripted.finish_acquire(claim, call, reply, wait)
        except LimitMismatch:
            raise
        except PRIVATE as error:
            raise public_error(error) from error

    def begin_release(self, claim: Claim, until: float) -> Call[Any] | None:
        """One packed command, on a connection that is open."""
        return self.scripted.begin_release(claim, until)

    def finish_release(self, claim: Claim, call: Call[Any], reply: Any) -> bool | None:
        """Its reply."""
        try:
            released = self.scripted.finish_release(claim, call, reply)
        except PRIVATE as error:
            raise public_error(error) from error
        return None if released is None else released.was == "held"

    def call_failed(self, claim: Claim, call: Call[Any], error: BaseException) -> BaseException:
        """The connection may be of no use any more."""
        self.scripted.call_failed(call, error)
        return public_error(error) if isinstance(error, PRIVATE) else error
