"""The outcomes of a run: a row for each hazard, a column for each method."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from verification.hazards.outcome import Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verification.hazards.catalogue import Hazard
    from verification.hazards.methods import Method


class Cell(NamedTuple):
    """One locking method and one hazard."""

    method: Method
    hazard: Hazard


class Table(NamedTuple):
    """The outcomes of a run."""

    hazards: Sequence[Hazard]
    methods: Sequence[Method]
    outcomes: dict[tuple[str, str], Outcome]
    """By the method's name and the hazard's key."""

    def of(self, method: Method, hazard: Hazard) -> Outcome:
        """Return the outcome of one cell."""
        return self.outcomes[method.name, hazard.key]

    def failures(self) -> list[str]:
        """Return failed cells of leaselock's defaults, and cells of any method with an error."""
        return [
            f"{method.name}, {hazard.key}: {outcome}"
            for method in self.methods
            for hazard in self.hazards
            if (outcome := self.of(method, hazard)).verdict is Verdict.ERROR
            or (method.default and outcome.verdict is Verdict.FAILED)
        ]
