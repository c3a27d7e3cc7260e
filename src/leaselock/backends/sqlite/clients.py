"""How clients on one machine know whether another lives, and how they wake it.

Each client has two files in the directory of clients. It holds a kernel lock on ``ID.live`` for
as long as it lives, so nobody's death can be hidden, nor a process number be mistaken. It reads
messages from the fifo ``ID.wake``: eight bytes each, the number of a waiter that should look
again. Here is what one does to the others' files; `life` has a client's own.
"""

from __future__ import annotations

import fcntl
import os
import time

WORD = 8
POKE = (0).to_bytes(WORD, "big")
EVERYONE_SERIAL = 2 ** (8 * WORD) - 1
UNFINISHED = 3600.0
OPEN = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW


class Clients:
    """The directory of clients, as anybody sees it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def path(self, client: str, kind: str) -> str:
        """Where a file of *client* is."""
        return os.path.join(self.folder, f"{client}.{kind}")

    def alive(self, client: str) -> bool:
        """Whether *client* lives; the files of a dead one are cleared away."""
        try:
            file = os.open(self.path(client, "live"), os.O_RDONLY | OPEN)
        except FileNotFoundError:
            return False
        try:
            # Shared: two who ask at once must not take one another for the client.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        self.remove(client)
        return False

    def remove(self, client: str, *unfinished: str) -> None:
        """Take the files of *client* away, and what is *unfinished* of them."""
        for kind in ("wake", "live", *unfinished):
            try:
                os.unlink(self.path(client, kind))
            except FileNotFoundError:
                continue  # another one was quicker

    def bury_the_dead(self) -> None:
        """Clear away what the dead have left."""
        for file in os.listdir(self.folder):
            client, _, kind = file.rpartition(".")
            if kind == "live":
                self.alive(client)
            elif kind in ("new", "wake"):
                self._clear_unfinished(client, file)

    def _clear_unfinished(self, client: str, file: str) -> None:
        # Left by a client that died between making its files. One that is being made now
        # looks the same, so only an old one is taken away.
        path = os.path.join(self.folder, file)
        try:
            old = os.lstat(path).st_mtime < time.time() - UNFINISHED
            if old and not os.path.lexists(self.path(client, "live")):
                os.unlink(path)
        except FileNotFoundError:
            return  # another one was quicker

    def notify(self, client: str, serial: int) -> None:
        """Tell *client* that its waiter *serial* should look again. It is only a hint."""
        try:
            fifo = os.open(self.path(client, "wake"), os.O_WRONLY | OPEN)
        except OSError:
            return  # it has died since, which its watchers are told by the kernel
        try:
            os.write(fifo, serial.to_bytes(WORD, "big"))
        except (BlockingIOError, BrokenPipeError):
            # Thousands of messages unread, or dead since: it looks again by itself in time.
            return
        finally:
            os.close(fifo)
