"""One holding of a lock: its states and its validity. Pure: the time is handed in.

      ┌──── detach ──────────────────┐
    HELD ── release ──▶ RELEASING ── done ──▶ FREE
      └──── lose ───────────┴──────▶ LOST

A hold is renewed in HELD and nowhere else, so no renewal can follow a release (hazard A12).
What a holder may believe ends at `until`, whether or not anyone has said so: a late observer
that finds the time passed makes the same step to LOST.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from leaselock.core.effects import FOREVER, Guard, Owner
from leaselock.errors import LeaseLost

if TYPE_CHECKING:
    import weakref

    from leaselock.core.backend import Claim


class State(Enum):
    """Where a hold is in its life."""

    HELD = "held"
    RELEASING = "releasing"
    FREE = "free"
    LOST = "lost"

    __hash__ = object.__hash__  # Enum's own is a Python function, called with every step


NEXT = {
    (State.HELD, "release"): State.RELEASING,
    (State.HELD, "detach"): State.FREE,
    (State.HELD, "lose"): State.LOST,
    (State.RELEASING, "done"): State.FREE,
    (State.RELEASING, "lose"): State.LOST,
}


# What the user has called, and what it is called with. A hold knows its handles weakly, or it
# would keep itself alive; `wrap` makes of a handle what the user knows as a lease.
Callback = tuple[Callable[[Any], object], object]
Mourner = tuple[
    Callable[[Any], object], "weakref.ref[Any]", "weakref.ref[Any]", Callable[[Any], object]
]


def nobody() -> None:
    """The caller of a hold that belongs to no thread or task, such as an adopted one."""


class Hold:
    """What one client knows of one grant."""

    __slots__ = (
        "__weakref__",
        "claim",
        "depth",
        "guards",
        "loss_callbacks",
        "max_valid_until",
        "next_check",
        "owned",
        "owner",
        "provisional",
        "reason",
        "renew",
        "state",
        "token",
        "uncertain",
        "valid_until",
    )

    def __init__(self, claim: Claim, token: int, until: float, *, renew: bool) -> None:
        self.claim = claim
        self.token = token
        self.valid_until = until
        self.renew = renew
        # What no proof of life takes a fixed lease beyond.
        self.max_valid_until = FOREVER if renew else until
        self.state = State.HELD
        self.depth = 1
        self.reason = ""
        self.next_check = FOREVER
        self.uncertain = False
        # The store has it for less than its lease, until the first renewal.
        self.provisional = False
        self.owned = True
        self.loss_callbacks: list[Mourner] = []
        self.guards: list[Guard] = []
        self.owner: Callable[[], Owner | None] = nobody

    def step(self, event: str) -> bool:
        """Go on to the next state; False, and no change, where *event* leads nowhere."""
        following = NEXT.get((self.state, event))
        if following is None:
            return False
        self.state = following
        return True

    def lose(self, reason: str) -> bool:
        """The hold can no longer be believed; says whether that is news."""
        if not self.step("lose"):
            return False
        self.reason = reason
        for guard in self.guards:
            guard.interrupt()
        return True

    def bereaved(self) -> list[Callback]:
        """Who is to be told of the loss, with what; each is told once."""
        loss_callbacks, self.loss_callbacks = self.loss_callbacks, []
        return [
            (callback, lease() or wrap(handle))
            for callback, lease, known, wrap in loss_callbacks
            if (handle := known()) is not None
        ]

    def is_valid(self, now: float) -> bool:
        """Whether the holder may act on its hold at *now*."""
        return self.state is State.HELD and now < self.valid_until

    def check(self, now: float) -> None:
        """Raise LeaseLost unless the hold can be believed."""
        if self.state is State.HELD and now >= self.valid_until:
            self.lose("its time ran out before a renewal was confirmed")
        if self.state is State.LOST:
            raise self.lost()

    def lost(self) -> LeaseLost:
        """The error that tells how the hold was lost."""
        return LeaseLost(self.claim.name, self.token, self.reason)

    def remaining(self, now: float) -> float:
        """Seconds for which the hold can be believed."""
        return max(0.0, self.valid_until - now) if self.state is State.HELD else 0.0

    def confirmed(self, until: float) -> None:
        """The store has renewed the hold; a belief is never shortened by good news."""
        self.valid_until = max(self.valid_until, min(until, self.max_valid_until))
        self.provisional = False
