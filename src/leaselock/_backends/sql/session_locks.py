"""The protocols "row" and "advisory": the statements on the connection of a claim.

The server keeps these locks as long as the session lasts, so the death of a holder frees them at
once. Invariant: the lock of a session is released, or its connection is closed. A session that may
still own something is never used for another claim (hazards D7, J2, J3).

A read/write lock is the same lock, taken as shared or exclusive, so `lock(n)` is its write side. By
"advisory" a writer can become a reader. By "row" it cannot, and its row stays locked for all others
until its last lease is released: no database has a weaker lock of a row instead of a stronger one.

The token comes from a counter that is committed before the grant is reported. "advisory" counts on
the session itself, whose lock outlasts transactions. "row" is inside a transaction and counts on
another connection, which also checks that the session still holds the lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.sql.keys import HOLDER, lock_number, lock_word, number, short_word
from leaselock._backends.sql.records import micros
from leaselock._backends.sql.session_records import SessionRow
from leaselock._backends.sql.session_state import State
from leaselock._backends.sql.statements import SqlError
from leaselock._core.contract.backend import Busy, Grant
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leaselock._backends.sql.executor import Executor
    from leaselock._backends.sql.session_state import Session
    from leaselock._backends.sql.statements import Dialect, Part, Result, Script, Value, Values
    from leaselock._core.contract.backend import Acquire

    # Executes a script on any other connection.
    Shared = Callable[[Script], Awaitable[list[Result]]]

# A waiting statement lasts this long at most, in seconds; then it is sent again.
MAX_SERVER_WAIT = 1.0
# When a waiter asks again that the server has not told.
BUSY_RECHECK = 60.0


class SessionLocks:
    """The operations of one client on a database of one dialect."""

    def __init__(self, dialect: Dialect, now: Callable[[], float]) -> None:
        self.dialect = dialect
        self.now = now
        self.postgres = dialect.name == "postgres"

    def values(self, session: Session) -> dict[str, Value]:
        """The parameters of the statements about a session."""
        claim = session.claim
        assert claim is not None
        key = lock_number if self.postgres else lock_word
        return {
            "key": key(claim.name),
            "liveness_key": self.liveness_key(claim.id),
            "name": claim.name,
            "id": claim.id,
            "client": claim.client,
            "metadata": claim.metadata,
            "since": micros(claim.since),
            "session": session.key,
            "backend": session.backend,
            "protocol": session.protocol,
            "mode": claim.mode,
            "locked": int(session.state is State.LOCKED),
        }

    def liveness_key(self, claim_id: str) -> Value:
        """The key of the lock that shows that the session of the claim is alive."""
        return number(HOLDER, claim_id) if self.postgres else short_word(HOLDER, claim_id)

    async def prepare(self, timeout: float, executor: Executor) -> set[str]:
        """Set up a session of this kind. Returns the settings that the server knows."""
        value: Value = str(round(timeout * 1000)) if self.postgres else max(1, round(timeout))
        (result,) = await executor.execute((("session settings", {"silence": value}),))
        return {str(row[1]) for row in result.rows}

    # --- acquiring ------------------------------------------------------------------------------

    async def acquire(
        self, session: Session, request: Acquire, executor: Executor, shared: Shared
    ) -> Grant | Busy:
        """One try, without waiting. With `wait`, a claim that is not granted becomes a waiter."""
        if session.token is not None:
            # Repeated: validity counts from this request, and the session has been silent since.
            await self.ping(executor)
            return Grant(session.token, ())
        token = await self._take(session, executor, shared)
        if token is not None:
            session.hold(token)
            return Grant(token, ())
        # The session is outside a transaction: no other connection is needed to look.
        values = self.values(session)
        holders: Part = ("holding sessions", values)
        if not request.wait:
            script: Script = (f"{session.protocol} release", holders)
        elif session.state is State.TRYING:
            script = (("record waiter", values), holders)
        else:
            script = (holders,)
        *_, found = await executor.execute(script)
        if request.wait:
            session.queue()
        holds = [SessionRow(*row).hold() for row in found.rows]
        return Busy(holds[0] if holds else None, BUSY_RECHECK, (), holds=len(holds))

    async def _take(self, session: Session, executor: Executor, shared: Shared) -> int | None:
        values = self.values(session)
        if session.protocol == "row":
            if session.state is State.LOCKED:
                # A wait was granted, perhaps long ago; the session has been silent since.
                await self.ping(executor)
            elif await self.take_row(values, executor):
                session.lock()
            else:
                return None
            return await self._count(session, values, shared)
        if session.recorded and not self.postgres:
            script: Script = (("advisory reacquire", values), ("advisory update session", values))
            taken, recorded = await executor.execute(script)
            if taken.amount and recorded.amount:
                return taken.number
            # One of the two rows is not there. The session may have the lock already: to take it
            # again counts it twice, and a release ends all.
        (result,) = await executor.execute((("advisory acquire", values),))
        for (token,) in result.rows:
            session.recorded = True
            return int(token)
        return None

    async def take_row(self, values: dict[str, Value], executor: Executor) -> bool:
        """Lock the row of the name, if it is free."""
        taking: Script = ("begin transaction", (_sided("row try", values), values))
        _, tried = await executor.execute(taking)
        if tried.rows:
            return True
        exists, _ = await executor.execute((("row exists", values), "roll back"))
        ((amount,),) = exists.rows
        if amount:
            return False
        # A row that does not exist cannot be locked (hazard J17). It is created outside of any
        # transaction, and on the own connection, because this may have to wait for another one.
        try:
            await executor.execute((("create row", values),))
        except SqlError as error:
            if error.state not in self.dialect.contended | self.dialect.taken:
                raise
            return False
        _, tried = await executor.execute(taking)
        if tried.rows:
            return True
        await executor.execute(("roll back",))
        return False

    async def _count(self, session: Session, values: dict[str, Value], shared: Shared) -> int:
        if session.recorded and not self.postgres:
            counted, recorded = await shared(
                (("row new token", values), ("row update session", values))
            )
            if counted.amount and recorded.amount:
                return counted.number
        script: Script = ("begin transaction", ("row token", values), "commit transaction")
        _, counted, _ = await shared(script)
        ((token, alive),) = counted.rows
        if not alive:
            raise OutcomeUnknown(
                f"the session that locked {values['name']!r} was ended by the server"
            )
        session.recorded = True
        return int(token)

    async def wait(self, session: Session, timeout: float, executor: Executor) -> None:
        """Wait for the lock in the server, for a while; `acquire` reports the result."""
        if session.state is not State.WAITING:
            return
        values = {**self.values(session), "timeout": max(1, round(timeout * 1000))}
        try:
            statement = f"{session.protocol} wait"
            if session.protocol == "row":
                statement = _sided(statement, values)
            (result,) = await executor.execute(((statement, values),))
        except SqlError as error:
            if error.state not in self.dialect.taken | self.dialect.contended:
                raise
            # The time may have been up just when the lock was granted (hazard J2).
            release: Script = ("advisory release",) if session.protocol == "advisory" else ()
            await executor.execute(("roll back", *release, ("mark alive", values)))
            return
        if session.protocol == "row":
            granted = bool(result.rows)
            if not granted:
                await executor.execute(("roll back",))
        else:
            # When the time is up, GET_LOCK of MySQL returns 0; in PostgreSQL that is an error.
            granted = self.postgres or result.rows[0][0] == 1
        if granted:
            session.lock()

    # --- releasing ------------------------------------------------------------------------------

    async def release(self, session: Session, executor: Executor) -> None:
        """Release everything that the session may own."""
        await executor.execute((f"{session.protocol} release",))

    async def end(self, session: Session, shared: Shared) -> None:
        """End a session whose connection is closed, and which may wait. PostgreSQL looks for that
        itself; MySQL notices it at the end of the statement.
        """
        if not self.postgres:
            await shared((("end session", self.values(session)),))

    async def weaken(self, session: Session, executor: Executor) -> None:
        """Let a writer become a reader, where the server can do that."""
        assert session.claim is not None
        was, session.claim = session.claim.mode, session.claim._replace(mode="shared")
        if session.protocol == "advisory" and was == "exclusive":
            await executor.execute((("advisory weaken", self.values(session)),))

    async def ping(self, executor: Executor) -> None:
        """Prove that the session is alive, and show the server that the client is."""
        await executor.execute(("ping",))


def _sided(statement: str, values: Values) -> str:
    """The statement for a row by the mode of the claim."""
    return f"{statement} shared" if values["mode"] == "shared" else statement
