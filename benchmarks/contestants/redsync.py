"""redsync, in Go, on go-redis: it polls with its default pauses, for as long as it takes."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.contestants.foreign import Foreign
from benchmarks.foreign import pinned, required

required("go")


class Redsync(Foreign):
    """A lease of 30 s that nobody renews; no order among those who wait, and no token."""

    version: ClassVar[str] = pinned("go", r"redsync/v4 v(\S+)")
    kind: ClassVar[str] = "go"
    name: ClassVar[str] = "redsync"
