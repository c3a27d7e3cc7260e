"""A lock of another language: a program that obeys orders, each answered by a line of JSON.

Law: what is measured is measured by the program itself, by the clock that all processes share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from benchmarks.crew import Member
from benchmarks.foreign import KINDS, environment
from benchmarks.turns import Turn

if TYPE_CHECKING:
    from pathlib import Path


class Foreign:
    """One process with one client."""

    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = True
    kind: ClassVar[str]
    name: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self.member = self.enlisted(folder)
        self.member.hear()

    @classmethod
    def enlisted(cls, folder: Path) -> Member:
        """A process that will say when it is ready."""
        return Member((*KINDS[cls.kind].run, cls.name, str(folder)), environment())

    def acquire(self) -> None:
        """Take it."""
        self.member.ask("acquire")

    def release(self) -> None:
        """Give it back."""
        self.member.ask("release")

    def pairs(self, count: int) -> Turn:
        """Both, so many times."""
        return Turn(**self.member.ask(f"pairs {count}"))

    def close(self) -> None:
        """End the process."""
        self.member.close()
