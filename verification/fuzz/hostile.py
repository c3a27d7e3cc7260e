"""Servers on a local port that answer a client with predefined data.

A server reads requests, and answers each with the next of its pieces. It remembers which token it
has granted to which client.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from testkit.servers.process import HOST
from testkit.servers.resp import packed, read_reply

from leaselock._backends.redis.layout_marker import LAYOUT

if TYPE_CHECKING:
    from collections.abc import Sequence

# Held by another client: remaining time, our position, our ticket; its owner, metadata and token.
BUSY = b"*7\r\n:0\r\n:9000\r\n:0\r\n" + packed(b"5", b"x:1", b"1\nboth\n5\n{}", b"3")[4:]
HELLO = b"%1\r\n$5\r\nproto\r\n:3\r\n"
# How many arguments of a script stand before the owner (keys.lua, acquire.lua).
OWNER = 7
LATE = 0.1
# How long one byte comes after the other, of what is said so.
DRIP = 0.05
POLITE = ("HELLO", "SUBSCRIBE")


class Piece(NamedTuple):
    """The answer to one command."""

    kind: str
    data: bytes = b""


def pushed(*words: bytes) -> bytes:
    """A message that a server sends without a request."""
    return b">" + packed(*words)[1:]


class Listener:
    """One server, whatever it speaks."""

    def __init__(self, scheme: str, polite: Sequence[str]) -> None:
        self.listener = socket.create_server((HOST, 0))
        self.url = f"{scheme}://{HOST}:{self.listener.getsockname()[1]}"
        self.manners = polite
        self.play(())
        threading.Thread(target=self._accept, daemon=True).start()

    def play(self, pieces: Sequence[Piece], polite: Sequence[str] | None = None) -> None:
        """From now on answer with these, over and over; *polite* as a server is, or less so."""
        self.pieces = pieces
        self.polite = self.manners if polite is None else polite
        self.turn = 0
        self.granted: set[tuple[str, int]] = set()

    def _accept(self) -> None:
        while True:
            wire, _ = self.listener.accept()
            threading.Thread(target=self._serve, args=(wire,), daemon=True).start()

    def _serve(self, wire: socket.socket) -> None:
        with wire, wire.makefile("rb") as stream, contextlib.suppress(OSError, struct.error):
            self.converse(wire, stream)

    def converse(self, wire: socket.socket, stream: BinaryIO) -> None:
        """One connection, from its beginning to its end."""
        raise NotImplementedError

    def next(self) -> Piece:
        """What is said now."""
        self.turn += 1
        return self.pieces[(self.turn - 1) % len(self.pieces)]

    def say(self, wire: socket.socket, kind: str, data: bytes) -> bool:
        """Send it; False at the end of the connection."""
        if kind == "late":
            threading.Event().wait(LATE)
        for part in [data[n : n + 1] for n in range(len(data))] if kind == "drip" else [data]:
            wire.sendall(part)
            if kind == "drip":
                threading.Event().wait(DRIP)
        return kind not in ("half", "end")


def mangled(kind: str, data: bytes, whole: bytes) -> bytes:
    """What becomes of a sound answer, with more data before it."""
    if kind == "half":
        return whole[: len(whole) // 2]
    return data + whole + (whole if kind == "twice" else b"")


class Hostile(Listener):
    """A Redis. What is not about locks it answers as a server does, as far as it is polite."""

    def __init__(self) -> None:
        super().__init__("redis", POLITE)

    def converse(self, wire: socket.socket, stream: BinaryIO) -> None:
        """Answer each command."""
        while self._answer(wire, [str(word) for word in read_reply(stream)]):
            continue

    def _answer(self, wire: socket.socket, command: list[str]) -> bool:
        data, kind = self._proper(*command[:2]), ""
        if not data:
            kind, more = self.next()
            data = self._said(kind, more, command)
        return self.say(wire, kind, data)

    def _proper(self, verb: str, word: str = "") -> bytes:
        if verb in ("HELLO", "CLIENT") and "HELLO" in self.polite:
            return HELLO if verb == "HELLO" else b"+OK\r\n"
        if verb == "GET" and word.startswith("leaselock:layout:") and "HELLO" in self.polite:
            return packed(str(LAYOUT))[4:]
        if verb.endswith("SUBSCRIBE") and "SUBSCRIBE" in self.polite:
            return pushed(verb.lower().encode(), word.encode(), b"1")
        return b""

    def _said(self, kind: str, data: bytes, command: list[str]) -> bytes:
        """What a piece is to this command."""
        if kind in ("raw", "end"):
            return data
        if kind in ("busy", "tell"):
            return data + BUSY if kind == "busy" else BUSY + data
        return mangled(kind, data, self._grant(command))

    def _grant(self, command: list[str]) -> bytes:
        """A grant, if it is one of our scripts that asks; to all else, an error."""
        if not command[0].startswith("EVAL"):
            return b"-ERR\r\n"
        token = len(self.granted) + 1000
        # Scripts that ask for no lock have fewer arguments, or no owner there.
        owner = command[3 + int(command[2]) + OWNER :][:1]
        self.granted.update((each, token) for each in owner)
        return b"*2\r\n:1\r\n$4\r\n%d\r\n" % token
