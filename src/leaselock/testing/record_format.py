"""The format of history files: 64-byte records, each with a checksum, each one `os.write`.

A file belongs to one process and is only appended to, so a process killed at any time leaves
complete records and at most one incomplete record at the end. That one is ignored; any other
damage is an error, because a checker that skips records proves nothing.

Times are CLOCK_MONOTONIC nanoseconds, which all processes of a machine share.
"""

import enum
import hashlib
import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

RECORDS = ".hist"
NAMES = ".names"
FOREVER = -1
# The modes of a read/write lock that are not exclusive.
MODES = {"shared": 1, "update": 2}

_VERSION = 0x4801
_NO_TOKEN = -1
_BODY = struct.Struct("<HHIIQQQqqq")
_CHECKSUM = struct.Struct("<I")
# A power of two, so that no record crosses a page boundary: a kill cannot split one on a local
# disk.
RECORD_SIZE = _BODY.size + _CHECKSUM.size


class CorruptHistory(Exception):
    """A history file is damaged elsewhere than in an incomplete last record."""


class Event(enum.IntEnum):
    """The kind of a record; `aux` as stated, otherwise 0."""

    ACQUIRING = 1  # before the call; aux = timeout in ns, 0 = non-blocking, FOREVER = none
    GRANTED = 2
    REFUSED = 3
    UNKNOWN = 4  # the acquire, or after RELEASING the release, may have been applied
    VALID_UNTIL = 5  # aux = the time until which the lease is now valid
    RELEASING = 6  # before the call
    RELEASED = 7
    RELEASE_LOST = 8  # the release found the lease already lost
    LOST_REPORTED = 9  # the library reported the loss
    WRITING = 10
    WRITE_DONE = 11  # aux = position in the resource's order of writes
    WRITE_REJECTED = 12
    KILLED = 13  # by the supervisor, BEFORE it sends the signal; aux = pid of the victim
    SHARING = 14  # before ACQUIRING, if it is not exclusive; aux = 1 for shared, 2 for update
    PERMITS = 15  # before ACQUIRING, of a semaphore; aux = their number, token = how many there are


_EVENTS = {int(event): event for event in Event}


class Process(NamedTuple):
    """A process: pids are reused, so the time of its first record is part of its identity."""

    pid: int
    born: int


class Record(NamedTuple):
    """One event of one hold, as stored on disk."""

    ts: int
    event: Event
    lock: int
    hold: int
    pid: int
    born: int = 0
    task: int = 0
    token: int | None = None
    aux: int = 0

    def pack(self) -> bytes:
        """Encode as one record with its checksum."""
        token = _NO_TOKEN if self.token is None else self.token
        body = _BODY.pack(
            _VERSION, self.event, self.pid, self.born,
            self.lock, self.hold, self.task, self.ts, token, self.aux,
        )  # fmt: skip
        return body + _CHECKSUM.pack(zlib.crc32(body))


def unpack(data: bytes) -> Record:
    """Decode one record; raise CorruptHistory if it is not valid."""
    body = data[: _BODY.size]
    if zlib.crc32(body) != _CHECKSUM.unpack_from(data, _BODY.size)[0]:
        raise CorruptHistory("wrong checksum")
    version, event, pid, born, lock, hold, task, ts, number, aux = _BODY.unpack(body)
    if version != _VERSION or event not in _EVENTS:
        raise CorruptHistory(f"unknown version {version:#x} or event {event}")
    token = None if number == _NO_TOKEN else number
    return Record(ts, _EVENTS[event], lock, hold, pid, born, task, token, aux)


def lock_id(name: str) -> int:
    """Return the 64-bit id of a lock's name in the records."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def read_records(folder: Path) -> Iterator[Record]:
    """Yield all records of a folder, file by file; within a file in the order of writing."""
    for path in _files(folder, RECORDS):
        yield from _records_of(path)


def _files(folder: Path, suffix: str) -> list[Path]:
    # Not glob: it returns nothing for a missing folder.
    return sorted(path for path in folder.iterdir() if path.suffix == suffix)


def last_records(folder: Path, count: int, pids: set[int] | None = None) -> list[Record]:
    """Return at most the last *count* records of each file of these processes, or of all."""
    records: list[Record] = []
    for path in _files(folder, RECORDS):
        if pids is None or int(path.name.partition("-")[0]) in pids:
            records.extend(_end_of(path, count))
    return records


def _end_of(path: Path, count: int) -> Iterator[Record]:
    with path.open("rb") as file:
        complete = file.seek(0, 2) // RECORD_SIZE
        first = max(0, complete - count)
        file.seek(first * RECORD_SIZE)
        data = file.read((complete - first) * RECORD_SIZE)
    for offset in range(0, len(data), RECORD_SIZE):
        yield unpack(data[offset : offset + RECORD_SIZE])


def _records_of(path: Path) -> Iterator[Record]:
    data = path.read_bytes()
    complete = len(data) - len(data) % RECORD_SIZE
    for offset in range(0, complete, RECORD_SIZE):
        try:
            yield unpack(data[offset : offset + RECORD_SIZE])
        except CorruptHistory as error:
            raise CorruptHistory(f"{path}, byte {offset}: {error}") from None


def name_line(ident: int, name: str) -> bytes:
    """Return one line of a names file. JSON keeps every name ASCII and free of line breaks."""
    return f"{ident:016x} {json.dumps(name)}\n".encode()


def read_names(folder: Path) -> dict[int, str]:
    """Return the names of the lock ids of a folder."""
    names: dict[int, str] = {}
    for path in _files(folder, NAMES):
        names.update(_names_of(path))
    return names


def _names_of(path: Path) -> Iterator[tuple[int, str]]:
    # Text after the last line break is an incomplete line.
    for line in path.read_bytes().split(b"\n")[:-1]:
        try:
            ident, name = int(line[:16], 16), json.loads(line[16:])
        except ValueError as error:
            raise CorruptHistory(f"{path}: {error}") from None
        if not isinstance(name, str) or lock_id(name) != ident:
            raise CorruptHistory(f"{path}: {line!r} names no lock")
        yield ident, name
