"""A connection to PostgreSQL through libpq, as psycopg wraps it in `psycopg.pq`.

Statements are sent by the simple query protocol, several in one message. This takes one round
trip, and works through proxies that would lose prepared statements.
"""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock._backends import library
from leaselock._backends.readiness import POLLIN, POLLOUT, new_poller
from leaselock._backends.sql.connection import DatabaseProtocol, Tls, one_line
from leaselock._backends.sql.statements import MALFORMED, Result, SqlError
from leaselock._backends.sql.url import OPTIONS
from leaselock._backends.wire import LONGEST_WAIT, READ, WRITE, TaskWire, ThreadWire
from leaselock.errors import NotApplied, OutcomeUnknown, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._backends.sql.connection import Steps
    from leaselock._backends.sql.url import Target
    from leaselock._core.contract.backend import ErrorReason

EXTRA = "postgres"
INTEGERS = {20, 21, 23, 26, 28}
BOOLEAN = 16
# A server that disappears without closing its connections is noticed in 15 seconds (hazard D5).
SETTINGS = {
    "application_name": "leaselock",
    "keepalives_idle": "5",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    # Of several servers, libpq chooses the one that accepts writes (hazard J18).
    "target_session_attrs": "read-write",
}
# With these modes libpq goes on without TLS if the server has none.
OPTIONAL_TLS = ("allow", "prefer")


class Mistake(NamedTuple):
    """What a server or libpq says of a wrong setting."""

    reason: ErrorReason
    advice: str = ""
    of_one_host: bool = False
    """Another of several hosts may serve soon."""


# libpq reports no SQLSTATE for an attempt to connect, so the texts are compared. A server that says
# something else, or says it in another language than English, counts as out of reach.
MISTAKES = {
    'database ".*" does not exist': Mistake("misconfigured", "correct the URL, or create it"),
    "not currently accepting connections": Mistake("misconfigured"),
    'role ".*" does not exist': Mistake("denied", "correct the URL, or create the role"),
    "not permitted to log in": Mistake("denied", "ALTER ROLE … LOGIN"),
    "authentication failed for user": Mistake("denied"),
    "no password supplied": Mistake("denied"),
    r"pg_hba\.conf": Mistake("denied"),
    "permission denied for database": Mistake("denied", "GRANT CONNECT ON DATABASE"),
    "does not support SSL, but SSL was required": Mistake(
        "misconfigured", "set it up on the server, or write another ?sslmode="
    ),
    "certificate verify failed|server certificate for": Mistake(
        "misconfigured", "name the authority that has signed it (?sslrootcert=FILE)"
    ),
    "could not (read|load|open) .*(certificate|key) file": Mistake("misconfigured"),
    "certificate file .* does not exist": Mistake("misconfigured"),
    "session is read-only|server is in hot standby mode": Mistake(
        "misconfigured", "name the primary, or several hosts of which one is", of_one_host=True
    ),
}
# Connections that a forked child inherited. Closing one properly would end the session of the
# parent, so only their descriptors are closed, and the objects are never collected.
INHERITED: list[Any] = []


def check(target: Target) -> None:
    """ImportError if the client library is missing, ValueError for options it does not know."""
    psycopg = library("psycopg", EXTRA)
    try:
        conninfo(target)
    except psycopg.ProgrammingError as error:
        raise ValueError(
            f"the URL of a PostgreSQL store: {one_line(error)}: it knows "
            f"{', '.join(OPTIONS)}, and the parameters of libpq, such as sslmode"
        ) from error


def conninfo(target: Target) -> str:
    """The connection string for libpq."""
    words = {**SETTINGS, **target.options}
    named = {"host": target.host, "user": target.user, "password": target.password}
    named |= {"port": str(target.port or ""), "dbname": target.database}
    # All statements are encoded in it: in another encoding a name could be that of another lock.
    named["client_encoding"] = "utf8"
    words |= {key: value for key, value in named.items() if value}
    made: str = library("psycopg.conninfo", EXTRA).make_conninfo("", **words)
    return made


class Postgres(DatabaseProtocol):
    """The protocol of one connection, without its waits."""

    def __init__(self, target: Target, now: Callable[[], float]) -> None:
        super().__init__(target, now)
        psycopg = library("psycopg", EXTRA)
        self.pq = psycopg.pq
        # Results that no server sends raise errors of many types: they are handled like psycopg's.
        self.errors = (psycopg.Error, *MALFORMED)
        self.operational_error = psycopg.OperationalError
        self.idle = self.pq.TransactionStatus.IDLE
        self.owner: Any = None

    # --- connecting ---------------------------------------------------------------------------

    def connect(self, until: float) -> Steps:
        """Connect in one blocking function: libpq looks up names and reads files meanwhile."""
        try:
            made = yield lambda: self._made(until)
        except TimeoutError:
            raise self._unreachable() from None
        self.owner, self.conn = made
        self.conn.nonblocking = 1
        # libpq may close its descriptor at any time, and the number may then be reused.
        # `os.dup` knows no sockets on Windows. The family and the type are found out.
        self.socket = socket.fromfd(self.conn.socket, -1, -1)
        self.connecting = None
        self.number = self.conn.backend_pid

    def discard(self, made: Any) -> None:
        """Close a connection that was established too late."""
        made[1].finish()

    def _made(self, until: float) -> tuple[Any, Any]:
        if self.target.connect is None:
            return None, self._connected(until)
        try:
            # The object is kept, because it closes its connection when it is collected.
            owner = self.target.connect()
            conn = owner.pgconn
            if conn.transaction_status != self.idle:
                conn.exec_(b"ROLLBACK")
            done = conn.exec_(b"SET client_encoding TO 'UTF8'")
        except Exception as error:
            raise self._not_connected(str(error), getattr(error, "pgconn", None)) from error
        if done.status != self.pq.ExecStatus.COMMAND_OK:
            raise NotApplied(f"{self.target.shown}: {one_line(done.error_message)}")
        return owner, conn

    def _connected(self, until: float) -> Any:
        status = self.pq.PollingStatus
        conn = self.connecting = self.pq.PGconn.connect_start(conninfo(self.target).encode())
        try:
            # libpq requires to wait until the socket is writable before the first poll.
            state = status.WRITING
            while conn.status != self.pq.ConnStatus.BAD:
                wanted = POLLIN if state == status.READING else POLLOUT
                if not _poll(conn.socket, wanted, until - self.now()):
                    raise self._unreachable()
                state = conn.connect_poll()
                if state == status.OK:
                    return conn
                if state == status.FAILED:
                    break
            # The error that psycopg raises where it connects itself.
            text = one_line(conn.error_message)
            raise self._not_connected(text, conn) from self.operational_error(text)
        except BaseException as error:
            conn.finish()
            if isinstance(error, self.errors):
                raise self._not_connected(str(error), None) from error
            raise

    def _not_connected(self, text: str, conn: Any) -> NotApplied:
        """The error of an attempt to connect. Where the text tells nothing, a password that was
        asked for shows that rights are at issue: the server may speak another language.
        """
        denied = conn is not None and (conn.needs_password or conn.used_password)
        shown = f"{self.target.shown}: {one_line(text)}"
        mistake = next((found for words, found in MISTAKES.items() if re.search(words, text)), None)
        several = "," in self.target.options.get("host", "") or text.count(" failed: ") > 1
        if mistake is None or (mistake.of_one_host and several):
            return NotApplied(shown, "denied" if denied else "unreachable")
        advice = f": {mistake.advice}" if mistake.advice else ""
        return NotApplied(f"{shown}{advice}", mistake.reason)

    def _unreachable(self) -> NotApplied:
        return StoreUnreachable(f"{self.target.shown} could not be reached in time")

    def tls(self) -> Tls | None:
        """By the parameters that are in force, wherever libpq has read them."""
        if not self.conn.ssl_in_use:
            return None
        mode = next(o.val.decode() for o in self.conn.info if o.keyword == b"sslmode")
        problem = (
            "" if mode == "verify-full" else f"the server's name is not verified, sslmode={mode}"
        )
        return Tls(problem, mode not in OPTIONAL_TLS)

    # --- statements ---------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """Open, outside a transaction, and without an answer still to come."""
        if self.broken or self.reply_pending or self.closed or self.conn is None:
            return False
        return bool(self.conn.transaction_status == self.idle)

    def fresh(self) -> bool:
        """Usable, and neither ended by the server nor with unexpected input."""
        return self.usable and not self.readable()

    def send(self, text: str) -> Steps:
        """Send statements."""
        self.reply_pending, self.sent = True, False
        try:
            self.conn.send_query(text.encode())
            while self.conn.flush():
                if (yield READ | WRITE) & READ:
                    self.conn.consume_input()
            self.sent = True
        except TimeoutError:
            raise self.silent() from None
        except self.errors as error:
            raise self.lost(error) from error

    def receive(self) -> Steps:
        """Read their results."""
        conn = self.conn
        results: list[Result] = []
        refusal = None
        try:
            while True:
                while conn.is_busy():
                    yield READ
                    conn.consume_input()
                result = conn.get_result()
                if result is None:
                    break
                refusal = self._take(result, results) or refusal
        except TimeoutError:
            raise self.silent() from None
        except self.errors as error:
            raise self.lost(error) from error
        self.reply_pending = False
        if refusal is not None:
            raise self._refused(refusal)
        return results

    def _take(self, result: Any, results: list[Result]) -> SqlError | None:
        status = self.pq.ExecStatus
        if result.status in (status.TUPLES_OK, status.COMMAND_OK):
            results.append(_result(result))
            return None
        if result.status != status.FATAL_ERROR:
            # For example a COPY, which would have no end.
            raise ValueError(f"an answer of status {result.status}")
        state = result.error_field(self.pq.DiagnosticField.SQLSTATE) or b""
        return SqlError(state.decode(), one_line(result.error_message))

    def _refused(self, refusal: SqlError) -> Exception:
        # Without a state, or with that of a shutdown, the connection has failed, not a statement.
        if self.conn.status == self.pq.ConnStatus.BAD or refusal.state[:3] in ("", "57P"):
            self.broken = True
            return OutcomeUnknown(f"{self.target.shown}: {refusal.text}")
        return refusal

    # --- notifications ------------------------------------------------------------------------

    def notifications(self) -> Steps:
        """Wait until there are notifications, or the time is up."""
        payloads: list[str] = []
        try:
            while True:
                self.conn.consume_input()
                while (notice := self.conn.notifies()) is not None:
                    payloads.append(notice.extra.decode())
                if payloads:
                    return payloads
                yield READ
        except TimeoutError:
            return payloads
        except self.errors as error:
            raise self.lost(error) from error

    # --- the end ------------------------------------------------------------------------------

    def release(self) -> None:
        """Close the session and the descriptors."""
        self.broken = True
        if self.conn is not None:
            self.conn.finish()
        if self.socket is not None:
            self.socket.close()

    def after_fork(self) -> None:
        """In a forked child: close the descriptors without sending anything to the server."""
        conn, self.conn, self.connecting = self.conn or self.connecting, None, None
        if conn is not None:
            INHERITED.append((conn, self.owner))
            with suppress(*self.errors):  # it has no descriptor yet, or no more
                os.close(conn.socket)
        if self.socket is not None:
            self.socket.close()
        self.broken = True


class ThreadConnection(ThreadWire, Postgres):
    """A connection for threads."""


class TaskConnection(TaskWire, Postgres):
    """A connection for asyncio."""


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
    return data == b"t" if kind == BOOLEAN else data.decode("utf-8", "surrogateescape")


def _poll(descriptor: int, wanted: int, seconds: float) -> bool:
    """Whether the descriptor is ready in time."""
    poll = new_poller()
    poll.register(descriptor, wanted)
    return bool(poll.poll(min(LONGEST_WAIT, max(0.0, seconds)) * 1000))
