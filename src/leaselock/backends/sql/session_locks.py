"""The protocols "row" and "advisory": the statements on the connection of a claim.

The server keeps these locks as long as the session lasts, so the death of a holder frees them at
once. Invariant: the lock of a session is released, or its connection is closed. A session that may
still own something is never used for another claim (hazards D7, J2, J3).

The token comes from a counter that is committed before the grant is reported. "advisory" counts on
the session itself, whose lock outlasts transactions. "row" is inside a transaction and counts on
another connection, which also checks that the session still holds the lock.
"""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from leaselock.backends.sql.keys import HOLDER, lock_number, lock_word, number, short_word
from leaselock.backends.sql.lock_row import micros
from leaselock.backends.sql.statements import SqlError
from leaselock.core.backend import (
    Acquire,
    BreakLock,
    Broken,
    Busy,
    Claim,
    Grant,
    HoldRecord,
    Inspect,
    LockState,
)
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leaselock.backends.sql.executor import Executor
    from leaselock.backends.sql.statements import Dialect, Part, Result, Row, Script, Value

    # Executes a script on any other connection.
    Shared = Callable[[Script], Awaitable[list[Result]]]

# A waiting statement lasts this long at most, in seconds; then it is sent again.
SLICE = 1.0
RECHECK_INTERVAL = 60.0


class Session:
    """What the session of one connection owns, and for which claim."""

    def __init__(self, key: str, backend: int) -> None:
        self.key = key
        self.backend = backend
        # The session has a row in the table of sessions.
        self.recorded = False
        self.clear()

    def clear(self) -> None:
        """The session owns nothing and serves no claim."""
        self.protocol = ""
        self.claim: Claim | None = None
        self.waits = False
        self.has_row = False
        self.token: int | None = None


class SessionLocks:
    """The conversations of one client with a database of one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.postgres = dialect.name == "postgres"

    def values(self, session: Session) -> dict[str, Value]:
        """The parameters of the statements about a session."""
        claim = session.claim
        assert claim is not None
        liveness_key = number if self.postgres else short_word
        key = lock_number if self.postgres else lock_word
        return {
            "key": key(claim.name),
            "liveness_key": liveness_key(HOLDER, claim.id),
            "name": claim.name,
            "id": claim.id,
            "client": claim.client,
            "metadata": claim.metadata,
            "since": micros(claim.since),
            "session": session.key,
            "backend": session.backend,
            "protocol": session.protocol,
        }

    async def prepare(self, timeout: float, own: Executor) -> set[str]:
        """Set up a session of this kind. Returns the settings that the server knows."""
        value: Value = str(round(timeout * 1000)) if self.postgres else max(1, round(timeout))
        (result,) = await own.execute((("session settings", {"silence": value}),))
        return {str(row[1]) for row in result.rows}

    # --- acquiring ------------------------------------------------------------------------------

    async def acquire(
        self, session: Session, request: Acquire, own: Executor, shared: Shared
    ) -> Grant | Busy:
        """One try, without waiting. With `wait`, a claim that is not granted becomes a waiter."""
        if session.token is not None:
            # Repeated: validity counts from this request, and the session has been silent since.
            await self.ping(own)
            return Grant(session.token, ())
        token = await self._take(session, own, shared)
        if token is not None:
            session.token, session.waits = token, False
            return Grant(token, ())
        # The session is outside a transaction: no other connection is needed to look.
        values = self.values(session)
        holder: Part = ("holding session", values)
        if not request.wait:
            script: Script = (f"{session.protocol} release", holder)
        else:
            script = (holder,) if session.waits else (("record waiter", values), holder)
        results = await own.execute(script)
        session.waits = request.wait
        row = results[-1].one()
        return Busy(None if row is None else _hold(row), RECHECK_INTERVAL, ())

    async def _take(self, session: Session, own: Executor, shared: Shared) -> int | None:
        values = self.values(session)
        if session.protocol == "row":
            if session.has_row:
                # A wait was granted, perhaps long ago; the session has been silent since.
                await self.ping(own)
            else:
                session.has_row = await self.take_row(values, own)
            return await self._count(session, values, shared) if session.has_row else None
        if session.recorded and not self.postgres:
            script: Script = (("advisory reacquire", values), ("advisory update session", values))
            taken, recorded = await own.execute(script)
            if taken.amount and recorded.amount:
                return taken.number
        (result,) = await own.execute((("advisory acquire", values),))
        row = result.one()
        session.recorded = session.recorded or row is not None
        return None if row is None else int(row[0])

    async def take_row(self, values: dict[str, Value], own: Executor) -> bool:
        """Lock the row of the name, if it is free."""
        taking: Script = ("begin transaction", ("row try", values))
        if (await own.execute(taking))[-1].rows:
            return True
        results = await own.execute((("row exists", values), "roll back"))
        if results[0].rows[0][0]:
            return False
        # A row that does not exist cannot be locked (hazard J17). It is created outside of any
        # transaction, and on the own connection, because this may have to wait for another one.
        try:
            await own.execute((("create row", values),))
        except SqlError as error:
            if error.state not in self.dialect.contended | self.dialect.taken:
                raise
            return False
        if (await own.execute(taking))[-1].rows:
            return True
        await own.execute(("roll back",))
        return False

    async def _count(
        self, session: Session, values: dict[str, Value], shared: Shared
    ) -> int | None:
        if session.recorded and not self.postgres:
            counted, recorded = await shared(
                (("row new token", values), ("row update session", values))
            )
            if counted.amount and recorded.amount:
                return counted.number
        script: Script = ("begin transaction", ("row token", values), "commit transaction")
        token, alive = (await shared(script))[1].rows[0]
        if not alive:
            raise OutcomeUnknown(
                f"the session that locked {values['name']!r} was ended by the server"
            )
        session.recorded = True
        return int(token)

    async def wait(self, session: Session, timeout: float, own: Executor) -> None:
        """Wait for the lock in the server, for a while; `acquire` reports the result."""
        if session.has_row or session.token is not None:
            return
        values = {**self.values(session), "timeout": max(1, round(timeout * 1000))}
        try:
            (result,) = await own.execute(((f"{session.protocol} wait", values),))
        except SqlError as error:
            if error.state not in self.dialect.taken | self.dialect.contended:
                raise
            # The time may have been up just when the lock was granted (hazard J2).
            release: Script = ("advisory release",) if session.protocol == "advisory" else ()
            await own.execute(("roll back", *release, ("mark alive", values)))
            return
        session.has_row = session.protocol == "row" and bool(result.rows)
        if session.protocol == "row" and not session.has_row:
            await own.execute(("roll back",))

    # --- releasing ------------------------------------------------------------------------------

    async def release(self, session: Session, own: Executor) -> None:
        """Release everything that the session may own."""
        await own.execute((f"{session.protocol} release",))

    async def ping(self, own: Executor) -> None:
        """Prove that the session is alive, and show the server that the client is."""
        await own.execute(("ping",))

    # --- looking --------------------------------------------------------------------------------

    async def inspect(
        self, protocol: str, request: Inspect, shared: Shared
    ) -> tuple[LockState, ...]:
        """Holders and waiters whose sessions are alive."""
        rows = await self._sessions(protocol, request.name or "", shared)
        if request.name is not None:
            return (_state(request.name, rows),)
        names = sorted({row[0] for row in rows if fnmatch.fnmatchcase(row[0], request.pattern)})
        return tuple(_state(name, [row for row in rows if row[0] == name]) for name in names)

    async def _sessions(self, protocol: str, name: str, shared: Shared) -> list[Row]:
        (result,) = await shared((("sessions", {"protocol": protocol, "name": name}),))
        return result.rows

    async def break_lock(self, protocol: str, request: BreakLock, shared: Shared) -> Broken:
        """End the session of the holder; there is no other way to take its lock."""
        rows = await self._sessions(protocol, request.name, shared)
        row = _holder(rows)
        held = None if row is None else _hold(row)
        if row is None or held is None or request.token not in (None, held.token):
            return Broken(held, False, ())
        await shared((("end session", {"backend": row[4]}),))
        while (row := _holder(await self._sessions(protocol, request.name, shared))) is not None:
            if _hold(row) != held:
                break
            await shared(("ping",))
        return Broken(held, True, ())


def _holder(rows: list[Row]) -> Row | None:
    return next((row for row in rows if row[3] is not None), None)


def _hold(row: Row) -> HoldRecord:
    _, claim_id, client, token, _, metadata, since = row
    return HoldRecord(claim_id, client, "client", token, 0.0, metadata, since / 1e6)


def _state(name: str, rows: list[Row]) -> LockState:
    row = _holder(rows)
    waiting = tuple(
        Claim(name, row[1], row[2], 0.0, row[5], row[6] / 1e6) for row in rows if row[3] is None
    )
    return LockState.exclusive(name, None if row is None else _hold(row), None, waiting)
