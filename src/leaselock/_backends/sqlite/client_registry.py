"""The directory of clients: whether another client on this machine is alive, and waking it.

Each client has two files in the directory. It holds a kernel lock on ``ID.live`` for as long as it
lives, so its death is always detected and a reused process id is never mistaken for it. It reads
messages from the fifo ``ID.wake``: eight bytes each, the number of a waiter that should ask again.
This module uses the files of other clients; `liveness` creates those of the own client.
"""

from __future__ import annotations

import os
import time

from leaselock._backends.sqlite import kernel
from leaselock._backends.sqlite.kernel import OPEN

MESSAGE_SIZE = 8
NO_MESSAGE = (0).to_bytes(MESSAGE_SIZE, "big")
WAKE_ALL_NUMBER = 2 ** (8 * MESSAGE_SIZE) - 1
INCOMPLETE_AFTER = 3600.0


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
            file = os.open(self.path(client, "live"), os.O_RDONLY | OPEN)
        except FileNotFoundError:
            return False
        try:
            if kernel.is_locked(file):
                return True
        finally:
            os.close(file)
        self.remove(client)
        return False

    def remove(self, client: str, *unfinished: str) -> None:
        """Remove the files of *client*, and those of the *unfinished* kinds."""
        for kind in ("wake", "live", *unfinished):
            try:
                os.unlink(self.path(client, kind))
            except FileNotFoundError:
                continue  # another client has removed it

    def remove_dead(self) -> None:
        """Remove the files of dead clients."""
        for file in os.listdir(self.folder):
            client, _, kind = file.rpartition(".")
            if kind == "live":
                self.alive(client)
            elif kind in ("new", "wake"):
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
        try:
            fifo = os.open(self.path(client, "wake"), os.O_WRONLY | OPEN)
        except OSError:
            return  # it has died, which the kernel reports to the clients that observe it
        try:
            os.write(fifo, number.to_bytes(MESSAGE_SIZE, "big"))
        except (BlockingIOError, BrokenPipeError):
            # The fifo is full, or the client has died. A waiter also asks again by itself.
            return
        finally:
            os.close(fifo)
