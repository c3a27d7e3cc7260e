"""What the embedded store asks of the kernel: locks that end with a process, fifos that hang up.

No other module of the store knows the calls. They are those of POSIX with `flock`, as Linux and
macOS have them; a port to another system replaces this module.
"""

from __future__ import annotations

import fcntl
import math
import os
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

OPEN = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW


def lock(file: int) -> None:
    """Lock an open file until the last process that has it open is gone."""
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_locked(file: int) -> bool:
    """Whether a process holds `lock` on the file."""
    try:
        # A shared lock: two clients that check at once must not take each other for the holder.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def make_fifo(path: str) -> int:
    """Make a fifo and open it for reading, and for writing, too: so it does not hang up while this
    process lives.
    """
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | OPEN)


def wait(fifo: int, others: Iterable[int], seconds: float) -> list[int]:
    """Wait until *fifo* can be read or one of *others* has hung up, at most *seconds*."""
    poll = select.poll()
    poll.register(fifo, select.POLLIN)
    for other in others:
        poll.register(other, 0)  # a hang-up is always reported
    return [ready for ready, _ in poll.poll(math.ceil(seconds * 1000))]
