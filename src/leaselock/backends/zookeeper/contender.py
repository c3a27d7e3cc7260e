"""What this client knows of one claim: its node, the node that it watches, and until when it holds.

Invariant: only the process that acquires the claim creates and replaces its node. The maintenance
process may end it at any moment; after that no other node of the same owner is created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.zookeeper.paths import owner_of
from leaselock.core.effects import FOREVER

if TYPE_CHECKING:
    from leaselock.backends.zookeeper.requests import Node
    from leaselock.core.backend import Claim


class Contender:
    """One claim that waits or holds."""

    __slots__ = (
        "attempt",
        "claim",
        "created",
        "ended",
        "holder_deleted",
        "lease_end",
        "node",
        "owner",
        "watched",
        "watches_holder",
    )

    def __init__(self, claim: Claim, attempt: int = 0) -> None:
        self.claim = claim
        # The lease of a grant may be over before its reply arrives. The claim then enters again
        # under another owner, because the node of the first attempt is being deleted.
        self.attempt = attempt
        self.owner = owner_of(claim.id) + (f".{attempt}" if attempt else "")
        # Whether a request to create the node was sent, and the node if its reply arrived.
        self.created = False
        self.node: Node | None = None
        self.lease_end = FOREVER
        self.ended = False
        # The path of the watched node; whether that holds the lock; whether it was deleted then.
        self.watched = ""
        self.watches_holder = False
        self.holder_deleted = False

    def restart(self) -> None:
        """Its node is gone, so the claim neither holds nor waits."""
        self.created, self.node, self.lease_end = False, None, FOREVER

    def has_ended(self) -> bool:
        """Whether its lease is over, perhaps since the acquiring process last ran."""
        return self.ended
