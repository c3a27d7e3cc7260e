"""redsync, in Go, on go-redis: polls with its default pauses, without limit."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.contestants.foreign import Foreign
from benchmarks.foreign import pinned, required

required("go")


class Redsync(Foreign):
    """A lease of 30 s without renewal; waiters have no order; no token."""

    version: ClassVar[str] = pinned("go", r"redsync/v4 v(\S+)")
    kind: ClassVar[str] = "go"
    name: ClassVar[str] = "redsync"
