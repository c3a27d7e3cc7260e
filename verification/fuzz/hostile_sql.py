"""Servers that answer a client of PostgreSQL or of MySQL with predefined data.

They greet as a real server does. All else is a piece: a sound answer to
the statements that were sent, or what is made of one, or any bytes.
"""

from __future__ import annotations

import re
import struct
import threading
from typing import TYPE_CHECKING, Any, BinaryIO

from verification.fuzz.hostile import Listener, Piece, mangled

from leaselock._backends.sql.statements import dialect_of

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

# The handshake, and what a connection is asked before it is used.
POLITE = ("START", "GREET")
NUMBER, FAR = 7, 9 * 10**15
HELD = (3, 1, "x:1", "x", "either", FAR, "{}", 0)
SESSION = ("a", "x:1", "x", 3, 9, "{}", 0, "exclusive")
ALWAYS: dict[str, list[Any]] = {
    "identify": [(NUMBER,)],
    "fact": [("1",)],
    "session settings": [("", "idle_session_timeout")],
    "lock liveness key": [(True,)],
    "record waiter": [(True,)],
    "ping": [(1,)],
    "now": [(1,)],
    "row exists": [(1,)],
}
# The last statement of a commit to MySQL is one that every connection begins with.
GREETING = {"identify", "fact", "session settings", "session defaults", "commit", ""}
BUSY: dict[str, list[Any]] = {
    **ALWAYS,
    "lock": [HELD],
    "holding sessions": [SESSION],
    "sessions": [SESSION],
    "advisory stranger": [(7, "user", "program", 0, "exclusive")],
    "row stranger": [(7, "user", "program", 0, "exclusive")],
}
# Requests for a connection that is encrypted, by which PostgreSQL's clients begin.
ENCRYPTED = (80877103, 80877104)
MORE, QUERY = 0x08, 3


def granted(token: int) -> dict[str, list[Any]]:
    """The rows of a database that gives."""
    row: list[Any] = [(token,)]
    taken = {"acquire free": row, "advisory acquire": row, "row try": [("a", True)]}
    return {**BUSY, **taken, "row token": [(token, 1)]}


def changed(whole: bytes, plan: bytes) -> bytes:
    """A sound answer, in which some bytes are flipped, cut out, put in or said again."""
    for place, what, value in zip(plan[::3], plan[1::3], plan[2::3], strict=False):
        at = place * len(whole) // 256
        there, rest = whole[at : at + 1 + value % 16], whole[at + 1 :]
        if what % 4 == 0:
            whole = whole[:at] + bytes([value ^ byte for byte in whole[at : at + 1]]) + rest
        elif what % 4 == 1:
            whole = whole[:at] + whole[at + len(there) :]
        else:
            whole = whole[:at] + (there if what % 4 == 2 else bytes([value])) + whole[at:]
    return whole


class Database(Listener):
    """One of the two."""

    def __init__(self, scheme: str, dialect: str) -> None:
        super().__init__(scheme, POLITE)
        self.holders: Sequence[str] = ()
        self.guard = threading.Lock()
        statements = dialect_of(dialect).statements
        self.titles: dict[str, str] = {}
        for title, body in statements.items():
            *parts, last = (re.split(r"(?<!:):(?!:)", p.strip())[0] for p in body.split(";"))
            self.titles = {**dict.fromkeys(parts, ""), last: title, **self.titles}
        del self.titles[""]
        self.starts = sorted(self.titles, key=len, reverse=True)

    def title(self, statement: str) -> str:
        """What a statement is, where its rows matter."""
        kept = re.match(r"EXECUTE leaselock_(\w+)", statement)
        if kept is not None:
            return kept[1].replace("_", " ")
        start = next((start for start in self.starts if statement.startswith(start)), "")
        return self.titles.get(start, "")

    def answer(self, wire: socket.socket, text: str) -> bool:
        """Answer a script; False at the end of the connection."""
        titles = [self.title(part.strip()) for part in text.split(";")]
        if "GREET" in self.polite and GREETING.issuperset(titles):
            return self.say(wire, "", self.sound(titles, ALWAYS))
        return self.play_piece(wire, self.next(), titles, text)

    def play_piece(
        self, wire: socket.socket, piece: Piece, titles: list[str], text: str = ""
    ) -> bool:
        """Say what a piece is to these statements."""
        kind, data = piece
        if kind not in ("raw", "end"):
            rows = BUSY if kind == "busy" else granted(self.give(titles, text))
            whole = self.sound(titles, rows)
            data = changed(whole, data) if kind == "changed" else mangled(kind, data, whole)
        return self.say(wire, kind, data)

    def give(self, titles: list[str], text: str) -> int:
        """A token; whose it is, is remembered where it is one."""
        with self.guard:
            token = len(self.granted) + 1000
            for holder in self.holders:
                if holder in text or holder.encode().hex() in text:
                    self.granted.add((holder, token))
        return token

    def sound(self, titles: list[str], rows: dict[str, list[Any]]) -> bytes:
        """What a server says to these statements, if it has these rows."""
        raise NotImplementedError


def message(kind: bytes, body: bytes) -> bytes:
    """One of PostgreSQL's."""
    return kind + struct.pack("!i", len(body) + 4) + body


def field(kind: int) -> bytes:
    """A column of a type, without a name."""
    return b"\0" + struct.pack("!ihihih", 0, 0, kind, 8, -1, 0)


def cell(value: object) -> bytes:
    """A value, as a text."""
    text = b"t" if value is True else str(value).encode()
    return struct.pack("!i", len(text)) + text


READY = message(b"Z", b"I")
SETTINGS = {
    "server_version": "16.1",
    "client_encoding": "UTF8",
    "in_hot_standby": "off",
    "default_transaction_read_only": "off",
}
WELCOME = (
    message(b"R", struct.pack("!i", 0))
    + b"".join(message(b"S", f"{key}\0{value}\0".encode()) for key, value in SETTINGS.items())
    + message(b"K", struct.pack("!ii", NUMBER, 5))
    + READY
)


class PostgresLike(Database):
    """It speaks PostgreSQL's protocol."""

    def __init__(self) -> None:
        super().__init__("postgresql", "postgres")

    def converse(self, wire: socket.socket, stream: BinaryIO) -> None:
        """The start, and each script."""
        going = self._started(wire, stream)
        while going:
            kind, size = struct.unpack("!ci", stream.read(5))
            body = stream.read(size - 4)
            going = kind != b"Q" or self.answer(wire, body[:-1].decode())

    def _started(self, wire: socket.socket, stream: BinaryIO) -> bool:
        while True:
            size, code = struct.unpack("!ii", stream.read(8))
            stream.read(size - 8)
            if "START" not in self.polite:
                return self.say(wire, *self.next())
            if code not in ENCRYPTED:
                return self.say(wire, "", WELCOME)
            wire.sendall(b"N")

    def sound(self, titles: list[str], rows: dict[str, list[Any]]) -> bytes:
        """Rows or none for each."""
        return b"".join(self._done(rows.get(title)) for title in titles) + READY

    def _done(self, rows: list[Any] | None) -> bytes:
        said = b""
        if rows is not None:
            kinds = [{int: 20, bool: 16, str: 25}[type(value)] for value in rows[0]]
            count = struct.pack("!h", len(kinds))
            said += message(b"T", count + b"".join(map(field, kinds)))
            said += b"".join(message(b"D", count + b"".join(map(cell, row))) for row in rows)
        return said + message(b"C", b"UPDATE %d\0" % len(rows or ()))


def packet(number: int, body: bytes) -> bytes:
    """One of MySQL's."""
    return struct.pack("<i", len(body))[:3] + bytes([number % 256]) + body


def counted(text: bytes) -> bytes:
    """A short text and its length."""
    return bytes([len(text)]) + text


def done(amount: int = 0, number: int = 0, more: int = 0) -> bytes:
    """The number of changed rows, and the value of LAST_INSERT_ID()."""
    return (
        b"\0" + bytes([amount]) + b"\xfd" + struct.pack("<i", number)[:3] + _status(more) + b"\0\0"
    )


def _status(more: int) -> bytes:
    return struct.pack("<h", 2 | more)


def column(kind: type) -> bytes:
    """A column of integers or of texts."""
    names = b"".join(map(counted, (b"def", b"", b"", b"", b"n", b"n")))
    code = 253 if kind is str else 8
    return names + b"\x0c" + struct.pack("<hiBhBh", 45, 99, code, 0, 0, 0)


HELLO = (
    b"\x0a8.0.36\0"
    + struct.pack("<i", NUMBER)
    + b"12345678\0"
    + struct.pack("<HBHH", 0xF7FF, 45, 2, 8)
    + b"\x15"
    + bytes(10)
    + b"123456789012\0mysql_native_password\0"
)


class MysqlLike(Database):
    """It speaks MySQL's protocol."""

    def __init__(self) -> None:
        super().__init__("mysql", "mysql")

    def converse(self, wire: socket.socket, stream: BinaryIO) -> None:
        """The handshake, and each script."""
        polite = "START" in self.polite
        going = self.say(wire, *(("", packet(0, HELLO)) if polite else self.next()))
        if going and self._read(stream):
            going = self.say(wire, *(("", packet(2, done())) if polite else self.next()))
        while going and (body := self._read(stream)):
            going = body[0] != QUERY or self.answer(wire, body[1:].decode())

    def _read(self, stream: BinaryIO) -> bytes:
        (head,) = struct.unpack("<i", stream.read(4))
        return stream.read(head & 0xFFFFFF)

    def sound(self, titles: list[str], rows: dict[str, list[Any]]) -> bytes:
        """Rows or none for each; who takes shortly has its token by LAST_INSERT_ID()."""
        said: list[bytes] = []
        for left, title in zip(reversed(range(len(titles))), titles, strict=True):
            said += self._one(title, rows.get(title), MORE if left else 0)
        return b"".join(packet(1 + number, body) for number, body in enumerate(said))

    def _one(self, title: str, rows: list[Any] | None, more: int) -> list[bytes]:
        if title == "acquire free" and rows:
            return [done(1, rows[0][0], more)]
        if rows is None:
            return [done(more=more)]
        end = b"\xfe\0\0" + _status(more)
        cells = [
            b"".join(counted(str(int(v) if v is True else v).encode()) for v in row) for row in rows
        ]
        kinds = [column(type(value)) for value in rows[0]]
        return [bytes([len(kinds)]), *kinds, end, *cells, end]
