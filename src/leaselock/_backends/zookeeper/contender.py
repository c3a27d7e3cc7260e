"""What this client knows of one claim: its node, and the node that it watches.

Invariant: only the process that acquires the claim creates and replaces its node. The maintenance
process may end it at any moment; after that no other node of the same owner is created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.zookeeper.paths import owner_of

if TYPE_CHECKING:
    from leaselock._backends.zookeeper.requests import Node
    from leaselock._core.backend import Claim
    from leaselock._core.effects import Signal


class Contender:
    """One claim that waits or holds."""

    __slots__ = (
        "alternate",
        "attempt",
        "blockers",
        "claim",
        "converting",
        "created",
        "ended",
        "holder_deleted",
        "limit",
        "mode",
        "needed",
        "node",
        "others",
        "outdated",
        "owner",
        "step",
        "token",
        "waits_for",
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
        self.ended = False
        # The token that a grant has, and whether a greater one was granted since it was drawn, or
        # may have been.
        self.token = 0
        self.outdated = False
        # The upgrade of which its node says that it waits for it.
        self.waits_for = 0
        # The paths of its other nodes, which its end deletes, too; those of them without which it
        # does not hold; and the one that replaces its node in a conversion.
        self.others: tuple[str, ...] = ()
        self.needed: tuple[str, ...] = ()
        self.alternate = ""
        # How it holds; how many conversions were requested, and whether one is being done.
        self.mode = claim.mode
        self.step = 0
        self.converting: Signal | None = None
        # The readers that an upgrade waits for, once they are known.
        self.blockers: list[str] | None = None
        # The number of permits of its semaphore, once it has agreed with that.
        self.limit = 0
        # The paths of the watched nodes; whether the only one of them holds the lock; whether that
        # was deleted then.
        self.watched: tuple[str, ...] = ()
        self.watches_holder = False
        self.holder_deleted = False

    @property
    def paths(self) -> list[str]:
        """The paths of all its nodes. Others are created only as long as the first one exists, so
        that is deleted first.
        """
        return [self.node.path, *self.others] if self.node is not None else []

    def adopt(self, node: Node) -> None:
        """This is its node, as the server has it now."""
        self.node, self.token = node, max(node.token, node.written)

    def forget_nodes(self) -> None:
        """Its nodes are gone."""
        self.created, self.node = False, None
        self.others = self.needed = ()

    def has_ended(self) -> bool:
        """Whether its lease is over, perhaps since the acquiring process last ran."""
        return self.ended
