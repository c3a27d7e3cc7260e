"""The floor under leaselock on Redis: its two scripts over a plain socket, and nothing around them.

Law: the commands are those that leaselock sends for a free lock, word by word, packed beforehand.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import hiredis
from tests.servers.resp import packed

from leaselock.backends.redis.keys import keys_of, release_channel, tombstone, wake_channel
from leaselock.backends.redis.scripts import ACQUIRE, RELEASE

CLIENT = "0123456789abcdef" * 2
OWNER = "01234567-89ab-cdef-0123-456789abcdef:1"
ABOUT = '{"host": "a", "pid": 12345, "version": "0.1.0", "thread": "MainThread", "label": null}'
MEMBER = f"{OWNER}\n{CLIENT}:1\n30000\n1795230000.123456\n{ABOUT}"
LEASE, CLAIM, LOOK = 30000, 3000, 3000


def commands(name: str) -> tuple[bytes, bytes]:
    """Acquire and release, as they travel."""
    keys = (*keys_of(name, divided=False), tombstone(name, OWNER))
    wake, freed = wake_channel(name), release_channel(name)
    take = (OWNER, LEASE, MEMBER, 0, "", CLAIM, "PUBLISH", wake, LOOK)
    give = (OWNER, MEMBER, 0, CLAIM, "PUBLISH", wake, freed, LOOK)
    return (
        packed("EVALSHA", ACQUIRE.sha, len(keys), *keys, *take),
        packed("EVALSHA", RELEASE.sha, len(keys), *keys, *give),
    )


class Raw:
    """Two round trips."""

    version: ClassVar[str] = hiredis.__version__
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = False

    def __init__(self, folder: Path) -> None:
        place = urlsplit(Path(folder, "url").read_text())
        self.socket = socket.create_connection((place.hostname or "", place.port or 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for script in (ACQUIRE, RELEASE):
            load = packed("SCRIPT", "LOAD", script.text)
            assert self._ask(load).startswith(b"$40")
        self.take, self.give = commands("raw")

    def _ask(self, command: bytes) -> bytes:
        self.socket.sendall(command)
        reply = self.socket.recv(4096)
        while not reply.endswith(b"\r\n"):
            reply += self.socket.recv(4096)
        return reply

    def acquire(self) -> None:
        """Take it; it is free, for nobody else is there."""
        if not self._ask(self.take).startswith(b"*2\r\n:1"):
            raise AssertionError("the floor is for one process at a time")

    def release(self) -> None:
        """Give it back."""
        if self._ask(self.give) != b":1\r\n":
            raise AssertionError("it was not held")

    def close(self) -> None:
        """Hang up."""
        self.socket.close()
