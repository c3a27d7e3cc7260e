"""Wall clocks of workers that jump, each by another amount; needs a C compiler.

Law: no promise may hang on a client's wall clock, so every stage has this fault.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from leaselock.testing.chaos.stage import Stage

SOURCE = Path(__file__).with_name("clock.c")
SLOTS = 64
FURTHEST = 2 * 86400
COMPILERS = ("cc", "gcc", "clang")


class Clocks:
    """The wall clocks of programs that are started with `env`; LookupError without a compiler."""

    def __init__(self, folder: Path) -> None:
        compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
        if compiler is None:
            raise LookupError("nothing can compile C here")
        library, self.slots = folder / "clock.so", folder / "clock"
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        self.slots.write_bytes(bytes(SLOTS * 8))
        self.env = {"LD_PRELOAD": str(library), "STORM_CLOCK": str(self.slots)}

    def set(self, off: Callable[[], int]) -> None:
        """From now on each is wrong by so many seconds."""
        with open(self.slots, "r+b") as file, mmap.mmap(file.fileno(), 0) as shared:
            shared[:] = b"".join(struct.pack("l", off()) for _ in range(SLOTS))


def jumping(stage: Stage, folder: Path) -> Stage:
    """The stage, with clocks that jump; as it is where nothing can compile the means."""
    try:
        clocks = Clocks(folder)
    except LookupError:
        return stage

    def jump(lots: random.Random) -> None:
        clocks.set(lambda: lots.choice((0, lots.randint(-FURTHEST, FURTHEST))))

    return stage._replace(faults={**stage.faults, "jump clocks": jump}, env=clocks.env)
