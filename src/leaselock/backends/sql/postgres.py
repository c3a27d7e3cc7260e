"""One connection to PostgreSQL, driven through libpq: psycopg connects, we ask.

A script is sent by the simple protocol, all statements in one message, so that it takes one
round trip and needs nothing prepared, which a proxy would lose. The wait for the answer is ours,
and ends at the deadline; a connection that owes an answer is never used again.
"""

from __future__ import annotations

import math
import os
import select
import socket
from typing import TYPE_CHECKING, Any

from leaselock.backends import library
from leaselock.backends.sql.script import NONSENSE, Result, SqlError
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from leaselock.backends.sql.url import Target

EXTRA = "postgres"
INTEGERS = {20, 21, 23, 26, 28}
BOOLEAN = 16
READ, WRITE = 1, 2
LONGEST_WAIT = 3600.0
# A server that vanished without a word is noticed in about 15 seconds (hazard D5).
SETTINGS = {
    "application_name": "leaselock",
    "keepalives_idle": "5",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    # Of several servers, the one that can be written to (hazard J18).
    "target_session_attrs": "read-write",
}
# Above this, a graveyard: connections that a forked child inherited. Closing one in order would
# end the parent's session, so their descriptors are closed, and the rest is left.
INHERITED: list[Any] = []


def check(target: Target) -> None:
    """ImportError where the client library is missing, ValueError for what it does not know."""
    psycopg = library("psycopg", EXTRA)
    try:
        conninfo(target)
    except psycopg.ProgrammingError as error:
        raise ValueError(f"the URL of a PostgreSQL store: {said(str(error))}") from error


def conninfo(target: Target) -> str:
    """What libpq is told."""
    words = {**SETTINGS, **target.options}
    named = {"host": target.host, "user": target.user, "password": target.password}
    named |= {"port": str(target.port or ""), "dbname": target.database}
    # All that we say is written in it: in another one a name would be another lock's.
    named["client_encoding"] = "utf8"
    words |= {key: value for key, value in named.items() if value}
    made: str = library("psycopg.conninfo", EXTRA).make_conninfo("", **words)
    return made


class Line:
    """A connection, asked by one thread at a time."""

    def __init__(self, target: Target, now: Callable[[], float], until: float) -> None:
        psycopg = library("psycopg", EXTRA)
        # What becomes of an answer that no server gives is an error of ours, too.
        self.pq, self.errors = psycopg.pq, (psycopg.Error, *NONSENSE)
        self.target = target
        self.now = now
        self.broken = False
        # It has been used before, and lay idle since.
        self.worn = False
        self.backend = 0
        # Titles of the statements that the session keeps; None where it is to keep none.
        self.kept: set[str] | None = None
        self.owner: Any = None
        self.conn = self._borrowed() if target.connect else self._connected(until)
        self.conn.nonblocking = 1
        # libpq closes its own descriptor as it likes, and the number may be another's then.
        self.socket = socket.socket(fileno=os.dup(self.conn.socket))
        # What the server said its number is, or a proxy in its stead.
        self.number: int = self.conn.backend_pid

    def _borrowed(self) -> Any:
        """The connection that an engine makes, in whatever way; its time limits are its own."""
        assert self.target.connect is not None
        try:
            # The object is kept, for it ends its connection with itself.
            self.owner = self.target.connect()
            conn = self.owner.pgconn
            if conn.transaction_status != self.pq.TransactionStatus.IDLE:
                conn.exec_(b"ROLLBACK")
            done = conn.exec_(b"SET client_encoding TO 'UTF8'")
        except Exception as error:
            raise NotApplied(f"{self.target.shown}: {said(str(error))}") from error
        if done.status != self.pq.ExecStatus.COMMAND_OK:
            raise NotApplied(f"{self.target.shown}: {said(done.error_message)}")
        return conn

    def _connected(self, until: float) -> Any:
        ok, failed, reading = (
            self.pq.PollingStatus.OK,
            self.pq.PollingStatus.FAILED,
            self.pq.PollingStatus.READING,
        )
        conn = self.pq.PGconn.connect_start(conninfo(self.target).encode())
        try:
            # As libpq wants it: before the first poll, wait until it can be written to.
            state = self.pq.PollingStatus.WRITING
            while conn.status != self.pq.ConnStatus.BAD:
                if not ready(conn.socket, READ if state == reading else WRITE, self.left(until)):
                    raise NotApplied(f"{self.target.shown} could not be reached in time")
                state = conn.connect_poll()
                if state == ok:
                    return conn
                if state == failed:
                    break
            raise NotApplied(f"{self.target.shown}: {said(conn.error_message)}")
        except BaseException as error:
            conn.finish()
            if isinstance(error, self.errors):
                raise NotApplied(f"{self.target.shown}: {said(str(error))}") from error
            raise

    def left(self, until: float) -> float:
        """Seconds until then."""
        return min(LONGEST_WAIT, max(0.0, until - self.now()))

    def fileno(self) -> int:
        """The descriptor of its socket."""
        return self.socket.fileno()

    def fresh(self) -> bool:
        """Whether it can be used: the server has neither ended it nor said anything unasked."""
        idle = self.pq.TransactionStatus.IDLE
        if self.broken or self.conn.transaction_status != idle:
            return False
        return not ready(self.fileno(), READ, 0.0)

    def run(self, text: str, until: float) -> list[Result]:
        """Have a script carried out; SqlError where the server refuses, Unknown without answer."""
        steps = self.exchange(text)
        try:
            events = next(steps)
            while True:
                happened = ready(self.fileno(), events, self.left(until))
                if not happened:
                    raise self.silent()
                events = steps.send(happened)
        except StopIteration as done:
            results: list[Result] = done.value
            return results
        except SqlError:
            raise
        except BaseException:
            self.broken = True
            raise

    def silent(self) -> OutcomeUnknown:
        """What to say of an answer that did not come in time."""
        self.broken = True
        return OutcomeUnknown(f"{self.target.shown} did not answer in time")

    def exchange(self, text: str) -> Generator[int, int, list[Result]]:
        """Send and receive: yields what to wait for, and is sent what happened."""
        conn = self.conn
        try:
            conn.send_query(text.encode())
            while conn.flush():
                if (yield READ | WRITE) & READ:
                    conn.consume_input()
            results: list[Result] = []
            refusal = None
            while True:
                while conn.is_busy():
                    yield READ
                    conn.consume_input()
                result = conn.get_result()
                if result is None:
                    break
                refusal = self._take(result, results) or refusal
        except self.errors as error:
            self.broken = True
            raise OutcomeUnknown(f"{self.target.shown}: {said(str(error))}") from error
        if refusal is not None:
            raise self._refused(refusal)
        return results

    def _take(self, result: Any, results: list[Result]) -> SqlError | None:
        status = self.pq.ExecStatus
        if result.status in (status.TUPLES_OK, status.COMMAND_OK):
            results.append(_result(result))
            return None
        if result.status != status.FATAL_ERROR:
            # Such as a copy, which would have no end.
            raise ValueError(f"an answer of status {result.status}")
        state = result.error_field(self.pq.DiagnosticField.SQLSTATE) or b""
        return SqlError(state.decode(), said(result.error_message))

    def _refused(self, refusal: SqlError) -> Exception:
        # Without a state, or with the server's shutdown, it is the connection that has failed.
        if self.conn.status == self.pq.ConnStatus.BAD or refusal.state[:3] in ("", "57P"):
            self.broken = True
            return OutcomeUnknown(f"{self.target.shown}: {refusal.text}")
        return refusal

    def listen(self, channel: str) -> str:
        """The statement that has the server send what is said on a channel."""
        return f'LISTEN "{channel}"'

    def wait(self, until: float) -> list[str]:
        """What is said on the channels, when there is something, or the time is up."""
        words = self.heard()
        if not words and ready(self.fileno(), READ, self.left(until)):
            words = self.heard()
        return words

    def heard(self) -> list[str]:
        """What has been said on the channels since."""
        words = []
        try:
            self.conn.consume_input()
            while (notice := self.conn.notifies()) is not None:
                words.append(notice.extra.decode())
        except self.errors as error:
            self.broken = True
            raise OutcomeUnknown(f"{self.target.shown}: {said(str(error))}") from error
        return words

    def cut(self) -> None:
        """End, from another thread, whatever goes on here."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it has ended already

    def close(self) -> None:
        """End the session."""
        self.broken = True
        self.conn.finish()
        self.socket.close()

    def __del__(self) -> None:
        # Of one that nobody got to have: its task, or its loop, had ended by then.
        if hasattr(self, "socket"):
            self.socket.close()

    def abandon(self) -> None:
        """In a forked child: let go of the descriptors, without a word to the server."""
        if not self.broken:
            os.close(self.conn.socket)
        self.broken = True
        self.socket.close()
        INHERITED.append((self.conn, self.owner))


def _result(result: Any) -> Result:
    columns = range(result.nfields)
    kinds = [result.ftype(column) for column in columns]
    rows = [
        tuple(_value(kinds[column], result.get_value(row, column)) for column in columns)
        for row in range(result.ntuples)
    ]
    return Result(rows, result.command_tuples or 0)


def _value(kind: int, data: bytes | None) -> str | int | bool | None:
    if data is None:
        return None
    if kind in INTEGERS:
        return int(data)
    return data == b"t" if kind == BOOLEAN else data.decode()


def said(message: bytes | str) -> str:
    """What the server said, in one line."""
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else message
    return " ".join(text.split())


def ready(descriptor: int, events: int, patience: float) -> int:
    """Wait for a socket; what it is ready for, 0 when the time is up."""
    poll = select.poll()
    wanted = (select.POLLIN if events & READ else 0) | (select.POLLOUT if events & WRITE else 0)
    poll.register(descriptor, wanted)
    for _, happened in poll.poll(math.ceil(patience * 1000)):
        broken = happened & ~(select.POLLIN | select.POLLOUT)
        read = happened & select.POLLIN or broken
        return (READ if read else 0) | (WRITE if happened & select.POLLOUT else 0)
    return 0
