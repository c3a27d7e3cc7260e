"""The law of a history file: 64-byte records, each checksummed, each written by one `os.write`.

A file belongs to one process and is only ever appended to, so a process killed at any instant
leaves whole records and at most one torn record at the very end. That one is ignored; any other
damage is an error, because a checker that skips what it cannot read proves nothing.

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

_VERSION = 0x4801
_NO_FENCE = -1
_BODY = struct.Struct("<HHIIQQQqqq")
_CHECKSUM = struct.Struct("<I")
# A power of two, so that no record straddles a page and a kill cannot tear one on a local disk.
RECORD_SIZE = _BODY.size + _CHECKSUM.size


class CorruptHistory(Exception):
    """A history file is damaged elsewhere than in its torn last record."""


class Event(enum.IntEnum):
    """What happened; `aux` as stated, otherwise 0."""

    ASKED = 1  # before the call; aux = time-out in ns, 0 = non-blocking, FOREVER = none
    GRANTED = 2
    REFUSED = 3
    UNKNOWN = 4  # of the acquire, or after RELEASING of the release: perhaps applied
    VALID_UNTIL = 5  # aux = the instant until which the lease now counts as held
    RELEASING = 6  # before the call
    RELEASED = 7
    RELEASE_LOST = 8  # the release found that the lease was no longer ours
    LOST_TOLD = 9  # the library told its user
    WRITE_ASKED = 10
    WRITE_DONE = 11  # aux = place in the order of the resource
    WRITE_REJECTED = 12
    KILLED = 13  # by the supervisor, BEFORE it sends the signal; aux = pid of the victim


_EVENTS = {int(event): event for event in Event}


class Process(NamedTuple):
    """A process for good: pids come back, so the instant of its first record goes with it."""

    pid: int
    born: int


class Record(NamedTuple):
    """One event of one hold, as it is on disk."""

    ts: int
    event: Event
    lock: int
    hold: int
    pid: int
    born: int = 0
    task: int = 0
    fence: int | None = None
    aux: int = 0

    def pack(self) -> bytes:
        """Encode as one checksummed record."""
        fence = _NO_FENCE if self.fence is None else self.fence
        body = _BODY.pack(
            _VERSION, self.event, self.pid, self.born,
            self.lock, self.hold, self.task, self.ts, fence, self.aux,
        )  # fmt: skip
        return body + _CHECKSUM.pack(zlib.crc32(body))


def unpack(data: bytes) -> Record:
    """Decode one record; CorruptHistory when it is not one."""
    body = data[: _BODY.size]
    if zlib.crc32(body) != _CHECKSUM.unpack_from(data, _BODY.size)[0]:
        raise CorruptHistory("wrong checksum")
    version, event, pid, born, lock, hold, task, ts, fence, aux = _BODY.unpack(body)
    if version != _VERSION or event not in _EVENTS:
        raise CorruptHistory(f"unknown version {version:#x} or event {event}")
    token = None if fence == _NO_FENCE else fence
    return Record(ts, _EVENTS[event], lock, hold, pid, born, task, token, aux)


def lock_id(name: str) -> int:
    """The 64 bits that stand for a name in the records."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def read_records(folder: Path) -> Iterator[Record]:
    """All records of a folder, file by file; within a file in the order of writing."""
    for path in _files(folder, RECORDS):
        yield from _records_of(path)


def _files(folder: Path, suffix: str) -> list[Path]:
    # Not glob, to which a folder that is missing is merely empty.
    return sorted(path for path in folder.iterdir() if path.suffix == suffix)


def last_records(folder: Path, count: int, pids: set[int] | None = None) -> list[Record]:
    """At most the last *count* records of each file of these processes, or of all processes."""
    found: list[Record] = []
    for path in _files(folder, RECORDS):
        if pids is None or int(path.name.partition("-")[0]) in pids:
            found.extend(_end_of(path, count))
    return found


def _end_of(path: Path, count: int) -> Iterator[Record]:
    with path.open("rb") as file:
        whole = file.seek(0, 2) // RECORD_SIZE
        first = max(0, whole - count)
        file.seek(first * RECORD_SIZE)
        data = file.read((whole - first) * RECORD_SIZE)
    for offset in range(0, len(data), RECORD_SIZE):
        yield unpack(data[offset : offset + RECORD_SIZE])


def _records_of(path: Path) -> Iterator[Record]:
    data = path.read_bytes()
    whole = len(data) - len(data) % RECORD_SIZE
    for offset in range(0, whole, RECORD_SIZE):
        try:
            yield unpack(data[offset : offset + RECORD_SIZE])
        except CorruptHistory as error:
            raise CorruptHistory(f"{path}, byte {offset}: {error}") from None


def name_line(ident: int, name: str) -> bytes:
    """One line of a names file. JSON, so that every name is ASCII and holds no line break."""
    return f"{ident:016x} {json.dumps(name)}\n".encode()


def read_names(folder: Path) -> dict[int, str]:
    """The names behind the lock ids of a folder."""
    names: dict[int, str] = {}
    for path in _files(folder, NAMES):
        names.update(_names_of(path))
    return names


def _names_of(path: Path) -> Iterator[tuple[int, str]]:
    # What follows the last line break is a torn line, or nothing.
    for line in path.read_bytes().split(b"\n")[:-1]:
        try:
            ident, name = int(line[:16], 16), json.loads(line[16:])
        except ValueError as error:
            raise CorruptHistory(f"{path}: {error}") from None
        if not isinstance(name, str) or lock_id(name) != ident:
            raise CorruptHistory(f"{path}: {line!r} names no lock")
        yield ident, name
