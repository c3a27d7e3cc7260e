"""The backend of the protocols "row" and "advisory".

Invariant 1: a hold is valid from one proof of its session's life to the next, and no longer than
the server lets a silent session last. The end of a connection is reported as soon as it is seen.
Invariant 2: no hold lasts longer than the lease of its claim (`SessionLeases`): the client closes
the connection of a hold whose lease is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from leaselock._backends.sql.session_locks import MAX_SERVER_WAIT
from leaselock._core.contract.backend import (
    Acquire,
    BreakLock,
    Broken,
    Busy,
    Capabilities,
    Claim,
    CollectGarbage,
    Converted,
    Doctor,
    Grant,
    Inspect,
    Lifetime,
    LifetimeSet,
    LockState,
    Mode,
    Setup,
)
from leaselock._core.contract.effects import Sleep
from leaselock._core.rows.session_leases import SessionLeases
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from leaselock._backends.sql.session_pool import SessionPool
    from leaselock._core.contract.effects import Request

R = TypeVar("R")
POLL = 0.05
# No server has an update lock that others can read beside, and MySQL's named locks are exclusive.
CAPABILITIES = Capabilities(
    clock_drift=0.0,
    clock_margin=0.002,
    detects_death=True,
    inheritable=False,
    fragile_holds=True,
    modes=frozenset({"exclusive", "shared"}),
)
NAMED_LOCKS = CAPABILITIES._replace(modes=frozenset({"exclusive"}))
ENDED = "the connection to the database that held it has ended"


class SessionBackend(SessionLeases):
    """Locks that last as long as a session of the server."""

    def __init__(
        self,
        protocol: str,
        sessions: SessionPool,
        send: Callable[[Request[Any], float], Awaitable[Any]],
    ) -> None:
        self.protocol = protocol
        self.client = ""
        self.sessions = sessions
        self.send = send
        target = sessions.pool.target
        # MySQL measures the time that a statement may wait for a row in whole seconds.
        self.coarse = protocol == "row" and target.dialect == "mysql"
        named = protocol == "advisory" and target.dialect == "mysql"
        capabilities = NAMED_LOCKS if named else CAPABILITIES
        super().__init__(capabilities._replace(session_timeout=target.session), sessions.now)

    def request(self, request: Request[R], until: float) -> Awaitable[R]:
        """Carry out what concerns sessions here; the maintenance is that of the database."""
        if isinstance(request, (Doctor, Setup, CollectGarbage)):
            return self.send(request, until)
        return super().request(request, until)

    async def acquire(self, claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        """One try."""
        reply = await self.sessions.acquire(self.protocol, Acquire(claim, wait), until)
        if isinstance(reply, Grant):
            self.begin_lease(claim)
        self.plan(claim, self.now() + self.sessions.idle_lasts)
        if not self.background.running:
            self.client = claim.client
            await self.background.start(self.end_leases, "session-watcher")
        return reply

    async def work(self) -> float:
        """Close idle connections."""
        return self.sessions.close_idle(self.client)

    async def await_events(self, until: float) -> None:
        """Report which connections have ended. This never waits for a server: a session that does
        not answer would delay these reports.
        """
        for claim_id in await self.sessions.disconnected(self.client, until):
            self.leases.pop(claim_id, None)
            self.lose(claim_id, ENDED)

    def end_wait(self, claim: Claim) -> None:
        """Let the background operation look at the connections again."""
        self.sessions.wake_watcher(claim.client)

    def end_hold(self, claim: Claim) -> None:
        """Close the connection of the hold."""
        self.sessions.end(claim)

    async def await_wakeup(self, claim: Claim, until: float) -> None:
        """Wait in the server for a while."""
        now = self.now()
        if self.coarse and until - now < MAX_SERVER_WAIT:
            await Sleep(min(until, now + POLL))
            return
        try:
            await self.sessions.wait(claim, min(until, self.now() + MAX_SERVER_WAIT))
        except OutcomeUnknown:
            # The connection has ended: the next request uses another one.
            return

    async def renew(self, claims: Sequence[Claim], until: float) -> Sequence[bool | None]:
        """Prove that each session is alive; None if there was no time to ask it."""
        answers = await self.sessions.renew(claims, until)
        return [self._renewed(*renewed) for renewed in zip(claims, answers, strict=True)]

    def _renewed(self, claim: Claim, alive: bool | None) -> bool | None:
        """Whether the claim still holds; it does not once its lease has ended."""
        if claim.id not in self.leases:
            return False
        if alive is False:
            self.lose(claim.id, ENDED)
        if not alive:
            return alive
        self.extend_lease(claim)
        return True

    async def release(self, claim: Claim, *, tombstone: bool, until: float) -> bool:
        """Release the lock, or end the wait."""
        reply = await self.sessions.release(claim, until)
        self.leases.pop(claim.id, None)
        self.plan(claim, self.now() + self.sessions.idle_lasts)
        return reply.was == "held"

    async def convert(self, claim: Claim, step: int, mode: Mode, until: float) -> Converted:
        """Let a writer become a reader: the only conversion between the modes there are."""
        return await self.sessions.convert(claim, mode, until)

    async def set_lifetime(self, claim: Claim, lifetime: Lifetime, until: float) -> LifetimeSet:
        """Refused: no hold outlives its session."""
        raise NotApplied(
            f"the hold on {claim.name!r} cannot be detached: by protocol {self.protocol!r} it "
            "ends with its connection; use protocol 'lease'"
        )

    async def inspect(self, name: str | None, pattern: str, until: float) -> Sequence[LockState]:
        """Holders and waiters."""
        return await self.sessions.inspect(self.protocol, Inspect(name, pattern), until)

    async def break_lock(self, name: str, token: int | str | None, until: float) -> Broken:
        """End the session of the holder."""
        return await self.sessions.break_lock(self.protocol, BreakLock(name, token), until)

    def forget(self, claim: Claim) -> None:
        """Nothing to do: a claim that stops waiting is released, too."""

    def wake(self, claim_ids: Iterable[str]) -> None:
        """End the waits of these claims in the server, which costs them their places."""
        self.sessions.wake(claim_ids)

    def wake_all(self) -> None:
        """The same for all claims."""
        self.wake(list(self.sessions.by_claim))

    def after_fork(self) -> None:
        """After a fork, or in a new loop: forget all holds."""
        self.reset_leases()
