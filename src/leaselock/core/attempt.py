"""One claim on its way to a grant: what is known of it between its questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.effects import FOREVER

if TYPE_CHECKING:
    from leaselock.core.backend import Claim


class Acquisition:
    """One claim on its way to a grant."""

    __slots__ = (
        *("asked", "claim", "deadline", "doubtful", "lasts", "late", "placed", "queued"),
        "until",
    )

    def __init__(self, claim: Claim, deadline: float) -> None:
        self.claim = claim
        self.deadline = deadline
        self.asked = 0.0
        self.lasts = FOREVER
        self.late = 0
        self.until = 0.0
        self.placed = False
        self.queued = False
        self.doubtful = False
