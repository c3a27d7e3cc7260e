"""The `Backend` of one protocol on a Redis store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from leaselock._backends.redis.counters import collect_counters
from leaselock._backends.redis.doctor import examine
from leaselock._backends.redis.messages import PRIVATE, PUBLIC_ERRORS, public_error
from leaselock._core.backend import (
    WATCH_INTERVAL,
    Acquire,
    Backend,
    BreakLock,
    Broken,
    Busy,
    Capabilities,
    Claim,
    Converted,
    Finding,
    Grant,
    Inspect,
    Lifetime,
    LifetimeSet,
    LockState,
    Mismatch,
    Mode,
    RaiseToken,
    Release,
    Released,
    ReleaseGrant,
    Renew,
    Resized,
    SetLifetime,
    Watched,
)
from leaselock.errors import LimitMismatch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from leaselock._backends.redis.legacy_formats import LegacyLock
    from leaselock._backends.redis.scripted_lock import ScriptedLock
    from leaselock._backends.redis.shared_state import SharedState
    from leaselock._core.effects import Process

# The server measures time to live by its wall clock: the drift covers a clock that is slewed, not
# one that jumps. Its granularity is a millisecond.
CAPABILITIES = Capabilities(
    clock_drift=0.001,
    clock_margin=0.005,
    detects_death=False,
    inheritable=False,
    notifies_changes=True,
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
        self.locks = locks

    def acquire(self, claim: Claim, *, wait: bool, until: float) -> Process[Grant | Busy]:
        """One try. A waiter listens before it enters the queue, so it misses no message (E1)."""
        return self.locks.acquire(claim, wait, until)

    def await_wakeup(self, claim: Claim, until: float) -> Awaitable[object]:
        """Wait for a message, or until it is time to poll."""
        if self.tracking.watches:
            change = self.tracking.await_change(claim.id, until)
            if change is not None:
                return change
        return self.locks.await_wakeup(claim, until)

    async def renew(self, claims: Sequence[Claim], until: float) -> Sequence[bool | None]:
        """Renew all in one request."""
        with PUBLIC_ERRORS:
            return await self.locks.renew(claims, until)

    async def release(self, claim: Claim, *, tombstone: bool, until: float) -> bool:
        """Release, or leave the queue."""
        try:
            return (await self.locks.release(claim, tombstone, until)).was == "held"
        except PRIVATE as error:
            raise public_error(error) from error

    async def set_lifetime(self, claim: Claim, lifetime: Lifetime, until: float) -> LifetimeSet:
        """Change what ends the hold."""
        with PUBLIC_ERRORS:
            return await self.locks.set_lifetime(claim, lifetime, until)

    async def convert(self, claim: Claim, step: int, mode: Mode, until: float) -> Converted:
        """Change the mode of a hold."""
        with PUBLIC_ERRORS:
            return await cast("ScriptedLock", self.locks).convert(claim, step, mode, until)

    async def resize(self, name: str, limit: int, until: float) -> Resized:
        """Change the number of permits of a semaphore."""
        with PUBLIC_ERRORS:
            return await cast("ScriptedLock", self.locks).resize(name, limit, until)

    async def inspect(self, name: str | None, pattern: str, until: float) -> Sequence[LockState]:
        """Holders and waiters."""
        with PUBLIC_ERRORS:
            return await self.locks.inspect(name, pattern, until)

    async def watch_lock(self, claim: Claim, until: float) -> Watched:
        """The state of the claim's lock, and a notification of the next change of its key."""
        name = claim.name
        with PUBLIC_ERRORS:
            key = self.keys_of(name).lock
            notified = await self.tracking.watch(self.executor.ask, claim.id, key, until)
            (state,) = await self.locks.inspect(name, "*", until)
        ends = [hold.remaining for hold in state.holds if hold.remaining is not None]
        return Watched(state, min([WATCH_INTERVAL, *ends]), notified)

    async def break_lock(self, name: str, token: int | str | None, until: float) -> Broken:
        """End the hold."""
        with PUBLIC_ERRORS:
            return await self.locks.break_lock(name, token, until)

    async def doctor(self, until: float) -> Sequence[Finding]:
        """Report how the servers are set up."""
        with PUBLIC_ERRORS:
            return await examine(self.executor, self.settings, self.locks.inspect, until)

    async def setup(self, dry: bool, until: float) -> Sequence[str]:
        """Nothing has to be created."""
        return ()

    async def collect_garbage(self, until: float) -> int:
        """Delete the token counters that do not expire and were last used long ago. Everything
        else expires by itself.
        """
        with PUBLIC_ERRORS:
            return await collect_counters(self.executor, self.settings, until)

    def forget(self, claim: Claim) -> None:
        """The claim waits or watches no more."""
        if self.tracking.watches:
            self.tracking.forget(claim.id)
        self.locks.forget(claim)

    def wake(self, claim_ids: Iterable[str]) -> None:
        """Let these claims ask again."""
        self.locks.wake(claim_ids)

    def close(self) -> None:
        """End all waits: the client is closing."""
        self.locks.close()

    def reset_identity(self) -> None:
        """After a fork: the store has let go of everything by itself."""
        self.locks.reset()

    async def handle(self, request: Any, until: float) -> Any:
        """Answer a request object: for a Redlock, which puts the same one to several stores."""
        with PUBLIC_ERRORS:
            return await self._answer(request, until)

    async def _acquire(self, claim: Claim, wait: bool, until: float) -> Grant | Busy | Mismatch:
        try:
            return await self.locks.acquire(claim, wait, until)
        except LimitMismatch as error:
            return Mismatch(error.found)

    def _answer(self, request: Any, until: float) -> Awaitable[Grant | Busy | Released | Any]:
        locks: Any = self.locks
        match request:
            case Acquire(claim, wait):
                return self._acquire(claim, wait, until)
            case Release(claim, tombstone):
                return locks.release(claim, tombstone, until)  # type: ignore[no-any-return]
            case ReleaseGrant(claim, token):
                return locks.release_grant(claim, token, until)  # type: ignore[no-any-return]
            case RaiseToken(claim, token):
                return locks.raise_token(claim, token, until)  # type: ignore[no-any-return]
            case Renew(claims):
                return locks.renew(claims, until)  # type: ignore[no-any-return]
            case SetLifetime(claim, lifetime):
                return locks.set_lifetime(claim, lifetime, until)  # type: ignore[no-any-return]
            case Inspect(name, pattern):
                return locks.inspect(name, pattern, until)  # type: ignore[no-any-return]
            case BreakLock(name, token):
                return locks.break_lock(name, token, until)  # type: ignore[no-any-return]
        raise TypeError(f"not a request to one store: {request!r}")
