"""A number in a file that its writers fence: what the lock is there to protect.

Law: one write at a time, under a kernel lock, and none with an older token than the last accepted.
"""

from __future__ import annotations

import fcntl
import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from leaselock.testing.history import Attempt

CONTENT = struct.Struct("<QQ")


class Register:
    """The last token, and how many writes there were."""

    def __init__(self, path: Path) -> None:
        self.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def write(self, attempt: Attempt, token: int) -> bool:
        """Write with *token*, and record what came of it."""
        attempt.write_asked(token)
        fcntl.flock(self.file, fcntl.LOCK_EX)
        try:
            last, order = CONTENT.unpack(os.pread(self.file, CONTENT.size, 0) or CONTENT.pack(0, 0))
            if token < last:
                attempt.write_rejected(token)
                return False
            os.pwrite(self.file, CONTENT.pack(token, order + 1), 0)
            attempt.write_done(order + 1, token)
            return True
        finally:
            fcntl.flock(self.file, fcntl.LOCK_UN)
