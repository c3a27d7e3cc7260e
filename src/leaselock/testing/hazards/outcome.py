"""What came of a hazard: seen in a run, in one sentence.

Law: a verdict is never written down beforehand. "does not apply" is said where the run shows that
the hazard has nothing to strike, or where the way has no such part (a file has no network).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Verdict(StrEnum):
    """How a way of locking came through a hazard."""

    SURVIVED = "survived"
    FENCED = "fenced"
    """Two believed for a moment; the older one's write was refused by its token."""
    FAILED = "failed"
    NOTHING = "does not apply"
    UNPLAYED = "not played"
    """What it takes was not at hand, such as a server that may be killed."""
    ERROR = "error"
    """The play itself went wrong."""


class Outcome(NamedTuple):
    """A verdict, and what was seen."""

    verdict: Verdict
    seen: str

    def __str__(self) -> str:
        return f"{self.verdict}: {self.seen}"


class Ended(Exception):
    """Ends the playing of a hazard with the outcome that it carries."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome


def survived(seen: str) -> Outcome:
    """The lock did what a lock is for."""
    return Outcome(Verdict.SURVIVED, seen)


def fenced(seen: str) -> Outcome:
    """The lock alone did not hold, its token did."""
    return Outcome(Verdict.FENCED, seen)


def failed(seen: str) -> Outcome:
    """It happened."""
    return Outcome(Verdict.FAILED, seen)


def nothing(seen: str) -> Outcome:
    """There is nothing that it could strike."""
    return Outcome(Verdict.NOTHING, seen)


def unplayed(seen: str) -> Outcome:
    """It could not be brought about here."""
    return Outcome(Verdict.UNPLAYED, seen)
