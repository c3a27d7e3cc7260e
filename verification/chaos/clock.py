"""Wall clocks of workers that jump, each by a different amount; needs a C compiler.

Invariant: no guarantee depends on a client's wall clock, so every target has this fault.
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

    from testkit.chaos.target import Target

SOURCE = Path(__file__).with_name("clock.c")
SLOTS = 64
FURTHEST = 2 * 86400
COMPILERS = ("cc", "gcc", "clang")


class Clocks:
    """The wall clocks of programs started with `env`; LookupError without a compiler."""

    def __init__(self, folder: Path) -> None:
        compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
        if compiler is None:
            raise LookupError("no C compiler found")
        library, self.slots = folder / "clock.so", folder / "clock"
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        self.slots.write_bytes(bytes(SLOTS * 8))
        self.env = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(self.slots)}

    def set(self, offset: Callable[[], int]) -> None:
        """Set each clock's error to `offset()` seconds."""
        with open(self.slots, "r+b") as file, mmap.mmap(file.fileno(), 0) as shared:
            shared[:] = b"".join(struct.pack("l", offset()) for _ in range(SLOTS))


def with_jumping_clocks(target: Target, folder: Path) -> Target:
    """Return the target with a fault that makes clocks jump; unchanged without a C compiler."""
    try:
        clocks = Clocks(folder)
    except LookupError:
        return target

    def jump(rng: random.Random) -> None:
        clocks.set(lambda: rng.choice((0, rng.randint(-FURTHEST, FURTHEST))))

    return target._replace(faults={**target.faults, "jump clocks": jump}, env=clocks.env)
