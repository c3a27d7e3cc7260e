"""Redisson, in Java: RLock serves waiters in no order, RFairLock first come, first served."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.contestants.foreign import Foreign
from benchmarks.foreign import pinned, required

required("java")


class Redisson(Foreign):
    """A lease of 30 s, renewed by the watchdog; reentrant, no token."""

    version: ClassVar[str] = pinned("java", r">redisson</artifactId>\s*<version>(.*)<")
    kind: ClassVar[str] = "java"
    name: ClassVar[str] = "redisson"


class Fair(Redisson):
    """The same with a queue."""

    name: ClassVar[str] = "redisson-fair"
