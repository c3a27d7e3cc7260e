"""The embedded store, on a small file system that fills up at times."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from testkit.chaos.target import Target
from verification.chaos.network_faults import pause

if TYPE_CHECKING:
    import random
    from contextlib import ExitStack
    from pathlib import Path

# More than the write-ahead log takes before a checkpoint.
SIZE = 16 << 20


def mount_small_disk(stack: ExitStack, folder: Path) -> bool:
    """Mount a small file system at *folder*; return False without permission."""
    folder.mkdir()
    if os.geteuid():
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    if subprocess.run(command, check=False).returncode:
        return False
    # Killed workers close their files a moment after their end.
    stack.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=True)
    return True


def sqlite(name: str, stack: ExitStack, folder: Path) -> Target:
    """A database file; as root, on a file system that can be filled."""
    disk = folder.parent / f"{folder.name} disk"
    url = f"sqlite:///{disk}/locks.db"
    if not mount_small_disk(stack, disk):
        return Target(name, url)

    def fill(rng: random.Random) -> None:
        ballast = disk / "ballast"
        with open(ballast, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pause(rng)
        ballast.unlink()

    return Target(name, url, {"disk full": fill})
