"""The directory of clients: whether another client on this machine is alive, and waking it.

Each client has two files in the directory. It holds a kernel lock on ``ID.live`` for as long as it
lives, so its death is always detected and a reused process id is never mistaken for it. It reads
messages from the fifo ``ID.wake``: eight bytes each, the number of a waiter that should ask again.
A command that it runs inherits both files, and with them its life. Then the process of the client
holds a lock on a third file, ``ID.own``, which no other process inherits: so others know whether
that process, which renews the leases, lives itself.
This module uses the files of other clients; `liveness` creates those of the own client.
"""

from __future__ import annotations

import os
import sys
import time

from leaselock._backends.sqlite import host_checks, kernel

MESSAGE_SIZE = 8
NO_MESSAGE = (0).to_bytes(MESSAGE_SIZE, "big")
WAKE_ALL_NUMBER = 2 ** (8 * MESSAGE_SIZE) - 1
INCOMPLETE_AFTER = 3600.0
# Instead of the numbers of processes that belong to other users, or where the system has no list.
UNSEEN = (0,)


class ClientRegistry:
    """The directory of clients."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def path(self, client: str, kind: str) -> str:
        """The path of a file of *client*."""
        return os.path.join(self.folder, f"{client}.{kind}")

    def alive(self, client: str) -> bool:
        """Whether *client* is alive. The files of a dead one are removed."""
        try:
            if kernel.is_locked(self.path(client, "live")):
                return True
        except FileNotFoundError:
            return False
        self.remove(client)
        return False

    def process_lives(self, client: str) -> bool:
        """Whether the process of *client* lives, of which others have inherited the files."""
        try:
            return kernel.is_locked(self.path(client, "own"))
        except FileNotFoundError:
            return False

    def descendants(self, client: str) -> tuple[int, ...]:
        """The processes that keep *client* alive, whose own process has ended; UNSEEN if they
        cannot be seen.
        """
        if self.process_lives(client):
            return ()
        return host_checks.users_of(self.path(client, "live")) or UNSEEN

    def remove(self, client: str, *unfinished: str) -> None:
        """Remove the files of *client*, and those of the *unfinished* kinds."""
        for kind in ("wake", "own", "live", *unfinished):
            try:
                os.unlink(self.path(client, kind))
            except FileNotFoundError:
                continue  # another client has removed it
            except PermissionError:
                if sys.platform != "win32":
                    raise
                continue  # another client has it open, and removes it or looks at it

    def remove_dead(self) -> None:
        """Remove the files of dead clients."""
        for file in os.listdir(self.folder):
            client, _, kind = file.rpartition(".")
            if kind == "live":
                self.alive(client)
            elif kind in ("new", "own", "wake"):
                self._remove_incomplete(client, file)

    def _remove_incomplete(self, client: str, file: str) -> None:
        # It belongs to a client that died while it created its files, or that creates them now.
        # Only an old file is removed.
        path = os.path.join(self.folder, file)
        try:
            old = os.lstat(path).st_mtime < time.time() - INCOMPLETE_AFTER
            if old and not os.path.lexists(self.path(client, "live")):
                os.unlink(path)
        except FileNotFoundError:
            return  # another client has removed it

    def notify(self, client: str, number: int) -> None:
        """Tell *client* that its waiter *number* should ask again. This is only a hint."""
        message = number.to_bytes(MESSAGE_SIZE, "big")
        kernel.send(self.path(client, "live"), self.path(client, "wake"), message)
