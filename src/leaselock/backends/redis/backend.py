"""The `Backend` of one protocol on a Redis store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.backends.redis.doctor import examine
from leaselock.backends.redis.messages import PUBLIC_ERRORS
from leaselock.core.backend import (
    Acquire,
    BreakLock,
    Broken,
    Busy,
    Capabilities,
    Claim,
    Finding,
    Grant,
    Inspect,
    Lifetime,
    LifetimeSet,
    LockState,
    RaiseToken,
    Release,
    Released,
    ReleaseGrant,
    Renew,
    SetLifetime,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from leaselock.backends.redis.legacy_formats import LegacyLock
    from leaselock.backends.redis.scripted_lock import ScriptedLock
    from leaselock.backends.redis.store import RedisStore

# The server measures time to live by its wall clock: the drift covers a clock that is slewed, not
# one that jumps. Its granularity is a millisecond.
CAPABILITIES = Capabilities(clock_drift=0.001, clock_margin=0.005, life=False, inheritable=False)
# The legacy formats draw a token after the lock was taken, one for each grant.
WITH_TOKEN_RANGES = CAPABILITIES._replace(token_ranges=True)


class RedisBackend:
    """Locks of one protocol; errors that are private to this package do not leave it."""

    def __init__(
        self, store: RedisStore, locks: ScriptedLock | LegacyLock, capabilities: Capabilities
    ) -> None:
        self.store = store
        self.locks = locks
        self.capabilities = capabilities

    async def acquire(self, claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        """One try. A waiter listens before it enters the queue, so it misses no message (E1)."""
        with PUBLIC_ERRORS:
            return await self.locks.acquire(claim, wait, until)

    def await_wakeup(self, claim: Claim, until: float) -> Awaitable[object]:
        """Wait for a message, or until it is time to poll."""
        return self.locks.await_wakeup(claim, until)

    async def renew(self, claims: Sequence[Claim], until: float) -> Sequence[bool | None]:
        """Renew all in one request."""
        with PUBLIC_ERRORS:
            return await self.locks.renew(claims, until)

    async def release(self, claim: Claim, *, tombstone: bool, until: float) -> bool:
        """Release, or leave the queue."""
        with PUBLIC_ERRORS:
            return (await self.locks.release(claim, tombstone, until)).was == "held"

    async def set_lifetime(self, claim: Claim, tie: Lifetime, until: float) -> LifetimeSet:
        """Change what ends the hold."""
        with PUBLIC_ERRORS:
            return await self.locks.set_lifetime(claim, tie, until)

    async def inspect(self, name: str | None, pattern: str, until: float) -> Sequence[LockState]:
        """Holders and waiters."""
        with PUBLIC_ERRORS:
            return await self.locks.inspect(name, pattern, until)

    async def break_lock(self, name: str, token: int | None, until: float) -> Broken:
        """End the hold."""
        with PUBLIC_ERRORS:
            return await self.locks.break_lock(name, token, until)

    async def doctor(self, until: float) -> Sequence[Finding]:
        """Report how the servers are set up."""
        with PUBLIC_ERRORS:
            return await examine(self.store.executor, until)

    async def setup(self, dry: bool, until: float) -> Sequence[str]:
        """Nothing has to be created."""
        return ()

    async def collect_garbage(self, until: float) -> int:
        """Nothing is left behind: all keys but the token counters expire."""
        return 0

    def forget(self, claim: Claim) -> None:
        """The claim waits no more."""
        self.locks.forget(claim)

    def wake_all(self) -> None:
        """Wake all waiting claims: the client is closing."""
        self.locks.wake_all()

    def reset_identity(self) -> None:
        """After a fork: the store has let go of everything by itself."""
        self.locks.reset()

    async def carry_out(self, request: Any, until: float) -> Any:
        """Answer a request object: for a Redlock, which puts the same one to several stores."""
        with PUBLIC_ERRORS:
            return await self._answer(request, until)

    def _answer(self, request: Any, until: float) -> Awaitable[Grant | Busy | Released | Any]:
        locks: Any = self.locks
        match request:
            case Acquire(claim, wait):
                return locks.acquire(claim, wait, until)  # type: ignore[no-any-return]
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
