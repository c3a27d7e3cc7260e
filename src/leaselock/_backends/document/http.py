"""HTTP/1.1 over connections that are kept, to one of several servers; and replies that do not end.

A request is sent once. A connection that its server has closed meanwhile is noticed before it is
used again. If no reply arrives, the outcome is unknown, and the next request goes to another
server.
"""

from __future__ import annotations

import functools
import io
import socket
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse, IncompleteRead, RemoteDisconnected
from typing import TYPE_CHECKING, NamedTuple, cast

from leaselock._backends import chance
from leaselock._backends.addresses import time_per_address
from leaselock._backends.readiness import POLLIN, new_poller
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError, StoreUnreachable

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence

    from _typeshed import WriteableBuffer

    from leaselock._backends.url import Host

# More are closed after their use.
MOST_IDLE = 32
# A request that begins later than its deadline by this is not sent. One that is a little late is:
# the reply may say what is wrong with the store. Seconds.
GRACE = 0.25
SHORTEST_TIMEOUT, LONGEST_TIMEOUT = 0.001, 3600.0
# Seconds until the kernel asks whether the other end of a silent stream lives, between two such
# questions, and how many of them may stay unanswered.
KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
# The largest header of a reply, and the largest line of a stream.
LARGEST_HEADER, LARGEST_LINE = 1 << 16, 1 << 24
READ_SIZE = 1 << 18
AUTHORITY = (
    "name the authority that has signed it (?ca=FILE of an etcds URL, certificate-authority of a "
    "kubeconfig)"
)


class Reply(NamedTuple):
    """The answer to one request."""

    status: int
    body: bytes
    server: str
    """The host and port that answered."""
    date: float | None
    """The Unix time of the server, in whole seconds; None if it has not said it."""
    retry_after: float = 0.0
    """For how many seconds the server asks to wait, if it does."""


@functools.lru_cache(maxsize=16)
def unix_time(text: str | None) -> float | None:
    """The time that a header of HTTP says; None if it is missing or invalid."""
    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except ValueError:
        return None


class TimedReader(io.RawIOBase):
    """Reads a reply from a socket, all of it in the *seconds* that are left: a timeout of the
    socket would begin again with each byte.
    """

    def __init__(self, raw: socket.socket, seconds: Callable[[], float]) -> None:
        self.raw = raw
        self.seconds = seconds
        # The first bytes may have arrived, even if no time is left.
        self.started = False

    def makefile(self, mode: str) -> io.BufferedReader:
        """The reader, buffered."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read what has arrived, at least one byte; 0 at the end."""
        remaining = self.seconds()
        if self.started and remaining <= SHORTEST_TIMEOUT:
            raise TimeoutError
        self.started = True
        self.raw.settimeout(remaining)
        return self.raw.recv_into(buffer)


class Connection:
    """One connection; used by one thread at a time."""

    def __init__(self, server: Host, raw: socket.socket, *, encrypted: bool) -> None:
        self.server = server
        self.socket = raw
        self.encrypted = encrypted
        self.answered = False

    def is_open(self) -> bool:
        """Whether the server has not closed it, as far as this machine knows."""
        poller = new_poller()
        poller.register(self.socket, POLLIN)
        return not poller.poll(0)

    def exchange(
        self, method: str, message: bytes, seconds: Callable[[], float]
    ) -> tuple[Reply, bool]:
        """Send a request; return the reply, and whether the connection can be used again.
        *seconds* says how many are left.
        """
        raw = self.socket
        raw.settimeout(seconds())
        raw.sendall(message)
        # All that it uses of a socket is `makefile`.
        response = HTTPResponse(cast("socket.socket", TimedReader(raw, seconds)), method=method)
        try:
            response.begin()
            parts: list[bytes] = []
            while part := response.read1(READ_SIZE):
                parts.append(part)
            if response.length:
                raise IncompleteRead(b"".join(parts), response.length)
            body = b"".join(parts)
            self.answered = True
            date = unix_time(response.getheader("Date"))
            pause = response.getheader("Retry-After") or ""
            return (
                Reply(
                    response.status,
                    body,
                    shown(self.server),
                    date,
                    float(pause) if pause.isascii() and pause.isdigit() else 0.0,
                ),
                not response.will_close,
            )
        finally:
            response.close()

    def close(self) -> None:
        """Close it."""
        self.socket.close()


def shown(server: Host) -> str:
    """The host and port, as messages name them."""
    host = f"[{server.name}]" if ":" in server.name else server.name
    return f"{host}:{server.port}"


class Pool:
    """Connections to *servers*, which are equal: one is used until it fails."""

    def __init__(
        self, servers: Sequence[Host], now: Callable[[], float], tls: ssl.SSLContext | None = None
    ) -> None:
        self.servers = tuple(servers)
        self.now = now
        self.tls = tls
        # Clients begin with different servers.
        self.current = int(chance() * len(self.servers))
        self.idle: list[Connection] = []
        # By server: how often it has failed.
        self.failures: dict[str, int] = {}
        # All that are open, for a forked child.
        self.open: set[Connection] = set()
        # How often the pool was closed: a connection of an earlier time does not return to it.
        self.age = 0

    def request(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        until: float,
        server: Host | None = None,
    ) -> Reply:
        """The reply of a server: of *server*, if it is given. StoreUnreachable if none could be
        connected to; OutcomeUnknown if none has replied by *until*.
        """
        if self.now() >= until + GRACE:
            raise StoreUnreachable("the time for the request was over before it was sent")
        age = self.age
        connection = self._idle_connection(server) or self.connect(until, server)
        message = self.message(connection.server, method, path, body, headers)
        try:
            reply, reusable = connection.exchange(method, message, lambda: self.time_left(until))
        except (OSError, HTTPException) as error:
            self.failed(connection)
            raise _no_reply(connection, error) from error
        except BaseException:
            self.discard(connection)
            raise
        if reusable and age == self.age and len(self.idle) < MOST_IDLE:
            self.idle.append(connection)
        else:
            self.discard(connection)
        return reply

    def time_left(self, until: float) -> float:
        """Seconds until *until*, as a timeout of a socket."""
        return min(LONGEST_TIMEOUT, max(SHORTEST_TIMEOUT, until - self.now()))

    def message(
        self, server: Host, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> bytes:
        """A request as it is sent: in one piece, so that it is usually one packet."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {shown(server)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body or method != "GET":
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    def _idle_connection(self, server: Host | None) -> Connection | None:
        while self.idle:
            try:
                connection = self.idle.pop()
            except IndexError:  # another thread took the last one
                return None
            if connection.is_open() and server in (None, connection.server):
                return connection
            self.discard(connection)
        return None

    def connect(self, until: float, server: Host | None = None) -> Connection:
        """A new connection, to the server in use, or to the first of the others that accepts it."""
        first = self.current
        candidates = [server] if server else [*self.servers[first:], *self.servers[:first]]
        errors: list[StoreError] = []
        for number, candidate in enumerate(candidates):
            # The last one may take all of the time that is left.
            timeout = self.time_left(until) / (len(candidates) - number)
            try:
                connection = self._connect(candidate, timeout)
            except StoreError as error:
                errors.append(error)
            else:
                if server is None:
                    self.current = self.servers.index(candidate)
                return connection
        # A wrong certificate tells more than a server that is down.
        errors.sort(key=lambda error: error.reason == "unreachable")
        raise errors[0]

    def _connect(self, server: Host, timeout: float) -> Connection:
        port = server.port
        assert port is not None  # the default was filled in
        try:
            limit = time_per_address(server.name, port, timeout)
            raw = socket.create_connection((server.name, port), limit)
        except (OSError, UnicodeError) as error:
            raise StoreUnreachable(f"{shown(server)}: {_words(error)}") from error
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls is not None:
                raw = self.tls.wrap_socket(raw, server_hostname=server.name)
        except (OSError, ValueError) as error:
            raw.close()
            raise _no_tls(server, error) from error
        except BaseException:
            raw.close()
            raise
        connection = Connection(server, raw, encrypted=self.tls is not None)
        self.open.add(connection)
        return connection

    def failed(self, connection: Connection) -> None:
        """Close the connection, and the idle ones of its server; use another server next."""
        self.discard(connection)
        for other in [other for other in self.idle if other.server == connection.server]:
            try:
                self.idle.remove(other)
            except ValueError:  # another thread has just taken it
                continue
            self.discard(other)
        self.use_another(shown(connection.server))

    def use_another(self, server: str) -> None:
        """Use another server than this one next, and end streams from it."""
        self.failures[server] = self.failures.get(server, 0) + 1
        if shown(self.servers[self.current]) == server:
            self.current = (self.current + 1) % len(self.servers)

    def discard(self, connection: Connection) -> None:
        """Close one connection."""
        self.open.discard(connection)
        connection.close()

    def close(self) -> None:
        """Close all connections that are not in use, and the others after their use."""
        self.age += 1
        while self.idle:
            self.discard(self.idle.pop())

    def after_fork(self) -> None:
        """Drop the parent's connections: closing a descriptor here sends nothing."""
        self.age += 1
        for connection in self.open:
            connection.close()
        self.open, self.idle = set(), []


def _words(error: BaseException) -> str:
    """An error of the network in words, without its number."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(getattr(error, "strerror", None) or str(error) or type(error).__name__)


def _no_tls(server: Host, error: Exception) -> StoreError:
    import ssl

    from leaselock._backends.tls import tls_problem

    problem = tls_problem(error)
    if problem:
        advice = f": {AUTHORITY}" if "not verified" in problem else ""
        return NotApplied(f"{shown(server)}: TLS: {problem}{advice}", "misconfigured")
    lost = isinstance(error, ssl.SSLEOFError)
    text = "the server has closed the connection (does it use TLS?)" if lost else _words(error)
    return StoreUnreachable(f"{shown(server)}: TLS: {text}")


def _no_reply(connection: Connection, error: Exception) -> StoreError:
    where = shown(connection.server)
    if connection.encrypted and not connection.answered:
        from leaselock._backends.tls import REFUSED, tls_problem

        problem = tls_problem(error)
        if problem.startswith(REFUSED):
            # The handshake has failed on the server's side, so it has not read the request.
            return NotApplied(f"{where}: TLS: {problem}", "misconfigured")
    if isinstance(error, RemoteDisconnected):
        doubt = "" if connection.answered or connection.encrypted else " (does it use TLS?)"
        return OutcomeUnknown(f"{where}: it has closed the connection without a reply{doubt}")
    return OutcomeUnknown(f"{where}: {_words(error)}")


class Stream:
    """A reply that does not end: lines, as they arrive. `fileno` is for a selector."""

    def __init__(
        self,
        pool: Pool,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        until: float,
    ) -> None:
        self.pool = pool
        self.connection = pool.connect(until)
        self.server = shown(self.connection.server)
        self.failures = pool.failures.get(self.server, 0)
        self.status = 0
        # The next call of `read` reports the end.
        self.ended = False
        self.lines = Lines()
        self.header = b""
        raw = self.connection.socket
        try:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in KEEPALIVE.items():
                if hasattr(socket, name):  # they differ by the operating system
                    raw.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            raw.sendall(pool.message(self.connection.server, method, path, body, headers))
            raw.setblocking(False)
        except OSError as error:
            self.fail()
            raise _no_reply(self.connection, error) from error
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """The descriptor of its connection."""
        return self.connection.socket.fileno()

    @property
    def is_stale(self) -> bool:
        """Whether its server has failed to answer a request since: it may never send a line."""
        return self.pool.failures.get(self.server, 0) != self.failures

    def read(self) -> list[bytes]:
        """The complete lines that have arrived; StoreError if none will follow."""
        complete: list[bytes] = []
        while not self.ended:
            try:
                data = self.connection.socket.recv(READ_SIZE)
            except (BlockingIOError, InterruptedError):
                return complete
            except OSError as error:
                if _wants_more(error):
                    return complete
                self.fail()
                raise _no_reply(self.connection, error) from error
            try:
                complete += self._lines(data)
            except (ValueError, IndexError) as error:
                self.fail()
                raise OutcomeUnknown(f"{self.server}: no valid reply of HTTP") from error
            self.ended = self.lines.ended or not data
            if self.pool.tls is None:
                break  # TLS may have decoded more than the selector knows of
        if self.ended and not complete:
            self.close()
            raise OutcomeUnknown(f"{self.server}: the stream has ended")
        return complete

    def _lines(self, data: bytes) -> list[bytes]:
        if self.status:
            return self.lines.feed(data)
        self.header += data
        head, end, rest = self.header.partition(b"\r\n\r\n")
        if not end:
            if len(head) > LARGEST_HEADER:
                self.fail()
                raise OutcomeUnknown(f"{self.server}: no reply of HTTP")
            return []
        first, *fields = head.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ")[1]) if first.startswith("HTTP/1.") else 599
        for field in fields:
            name, _, value = field.lower().partition(":")
            if name == "transfer-encoding":
                self.lines.chunked = value.strip() == "chunked"
            elif name == "content-length" and value.strip().isdigit():
                self.lines.remaining = int(value)
                self.lines.ended = not self.lines.remaining
        self.header = b""
        return self.lines.feed(rest)

    def fail(self) -> None:
        """Close it, and use another server next."""
        self.pool.failed(self.connection)

    def close(self) -> None:
        """Close its connection."""
        self.pool.discard(self.connection)


def _wants_more(error: OSError) -> bool:
    import ssl

    return isinstance(error, ssl.SSLWantReadError | ssl.SSLWantWriteError)


class Lines:
    """Takes the lines out of the body of a reply, which may be sent in chunks."""

    def __init__(self) -> None:
        self.chunked = False
        self.ended = False
        self.data = b""
        # What is left of the present chunk, with the end of line behind it; without chunks, of the
        # reply, if it says its length, as an error does.
        self.remaining = 0
        self.line = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that end in *data*."""
        body = self._content(data) if self.chunked else data
        *lines, self.line = (self.line + body).split(b"\n")
        if not self.chunked and self.remaining:
            self.remaining = max(0, self.remaining - len(data))
            if not self.remaining:
                lines, self.line, self.ended = [*lines, self.line], b"", True
        if len(self.line) > LARGEST_LINE:
            self.ended = True
        return [line for line in lines if line.strip()]

    def _content(self, data: bytes) -> bytes:
        self.data += data
        content = b""
        while self.data and not self.ended:
            if not self.remaining:
                size, end, rest = self.data.partition(b"\r\n")
                if not end:
                    break
                length = int(size.partition(b";")[0], 16)
                self.ended = length == 0
                self.remaining, self.data = length + 2, rest
                continue
            part, self.data = self.data[: self.remaining], self.data[self.remaining :]
            self.remaining -= len(part)
            # The last two bytes of a chunk are the end of its line.
            content += part[: max(0, len(part) - max(0, 2 - self.remaining))]
        return content
