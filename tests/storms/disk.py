"""The embedded store, on a disk of its own that fills up now and then."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from tests.storms.network import pause

from leaselock.testing.chaos.stage import Stage

if TYPE_CHECKING:
    import random
    from contextlib import ExitStack
    from pathlib import Path

# More than the log of the file takes before it starts anew.
SIZE = 16 << 20


def mounted(stack: ExitStack, folder: Path) -> bool:
    """A small disk there, if we may."""
    folder.mkdir()
    if os.geteuid():
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    if subprocess.run(command, check=False).returncode:
        return False
    # Killed workers let go of it a moment after their end.
    stack.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=True)
    return True


def sqlite(name: str, stack: ExitStack, folder: Path) -> Stage:
    """A file; as root, on a disk that can be filled."""
    disk = folder.parent / f"{folder.name} disk"
    url = f"sqlite:///{disk}/locks.db"
    if not mounted(stack, disk):
        return Stage(name, url)

    def fill(lots: random.Random) -> None:
        ballast = disk / "ballast"
        with open(ballast, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pause(lots)
        ballast.unlink()

    return Stage(name, url, {"disk full": fill})
