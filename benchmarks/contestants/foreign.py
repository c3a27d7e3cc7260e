"""A lock in another language: a program that answers each command with a line of JSON.

The program measures itself, by the clock that all processes share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from benchmarks.foreign import KINDS, environment
from benchmarks.sampling import Sample
from benchmarks.workers.process import WorkerProcess

if TYPE_CHECKING:
    from pathlib import Path


class Foreign:
    """A process with one client."""

    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = True
    kind: ClassVar[str]
    name: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self.worker = self.start(folder)
        self.worker.receive()

    @classmethod
    def start(cls, folder: Path, mode: str = "") -> WorkerProcess:
        """Start a process, which reports when it is ready."""
        return WorkerProcess((*KINDS[cls.kind].run, cls.name, str(folder), mode), environment())

    def acquire(self) -> None:
        """Acquire the lock."""
        self.worker.request("acquire")

    def release(self) -> None:
        """Release the lock."""
        self.worker.request("release")

    def pairs(self, count: int) -> Sample:
        """Acquire and release, *count* times."""
        return Sample(**self.worker.request(f"pairs {count}"))

    def close(self) -> None:
        """End the process."""
        self.worker.close()
