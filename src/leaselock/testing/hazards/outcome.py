"""The outcome of a hazard: a verdict, and one sentence about what happened in the run.

Invariant: no verdict is defined in advance. "Does not apply" means that the run showed nothing to
attack, or that the method has no such part (a file has no network).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Verdict(StrEnum):
    """How a locking method survived a hazard."""

    SURVIVED = "survived"
    FENCED = "fenced"
    """Two clients considered themselves the holder; the token rejected the older one's write."""
    FAILED = "failed"
    NOTHING = "does not apply"
    UNPLAYED = "not played"
    """A requirement was missing, such as a server that may be killed."""
    ERROR = "error"
    """The play itself failed."""


class Outcome(NamedTuple):
    """A verdict, and what happened."""

    verdict: Verdict
    seen: str

    def __str__(self) -> str:
        return f"{self.verdict}: {self.seen}"


class Ended(Exception):
    """Ends the play of a hazard with an outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome


def survived(seen: str) -> Outcome:
    """The lock survived."""
    return Outcome(Verdict.SURVIVED, seen)


def fenced(seen: str) -> Outcome:
    """The lock failed, and its token protected the resource."""
    return Outcome(Verdict.FENCED, seen)


def failed(seen: str) -> Outcome:
    """The hazard happened."""
    return Outcome(Verdict.FAILED, seen)


def nothing(seen: str) -> Outcome:
    """The hazard does not apply."""
    return Outcome(Verdict.NOTHING, seen)


def unplayed(seen: str) -> Outcome:
    """The hazard could not be played here."""
    return Outcome(Verdict.UNPLAYED, seen)
