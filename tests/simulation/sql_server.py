"""What PostgreSQL does with the conversations of protocols "row" and "advisory", for simulations.

It has sessions, which have transactions, row locks and advisory locks; who waits for a lock waits
in line. A session ends when its connection does, when it was silent for too long, or by force; then
all that it had is free.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from leaselock.backends.sql.script import Result, SqlError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.backends.sql.script import Part, Script

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


class Wait:
    """A statement that waits for a lock, and what follows it."""

    def __init__(self, session: Session, go_on: Callable[[object], None]) -> None:
        self.session = session
        self.go_on = go_on


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
        self.seats: dict[str, dict[str, Any]] = {}
        self.begun = 0
        # How often anything may have changed.
        self.changes = 0

    # --- sessions -------------------------------------------------------------------------------

    def begin(self, ended: Callable[[], None]) -> Session:
        """A new one."""
        self.begun += 1
        session = self.sessions[self.begun] = Session(self.begun, ended)
        return session

    def end(self, session: Session) -> None:
        """It is over: everything that it had is free."""
        if not session.alive:
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

    def ask(self, session: Session, script: Script, answer: Callable[[object], None]) -> None:
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
            title, words = (part, {}) if isinstance(part, str) else (part[0], dict(part[1]))
            if title in WAITS:
                self._wait(session, title, words, more)
                break
            rows = getattr(self, "do_" + title.replace(" ", "_"))(session, words)
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
        words: dict[str, Any],
        done: Callable[[object], None],
    ) -> None:
        row = title == "row wait"
        name = str(words["name"])
        key: Key = ("row", name) if row else ("advisory", words["key"])
        of = session.rows if row else session.locks
        if row:
            self.do_seal(session, words)
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

        self.after(words["patience"] / 1000, too_late)

    # --- statements, each by its title ----------------------------------------------------------

    def do_tenancy(self, session: Session, words: dict[str, Any]) -> list[Any]:
        """After how long a silence it ends."""
        session.silence = int(words["silence"]) / 1000
        return [("", "idle_session_timeout")]

    def do_open(self, session: Session, words: dict[str, Any]) -> list[Any]:
        """Row locks are the transaction's."""
        return []

    def do_undo(self, session: Session, words: dict[str, Any]) -> list[Any]:
        """They end with it."""
        self._let_go(session, set(session.rows))
        return []

    do_close = do_undo

    def do_row_free(self, session: Session, words: dict[str, Any]) -> list[Any]:
        """All."""
        self._let_go(session, session.rows | session.locks)
        return []

    do_advisory_free = do_row_free

    def do_seal(self, session: Session, words: dict[str, Any]) -> list[Any]:
        """What shows that the session lives."""
        return [(self.take(session, ("sign", words["sign"]), session.locks),)]

    def do_alive(self, session: Session, words: dict[str, Any]) -> list[Any]:
        """A sign of life."""
        return [(1,)]

    def do_row_there(self, session: Session, words: dict[str, Any]) -> list[Any]:
        """Whether it can be locked."""
        return [(int(words["name"] in self.made),)]

    def do_row_make(self, session: Session, words: dict[str, Any]) -> list[Any]:
        """From now on it can."""
        self.made.add(words["name"])
        return []

    def do_row_try(self, session: Session, words: dict[str, Any]) -> list[Any]:
        """The row, unless it is locked."""
        name = words["name"]
        if name not in self.made or not self.take(session, ("row", name), session.rows):
            return []
        return [(name, self.do_seal(session, words)[0][0])]

    def do_row_count(self, session: Session, words: dict[str, Any]) -> list[Any]:
        """A token, and whether the session that holds lives."""
        self._note(words, self._count(words["name"]))
        owner = self.owners.get(("sign", words["sign"]))
        return [(self.tokens[words["name"]], owner is not None and owner is not session)]

    def do_advisory_take(self, session: Session, words: dict[str, Any]) -> list[Any]:
        """The lock and a token, unless it is another's."""
        if not self.take(session, ("advisory", words["key"]), session.locks):
            return []
        self.do_seal(session, words)
        self._note(words, self._count(words["name"]))
        return [(self.tokens[words["name"]],)]

    def do_seat(self, session: Session, words: dict[str, Any]) -> list[Any]:
        """One that waits."""
        self._note(words, None)
        return self.do_seal(session, words)

    def _count(self, name: str) -> int:
        token = self.tokens[name] = max(self.tokens.get(name, 0) + 1, self.micros())
        return token

    def _note(self, words: dict[str, Any], token: int | None) -> None:
        self.seats[words["session"]] = {**words, "token": token}

    def do_seats(self, session: Session, words: dict[str, Any]) -> list[Any]:
        """Whose sessions have what is their own."""
        columns = ("name", "holder", "client", "token", "backend", "about", "since")
        rows = []
        for seat in self.seats.values():
            owner = self.owners.get(("sign", seat["sign"]))
            wanted = seat["protocol"] == words["protocol"] and words["name"] in ("", seat["name"])
            if wanted and owner is not None and owner.number == seat["backend"]:
                rows.append(tuple(seat[column] for column in columns))
        return sorted(rows, key=lambda row: (row[0], row[6]))

    def do_seat_of_holder(self, session: Session, words: dict[str, Any]) -> list[Any]:
        """The newest of those that hold."""
        held = [row for row in self.do_seats(session, words) if row[3] is not None]
        return sorted(held, key=lambda row: -row[3])[:1]

    def do_end_session(self, session: Session, words: dict[str, Any]) -> list[Any]:
        """By force."""
        other = self.sessions.get(words["backend"])
        if other is not None and other is not session:
            self.end(other)
        return [(other is not None,)]
