"""What PostgreSQL does with the conversations of protocols "row" and "advisory", for simulations.

It has sessions, which have transactions, row locks and advisory locks; who waits for a lock waits
in line. A session ends when its connection does, when it was silent for too long, or by force; then
all that it had is free.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from leaselock.backends.sql.statements import Result, SqlError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.backends.sql.statements import Part, Script

Key = tuple[str, object]
LOCK_TIMEOUT = SqlError("55P03", "canceling statement due to lock timeout")
WAITS = {"row wait": "row", "advisory wait": "advisory"}


class Session:
    """One connection's, in the server; *ended* is called once."""

    def __init__(self, number: int, ended: Callable[[], None]) -> None:
        self.number = number
        self.ended = ended
        self.alive = True
        self.turn = 0
        self.silence = float("inf")
        self.rows: set[Key] = set()
        self.locks: set[Key] = set()

    @property
    def in_transaction(self) -> bool:
        """Whether it has rows locked."""
        return bool(self.rows)


class Wait:
    """A statement that waits for a lock, and what follows it."""

    def __init__(self, session: Session, go_on: Callable[[object], None]) -> None:
        self.session = session
        self.go_on = go_on


def _ignore(payload: str) -> None:
    """These protocols do not listen."""


class Server:
    """The sessions, the locks, and the tables."""

    def __init__(
        self, micros: Callable[[], int], after: Callable[[float, Callable[[], None]], None]
    ) -> None:
        self.micros = micros
        self.after = after
        self.sessions: dict[int, Session] = {}
        self.owners: dict[Key, Session] = {}
        self.lines: dict[Key, deque[Wait]] = {}
        self.made: set[str] = set()
        self.tokens: dict[str, int] = {}
        self.records: dict[str, dict[str, Any]] = {}
        self.begun = 0
        # How often anything may have changed.
        self.changes = 0

    # --- sessions -------------------------------------------------------------------------------

    def begin(self, ended: Callable[[], None], notify: Callable[[str], None] = _ignore) -> Session:
        """A new session."""
        self.begun += 1
        session = self.sessions[self.begun] = Session(self.begun, ended)
        return session

    def end(self, session: Session | None) -> None:
        """End a session: everything it had is free."""
        if session is None or not session.alive:
            return
        session.alive = False
        del self.sessions[session.number]
        for line in self.lines.values():
            for wait in [wait for wait in line if wait.session is session]:
                line.remove(wait)
        self._let_go(session, session.rows | session.locks)
        session.ended()

    def _idle(self, session: Session) -> None:
        session.turn += 1
        turn = session.turn
        self.after(session.silence, lambda: self.end(session) if session.turn == turn else None)

    def execute(self, session: Session, script: Script, answer: Callable[[object], None]) -> None:
        """A script: its results, one for each part, or the error of one."""
        if session.alive:
            session.turn += 1
            self._go_on(session, deque(script), [], answer)

    def _go_on(
        self,
        session: Session,
        left: deque[Part],
        results: list[Result],
        answer: Callable[[object], None],
    ) -> None:
        def more(got: object) -> None:
            if isinstance(got, SqlError):
                self._idle(session)
                answer(got)
            else:
                rows = got if isinstance(got, list) else []
                results.append(Result(rows, len(rows)))
                self._go_on(session, left, results, answer)

        while left:
            self.changes += 1
            part = left.popleft()
            title, values = (part, {}) if isinstance(part, str) else (part[0], dict(part[1]))
            if title in WAITS:
                self._wait(session, title, values, more)
                break
            rows = getattr(self, "do_" + title.replace(" ", "_"))(session, values)
            results.append(Result(rows, len(rows)))
        else:
            self._idle(session)
            answer(results)

    # --- locks ----------------------------------------------------------------------------------

    def take(self, session: Session, key: Key, of: set[Key]) -> bool:
        """A lock, if it is free or its own already."""
        if self.owners.setdefault(key, session) is not session:
            return False
        of.add(key)
        return True

    def _let_go(self, session: Session, keys: set[Key]) -> None:
        for key in sorted(keys, key=repr):
            session.rows.discard(key)
            session.locks.discard(key)
            self.owners.pop(key, None)
        for key in sorted(keys, key=repr):
            line = self.lines.get(key)
            if line and key not in self.owners:
                line.popleft().go_on(True)

    def _wait(
        self,
        session: Session,
        title: str,
        values: dict[str, Any],
        done: Callable[[object], None],
    ) -> None:
        row = title == "row wait"
        name = str(values["name"])
        key: Key = ("row", name) if row else ("advisory", values["key"])
        of = session.rows if row else session.locks
        if row:
            self.do_mark_alive(session, values)
        if row and name not in self.made:
            done([])
            return
        if self.take(session, key, of):
            done([(name,)])
            return

        def granted(got: object) -> None:
            if got is True:
                self.take(session, key, of)
                done([(name,)])

        wait = Wait(session, granted)
        line = self.lines.setdefault(key, deque())
        line.append(wait)

        def too_late() -> None:
            if wait in line:
                line.remove(wait)
                done(LOCK_TIMEOUT)

        self.after(values["timeout"] / 1000, too_late)

    # --- statements, each by its title ----------------------------------------------------------

    def do_identify(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """The number of the session."""
        return [(session.number,)]

    def do_fact(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """The version of the tables."""
        return [("1",)]

    def do_session_defaults(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """Nothing here depends on them."""
        return []

    def do_session_settings(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """After how long a silence it ends."""
        session.silence = int(values["silence"]) / 1000
        return [("", "idle_session_timeout")]

    def do_begin_transaction(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """Row locks are the transaction's."""
        return []

    def do_roll_back(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """They end with it."""
        self._let_go(session, set(session.rows))
        return []

    do_commit_transaction = do_roll_back

    def do_row_release(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """All."""
        self._let_go(session, session.rows | session.locks)
        return []

    do_advisory_release = do_row_release

    def do_mark_alive(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """What shows that the session lives."""
        return [(self.take(session, ("liveness_key", values["liveness_key"]), session.locks),)]

    def do_ping(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """A sign of life."""
        return [(1,)]

    def do_row_exists(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """Whether it can be locked."""
        return [(int(values["name"] in self.made),)]

    def do_create_row(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """From now on it can."""
        self.made.add(values["name"])
        return []

    def do_row_try(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """The row, unless it is locked."""
        name = values["name"]
        if name not in self.made or not self.take(session, ("row", name), session.rows):
            return []
        return [(name, self.do_mark_alive(session, values)[0][0])]

    def do_row_token(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """A token, and whether the session that holds lives."""
        self._note(values, self._count(values["name"]))
        owner = self.owners.get(("liveness_key", values["liveness_key"]))
        return [(self.tokens[values["name"]], owner is not None and owner is not session)]

    def do_advisory_acquire(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """The lock and a token, unless it is another's."""
        if not self.take(session, ("advisory", values["key"]), session.locks):
            return []
        self.do_mark_alive(session, values)
        self._note(values, self._count(values["name"]))
        return [(self.tokens[values["name"]],)]

    def do_record_waiter(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """One that waits."""
        self._note(values, None)
        return self.do_mark_alive(session, values)

    def _count(self, name: str) -> int:
        token = self.tokens[name] = max(self.tokens.get(name, 0) + 1, self.micros())
        return token

    def _note(self, values: dict[str, Any], token: int | None) -> None:
        self.records[values["session"]] = {**values, "token": token}

    def do_sessions(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """Whose sessions have what is their own."""
        columns = ("name", "id", "client", "token", "backend", "metadata", "since")
        rows = []
        for record in self.records.values():
            owner = self.owners.get(("liveness_key", record["liveness_key"]))
            wanted = record["protocol"] == values["protocol"] and values["name"] in (
                "",
                record["name"],
            )
            if wanted and owner is not None and owner.number == record["backend"]:
                rows.append(tuple(record[column] for column in columns))
        return sorted(rows, key=lambda row: (row[0], row[6]))

    def do_holding_session(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """The newest of those that hold."""
        held = [row for row in self.do_sessions(session, values) if row[3] is not None]
        return sorted(held, key=lambda row: -row[3])[:1]

    def do_end_session(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """By force."""
        other = self.sessions.get(values["backend"])
        if other is not None and other is not session:
            self.end(other)
        return [(other is not None,)]
