"""A model of PostgreSQL for the protocols "row" and "advisory".

It has sessions with transactions, row locks and advisory locks; waits for a lock are in order. A
session ends with its connection, after a timeout, or when it is terminated; it then has no locks.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from leaselock._backends.sql.statements import Result, SqlError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._backends.sql.statements import Part, Script

Key = tuple[str, object]
LOCK_TIMEOUT = SqlError("55P03", "canceling statement due to lock timeout")
WAITS = {"row wait", "row wait shared", "advisory wait"}


class Session:
    """The session of a connection in the server; *ended* is called once."""

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
        """Return whether the session has locked rows."""
        return bool(self.rows)


class Wait:
    """A statement that waits for a lock, and the rest of its script."""

    def __init__(self, session: Session, shared: bool, go_on: Callable[[object], None]) -> None:
        self.session = session
        self.shared = shared
        self.go_on = go_on


def _ignore(payload: str) -> None:
    """Do nothing: these protocols do not listen."""


class Server:
    """The sessions, the locks, and the tables."""

    def __init__(
        self, micros: Callable[[], int], after: Callable[[float, Callable[[], None]], None]
    ) -> None:
        self.micros = micros
        self.after = after
        self.sessions: dict[int, Session] = {}
        self.owners: dict[Key, Session] = {}
        self.readers: dict[Key, dict[Session, None]] = {}
        self.queues: dict[Key, deque[Wait]] = {}
        self.made: set[str] = set()
        self.tokens: dict[str, int] = {}
        self.records: dict[str, dict[str, Any]] = {}
        self.begun = 0
        # Incremented with each possible change.
        self.changes = 0

    # --- sessions -------------------------------------------------------------------------------

    def begin(self, ended: Callable[[], None], notify: Callable[[str], None] = _ignore) -> Session:
        """Begin a session."""
        self.begun += 1
        session = self.sessions[self.begun] = Session(self.begun, ended)
        return session

    def end(self, session: Session | None) -> None:
        """End a session, and release its locks."""
        if session is None or not session.alive:
            return
        session.alive = False
        del self.sessions[session.number]
        for queue in self.queues.values():
            for wait in [wait for wait in queue if wait.session is session]:
                queue.remove(wait)
        self._let_go(session, session.rows | session.locks)
        for key in list(self.queues):
            self._serve(key)
        session.ended()

    def _idle(self, session: Session) -> None:
        session.turn += 1
        turn = session.turn
        self.after(session.silence, lambda: self.end(session) if session.turn == turn else None)

    def execute(self, session: Session, script: Script, answer: Callable[[object], None]) -> None:
        """Execute a script; answer with one result for each part, or with an error."""
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

    def take(self, session: Session, key: Key, of: set[Key], shared: bool = False) -> bool:
        """Take a lock, alone or beside readers, unless other sessions hold it."""
        if not self._is_free(session, key, shared):
            return False
        if shared and key not in self.owners:
            self.readers.setdefault(key, {})[session] = None
        else:
            self.owners[key] = session
        of.add(key)
        return True

    def _is_free(self, session: Session, key: Key, shared: bool) -> bool:
        others = self.readers.get(key, {}).keys() - {session}
        return self.owners.get(key, session) is session and (shared or not others)

    def _is_kept_back(self, key: Key, shared: bool) -> bool:
        """Whether a waiter comes first. A row is shared before those who wait for it."""
        waiting = self.queues.get(key, ())
        return any(not (shared and wait.shared) for wait in waiting) and not (
            shared and key[0] == "row"
        )

    def _let_go(self, session: Session, keys: set[Key]) -> None:
        for key in sorted(keys, key=repr):
            session.rows.discard(key)
            session.locks.discard(key)
            if session not in self.readers.get(key, ()):
                self.owners.pop(key, None)
            self.readers.get(key, {}).pop(session, None)
        for key in sorted(keys, key=repr):
            self._serve(key)

    def _serve(self, key: Key) -> None:
        """Grant the lock to those who have waited longest, to several readers at once."""
        queue = self.queues.get(key)
        while queue and self._is_free(queue[0].session, key, queue[0].shared):
            queue.popleft().go_on(True)

    def _wait(
        self,
        session: Session,
        title: str,
        values: dict[str, Any],
        done: Callable[[object], None],
    ) -> None:
        row = title != "advisory wait"
        shared = values["mode"] == "shared"
        name = str(values["name"])
        key: Key = ("row", name) if row else ("advisory", values["key"])
        of = session.rows if row else session.locks
        if row:
            self.do_mark_alive(session, values)
        if row and name not in self.made:
            done([])
            return
        if not self._is_kept_back(key, shared) and self.take(session, key, of, shared):
            done([(name,)])
            return

        def granted(got: object) -> None:
            if got is True:
                self.take(session, key, of, shared)
                done([(name,)])

        wait = Wait(session, shared, granted)
        queue = self.queues.setdefault(key, deque())
        queue.append(wait)

        def too_late() -> None:
            if wait in queue:
                queue.remove(wait)
                done(LOCK_TIMEOUT)
                self._serve(key)

        self.after(values["timeout"] / 1000, too_late)

    # --- statements, by their titles ------------------------------------------------------------

    def do_identify(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """Return the number of the session."""
        return [(session.number,)]

    def do_fact(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """Return the version of the tables."""
        return [("1",)]

    def do_session_defaults(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """Do nothing: the model does not depend on these settings."""
        return []

    def do_session_settings(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """Set the idle timeout of the session."""
        session.silence = int(values["silence"]) / 1000
        return [("", "idle_session_timeout")]

    def do_begin_transaction(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """Begin a transaction, which owns row locks."""
        return []

    def do_roll_back(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """End the transaction, and release its row locks."""
        self._let_go(session, set(session.rows))
        return []

    do_commit_transaction = do_roll_back

    def do_row_release(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """Release all locks of the session."""
        self._let_go(session, session.rows | session.locks)
        return []

    do_advisory_release = do_row_release

    def do_mark_alive(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """Lock the liveness key, which shows that the session is open."""
        return [(self.take(session, ("liveness_key", values["liveness_key"]), session.locks),)]

    def do_ping(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """Return a row, which shows that the session is open."""
        return [(1,)]

    def do_row_exists(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """Return whether the row exists."""
        return [(int(values["name"] in self.made),)]

    def do_create_row(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """Create the row."""
        self.made.add(values["name"])
        return []

    def do_row_try(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """Lock the row, unless another session has it."""
        name, shared = values["name"], values["mode"] == "shared"
        key: Key = ("row", name)
        kept_back = name not in self.made or self._is_kept_back(key, shared)
        if kept_back or not self.take(session, key, session.rows, shared):
            return []
        return [(name, self.do_mark_alive(session, values)[0][0])]

    do_row_try_shared = do_row_try

    def do_row_token(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """Return a new token, and whether another session has the liveness key."""
        self._note(values, self._count(values["name"]))
        owner = self.owners.get(("liveness_key", values["liveness_key"]))
        return [(self.tokens[values["name"]], owner is not None and owner is not session)]

    def do_advisory_acquire(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """Take the lock and a token, unless another session has it."""
        key: Key = ("advisory", values["key"])
        shared = values["mode"] == "shared"
        has_it = self.owners.get(key) is session or session in self.readers.get(key, ())
        if self._is_kept_back(key, shared) and not has_it:
            return []
        if not self.take(session, key, session.locks, shared):
            return []
        self.do_mark_alive(session, values)
        self._note(values, self._count(values["name"]))
        return [(self.tokens[values["name"]],)]

    def do_advisory_weaken(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """Let a writer become a reader."""
        key: Key = ("advisory", values["key"])
        if self.owners.get(key) is session:
            del self.owners[key]
            self.take(session, key, session.locks, shared=True)
            self.records[values["session"]]["mode"] = "shared"
            self._serve(key)
        return [(1,)]

    def do_record_waiter(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """Record a waiter."""
        self._note(values, None)
        return self.do_mark_alive(session, values)

    def _count(self, name: str) -> int:
        token = self.tokens[name] = max(self.tokens.get(name, 0) + 1, self.micros())
        return token

    def _note(self, values: dict[str, Any], token: int | None) -> None:
        self.records[values["session"]] = {**values, "token": token}

    def do_sessions(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """Return the records of open sessions."""
        columns = ("name", "id", "client", "token", "backend", "metadata", "since", "mode")
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

    def do_holding_sessions(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """Return the holds."""
        held = [row for row in self.do_sessions(session, values) if row[3] is not None]
        return sorted(held, key=lambda row: int(row[3]))

    def do_advisory_stranger(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """Only this library uses the server."""
        return []

    do_row_stranger = do_advisory_stranger

    def do_end_session(self, session: Session, values: dict[str, Any]) -> list[Any]:
        """Terminate the session of a hold, while it is that."""
        other = self.owners.get(("liveness_key", values["liveness_key"]))
        if other is not None and other.number != values["backend"]:
            other = None
        if other is not None and other is not session:
            self.end(other)
        return [(other is not None,)]
