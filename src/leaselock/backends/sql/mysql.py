"""One connection to MySQL or MariaDB, by PyMySQL: it connects and reads, we say how long.

A script is sent as one query of several statements, so that it takes one round trip. A connection
that owes an answer is never used again, and none is ever reopened by itself (hazard D8).
"""

from __future__ import annotations

import math
import os
import select
import socket
import ssl
from typing import TYPE_CHECKING, Any

from leaselock.backends import library
from leaselock.backends.sql.script import Result, SqlError, senseless
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.backends.sql.script import Row
    from leaselock.backends.sql.url import Target

EXTRA = "mysql"
LONGEST_WAIT = 3600.0
SHORTEST_WAIT = 0.001
PORT = 3306
MULTI_STATEMENTS = 1 << 16
IN_TRANSACTION = 1
SET_OPTION, SEVERAL = 0x1B, b"\x00\x00"
# The connection has ended: gone, lost, killed, shut down, idle for too long.
ENDED = {2002, 2003, 2006, 2013, 2014, 2055, 1053, 1927, 4031}
OPTIONS = {"unix_socket", "ssl_ca", "ssl_cert", "ssl_key", "ssl"}

# Above this, a graveyard: connections that a forked child inherited. A thread that did not come
# along may be reading from one, and has its buffer locked for ever: to close it would be to wait.
INHERITED: list[Any] = []
# A server that vanished without a word is noticed in about 15 seconds (hazard D5).
QUICK = [
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
    """ImportError where the client library is missing, ValueError for what it does not know."""
    library("pymysql", EXTRA)
    arguments(target)


def arguments(target: Target) -> dict[str, Any]:
    """What the client library is told; ValueError for an option that is not known."""
    unknown = set(target.options) - OPTIONS
    if unknown:
        known = ", ".join(sorted({*OPTIONS, "protocol", "session", "pool", "proxy"}))
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
    asked, files = options.get("ssl"), [key for key in options if key.startswith("ssl_")]
    if asked not in (None, "yes", "no") or (asked == "no" and files) or files == ["ssl_key"]:
        raise ValueError("?ssl= is yes or no; with no, there is no ssl_ca=; an ssl_key= has a cert")
    if asked == "no":
        return {"ssl_disabled": True}
    if not asked and not files:
        return {}
    context = ssl.create_default_context(cafile=options.get("ssl_ca"))
    if "ssl_cert" in options:
        context.load_cert_chain(options["ssl_cert"], options.get("ssl_key"))
    return {"ssl": context}


class Wire:
    """PyMySQL's bytes, read and written for it: with one deadline, and the fewest system calls.

    PyMySQL sets the socket's timeout anew before each of the two reads of a packet.
    """

    def __init__(self, conn: Any, now: Callable[[], float], until: float) -> None:
        self.now = now
        self.until = until
        # Until the handshake is over.
        self.conn = conn
        self.socket: Any = None
        self.buffer = b""
        self.place = 0
        conn._read_bytes = self.read

    def _found(self, sock: Any) -> None:
        """The socket of the connection: the handshake has made it, or put it into another (TLS)."""
        self.socket = sock
        self.poll = select.poll()
        self.poll.register(sock, select.POLLIN)
        self.encrypted = isinstance(sock, ssl.SSLSocket)
        # What TLS has taken from the kernel already.
        self.pending: Callable[[], int] = getattr(sock, "pending", lambda: 0)

    def settle(self) -> None:
        """The handshake is over: from now on nothing but the poll keeps the time."""
        conn, self.conn = self.conn, None
        self._found(conn._sock)
        conn._read_timeout = conn._write_timeout = conn._current_timeout = None
        self.socket.settimeout(None)
        if self.socket.family != socket.AF_UNIX:
            for option, value in QUICK:
                self.socket.setsockopt(*option, value)
        conn._write_bytes = self.socket.sendall

    def read_all(self) -> bool:
        """Whether nothing is left of what was received."""
        return self.place == len(self.buffer)

    def read(self, count: int) -> bytes:
        """So many bytes; OSError when they do not come."""
        end = self.place + count
        while end > len(self.buffer):
            self.buffer = self.buffer[self.place :] + self._received()
            self.place, end = 0, count
        data = self.buffer[self.place : end]
        self.place = end
        return data

    def _received(self) -> bytes:
        if self.conn is not None and self.conn._sock is not self.socket:
            self._found(self.conn._sock)
        left = min(LONGEST_WAIT, max(0.0, self.until - self.now()))
        if not self.pending() and not self.poll.poll(math.ceil(left * 1000)):
            raise TimeoutError("the server did not answer in time")
        if self.encrypted:
            # What has come may be half a record, or nothing but TLS's own.
            self.socket.settimeout(max(SHORTEST_WAIT, left))
        data: bytes = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionResetError("the server has closed the connection")
        return data


class Line:
    """A connection, asked by one thread at a time."""

    def __init__(self, target: Target, now: Callable[[], float], until: float) -> None:
        self.pymysql = library("pymysql", EXTRA)
        self.target = target
        self.now = now
        self.broken = False
        # It has been used before, and lay idle since.
        self.worn = False
        self.backend = 0
        # It keeps no statements.
        self.kept: set[str] | None = None
        self.conn = self._connected(until)
        # What the server said its number is, or a proxy in its stead.
        self.number: int = self.conn.thread_id()

    def _connected(self, until: float) -> Any:
        patience = max(SHORTEST_WAIT, self.left(until))
        times = dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), patience)
        try:
            if self.target.connect is not None:
                conn = opened(self.target.connect())
                self.wire = Wire(conn, self.now, until)
            else:
                conn = self.pymysql.connect(**arguments(self.target), **times, defer_connect=True)
                # PyMySQL's own limits are for each read alone: a server may say a little each time.
                self.wire = Wire(conn, self.now, until)
                conn.connect()
            self.wire.settle()
            return conn
        except Exception as error:
            raise NotApplied(f"{self.target.shown}: {said(error)}") from error

    def left(self, until: float) -> float:
        """Seconds until then."""
        return min(LONGEST_WAIT, max(0.0, until - self.now()))

    def fileno(self) -> int:
        """The descriptor of its socket."""
        number: int = self.conn._sock.fileno()
        return number

    def fresh(self) -> bool:
        """Whether it can be used: the server has neither ended it nor said anything unasked."""
        if self.broken or self.conn.server_status & IN_TRANSACTION or not self.wire.read_all():
            return False
        return not readable(self.fileno(), 0.0)

    def run(self, text: str, until: float) -> list[Result]:
        """Have a script carried out; SqlError where the server refuses, Unknown without answer."""
        self.wire.until = until
        try:
            self.conn.query(text)
            results = [taken(self.conn._result)]
            while self.conn._result.has_next:
                self.conn.next_result()
                results.append(taken(self.conn._result))
            return results
        except (self.pymysql.err.Error, OSError) as error:
            told = failure(error, self.target.shown)
            self.broken = not isinstance(told, SqlError)
            raise told from error
        except BaseException as error:
            self.broken = True
            if isinstance(error, Exception):
                # PyMySQL fails in all manner of ways at what no server says.
                raise senseless(self, error) from error
            raise

    def cut(self) -> None:
        """End, from another thread, whatever goes on here."""
        shut(self.conn)

    def close(self) -> None:
        """End the session. The server sees the end of the connection, as it would of a dead one."""
        self.broken = True
        self.conn._force_close()

    def abandon(self) -> None:
        """In a forked child: let go of the descriptor, without a word to the server."""
        if not self.broken:
            os.close(self.fileno())
        self.broken = True
        INHERITED.append(self.conn)


def opened(conn: Any) -> Any:
    """A connection that an engine has made, as ours are: several statements, each committed."""
    conn.rollback()
    conn.autocommit(True)
    conn._execute_command(SET_OPTION, SEVERAL)
    conn._read_packet()
    conn.client_flag |= MULTI_STATEMENTS
    return conn


def failure(error: BaseException, shown: str) -> Exception:
    """What an error of the client library means: the server refused, or there is no answer."""
    number = error.args[0] if error.args else 0
    refused = isinstance(number, int) and number and number not in ENDED
    if refused and not isinstance(error, OSError):
        return SqlError(str(number), said(error))
    return OutcomeUnknown(f"{shown}: {said(error)}")


def taken(result: Any) -> Result:
    """What one statement brought."""
    rows = [_row(row) for row in result.rows or ()]
    return Result(rows, result.affected_rows, result.insert_id or 0)


def _row(row: Row) -> Row:
    return tuple([value.decode() if isinstance(value, bytes) else value for value in row])


def said(error: BaseException) -> str:
    """What went wrong, in one line."""
    return " ".join(str(error.args[-1] if error.args else error).split()) or type(error).__name__


def readable(descriptor: int, patience: float) -> bool:
    """Whether there is something to read, or the end."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(patience * 1000))


def shut(conn: Any) -> None:
    """End a connection, so that whoever waits for it is woken."""
    try:
        conn._sock.shutdown(2)
    except (OSError, AttributeError):
        return  # it has ended already
