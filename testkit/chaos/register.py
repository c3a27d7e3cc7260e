"""A register in a file that checks fencing tokens: the resource that the lock protects.

Invariant: writes happen one at a time, under a kernel lock, and a write with an older token than
the last accepted one is rejected.
"""

from __future__ import annotations

import fcntl
import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from leaselock.testing.recorder import Attempt

CONTENT = struct.Struct("<QQ")


class Register:
    """The last accepted token, and the number of writes."""

    def __init__(self, path: Path) -> None:
        self.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def write(self, attempt: Attempt, token: int) -> bool:
        """Write with *token*, record the outcome, and return whether it was accepted."""
        attempt.writing(token)
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
