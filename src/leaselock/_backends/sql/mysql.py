"""A connection to MySQL or MariaDB: PyMySQL connects, and the text protocol is spoken here.

Several statements are sent as one query, which takes one round trip. PyMySQL reads by blocking,
with a time limit for each read. So after the handshake its socket is read here, without blocking,
until the answer is complete (`mysql_answers`): in asyncio a round trip of PyMySQL in a thread of
its own costs 2.1 times the CPU. A connection is never reopened (hazard D8).
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

from leaselock._backends import library
from leaselock._backends.addresses import time_per_address
from leaselock._backends.sql.connection import DatabaseProtocol, Tls, one_line
from leaselock._backends.sql.mysql_answers import IN_TRANSACTION, Answer, packets
from leaselock._backends.sql.statements import MALFORMED, MYSQL_DENIED
from leaselock._backends.sql.url import OPTIONS as COMMON_OPTIONS
from leaselock._backends.tls import error_behind, tls_context, tls_problem
from leaselock._backends.wire import LONGEST_WAIT, READ, WRITE, TaskWire, ThreadWire, shut_down
from leaselock.errors import NotApplied, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._backends.sql.connection import Steps
    from leaselock._backends.sql.url import Target
    from leaselock._core.contract.backend import ErrorReason

EXTRA = "mysql"
SHORTEST_WAIT = 0.001
PORT = 3306
NO_TLS, TLS_REQUIRED = "2026", "3159"
# A server that says this serves later: too many connections, or it ends.
PASSING = ("1040", "1053", "1203", "1226")
MULTI_STATEMENTS = 1 << 16
QUERY, SET_OPTION = b"\x03", b"\x1b"
SEVERAL_STATEMENTS = b"\x00\x00"
CHUNK = 1 << 16
OPTIONS = {"unix_socket", "ssl_ca", "ssl_cert", "ssl_key", "ssl"}

# Connections that a forked child inherited. Only their descriptors are closed, since closing a
# connection properly would send something to the server of the parent.
INHERITED: list[Any] = []
# A server that disappears without closing its connections is noticed in 15 seconds (hazard D5).
KEEPALIVE = [
    ((socket.SOL_SOCKET, socket.SO_KEEPALIVE), 1),
    *(
        ((socket.IPPROTO_TCP, getattr(socket, name)), value)
        for name, value in (
            ("TCP_KEEPIDLE", 5),
            ("TCP_KEEPINTVL", 3),
            ("TCP_KEEPCNT", 3),
            ("TCP_USER_TIMEOUT", 15000),
        )
        if hasattr(socket, name)
    ),
]


def check(target: Target) -> None:
    """ImportError if the client library is missing, ValueError for unknown options."""
    library("pymysql", EXTRA)
    arguments(target)


def arguments(target: Target) -> dict[str, Any]:
    """The arguments of `pymysql.connect`; ValueError for an unknown option."""
    unknown = set(target.options) - OPTIONS
    if unknown:
        known = ", ".join(sorted({*OPTIONS, *COMMON_OPTIONS}))
        raise ValueError(f"the URL of a MySQL store knows {known}, but not {min(unknown)!r}")
    words: dict[str, Any] = {
        "host": target.host or "localhost",
        "port": target.port or PORT,
        "user": target.user,
        "password": target.password or "",
        "autocommit": True,
        "charset": "utf8mb4",
        "client_flag": MULTI_STATEMENTS,
    }
    words["database"] = target.database or None
    if "unix_socket" in target.options:
        words["unix_socket"] = target.options["unix_socket"]
    return words | _encryption(target)


def _encryption(target: Target) -> dict[str, Any]:
    options = target.options
    ssl, files = options.get("ssl"), [key for key in options if key.startswith("ssl_")]
    if ssl not in (None, "yes", "no") or (ssl == "no" and files):
        raise ValueError("?ssl= is yes or no; with no, there is no ssl_ca= and no ssl_cert=")
    if ssl == "no":
        return {"ssl_disabled": True}
    if not ssl and not files:
        return {}
    if not files:
        return {"ssl": _trusts_system()}
    return {"ssl": tls_context(options, "MySQL", "ssl_")}


@cache
def _trusts_system() -> ssl.SSLContext:
    """Verify by the authorities of the system. Loading them takes 20 ms, in which no other thread
    of this process runs.
    """
    return ssl.create_default_context()


@cache
def _verifies_nothing() -> ssl.SSLContext:
    """As PyMySQL has it where it may use TLS and need not. It would make one for each connection,
    and load the authorities of the system for it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _unconnected(pymysql: Any, named: dict[str, Any]) -> Any:
    """A connection of PyMySQL that is not established yet."""
    if named.keys() & {"ssl", "ssl_disabled"}:
        return pymysql.connect(**named, defer_connect=True)
    conn = pymysql.connect(**named, ssl_disabled=True, defer_connect=True)
    conn.ssl, conn.ctx = True, _verifies_nothing()
    return conn


def _refusal(error: Exception) -> tuple[str, ErrorReason]:
    """What to correct and why there is no connection, by the number of the error."""
    problem = tls_problem(error_behind(error))
    if problem:
        return f"{problem}: see ?ssl= and ?ssl_ca=", "misconfigured"
    number = str(error.args[0]) if error.args else ""
    if number in MYSQL_DENIED:
        return "", "denied"
    if number == NO_TLS:
        return "set up TLS on the server, or write another ?ssl=", "misconfigured"
    if number == TLS_REQUIRED:
        return "write ?ssl=yes", "misconfigured"
    if isinstance(error, RuntimeError) and "cryptography" in str(error):
        return "pip install cryptography, or let the connection use TLS", "misconfigured"
    # Numbers from 2000 on are of PyMySQL, which has no connection. It raises a RuntimeError for a
    # package that is missing.
    answered = number.isdigit() and not 2000 <= int(number) < 3000 and number not in PASSING
    wrong = answered or isinstance(error, RuntimeError)
    return "", "misconfigured" if wrong else "unreachable"


class Mysql(DatabaseProtocol):
    """The protocol of one connection, without its waits."""

    def __init__(self, target: Target, now: Callable[[], float]) -> None:
        super().__init__(target, now)
        self.pymysql = library("pymysql", EXTRA)
        self.status = 0
        self.answer: Answer | None = None

    # --- connecting ---------------------------------------------------------------------------

    def connect(self, until: float) -> Steps:
        """PyMySQL connects in one blocking function."""
        try:
            self.conn = yield lambda: self._made(until)
        except TimeoutError:
            raise StoreUnreachable(f"{self.target.shown} could not be reached in time") from None
        self.socket = self.conn._sock
        self.connecting = None
        self.socket.setblocking(False)
        if self.socket.family in (socket.AF_INET, socket.AF_INET6):
            for option, value in KEEPALIVE:
                self.socket.setsockopt(*option, value)
        self.number = self.conn.thread_id()
        self.status = self.conn.server_status
        if self.target.connect is not None:
            yield from self._send(SET_OPTION + SEVERAL_STATEMENTS)
            yield from self.receive()

    def discard(self, made: Any) -> None:
        """Close a connection that was established too late."""
        made.close()

    def _made(self, until: float) -> Any:
        remaining = min(LONGEST_WAIT, max(SHORTEST_WAIT, until - self.now()))
        times = dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), remaining)
        try:
            if self.target.connect is not None:
                conn = self.target.connect()
                conn.rollback()
                conn.autocommit(True)
                return conn
            named = arguments(self.target)
            if "unix_socket" not in named:
                times["connect_timeout"] = time_per_address(named["host"], named["port"], remaining)
            conn = _unconnected(self.pymysql, named | times)
            # The limits of PyMySQL are for each read; this one is for the whole handshake.
            limit = threading.Timer(remaining, _end_handshake, (conn,))
            limit.daemon = True
            limit.start()
            self.connecting = conn
            try:
                conn.connect()
            finally:
                limit.cancel()
            return conn
        except Exception as error:
            advice, reason = _refusal(error)
            text = f"{self.target.shown}: {one_line(error)}{': ' if advice else ''}{advice}"
            raise NotApplied(text, reason) from error

    def tls(self) -> Tls | None:
        """By its socket. PyMySQL may use TLS without being told to, and then verifies nothing."""
        if not isinstance(self.socket, ssl.SSLSocket):
            return None
        context, problem = self.socket.context, ""
        if context.verify_mode == ssl.CERT_NONE:
            problem = "the server's certificate is not verified"
        elif not context.check_hostname:
            problem = "the server's name is not verified"
        return Tls(problem, getattr(self.conn, "_ssl_required", True))

    # --- statements ---------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """Open, outside a transaction, and without an answer still to come."""
        open_and_idle = (
            not (self.broken or self.reply_pending or self.closed) and self.socket is not None
        )
        return open_and_idle and not self.status & IN_TRANSACTION

    def fresh(self) -> bool:
        """Usable, and neither ended by the server nor with unexpected input."""
        return self.usable and not self.pending() and not self.readable()

    def pending(self) -> int:
        """How many bytes TLS has decrypted already."""
        return self.socket.pending() if isinstance(self.socket, ssl.SSLSocket) else 0

    def send(self, text: str) -> Steps:
        """Send statements."""
        return self._send(QUERY + text.encode())

    def _send(self, command: bytes) -> Steps:
        self.reply_pending, self.sent = True, False
        self.answer = Answer()
        data = memoryview(packets(command))
        try:
            while data:
                try:
                    data = data[self.socket.send(data) :]
                except (BlockingIOError, ssl.SSLWantWriteError):
                    yield WRITE
                except ssl.SSLWantReadError:
                    yield READ
            self.sent = True
        except TimeoutError:
            raise self.silent() from None
        except OSError as error:
            raise self.lost(error) from error

    def receive(self) -> Steps:
        """Read their results."""
        answer = self.answer
        assert answer is not None
        try:
            while not answer.complete:
                if not self.pending():
                    yield READ
                try:
                    data = self.socket.recv(CHUNK)
                except (BlockingIOError, ssl.SSLWantReadError):
                    continue
                except ssl.SSLWantWriteError:
                    yield WRITE
                    continue
                if not data:
                    raise ConnectionResetError("the server has closed the connection")
                answer.feed(data)
        except TimeoutError:
            raise self.silent() from None
        except (OSError, *MALFORMED) as error:
            raise self.lost(error) from error
        self.broken = bool(answer.buffer)
        if answer.results:  # an error says nothing about the transaction
            self.status = answer.status
        # Last: an interrupt before it leaves a connection that is not used again.
        self.reply_pending = False
        if answer.error is None:
            return answer.results
        if answer.connection_ended:
            raise self.lost(answer.error)
        raise answer.error

    # --- the end ------------------------------------------------------------------------------

    def release(self) -> None:
        """Close the connection. It is shut down first: `close` of PyMySQL sends to the server."""
        self.broken = True
        if self.conn is not None:
            self.shutdown()
            self.conn.close()

    def after_fork(self) -> None:
        """In a forked child: close the descriptor without sending anything to the server."""
        conn, self.conn, self.connecting = self.conn or self.connecting, None, None
        connected = self.socket or (conn and conn._sock)
        if connected is not None and connected.fileno() >= 0:
            INHERITED.append(conn)
            os.close(connected.fileno())
        self.broken = True


def _end_handshake(conn: Any) -> None:
    if conn._sock is not None:
        shut_down(conn._sock)


class ThreadConnection(ThreadWire, Mysql):
    """A connection for threads."""


class TaskConnection(TaskWire, Mysql):
    """A connection for asyncio."""
