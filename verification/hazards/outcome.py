"""The outcome of a trial: a verdict and one sentence about what was observed.

Invariant: no verdict is written down in advance. "does not apply" is the verdict if the run shows
that the hazard cannot occur, or if the method has no such part (a file has no network).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Verdict(StrEnum):
    """The result of a locking method under a hazard."""

    SURVIVED = "survived"
    FENCED = "fenced"
    """Two holds overlapped for a moment; the older holder's write was rejected by its token."""
    FAILED = "failed"
    NOTHING = "does not apply"
    UNPLAYED = "not played"
    """A requirement was missing, such as a server that may be killed."""
    ERROR = "error"
    """The trial itself failed."""


class Outcome(NamedTuple):
    """A verdict, and what was observed."""

    verdict: Verdict
    seen: str

    def __str__(self) -> str:
        return f"{self.verdict}: {self.seen}"


class TrialEnded(Exception):
    """Ends a trial with the outcome that it carries."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome


def survived(seen: str) -> Outcome:
    """Return the outcome: the lock worked as it should."""
    return Outcome(Verdict.SURVIVED, seen)


def fenced(seen: str) -> Outcome:
    """Return the outcome: holds overlapped, but the token protected the resource."""
    return Outcome(Verdict.FENCED, seen)


def failed(seen: str) -> Outcome:
    """Return the outcome: the hazard caused a failure."""
    return Outcome(Verdict.FAILED, seen)


def does_not_apply(seen: str) -> Outcome:
    """Return the outcome: the hazard cannot occur with this method."""
    return Outcome(Verdict.NOTHING, seen)


def not_played(seen: str) -> Outcome:
    """Return the outcome: the hazard could not be produced here."""
    return Outcome(Verdict.UNPLAYED, seen)
