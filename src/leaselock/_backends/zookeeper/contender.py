"""What this client knows of one claim: its nodes, its conversion, and what it watches.

Invariant: only the operation that acquires or converts the claim creates and replaces its nodes.
The background operation may end it at any moment; after that no other node of the same owner is
created.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from leaselock._backends.zookeeper.paths import owner_of

if TYPE_CHECKING:
    from leaselock._backends.zookeeper.requests import Node
    from leaselock._core.contract.backend import Claim, Mode
    from leaselock._core.contract.effects import Signal


class Stage(StrEnum):
    """What is known of the node of a claim."""

    NEW = "new"
    """It has none."""
    ENTERING = "entering"
    """A request to create it was sent."""
    PRESENT = "present"
    """The reply has arrived: the claim waits, or holds."""
    ENDED = "ended"
    """The lease of the claim is over: its nodes are being deleted."""


class Watch(StrEnum):
    """What a claim watches."""

    NOTHING = "nothing"
    NODES = "nodes"
    """Nodes whose change only says that it may ask again."""
    HOLDER = "holder"
    """The node of the holder, the only one before it that conflicts with it."""
    FREED = "freed"
    """That node, which was deleted: it is the next to hold."""


class Change(StrEnum):
    """The conversion of a hold."""

    NONE = "none"
    UPGRADING = "upgrading"
    """A second node, the upgrade, waits for the readers before it."""
    UPGRADED = "upgraded"
    """The hold is exclusive as long as it has both nodes."""
    REPLACING = "replacing"
    """Another node, of a weaker mode, is to replace its node."""


class Conversion:
    """The conversions of one hold, which are made one after the other.

    | change | nodes that may exist beside its own | left by |
    |---|---|---|
    | NONE | none; or, until `reset`, those of the conversion before | `begin_…` |
    | UPGRADING | the upgrade | `complete_upgrade`, `give_up`, `begin_replacement` |
    | UPGRADED | the upgrade, and both are needed | `give_up`, `begin_replacement` |
    | REPLACING | an upgrade; the weaker one, perhaps instead of its own | `end_replacement` |
    """

    __slots__ = ("change", "readers", "running", "step", "upgrade", "weaker")

    def __init__(self) -> None:
        # How many were requested, and what is set when the one under way ends.
        self.step = 0
        self.running: Signal | None = None
        self.reset()

    def reset(self) -> None:
        """The hold has one node."""
        self.change = Change.NONE
        # The paths of the nodes beside its own, which may exist.
        self.upgrade = self.weaker = ""
        # The readers that an upgrade waits for, once they are known.
        self.readers: list[str] | None = None

    def begin_upgrade(self, path: str) -> None:
        """Create the upgrade, unless it is there."""
        self.change, self.upgrade, self.weaker = Change.UPGRADING, path, ""

    def complete_upgrade(self) -> None:
        """No reader is left before the upgrade."""
        assert self.change is Change.UPGRADING, self.change
        self.change = Change.UPGRADED

    def give_up(self) -> None:
        """The hold does not need its upgrade any more, which may exist until it is deleted."""
        self.change, self.readers = Change.NONE, None

    def begin_replacement(self, path: str) -> None:
        """Replace the node by a weaker one. An upgrade is deleted with it."""
        self.give_up()
        self.change, self.weaker = Change.REPLACING, path

    def end_replacement(self) -> None:
        """The reply has arrived; the other nodes are forgotten with `reset` only."""
        assert self.change is Change.REPLACING, self.change
        self.change = Change.NONE

    @property
    def nodes(self) -> tuple[str, ...]:
        """The paths of the nodes beside the own one, which may exist."""
        return tuple([path for path in (self.upgrade, self.weaker) if path])


class Contender:
    """One claim that waits or holds."""

    __slots__ = (
        *("attempt", "claim", "conversion", "limit", "mode", "node", "outdated", "owner"),
        *("permits", "stage", "token", "waits_for", "watch", "watched"),
    )

    def __init__(self, claim: Claim, attempt: int = 0) -> None:
        self.claim = claim
        # The lease of a grant may be over before its reply arrives. The claim then enters again
        # under another owner, because the node of the first attempt is being deleted.
        self.attempt = attempt
        self.owner = owner_of(claim.id) + (f".{attempt}" if attempt else "")
        self.stage = Stage.NEW
        self.node: Node | None = None
        # The token that a grant has; the queue notes whether a greater one was granted since it was
        # drawn, or may have been, and for which upgrade its node says that it waits.
        self.token = 0
        self.outdated = False
        self.waits_for = 0
        # The nodes of its permits: all of them until the grant, then all but the first, which is
        # its node.
        self.permits: tuple[str, ...] = ()
        # The number of permits of its semaphore, once it has agreed with that.
        self.limit = 0
        # How it holds.
        self.mode = claim.mode
        self.conversion = Conversion()
        self.watch = Watch.NOTHING
        self.watched: tuple[str, ...] = ()

    # --- its nodes

    def enter(self) -> None:
        """A request to create its node is about to be sent."""
        if self.stage is Stage.NEW:
            self.stage = Stage.ENTERING

    def has_entered(self) -> bool:
        """Whether it may have a node."""
        return self.stage is not Stage.NEW

    def hold_by(self, node: Node) -> None:
        """This is its node. Of the protocol "single" it has no token, so that a hand-over without a
        request is never trusted there.
        """
        self.node = node
        if self.stage is not Stage.ENDED:
            self.stage = Stage.PRESENT

    def adopt(self, node: Node) -> None:
        """This is its node, as the server has it now, with its token."""
        self.hold_by(node)
        self.token = max(node.token, node.written)

    def take_permits(self, paths: tuple[str, ...]) -> None:
        """These nodes of permits may exist from now on."""
        self.permits = paths

    def end(self) -> None:
        """Its lease is over."""
        self.stage = Stage.ENDED

    def has_ended(self) -> bool:
        """Whether its lease is over, perhaps since the acquiring process last ran."""
        return self.stage is Stage.ENDED

    def forget_nodes(self) -> None:
        """Its nodes are gone."""
        self.node, self.permits = None, ()
        self.conversion.reset()
        if self.stage is not Stage.ENDED:
            self.stage = Stage.NEW

    @property
    def others(self) -> tuple[str, ...]:
        """The paths of its other nodes, which its end deletes, too."""
        return (*self.permits, *self.conversion.nodes)

    @property
    def needed(self) -> tuple[str, ...]:
        """Those of them without which it does not hold."""
        if self.conversion.change is Change.UPGRADED:
            return (self.conversion.upgrade,)
        return self.permits

    @property
    def alternate(self) -> str:
        """The node that may have replaced its own."""
        conversion = self.conversion
        return conversion.weaker if conversion.change is Change.REPLACING else ""

    @property
    def paths(self) -> list[str]:
        """The paths of all its nodes. Others are created only as long as the first one exists, so
        that is deleted first.
        """
        return [self.node.path, *self.others] if self.node is not None else []

    # --- its conversion

    def complete_upgrade(self, token: int) -> None:
        """It holds exclusively, with this token."""
        self.conversion.complete_upgrade()
        self.token = token

    def give_up_upgrade(self, mode: Mode) -> None:
        """It holds in the weaker mode again."""
        self.conversion.give_up()
        self.mode = mode

    def replace_node(self, node: Node) -> None:
        """This weaker node has replaced its own, and any upgrade."""
        self.conversion.reset()
        self.node = node

    # --- what it watches

    def begin_watch(self, paths: tuple[str, ...], *, holder: bool) -> None:
        """Watch these nodes; *holder*: the one is that of the holder."""
        self.watched = paths
        self.watch = Watch.HOLDER if holder else Watch.NODES

    def note_event(self, *, deleted: bool) -> None:
        """A watched node has changed. A holder whose node changes is about to hold in a weaker
        mode, by another node.
        """
        if self.watch is Watch.HOLDER:
            self.watch = Watch.FREED if deleted else Watch.NODES

    def doubt_holder(self) -> None:
        """The deletion of the watched node will not mean that the lock is free."""
        if self.watch is Watch.HOLDER:
            self.watch = Watch.NODES

    def trust_holder(self) -> None:
        """The watched node is that of the holder, and no other one conflicts."""
        if self.watch is Watch.NODES:
            self.watch = Watch.HOLDER

    def take_freed(self) -> bool:
        """Whether the holder's node was deleted; that counts once."""
        freed = self.watch is Watch.FREED
        if freed:
            self.watch = Watch.NODES
        return freed
