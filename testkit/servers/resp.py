"""The least that speaks to Redis: a socket, commands in, replies out.

It uses no client library, so it can check all of them, and it never repeats a command.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from testkit.servers.process import HOST

if TYPE_CHECKING:
    import ssl

Word = str | bytes | int | float


class ReplyError(Exception):
    """The server answered with an error."""


def packed(*words: Word) -> bytes:
    """A command as it goes over the wire."""
    parts = [f"*{len(words)}\r\n".encode()]
    for word in words:
        body = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(body), body))
    return b"".join(parts)


def read_reply(stream: BinaryIO) -> Any:
    """The next reply; texts as str, errors as ReplyError (returned, not raised)."""
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionError("the server has closed the connection")
    kind, rest = line[:1], line[1:-2]
    if kind == b"-":
        return ReplyError(rest.decode())
    if kind == b":":
        return int(rest)
    if kind == b"+":
        return rest.decode()
    if kind == b"$":
        return None if rest == b"-1" else stream.read(int(rest) + 2)[:-2].decode()
    if kind in (b"*", b">"):
        return None if rest == b"-1" else [read_reply(stream) for _ in range(int(rest))]
    raise ConnectionError(f"not a reply: {line!r}")


class Wire:
    """One connection."""

    def __init__(
        self, port: int, *, host: str = HOST, tls: ssl.SSLContext | None = None, unix: str = ""
    ) -> None:
        self.socket = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        self.socket.settimeout(10)
        try:
            self.socket.connect(unix or (host, port))
            if not unix:
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls:
                self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        except OSError:
            self.socket.close()
            raise
        self.stream = self.socket.makefile("rb")

    def ask(self, *words: Word) -> Any:
        """Send one command and read its reply; an error reply is raised."""
        self.socket.sendall(packed(*words))
        return self.await_wakeup()

    def await_wakeup(self) -> Any:
        """What the server says next."""
        reply = read_reply(self.stream)
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    def close(self) -> None:
        """Hang up."""
        self.stream.close()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
