"""macOS and other systems with kqueue: flock, UDP, and kqueue for the ends of processes.

Fifos are not used there: `poll` for no events does not report that one has hung up, and for POLLIN
it reports the messages of the other client, too. The tests run this module on Linux, where a pidfd
replaces kqueue.
"""

from __future__ import annotations

import sys

assert sys.platform != "win32"

import os
import select
from functools import partial
from os import rename
from typing import TYPE_CHECKING

from leaselock._backends.readiness import POLLIN, new_poller
from leaselock._backends.sqlite import udp
from leaselock._backends.sqlite.flock import OPEN, create_locked, is_gone, is_locked
from leaselock._backends.sqlite.udp import Peer

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["Mailbox", "Peer", "create_locked", "is_locked", "observe", "rename", "send"]

if sys.platform == "linux":

    def _handle(pid: int) -> int:
        """Return what the end of a process is waited for with."""
        return os.pidfd_open(pid)

    def _close(handle: int) -> None:
        os.close(handle)

    def _ready(inbox: int, handles: Collection[int], seconds: float) -> tuple[bool, list[int]]:
        """Wait; return whether a message has come, and the handles of ended processes."""
        poll = new_poller()
        for file in (inbox, *handles):
            poll.register(file, POLLIN)
        ready = [file for file, _ in poll.poll(int(seconds * 1000 + 0.999))]
        return inbox in ready, [file for file in ready if file != inbox]

else:

    def _handle(pid: int) -> int:
        """Return what the end of a process is waited for with."""
        return pid

    def _close(handle: int) -> None:
        pass

    def _ready(inbox: int, handles: Collection[int], seconds: float) -> tuple[bool, list[int]]:
        """Wait; return whether a message has come, and the handles of ended processes."""
        if not hasattr(select, "kqueue"):  # eventlet has none: the caller looks at the processes
            readable, _, _ = select.select([inbox], [], [], 0.0 if handles else seconds)
            return bool(readable), list(handles)
        once = select.KQ_EV_ADD | select.KQ_EV_ONESHOT
        gone: list[int] = []
        queue = select.kqueue()
        try:
            queue.control([select.kevent(inbox, select.KQ_FILTER_READ, once)], 0)
            for pid in handles:
                exit_ = select.kevent(pid, select.KQ_FILTER_PROC, once, select.KQ_NOTE_EXIT)
                try:
                    queue.control([exit_], 0)
                except OSError:  # it has ended already, or belongs to another user
                    gone.append(pid)
            events = queue.control(None, len(handles) + 1, 0.0 if gone else seconds)
        finally:
            queue.close()
        exits = [event.ident for event in events if event.filter == select.KQ_FILTER_PROC]
        return len(events) > len(exits), gone + exits


class Client(udp.Peer):
    """Another client, by `flock`."""

    def is_gone(self) -> bool:
        """Return whether no process has its file locked any more."""
        return is_gone(self.path)

    def close_handle(self) -> None:
        """Close the handle of its process."""
        _close(self.handle)


class Mailbox(udp.Mailbox):
    """Where a client receives messages."""

    def ready(self, handles: Collection[int], seconds: float) -> tuple[bool, list[int]]:
        """Wait; return whether a message has come, and the handles of ended processes."""
        return _ready(self.inbox.fileno(), handles, seconds)


def observe(live: str, wake: str) -> Peer | None:
    """Observe the client with these files; None if it is gone."""
    return udp.observed(_address(live), _handle, partial(Client, live))


def _address(path: str) -> udp.Address | None:
    try:
        file = os.open(path, os.O_RDONLY | OPEN)
    except OSError:
        return None
    try:
        return udp.parse(os.read(file, udp.LONGEST_ADDRESS))
    finally:
        os.close(file)


def send(live: str, wake: str, message: bytes) -> None:
    """Send a message, which may be lost."""
    udp.send(_address(live), message)
