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

    from holdfast.testing.chaos.stage import Stage

SOURCE = Path(__file__).with_name("clock.c")
SLOTS = 64
FURTHEST = 2 * 86400
COMPILERS = ("cc", "gcc", "clang")


def jumping(stage: Stage, folder: Path) -> Stage:
    """The stage, with clocks that jump; as it is where nothing can compile the means."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        return stage
    library, slots = folder / "clock.so", folder / "clock"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    slots.write_bytes(bytes(SLOTS * 8))

    def jump(lots: random.Random) -> None:
        with open(slots, "r+b") as file, mmap.mmap(file.fileno(), 0) as shared:
            for slot in range(SLOTS):
                shared[8 * slot : 8 * slot + 8] = struct.pack(
                    "l", lots.choice((0, lots.randint(-FURTHEST, FURTHEST)))
                )

    env = {"LD_PRELOAD": str(library), "STORM_CLOCK": str(slots)}
    return stage._replace(faults={**stage.faults, "jump clocks": jump}, env=env)
