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

import json
from typing import TYPE_CHECKING

from leaselock._backends.sql.keys import HOLDER, lock_number, lock_word, number, short_word
from leaselock._backends.sql.lock_row import micros
from leaselock._backends.sql.statements import SqlError
from leaselock._core.backend import (
    COMPATIBLE_MODES,
    Acquire,
    BreakLock,
    Broken,
    Busy,
    Claim,
    Grant,
    HoldRecord,
    HoldState,
    Inspect,
    LockState,
    matching,
)
from leaselock._core.effects import Sleep
from leaselock._core.records import CLIENTS, is_count, is_text
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leaselock._backends.sql.executor import Executor
    from leaselock._backends.sql.statements import Dialect, Part, Result, Row, Script, Value, Values

    # Executes a script on any other connection.
    Shared = Callable[[Script], Awaitable[list[Result]]]

# A waiting statement lasts this long at most, in seconds; then it is sent again.
MAX_SERVER_WAIT = 1.0
RECHECK_INTERVAL = 60.0
# How often `break_lock` looks whether the session has ended, in seconds.
BREAK_POLL = 0.01
# The mode of a row whose columns do not show whether its session lives; see the statement.
NO_SESSION = "of no session"


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
        # How many times it has the advisory lock: a wait that is granted and the try after it each
        # take it once, and the server counts them.
        self.times = 0
        self.token: int | None = None


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
            "liveness_key": self._liveness_key(claim.id),
            "name": claim.name,
            "id": claim.id,
            "client": claim.client,
            "metadata": claim.metadata,
            "since": micros(claim.since),
            "session": session.key,
            "backend": session.backend,
            "protocol": session.protocol,
            "mode": claim.mode,
        }

    def _liveness_key(self, claim_id: str) -> Value:
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
            session.token, session.waits = token, False
            return Grant(token, ())
        # The session is outside a transaction: no other connection is needed to look.
        values = self.values(session)
        holders: Part = ("holding sessions", values)
        if not request.wait:
            script: Script = (f"{session.protocol} release", holders)
        else:
            script = (holders,) if session.waits else (("record waiter", values), holders)
        results = await executor.execute(script)
        session.waits = request.wait
        holds = [_hold(row) for row in results[-1].rows]
        return Busy(holds[0] if holds else None, RECHECK_INTERVAL, (), holds=len(holds))

    async def _take(self, session: Session, executor: Executor, shared: Shared) -> int | None:
        values = self.values(session)
        if session.protocol == "row":
            if session.has_row:
                # A wait was granted, perhaps long ago; the session has been silent since.
                await self.ping(executor)
            else:
                session.has_row = await self.take_row(values, executor)
            return await self._count(session, values, shared) if session.has_row else None
        if session.recorded and not self.postgres:
            script: Script = (("advisory reacquire", values), ("advisory update session", values))
            taken, recorded = await executor.execute(script)
            if taken.amount and recorded.amount:
                return taken.number
        (result,) = await executor.execute((("advisory acquire", values),))
        row = result.one()
        session.times += row is not None
        session.recorded = session.recorded or row is not None
        return None if row is None else int(row[0])

    async def take_row(self, values: dict[str, Value], executor: Executor) -> bool:
        """Lock the row of the name, if it is free."""
        taking: Script = ("begin transaction", (_sided("row try", values), values))
        if (await executor.execute(taking))[-1].rows:
            return True
        results = await executor.execute((("row exists", values), "roll back"))
        if results[0].rows[0][0]:
            return False
        # A row that does not exist cannot be locked (hazard J17). It is created outside of any
        # transaction, and on the own connection, because this may have to wait for another one.
        try:
            await executor.execute((("create row", values),))
        except SqlError as error:
            if error.state not in self.dialect.contended | self.dialect.taken:
                raise
            return False
        if (await executor.execute(taking))[-1].rows:
            return True
        await executor.execute(("roll back",))
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

    async def wait(self, session: Session, timeout: float, executor: Executor) -> None:
        """Wait for the lock in the server, for a while; `acquire` reports the result."""
        if session.has_row or session.token is not None:
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
            session.times = 0
            return
        session.times += session.protocol == "advisory"
        session.has_row = session.protocol == "row" and bool(result.rows)
        if session.protocol == "row" and not session.has_row:
            await executor.execute(("roll back",))

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
        session.claim = session.claim._replace(mode="shared")
        if session.protocol == "advisory" and session.times:
            values = self.values(session)
            unlocks: list[Part] = [("advisory unlock", values)] * (session.times - 1)
            await executor.execute((("advisory weaken", values), *unlocks))
            session.times = 0

    async def ping(self, executor: Executor) -> None:
        """Prove that the session is alive, and show the server that the client is."""
        await executor.execute(("ping",))

    # --- looking --------------------------------------------------------------------------------

    async def inspect(
        self, protocol: str, request: Inspect, shared: Shared
    ) -> tuple[LockState, ...]:
        """Holders and waiters whose sessions are alive. Another program that holds a lock is found
        if the lock is named, or waited for.
        """
        rows = await self._sessions(protocol, request.name or "", shared)
        names = matching((row[0] for row in rows), request.pattern)
        states = []
        for name in names if request.name is None else [request.name]:
            of_name = [row for row in rows if row[0] == name]
            held = _holders(of_name) or await self._foreign_sessions(protocol, name, shared)
            states.append(_state(name, of_name, held))
        return tuple(states)

    async def _foreign_sessions(self, protocol: str, name: str, shared: Shared) -> list[Row]:
        """A session of another program that holds the lock, as a row without a token."""
        if protocol == "row" and not self.postgres:
            return []  # no one but an administrator may read who has locked a row
        key = lock_number(name) if self.postgres else lock_word(name)
        statement: Part = (f"{protocol} stranger", {"name": name, "key": key})
        (result,) = await shared((statement,))
        row = result.one()
        if row is None:
            return []
        backend, *who, since, mode = row
        described = ", ".join([*filter(None, who), f"connection {backend}"])
        metadata = {"host": f"another program ({described})", "pid": 0, "thread": "", "label": None}
        return [(name, f"connection {backend}", "", 0, backend, json.dumps(metadata), since, mode)]

    async def _sessions(self, protocol: str, name: str, shared: Shared) -> list[Row]:
        (result,) = await shared((("sessions", {"protocol": protocol, "name": name}),))
        return result.rows

    async def _held(self, protocol: str, name: str, shared: Shared) -> list[Row]:
        rows = _holders(await self._sessions(protocol, name, shared))
        return rows or await self._foreign_sessions(protocol, name, shared)

    async def break_lock(self, protocol: str, request: BreakLock, shared: Shared) -> Broken:
        """End the session of a holder; there is no other way to take its lock. The server ends it
        some time later.
        """
        rows = await self._held(protocol, request.name, shared)
        meant = next((row for row in rows if _hold(row).is_meant(request.token)), None)
        if meant is None:
            return Broken(_hold(rows[0]) if rows else None, False, ())
        held = _hold(meant)
        ending: Part = ("end stranger", {"backend": meant[4]})
        if held.client:
            values = {"backend": meant[4], "liveness_key": self._liveness_key(held.id)}
            ending = ("end session", values)
        await shared((ending,))
        while True:
            rows = await self._held(protocol, request.name, shared)
            if (held.id, held.token) not in [(row[1], row[3]) for row in rows]:
                return Broken(held, True, ())
            await Sleep(self.now() + BREAK_POLL)


def _sided(statement: str, values: Values) -> str:
    """The statement for a row by the mode of the claim."""
    return f"{statement} shared" if values["mode"] == "shared" else statement


def _holders(rows: list[Row]) -> list[Row]:
    """The rows of holders, in the order of their tokens."""
    held = [row for row in rows if row[3] is not None]
    return sorted(held, key=lambda row: int(row[3]))


def _hold(row: Row) -> HoldRecord:
    _, claim_id, client, token, _, metadata, since, mode = row
    seconds = since / 1e6
    return HoldRecord(claim_id, client, "client", token, 0.0, metadata, seconds, mode=mode)


def _state(name: str, rows: list[Row], held: list[Row]) -> LockState:
    damaged = [row for row in rows if not is_readable(row)]
    waiting = tuple(
        Claim(name, row[1], row[2], 0.0, row[5], row[6] / 1e6, mode=row[7])
        for row in rows
        if row[3] is None and row not in damaged
    )
    holds = tuple(HoldState(_hold(row), None) for row in held if row not in damaged)
    return LockState(name, holds, waiting, unreadable=_reason(damaged[0]) if damaged else "")


def is_readable(row: Row) -> bool:
    """Whether the row of a session has what it should have."""
    name, claim_id, client, token, _, metadata, since, mode = row
    texts = all(map(is_text, (name, claim_id, client, metadata)))
    return (
        texts
        and CLIENTS.fullmatch(client) is not None
        and claim_id.startswith(f"{client}:")
        and (token is None or is_count(token))
        and is_count(since)
        and mode in COMPATIBLE_MODES
    )


def _reason(row: Row) -> str:
    if row[7] == NO_SESSION:
        return (
            f"a row of {row[0]!r} in the table leaselock_session cannot be read: its liveness_key "
            f"is not that of its id {row[1]!r:.80}, or its backend {row[4]} not that of its "
            "session. It ends with its connection; `leaselock gc` removes the row after that"
        )
    return (
        f"a row of {row[0]!r} in the table leaselock_session cannot be read: its id is "
        f"{row[1]!r:.80}, its client {row[2]!r:.80}, its token {row[3]!r}, its start {row[6]!r}, "
        f"its mode {row[7]!r:.80}. "
        f"It ends with the connection {row[4]}"
    )
