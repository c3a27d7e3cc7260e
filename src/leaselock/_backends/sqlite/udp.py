"""Messages by UDP on the loopback interface, where fifos do not do, and the wait for them.

The address, the numbers of a process and of a port, is the content of the client's locked file. Any
user can send to the port. A message is only a hint to ask the store again, so a forged or a lost
one does no harm.
"""

from __future__ import annotations

import abc
import os
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

LOOPBACK = "127.0.0.1"
# On Windows another program could take the port over otherwise.
EXCLUSIVE: int | None = getattr(socket, "SO_EXCLUSIVEADDRUSE", None)
MESSAGE_SIZE = 8
# Errors of a receiver on Windows that concern a single message: too long a one, and an earlier one
# of its own that found no receiver.
ABOUT_A_MESSAGE = (10040, 10054)
LONGEST_ADDRESS = 100
# Seconds between two looks at a peer whose process cannot be waited for.
LOOK_INTERVAL = 0.1
NO_HANDLE = 0


class Address(NamedTuple):
    """Where a client is."""

    pid: int
    port: int

    def content(self) -> bytes:
        """Return it as it stands in the client's file."""
        return b"%d %d" % self


def parse(content: bytes) -> Address | None:
    """Return the address in the content of a client's file."""
    words = content.split()
    if len(words) != 2 or not all(word.isdigit() for word in words):
        return None
    return Address(int(words[0]), int(words[1]))


def open_inbox() -> socket.socket:
    """Open a socket for messages, on a port of its own."""
    inbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        if EXCLUSIVE is not None:
            inbox.setsockopt(socket.SOL_SOCKET, EXCLUSIVE, 1)
        inbox.bind((LOOPBACK, 0))
        inbox.setblocking(False)
    except BaseException:
        inbox.close()
        raise
    return inbox


def address_of(inbox: socket.socket) -> Address:
    """Return the address of an inbox of this process."""
    return Address(os.getpid(), inbox.getsockname()[1])


def received(inbox: socket.socket, size: int) -> bytes:
    """Return the messages that have come, about *size* bytes of them."""
    data = b""
    while len(data) < size:
        try:
            message = inbox.recv(MESSAGE_SIZE + 1)
        except OSError as error:
            if getattr(error, "winerror", 0) in ABOUT_A_MESSAGE:
                continue
            break  # there is no other one
        if len(message) == MESSAGE_SIZE:  # else it is not from a client
            data += message
    return data


def send(address: Address | None, message: bytes) -> None:
    """Send a message, which may be lost."""
    if address is None:
        return
    # Not by the sender's inbox: on Windows that would report that this message found no receiver.
    with (
        suppress(OSError, OverflowError),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        sender.sendto(message, (LOOPBACK, address.port))


class Peer(abc.ABC):
    """Another client: its file, and the handle of its process if that can be waited for."""

    def __init__(self, path: str, handle: int) -> None:
        self.path = path
        self.handle = handle

    @abc.abstractmethod
    def is_gone(self) -> bool:
        """Return whether no process has its file locked any more."""

    @abc.abstractmethod
    def close_handle(self) -> None:
        """Close the handle of its process."""

    def close(self) -> None:
        """Observe it no longer."""
        if self.handle != NO_HANDLE:
            self.close_handle()
            self.handle = NO_HANDLE


def observed(
    address: Address | None, open_process: Callable[[int], int], peer: Callable[[int], Peer]
) -> Peer | None:
    """Observe the client with this address; None if it is gone.

    The caller looks afterwards whether the client lives: then the process number was that of the
    client when its process was opened, not a reused one.
    """
    if address is None:
        return None
    try:
        return peer(open_process(address.pid))
    except OSError:  # it belongs to another user, or has ended
        return peer(NO_HANDLE)


class Mailbox(abc.ABC):
    """Where a client receives messages: a UDP socket."""

    most_handles: int | None = None
    """How many processes can be waited for at once. The others are looked at."""

    def __init__(self, path: str) -> None:
        self.inbox = open_inbox()
        self.own = address_of(self.inbox)
        self.address = self.own.content()
        """What other clients must know of it: the content of the locked file."""

    @abc.abstractmethod
    def ready(self, handles: Collection[int], seconds: float) -> tuple[bool, list[int]]:
        """Wait; return whether a message has come, and the handles of ended processes.
        InterruptedError ends the wait.
        """

    def wait(self, peers: Collection[Peer], seconds: float) -> tuple[bool, list[Peer]]:
        """Wait for a message or for the end of a peer; return whether there is one, and the dead
        peers.
        """
        waited_for = [peer for peer in peers if peer.handle != NO_HANDLE][: self.most_handles]
        by_handle = {peer.handle: peer for peer in waited_for}
        others = [peer for peer in peers if peer not in waited_for]
        until = time.monotonic() + seconds
        while True:
            remaining = max(0.0, until - time.monotonic())
            pause = min(remaining, LOOK_INTERVAL) if others else remaining
            try:
                message, exits = self.ready(by_handle, pause)
            except InterruptedError:
                return False, []
            dead = [peer for peer in others if peer.is_gone()]
            for handle in exits:
                peer = by_handle.pop(handle)
                if peer.is_gone():
                    dead.append(peer)
                else:  # a child has inherited its file
                    others.append(peer)
            if message or dead or time.monotonic() >= until:
                return message, dead

    def read(self, size: int) -> bytes:
        """Return the messages that have come."""
        return received(self.inbox, size)

    def put(self, message: bytes) -> None:
        """Send a message to this client itself."""
        send(self.own, message)

    def descriptors(self) -> tuple[int, ...]:
        """Return what a child must inherit beside the locked file."""
        return ()

    def close(self) -> None:
        """Close the socket."""
        self.inbox.close()
