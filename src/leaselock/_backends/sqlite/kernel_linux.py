"""Linux: flock, and a fifo for each client, which hangs up when its last process is gone."""

from __future__ import annotations

import sys

assert sys.platform == "linux"

import math
import os
import select
import time
from os import rename
from types import BuiltinFunctionType
from typing import TYPE_CHECKING

from leaselock._backends.sqlite.flock import LOOK_INTERVAL, OPEN, create_locked, is_gone, is_locked

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["Mailbox", "Peer", "create_locked", "is_locked", "observe", "rename", "send"]


class Peer:
    """Another client, observed by the reading end of its fifo; *live* is its locked file."""

    def __init__(self, file: int, live: str) -> None:
        self.file = file
        self.live = live

    def close(self) -> None:
        """Observe it no longer."""
        os.close(self.file)


class Mailbox:
    """Where a client receives messages: its fifo."""

    address = b""
    """What other clients must know of it. The name of the fifo is enough."""

    def __init__(self, path: str) -> None:
        os.mkfifo(path, 0o600)
        try:
            # For writing, too: so it does not hang up while this process lives.
            self.file = os.open(path, os.O_RDWR | OPEN)
        except BaseException:
            os.unlink(path)
            raise

    def wait(self, peers: Collection[Peer], seconds: float) -> tuple[bool, list[Peer]]:
        """Wait for a message or for the end of a peer; return whether there is one, and the dead
        peers.
        """
        # The `poll` of gevent reports no hang-ups, and eventlet has none.
        if not isinstance(getattr(select, "poll", None), BuiltinFunctionType):
            return self._wait_and_look(peers, seconds)
        poll = select.poll()
        poll.register(self.file, select.POLLIN)
        by_file = {peer.file: peer for peer in peers}
        for file in by_file:
            poll.register(file, 0)  # a hang-up is always reported
        ready = [file for file, _ in poll.poll(math.ceil(seconds * 1000))]
        return self.file in ready, [by_file[file] for file in ready if file in by_file]

    def _wait_and_look(self, peers: Collection[Peer], seconds: float) -> tuple[bool, list[Peer]]:
        """The same by `select.select`, which lets other greenlets run."""
        until = time.monotonic() + seconds
        while True:
            left = max(0.0, until - time.monotonic())
            pause = min(left, LOOK_INTERVAL) if peers else left
            readable, _, _ = select.select([self.file], [], [], pause)
            dead = [peer for peer in peers if is_gone(peer.live)]
            if readable or dead or time.monotonic() >= until:
                return bool(readable), dead

    def read(self, size: int) -> bytes:
        """Return the messages that have come."""
        return os.read(self.file, size)

    def put(self, message: bytes) -> None:
        """Send a message to this client itself; BlockingIOError if there is no room."""
        os.write(self.file, message)

    def descriptors(self) -> tuple[int, ...]:
        """Return what a child must inherit beside the locked file."""
        return (self.file,)

    def close(self) -> None:
        """Close the fifo."""
        os.close(self.file)


def observe(live: str, wake: str) -> Peer | None:
    """Observe the client with these files; None if it is gone."""
    try:
        return Peer(os.open(wake, os.O_RDONLY | OPEN), live)
    except FileNotFoundError:
        return None


def send(live: str, wake: str, message: bytes) -> None:
    """Send a message, which may be lost."""
    try:
        fifo = os.open(wake, os.O_WRONLY | OPEN)
    except OSError:
        return  # it has died, which the kernel reports to the clients that observe it
    try:
        os.write(fifo, message)
    except (BlockingIOError, BrokenPipeError):
        # The fifo is full, or the client has died. A waiter also asks again by itself.
        return
    finally:
        os.close(fifo)
