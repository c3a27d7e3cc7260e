"""What a server of MySQL or MariaDB answers to a query of several statements (text protocol).

`Answer` is fed with bytes as they come, and says when the answer is complete. Input that no
server sends raises one of `statements.MALFORMED`.
"""

from __future__ import annotations

import struct
from typing import Any

from leaselock._backends.sql.statements import Result, SqlError

LARGEST_PACKET = (1 << 24) - 1
IN_TRANSACTION, MORE_RESULTS = 0x01, 0x08
OK, EOF, ERROR = 0x00, 0xFE, 0xFF
LONGEST_EOF = 8
# Column types whose texts are integers: TINY, SHORT, LONG, LONGLONG, INT24, YEAR.
INTEGERS = {1, 2, 3, 8, 9, 13}
# The length of what follows the names in a column definition, and where the type is in it.
COLUMN_TAIL, TYPE = 13, -6
# Errors by which the server ends the connection: shutdown, killed, idle for too long.
ENDED = {"1053", "1927", "4031"}
# The number of bytes that follow the first byte of a length-encoded integer.
WIDTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}


def packets(command: bytes) -> bytes:
    """A command, framed."""
    if len(command) < LARGEST_PACKET:
        return struct.pack("<I", len(command)) + command
    parts = [command[i : i + LARGEST_PACKET] for i in range(0, len(command) + 1, LARGEST_PACKET)]
    return b"".join(
        struct.pack("<I", len(part) | (n % 256) << 24) + part for n, part in enumerate(parts)
    )


class Answer:
    """The results of all statements of one query."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.error: SqlError | None = None
        self.connection_ended = False
        self.complete = False
        self.status = 0
        # What has come and is not read yet. After the end of the answer it is unexpected.
        self.buffer = b""
        self.sequence = 1
        # Of the result set that is being read: definitions still to come, types, rows.
        self.columns = 0
        self.types: list[int] | None = None
        self.rows: list[tuple[Any, ...]] = []
        self.rows_begun = False

    def feed(self, data: bytes) -> None:
        """Take more bytes."""
        buffer = self.buffer + data if self.buffer else data
        offset, end = 0, len(buffer)
        while offset + 4 <= end and not self.complete:
            head = int.from_bytes(buffer[offset : offset + 4], "little")
            size = head & LARGEST_PACKET
            if offset + 4 + size > end:
                break
            if head >> 24 != self.sequence or size == LARGEST_PACKET:
                self._unexpected(head >> 24, buffer[offset + 4 : offset + 4 + size])
                return
            self.sequence = (self.sequence + 1) % 256
            self._packet(buffer[offset + 4 : offset + 4 + size])
            offset += 4 + size
        self.buffer = buffer[offset:]

    def _unexpected(self, sequence: int, packet: bytes) -> None:
        # MariaDB sends an error with the number 0 when it shuts down or ends the session.
        if sequence or packet[0] != ERROR:
            raise ValueError("a packet out of sequence")
        self._failed(packet)
        self.connection_ended = True

    def _packet(self, packet: bytes) -> None:
        first = packet[0]
        if first == ERROR:
            self._failed(packet)
        elif self.types is None:
            self._first(first, packet)
        elif self.columns:
            self.columns -= 1
            if len(packet) < COLUMN_TAIL:
                raise ValueError("a column definition that is too short")
            self.types.append(packet[TYPE])
        elif first == EOF and len(packet) <= LONGEST_EOF:
            self._eof(packet)
        else:
            self.rows.append(self._row(packet))

    def _first(self, first: int, packet: bytes) -> None:
        """The head of a result: a summary, or the number of columns of the rows that follow."""
        if first == OK:
            amount, offset = _integer(packet, 1)
            number, offset = _integer(packet, offset)
            self._end(Result([], amount, number), packet[offset : offset + 2])
        elif first == EOF and len(packet) <= LONGEST_EOF:
            self._end(Result([], 0), packet[3:5])
        elif 0 < first < 0xFB:
            self.columns, self.types, self.rows = first, [], []
            self.rows_begun = False
        else:
            raise ValueError(f"a result that begins with {first:#x}")

    def _eof(self, packet: bytes) -> None:
        """The end of the column definitions, or of the rows."""
        if not self.rows_begun:
            self.rows_begun = True
            return
        rows, self.types = self.rows, None
        self._end(Result(rows, len(rows)), packet[3:5])

    def _end(self, result: Result, status: bytes) -> None:
        self.status = _short(status)
        self.results.append(result)
        self.complete = not self.status & MORE_RESULTS

    def _failed(self, packet: bytes) -> None:
        number = _short(packet[1:3])
        # The SQLSTATE follows, as "#" and five characters.
        text = packet[9:] if packet[3:4] == b"#" else packet[3:]
        self.error = SqlError(str(number), " ".join(text.decode("utf-8", "replace").split()))
        self.connection_ended = str(number) in ENDED
        self.complete = True

    def _row(self, packet: bytes) -> tuple[Any, ...]:
        if not self.rows_begun:
            raise ValueError("a row before the end of the column definitions")
        assert self.types is not None
        row: list[Any] = []
        offset = 0
        for kind in self.types:
            if packet[offset] == 0xFB:
                row.append(None)
                offset += 1
                continue
            size, offset = _integer(packet, offset)
            value = packet[offset : offset + size]
            if len(value) != size:
                raise ValueError("a row that is too short")
            offset += size
            row.append(int(value) if kind in INTEGERS else value.decode("utf-8", "surrogateescape"))
        return tuple(row)


def _integer(packet: bytes, offset: int) -> tuple[int, int]:
    """A length-encoded integer, and where it ends."""
    first = packet[offset]
    if first < 0xFB:
        return first, offset + 1
    end = offset + 1 + WIDTHS[first]
    if end > len(packet):
        raise ValueError("an integer that is too short")
    return int.from_bytes(packet[offset + 1 : end], "little"), end


def _short(data: bytes) -> int:
    if len(data) != 2:
        raise ValueError("a packet that is too short")
    return int.from_bytes(data, "little")
