"""Curator, in Java: InterProcessMutex, first come, first served, held until the session ends.

It is also measured with InterProcessReadWriteLock and InterProcessSemaphoreV2.
"""

from __future__ import annotations

from typing import ClassVar

from benchmarks.contestants.foreign import Foreign
from benchmarks.foreign import pinned, required

required("java")


class Curator(Foreign):
    """Reentrant; reports the loss of the session, not of the lock; no token."""

    version: ClassVar[str] = pinned("java", r">curator-recipes</artifactId>\s*<version>(.*)<")
    kind: ClassVar[str] = "java"
    name: ClassVar[str] = "curator"
