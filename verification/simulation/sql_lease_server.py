"""A model of PostgreSQL for the statements of protocol "lease": transactions and row locks.

Between two scripts of a transaction its client may freeze or be cut off, with its row locked, until
the server ends the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verification.models.sql_tables import Tables, names_of

from leaselock._backends.sql.statements import Result, SqlError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._backends.sql.statements import Part, Script

# The timeout of an idle transaction, and of a wait for a locked row in transactions of each kind.
IDLE_TIMEOUT = 1.0
LOCK_TIMEOUTS = {"begin": 3.0, "begin renewal": 0.1}
LOCK_TIMEOUT = SqlError("55P03", "canceling statement due to lock timeout")
ANSWERS: dict[str, list[Any]] = {"fact": [("1",)], "session defaults": []}


class LeaseSession:
    """One session in the server."""

    def __init__(
        self, number: int, ended: Callable[[], None], notify: Callable[[str], None]
    ) -> None:
        self.number = number
        self.ended = ended
        self.notify = notify
        self.alive = True
        self.turn = 0
        self.locked: tuple[str, ...] = ()
        self.saved: Any = None
        self.keys: set[object] = set()
        self.channels: set[str] = set()

    @property
    def in_transaction(self) -> bool:
        """Return whether the session has locked rows."""
        return bool(self.locked)


class LeaseServer:
    """The sessions and the tables."""

    def __init__(
        self,
        now: Callable[[], float],
        micros: Callable[[], int],
        after: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self.now = now
        self.after = after
        self.tables = Tables(micros, lambda key: any(key in s.keys for s in self.sessions))
        self.sessions: dict[LeaseSession, None] = {}
        self.begun = 0
        # The session that has locked each row, and the waiting scripts with their deadlines.
        self.owners: dict[str, LeaseSession] = {}
        self.queue: list[Any] = []

    def begin(self, ended: Callable[[], None], notify: Callable[[str], None]) -> LeaseSession:
        """Begin a session."""
        self.begun += 1
        session = LeaseSession(self.begun, ended, notify)
        self.sessions[session] = None
        return session

    def execute(
        self, session: LeaseSession, script: Script | str, answer: Callable[[object], None]
    ) -> None:
        """Wait for the rows, execute, answer."""
        if not session.alive:
            return
        session.turn += 1
        if isinstance(script, str):
            session.channels.add(script.removeprefix("LISTEN ").strip('"'))
            answer([Result([], 0)])
            return
        inside = session.in_transaction
        wanted = () if inside else names_of(script)
        if all(_title(part) == "renew" for part in script):
            answer([self._renew(session, part) for part in script])
            return
        if any(name in self.owners for name in wanted):
            timeout = LOCK_TIMEOUTS.get(_title(script[0]), float("inf"))
            self.queue.append((session, script, wanted, self.now() + timeout, answer))
            if timeout < float("inf"):
                self.after(timeout, self.serve)
            return
        if wanted:
            session.locked, session.saved = wanted, self.tables.saved(wanted)
            self.owners.update(dict.fromkeys(wanted, session))
        results = [self._do(session, part) for part in script]
        ends = "commit" in script or "rollback" in script
        if ends or not (inside or "begin" in script):
            self._end_transaction(session)
        self._await_more(session)
        answer(results)

    def _renew(self, session: LeaseSession, part: Part) -> Result:
        """Renew a hold; one whose row is locked is left out."""
        locked = self.owners.keys() & set(names_of((part,)))
        return Result([], 0) if locked else self._do(session, part)

    def _do(self, session: LeaseSession, part: Part) -> Result:
        title, values = (part, {}) if isinstance(part, str) else part
        if title == "rollback" and session.locked:
            self.tables.restore(session.locked, session.saved)
        if title == "lock liveness key":
            key = values["liveness_key"]
            free = not any(key in other.keys for other in self.sessions if other is not session)
            if free:
                session.keys.add(key)
            return Result([(free,)], 1)
        if title == "identify":
            return Result([(session.number,)], 1)
        if title in ANSWERS:
            return Result(ANSWERS[title], 1)
        return self.tables.do(part)

    def _await_more(self, session: LeaseSession) -> None:
        session.turn += 1
        turn = session.turn
        if session.locked:
            self.after(IDLE_TIMEOUT, lambda: self.end(session) if session.turn == turn else None)

    def _end_transaction(self, session: LeaseSession) -> None:
        """Unlock the rows, and deliver the notifications."""
        for name in session.locked:
            self.owners.pop(name, None)
        session.locked = ()
        notifications, self.tables.notifications = self.tables.notifications, []
        for channel, payload in notifications:
            for other in list(self.sessions):
                if channel in other.channels:
                    other.notify(payload)
        self.after(0.0, self.serve)

    def serve(self) -> None:
        """Execute the scripts whose rows are free; refuse those that have waited too long."""
        waiting, self.queue = self.queue, []
        for session, script, wanted, until, answer in waiting:
            if not session.alive:
                continue
            if until <= self.now():
                answer(LOCK_TIMEOUT)
            elif self.owners.keys().isdisjoint(wanted):
                self.execute(session, script, answer)
            else:
                self.queue.append((session, script, wanted, until, answer))

    def end(self, session: LeaseSession | None) -> None:
        """End a session; what it has not committed is undone."""
        if session is None or not session.alive:
            return
        session.alive = False
        session.turn += 1
        del self.sessions[session]
        if session.locked:
            self.tables.restore(session.locked, session.saved)
            self.tables.notifications.clear()
        self._end_transaction(session)
        session.ended()


def _title(part: Part) -> str:
    return part if isinstance(part, str) else part[0]
