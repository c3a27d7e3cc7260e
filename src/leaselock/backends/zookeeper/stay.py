"""What this client knows of one claim: was its node asked for, which is it, whom does it watch?

Law: only the process that asks for the claim changes its node; the attendant may end it at any
moment, after which nobody makes another node of that name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.zookeeper.places import owner_of
from leaselock.core.effects import FOREVER

if TYPE_CHECKING:
    from leaselock.backends.zookeeper.requests import Node
    from leaselock.core.backend import Claim


class Stay:
    """One claim's node, from the question on."""

    __slots__ = (
        "claim",
        "ends",
        "free",
        "node",
        "over",
        "owner",
        "second",
        "times",
        "tried",
        "watching",
    )

    def __init__(self, claim: Claim, times: int = 0) -> None:
        self.claim = claim
        # A claim whose lease was over before it could be believed enters again, by another name:
        # the node of the first time is being deleted.
        self.times = times
        self.owner = owner_of(claim.id) + (f".{times}" if times else "")
        self.tried = False
        self.node: Node | None = None
        self.ends = FOREVER
        self.over = False
        self.watching = ""
        # Whether whoever it watches holds the lock; and whether that one has gone.
        self.second = False
        self.free = False

    def begin_anew(self) -> None:
        """Its node is gone, so it neither holds nor waits."""
        self.tried, self.node, self.ends = False, None, FOREVER

    def has_ended(self) -> bool:
        """Whether the attendant has ended it, perhaps while its asker waited for an answer."""
        return self.over
