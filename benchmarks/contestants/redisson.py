"""Redisson, in Java: RLock serves waiters in no order, RFairLock first come, first served.

It is also measured with RReadWriteLock, RSemaphore, whose permits are not leases, and
RPermitExpirableSemaphore, whose permits are leases of 30 s that are not renewed.
"""

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


class Expirable(Redisson):
    """Its semaphore is RPermitExpirableSemaphore."""

    name: ClassVar[str] = "redisson-expirable"
