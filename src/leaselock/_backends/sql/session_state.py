"""The states of a session of the protocols "row" and "advisory", and the transitions between them.

A session is that of one connection. It serves one claim at a time, and is used for another claim
only when it owns nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from leaselock._core.contract.backend import Claim


class State(StrEnum):
    """What a session owns."""

    IDLE = "idle"
    """Nothing. It serves no claim and is kept for the next one."""
    TRYING = "trying"
    """Nothing yet: its claim makes its first request."""
    WAITING = "waiting"
    """Nothing, but the table of sessions has a row of its claim, which waits."""
    LOCKED = "locked"
    """The lock, without a token: the server has granted it, and the grant is not counted yet."""
    HELD = "held"
    """The lock and its token."""
    LOST = "lost"
    """Perhaps the lock. The claim may not count on it any more; the connection stays open until
    the claim is released, for its end would free the lock before the holder knows of the loss.
    """
    ENDED = "ended"
    """Its connection has ended or is being closed. The server may not know that yet."""


TRANSITIONS = {
    (State.IDLE, "serve"): State.TRYING,
    (State.TRYING, "queue"): State.WAITING,
    (State.TRYING, "lock"): State.LOCKED,
    (State.WAITING, "lock"): State.LOCKED,
    (State.TRYING, "hold"): State.HELD,
    (State.WAITING, "hold"): State.HELD,
    (State.LOCKED, "hold"): State.HELD,
    (State.HELD, "lose"): State.LOST,
    (State.TRYING, "clear"): State.IDLE,
    (State.WAITING, "clear"): State.IDLE,
    (State.LOCKED, "clear"): State.IDLE,
    (State.HELD, "clear"): State.IDLE,
    **{(state, "end"): State.ENDED for state in State},
}


class Session:
    """One session: its state, and the claim that it serves."""

    def __init__(self, key: str, backend: int) -> None:
        self.key = key
        self.backend = backend
        self.state = State.IDLE
        # It has drawn a token and has a row in the table of sessions, perhaps of an earlier claim:
        # MySQL then changes both rows, and inserts none. If one is not there, they are inserted.
        self.recorded = False
        self.protocol = ""
        self.claim: Claim | None = None
        self.token: int | None = None

    def transition(self, event: str) -> None:
        """Change the state."""
        state = TRANSITIONS.get((self.state, event))
        assert state is not None, f"no {event!r} of a session that is {self.state}"
        self.state = state

    def serve(self, claim: Claim, protocol: str) -> None:
        """Begin to serve a claim."""
        self.transition("serve")
        self.claim, self.protocol = claim, protocol

    def queue(self) -> None:
        """The claim waits from now on. A connection that was cut meanwhile stays ended."""
        if self.state is State.TRYING:
            self.transition("queue")

    def lock(self) -> None:
        """The server has granted the lock."""
        if self.state is not State.ENDED:
            self.transition("lock")

    def hold(self, token: int) -> None:
        """The grant has a token; OutcomeUnknown if the connection has ended meanwhile."""
        if self.state is State.ENDED:
            # While the token was counted on another connection.
            name = "" if self.claim is None else self.claim.name
            raise OutcomeUnknown(f"the connection that locked {name!r} has ended meanwhile")
        self.transition("hold")
        self.token = token

    def clear(self) -> None:
        """It owns nothing and serves no claim."""
        self.transition("clear")
        self.claim, self.protocol, self.token = None, "", None

    def has_lease(self) -> bool:
        """Whether its claim was granted the lock and is not over."""
        return self.state in (State.HELD, State.LOST)

    def is_over(self) -> bool:
        """Whether it can serve no request any more."""
        return self.state in (State.LOST, State.ENDED)

    def give_up(self) -> None:
        """Use it no more. If it may have the lock, it is lost, and otherwise ended."""
        if not self.has_lease():
            self.transition("end")
        elif self.state is State.HELD:
            self.transition("lose")
