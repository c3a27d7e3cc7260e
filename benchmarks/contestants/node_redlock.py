"""redlock, in Node, on ioredis: it polls with the pauses of its front page, for ever."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.contestants.foreign import Foreign
from benchmarks.foreign import pinned, required

required("node")


class NodeRedlock(Foreign):
    """A lease of 30 s that nobody renews; no order among those who wait, and no token."""

    version: ClassVar[str] = pinned("node", r'"redlock": "(.*)"')
    kind: ClassVar[str] = "node"
    name: ClassVar[str] = "node-redlock"
