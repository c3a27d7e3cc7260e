"""The lower bounds for leaselock on Redis: its scripts over a plain socket, nothing else.

The commands are those that leaselock sends, packed in advance: for a free lock (`Bare`), and for a
lock that is handed to the next process (`BareHandoff`).
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit
from uuid import UUID, uuid4

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
from leaselock._backends.redis.scripts import ACQUIRE, RELEASE, RENEW

CLIENT = "0123456789abcdef" * 2
METADATA = (
    '{"host": "a", "pid": 12345, "version": "0.1.0", "thread": "MainThread", "label": null, '
    '"owner": "1", "process": "0123abcd:4026531836:1234567"}'
)
LEASE, CONFIRM, RECHECK = 30000, 3000, 3000
TOKEN_TTL = 604_800_000


def commands(name: str, client: str = CLIENT, queued: int = 0) -> tuple[bytes, bytes]:
    """Return the packed commands of acquire, which may enter the queue, and release."""
    own, owner = keys_of(name), f"{UUID(client)}:1"
    member = f"{owner}\n{client}:1\n{LEASE}\n1795230000.123456\n{METADATA}"
    keys = (*own[:4], own.limit, tombstone(own.lock, owner))
    channels = ("PUBLISH", wake_channel(own.lock), release_channel(own.lock))
    first = ("hash", TOKEN_TTL, CONFIRM, RECHECK, *channels, owner)
    return (
        packed(
            *ACQUIRE.command(
                (*keys, index_of(None, PREFIX)), (*first, LEASE, member, 1, queued, "")
            )
        ),
        packed(*RELEASE.command(keys, (*first, "", 0, ""))),
    )


class Bare:
    """Two round trips."""

    name: ClassVar[str] = "bare"
    version: ClassVar[str] = hiredis.__version__
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = False

    def __init__(self, folder: Path) -> None:
        self.url = urlsplit(Path(folder, "url").read_text())
        self.use_lock(self.name)

    def use_lock(self, name: str) -> None:
        """Open a connection, and use that lock."""
        address = (self.url.hostname or "", self.url.port or 0)
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for script in (ACQUIRE, RELEASE):
            load = packed("SCRIPT", "LOAD", script.text)
            assert self._request(load).startswith(b"$40")
        self.acquire_command, self.release_command = commands(name)

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


class BareHandoff(Bare):
    """A process in the queue waits for the message that grants it the lock, and confirms it."""

    name: ClassVar[str] = "bare hand-off"
    waits: ClassVar[bool] = True

    def use_lock(self, name: str) -> None:
        """Open a connection, subscribe as leaselock does, and use that lock."""
        super().use_lock(name)
        client, lock = uuid4().hex, keys_of(name).lock
        self.acquire_command, self.release_command = commands(name, client, queued=1)
        owner = f"{UUID(client)}:1"
        self.confirm_command = packed("EVALSHA", RENEW.sha, 1, lock, "hash", LEASE, owner)
        self.channel = f"{wake_channel(lock)}{client}:1".encode()
        self.reader = hiredis.Reader()
        assert self._reply(packed("SCRIPT", "LOAD", RENEW.text)) == RENEW.sha.encode()
        self._reply(packed("HELLO", 3))
        for channel in (self.channel, wake_channel(lock), release_channel(lock)):
            self.socket.sendall(packed("SUBSCRIBE", channel))
            self._received()

    def _reply(self, command: bytes) -> Any:
        self.socket.sendall(command)
        return self._received()

    def _received(self) -> Any:
        while (reply := self.reader.gets()) is False:
            self.reader.feed(self.socket.recv(4096))
        return reply

    def acquire(self) -> None:
        """Acquire the lock, or enter the queue and wait."""
        self.socket.sendall(self.acquire_command)
        # A release without a waiter sends a message, too, and may come before the reply.
        while (reply := self._received())[0] == b"message":
            pass
        if reply[0] != 1:
            while self._received()[:2] != [b"message", self.channel]:
                pass
            assert self._reply(self.confirm_command) == [1], "the grant has ended"

    def release(self) -> None:
        """Release the lock."""
        self.socket.sendall(self.release_command)
        while (reply := self._received()) != 1:
            assert reply[0] == b"message", reply
