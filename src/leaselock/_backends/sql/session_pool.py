"""The connections of the protocols "row" and "advisory": one for each claim.

Invariant: a connection is kept for another claim only if it is idle and owns nothing; otherwise it
is closed. A cancelled request closes the connection of its claim, which also ends a wait in the
server.

| a connection leaves its claim | when | then it is |
|---|---|---|
| `_put_back` | it owns nothing | idle |
| `_give_up` | a request has failed | lost and still open if it may hold, else as after `_drop` |
| `_drop` | it must not be used again | closed, and remembered until a release has seen its end |
| `end` | its lease is over: no release follows | closed, and not remembered |

`disconnected` and `wake` note that a connection has ended, or cut it: it stays with its claim until
the next request of that.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from leaselock._backends.sql import session_views
from leaselock._backends.sql.connection import Receive, Send
from leaselock._backends.sql.disconnect_watcher import AwaitDisconnect
from leaselock._backends.sql.pool import once
from leaselock._backends.sql.session_connection import SessionConnection
from leaselock._backends.sql.session_locks import SessionLocks
from leaselock._backends.sql.session_state import Session, State
from leaselock._backends.sql.statements import SqlError
from leaselock._core.client.hold import CLIENT_CLOSED
from leaselock._core.contract.backend import Busy, Converted, HoldRecord, Inspect, Released
from leaselock._core.contract.effects import FOREVER, Call, Signal, Sleep
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from leaselock._backends.sql.executor import Executor
    from leaselock._backends.sql.pool import Pool
    from leaselock._core.client.concurrency_limit import Slot
    from leaselock._core.contract.backend import (
        Acquire,
        BreakLock,
        Broken,
        Claim,
        Grant,
        LockState,
        Mode,
    )

T = TypeVar("T")
# How long a connection is kept for another claim, in seconds; at most half of the time after which
# the server ends an idle session.
IDLE_LASTS = 10.0
# How many claims are remembered whose connections were closed before their release.
MOST_DROPPED = 1000
# How much later than its wait a waiting statement may be answered, in seconds.
GRACE = 1.0
# Between two looks at a session that ends.
FIRST_PAUSE, LONGEST_PAUSE = 0.002, 0.1
TOO_OLD = "protocol advisory needs PostgreSQL 14 or newer: use protocol lease or row"
ABSENT = Released("absent", ())


class SessionPool:
    """Which connection belongs to which claim, and which are idle."""

    def __init__(
        self, pool: Pool, make_watcher: Callable[[], Any], now: Callable[[], float]
    ) -> None:
        self.pool = pool
        self.make_watcher = make_watcher
        self.now = now
        self.locks = SessionLocks(pool.dialect, now)
        self.idle_lasts = min(IDLE_LASTS, pool.target.session / 2)
        self.serials = count()
        self.reset()

    def reset(self) -> None:
        """Begin without connections."""
        self.by_claim: dict[str, SessionConnection] = {}
        self.idle: dict[str, list[SessionConnection]] = {}
        self.watchers: dict[str, Any] = {}
        self.ended = Signal()
        # The sessions of the claims whose connections were closed before their release: the server
        # may not know of that yet. `_drop` puts one in. It is taken out when the claim asks again,
        # when the server has it no more, and where no release follows.
        self.dropped: dict[str, Session] = {}

    # --- requests -------------------------------------------------------------------------------

    async def acquire(self, protocol: str, request: Acquire, until: float) -> Grant | Busy:
        """One try; with `wait`, a claim that is not granted keeps its connection."""
        claim = request.claim
        owned = self.by_claim.get(claim.id)
        if owned is not None and owned.session.is_over():
            self._drop(claim, owned)
            owned = None
        fresh = owned is None and claim.id not in self.dropped
        if owned is None:
            owned = await self._connect(claim, until)
            owned.session.serve(claim, protocol)
            self.by_claim[claim.id] = owned
            self.dropped.pop(claim.id, None)
        connection = owned

        async def acquire(executor: Executor) -> Grant | Busy:
            self._check_server(protocol, connection.settings)
            return await self.locks.acquire(
                connection.session, request, executor, self._shared(until)
            )

        try:
            reply = await self._converse(claim, connection, acquire, until)
        except NotApplied:
            if fresh:
                self.dropped.pop(claim.id, None)  # the server has never known the claim
            raise
        if connection.session.state is State.LOST:
            raise OutcomeUnknown(f"the connection that locked {claim.name!r} has ended meanwhile")
        if isinstance(reply, Busy) and not request.wait:
            self._put_back(claim)
        return reply

    async def wait(self, claim: Claim, until: float) -> None:
        """Wait for the lock in the server."""
        connection = self.by_claim.get(claim.id)
        if connection is not None:
            session, timeout = connection.session, max(0.0, until - self.now())
            await self._converse(
                claim,
                connection,
                lambda executor: self.locks.wait(session, timeout, executor),
                until + GRACE,
            )

    async def release(self, claim: Claim, until: float) -> Released:
        """Release the lock, or stop waiting."""
        connection = self.by_claim.get(claim.id)
        if connection is None:
            await self._end_of_dropped(claim, until)
            return ABSENT
        session, held = connection.session, connection.session.has_lease()
        try:
            await self._converse(
                claim, connection, lambda executor: self.locks.release(session, executor), until
            )
        except StoreError:
            # A closed connection holds nothing; but it is not known for how long it held.
            self._drop(claim, connection)
            self.dropped.pop(claim.id, None)  # it is not released again
            return ABSENT
        except BaseException:
            self._drop(claim, connection)
            raise
        self._put_back(claim)
        return Released("held" if held else "waiting", ())

    def end(self, claim: Claim) -> None:
        """Close the connection of a claim. The server need not answer, and releases the lock."""
        connection = self.by_claim.get(claim.id)
        if connection is not None:
            self._drop(claim, connection)
            self.dropped.pop(claim.id, None)  # it is not released again

    async def _end_of_dropped(self, claim: Claim, until: float) -> None:
        """Wait until the server has ended the session of a claim whose connection was closed."""
        pause = FIRST_PAUSE
        while (session := self.dropped.get(claim.id)) is not None:
            (state,) = await self.inspect(session.protocol, Inspect(claim.name, "*"), until)
            known = {hold.record.id for hold in state.holds} | {one.id for one in state.waiting}
            if claim.id not in known:
                self.dropped.pop(claim.id, None)
            elif self.now() >= until:
                raise OutcomeUnknown(f"the server has not ended the session of {claim.name!r} yet")
            else:
                if pause == FIRST_PAUSE:
                    with suppress(NotApplied):  # it may have ended meanwhile
                        await self.locks.end(session, self._shared(until))
                await Sleep(min(until, self.now() + pause))
                pause = min(2 * pause, LONGEST_PAUSE)

    async def convert(self, claim: Claim, mode: Mode, until: float) -> Converted:
        """Let a writer become a reader. Repeated, it changes nothing."""
        connection = self.by_claim.get(claim.id)
        if connection is None or not connection.session.has_lease():
            return Converted(None, 0.0, ())
        session = connection.session
        await self._converse(
            claim, connection, lambda executor: self.locks.weaken(session, executor), until
        )
        token, since = session.token or 0, claim.since
        held = HoldRecord(claim.id, claim.client, "client", token, 0.0, claim.metadata, since)
        return Converted(held._replace(mode=mode), 0.0, ())

    async def renew(self, claims: Sequence[Claim], until: float) -> tuple[bool | None, ...]:
        """Prove that the session of each claim is alive; None if there was no time to ask it.

        All statements are sent before the first answer is awaited, so one session that does not
        answer does not delay the others.
        """
        answers: dict[str, bool | None] = {}
        pinged: list[tuple[Claim, SessionConnection, Slot]] = []
        try:
            # Sessions with another request in progress come last.
            for claim in sorted(claims, key=self._is_busy):
                answers[claim.id] = await self._send_ping(claim, pinged, until)
            while pinged:
                claim, connection, slot = pinged[-1]
                answers[claim.id] = await self._received(claim, connection, Receive(), until)
                pinged.pop()
                connection.limit.leave(slot)
        finally:
            for claim, connection, slot in pinged:
                self._drop(claim, connection)
                connection.limit.leave(slot)
        return tuple(answers[claim.id] for claim in claims)

    def _is_busy(self, claim: Claim) -> bool:
        connection = self.by_claim.get(claim.id)
        return connection is not None and bool(connection.limit.slots)

    async def _send_ping(
        self, claim: Claim, pinged: list[tuple[Claim, SessionConnection, Slot]], until: float
    ) -> bool | None:
        connection = self.by_claim.get(claim.id)
        if connection is None or connection.session.is_over():
            return False
        if self.now() >= until:
            return None
        slot = connection.limit.enter_now() or await connection.limit.enter(until)
        if slot is None:
            return None
        pinged.append((claim, connection, slot))
        text, _ = self.pool.dialect.text(("ping",), None)
        return await self._received(claim, connection, Send(text), until)

    async def _received(
        self, claim: Claim, connection: SessionConnection, request: Send | Receive, until: float
    ) -> bool:
        if self.by_claim.get(claim.id) is not connection:
            return False
        try:
            await Call(connection.connection, request, until)
        except (OutcomeUnknown, SqlError):
            self._give_up(claim, connection)
        return self.by_claim.get(claim.id) is connection and not connection.session.is_over()

    async def inspect(self, protocol: str, request: Inspect, until: float) -> tuple[LockState, ...]:
        """Holders and waiters."""
        return await session_views.inspect(self.locks, protocol, request, self._shared(until))

    async def break_lock(self, protocol: str, request: BreakLock, until: float) -> Broken:
        """End the session of the holder."""
        return await session_views.break_lock(self.locks, protocol, request, self._shared(until))

    def _shared(self, until: float) -> Callable[[Any], Awaitable[Any]]:
        """Executes scripts on any connection of the pool."""
        return lambda script: self.pool.run(once(script), until)

    # --- connections ----------------------------------------------------------------------------

    async def _converse(
        self,
        claim: Claim,
        connection: SessionConnection,
        work: Callable[[Executor], Awaitable[T]],
        until: float,
    ) -> T:
        """Run an operation on the connection of a claim; if it fails, give the connection up."""
        slot = connection.limit.enter_now() or await connection.limit.enter(until)
        if slot is None:
            raise NotApplied(f"another request for the claim to {claim.name!r} was in progress")
        try:
            self._check_owner(claim, connection)
            answer = await self.pool.converse(connection.connection, work, until)
            self._check_owner(claim, connection)
        except BaseException:
            self._give_up(claim, connection)
            raise
        finally:
            connection.limit.leave(slot)
        return answer

    def _check_owner(self, claim: Claim, connection: SessionConnection) -> None:
        if self.by_claim.get(claim.id) is not connection:
            raise OutcomeUnknown(f"the claim to {claim.name!r} was released meanwhile")

    def _check_server(self, protocol: str, settings: set[str]) -> None:
        """NotApplied if the server, or the way to it, cannot keep the promises of a session."""
        server = self.pool.server
        if not server.direct:
            raise NotApplied(
                f"a proxy is between the client and {server.target.shown}, and protocol "
                f"{protocol!r} needs a session of its own: use protocol 'lease', connect to the "
                "server itself, or say ?proxy=session if the proxy pools whole sessions",
                "misconfigured",
            )
        new_enough = "idle_session_timeout" in settings or not self.locks.postgres
        if protocol == "advisory" and not new_enough:
            raise NotApplied(TOO_OLD, "misconfigured")

    async def _connect(self, claim: Claim, until: float) -> SessionConnection:
        """An idle connection of the claim's client, or a new one."""
        idle = self.idle.get(claim.client, [])
        while idle:
            connection = idle.pop()
            if not connection.session.is_over() and connection.connection.fresh():
                return connection
            self._close(claim.client, connection)
        opened = await self.pool.connect(until)
        # The number of the connection shows whether the column "backend" is damaged.
        key = f"{claim.client}:{next(self.serials)}:{opened.backend}"
        connection = SessionConnection(opened, Session(key, opened.backend))
        try:
            connection.settings = await self.pool.converse(
                opened,
                lambda executor: self.locks.prepare(self.pool.target.session, executor),
                until,
            )
        except BaseException:
            self.pool.discard(opened)
            raise
        self._watcher(claim.client).add(connection)
        return connection

    def _put_back(self, claim: Claim) -> None:
        """The claim is over, and its session owns nothing."""
        connection = self.by_claim.pop(claim.id, None)
        if connection is None:
            return
        if connection.session.is_over() or not connection.connection.usable:
            self._close(claim.client, connection)
        else:
            connection.session.clear()
            connection.kept_until = self.now() + self.idle_lasts
            self.idle.setdefault(claim.client, []).append(connection)

    def close_idle(self, client: str) -> float:
        """Close the connections that no claim has used for a while, and those that have ended.
        Return the time of the next one.
        """
        now, kept, planned = self.now(), [], FOREVER
        for connection in self.idle.pop(client, []):
            if connection.session.is_over() or connection.kept_until <= now:
                self._close(client, connection)
            else:
                kept.append(connection)
                planned = min(planned, connection.kept_until)
        if kept:
            self.idle[client] = kept
        return planned

    def _give_up(self, claim: Claim, connection: SessionConnection) -> None:
        """Use a connection no more on which a request has failed. If it holds a lock, it stays open
        until the claim is released, or its lease ends: closed now, it would free the lock before
        its holder knows of the loss.
        """
        if self.by_claim.get(claim.id) is connection:
            connection.session.give_up()
            if connection.session.state is State.ENDED:
                self._drop(claim, connection)

    def _drop(self, claim: Claim, connection: SessionConnection) -> None:
        """The claim is over, whatever its session owns."""
        if self.by_claim.get(claim.id) is connection:
            del self.by_claim[claim.id]
            self.dropped[claim.id] = connection.session
            if len(self.dropped) > MOST_DROPPED:
                # Its release was given up long ago.
                del self.dropped[next(iter(self.dropped))]
            self._close(claim.client, connection)

    def _close(self, client: str, connection: SessionConnection) -> None:
        """Close a connection, which releases what its session owns."""
        connection.session.transition("end")
        self._watcher(client).remove(connection)
        self.pool.discard(connection.connection)

    # --- the end of connections -----------------------------------------------------------------

    def _watcher(self, client: str) -> Any:
        if client not in self.watchers:
            self.watchers[client] = self.make_watcher()
        return self.watchers[client]

    async def disconnected(self, client: str, until: float) -> tuple[str, ...]:
        """Wait for sessions of the client to end; the claims that held by them."""
        ended = self.ended
        sessions: list[SessionConnection] = []
        if not ended.is_set:
            sessions = await Call(self._watcher(client), AwaitDisconnect(), until)
        if ended.is_set:
            raise NotApplied(CLIENT_CLOSED)
        claims = []
        for connection in sessions:
            connection.session.give_up()
            if connection.session.has_lease() and connection.session.claim is not None:
                claims.append(connection.session.claim.id)
        return tuple(claims)

    def wake_watcher(self, client: str) -> None:
        """Let `disconnected` return."""
        self._watcher(client).wake()

    def wake(self, claim_ids: Iterable[str]) -> None:
        """End the waits of these claims. Their connections are cut, so they lose their places."""
        for claim_id in claim_ids:
            connection = self.by_claim.get(claim_id)
            if connection is not None and not connection.session.has_lease():
                connection.session.give_up()
                connection.connection.cut()

    def end_waits(self) -> None:
        """End every wait, and every wait to come until `close`."""
        self.ended.set()
        for watcher in self.watchers.values():
            watcher.wake()
        self.wake(list(self.by_claim))

    def close(self) -> None:
        """Forget all sessions; the pool closes their connections."""
        watchers = self.watchers
        self.reset()
        for watcher in watchers.values():
            watcher.close()

    def after_fork(self) -> None:
        """In a forked child: forget all sessions; the pool lets go of their connections."""
        watchers = self.watchers
        self.reset()
        for watcher in watchers.values():
            watcher.after_fork()
