"""The lower bound for leaselock on Redis: its two scripts over a plain socket, nothing else.

The commands are exactly those that leaselock sends for a free lock, packed in advance.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import hiredis
from testkit.servers.resp import packed

from leaselock._backends.redis.keys import (
    PREFIX,
    index_of,
    keys_of,
    release_channel,
    tombstone,
    wake_channel,
)
from leaselock._backends.redis.scripts import ACQUIRE, RELEASE

CLIENT = "0123456789abcdef" * 2
OWNER = "01234567-89ab-cdef-0123-456789abcdef:1"
METADATA = '{"host": "a", "pid": 12345, "version": "0.1.0", "thread": "MainThread", "label": null}'
MEMBER = f"{OWNER}\n{CLIENT}:1\n30000\n1795230000.123456\n{METADATA}"
LEASE, CONFIRM, RECHECK = 30000, 3000, 3000
TOKEN_TTL = 604_800_000


def commands(name: str) -> tuple[bytes, bytes]:
    """Return the packed commands of acquire and release."""
    own = keys_of(name)
    keys = (*own[:4], tombstone(own.lock, OWNER))
    index = index_of(None, PREFIX)
    last = (CONFIRM, RECHECK, "PUBLISH", wake_channel(own.lock), release_channel(own.lock))
    acquire = (OWNER, LEASE, MEMBER, 1, "hash", TOKEN_TTL, 0, "", *last)
    release = (OWNER, "", 0, "", "hash", TOKEN_TTL, *last)
    return (
        packed("EVALSHA", ACQUIRE.sha, len(keys) + 1, *keys, index, *acquire),
        packed("EVALSHA", RELEASE.sha, len(keys), *keys, *release),
    )


class Bare:
    """Two round trips."""

    version: ClassVar[str] = hiredis.__version__
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = False

    def __init__(self, folder: Path) -> None:
        url = urlsplit(Path(folder, "url").read_text())
        self.socket = socket.create_connection((url.hostname or "", url.port or 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for script in (ACQUIRE, RELEASE):
            load = packed("SCRIPT", "LOAD", script.text)
            assert self._request(load).startswith(b"$40")
        self.acquire_command, self.release_command = commands("bare")

    def _request(self, command: bytes) -> bytes:
        self.socket.sendall(command)
        reply = self.socket.recv(4096)
        while not reply.endswith(b"\r\n"):
            reply += self.socket.recv(4096)
        return reply

    def acquire(self) -> None:
        """Acquire the lock, which is always free."""
        if not self._request(self.acquire_command).startswith(b"*2\r\n:1"):
            raise AssertionError("this contestant supports one process at a time")

    def release(self) -> None:
        """Release the lock."""
        if self._request(self.release_command) != b":1\r\n":
            raise AssertionError("the lock was not held")

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()
