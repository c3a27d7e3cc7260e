"""redlock, in Node, on ioredis: polls with the documented pauses, without limit."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.contestants.foreign import Foreign
from benchmarks.foreign import pinned, required

required("node")


class NodeRedlock(Foreign):
    """A lease of 30 s without renewal; waiters have no order; no token."""

    version: ClassVar[str] = pinned("node", r'"redlock": "(.*)"')
    kind: ClassVar[str] = "node"
    name: ClassVar[str] = "node-redlock"
