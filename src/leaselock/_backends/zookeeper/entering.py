"""How a claim enters a queue of nodes: that of a lock, or that of a semaphore."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.zookeeper.data import written
from leaselock._backends.zookeeper.queue_order import contender_pattern
from leaselock._backends.zookeeper.requests import (
    CreateSequential,
    Delete,
    EnsurePath,
    Node,
    Operation,
    Read,
)
from leaselock._backends.zookeeper.session_backend import SessionBackend
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock._backends.zookeeper.connection import Connection
    from leaselock._backends.zookeeper.contender import Contender

# The names of this many nodes fit into the megabyte that a reply may have (hazard I9), with room
# for longer names of other programs and for nodes created meanwhile.
MOST_WAITERS = 10_000


class EnteringBackend(SessionBackend):
    """Claims that enter queues. *extra* are patterns for the marks of other programs."""

    def __init__(
        self,
        connection: Connection,
        root: str,
        now: Callable[[], float],
        extra: Sequence[str] = (),
    ) -> None:
        super().__init__(connection, root, now)
        self.pattern = contender_pattern(extra)

    async def enter(
        self, contender: Contender, path: str, then: tuple[Operation, ...], until: float
    ) -> Sequence[object]:
        """Create the claim's node in a queue; return the replies to what follows in the batch."""
        claim = contender.claim
        numbers = {"permits": claim.permits} if claim.permits > 1 else {}
        create = CreateSequential(path, written(claim, contender.owner, **numbers))
        contender.enter()
        made, *replies = await self.batch(until, create, *then)
        while made is None:
            await self.batch(until, EnsurePath(path.rpartition("/")[0]))
            made, *replies = await self.batch(until, create, *then)
        assert isinstance(made, Node)
        contender.adopt(made)
        return replies

    async def is_own(self, contender: Contender, path: str, until: float) -> bool:
        """Make sure that the node belongs to this session, not to one that is ending
        (CURATOR-498).
        """
        known = contender.node
        if known is not None and (known.path, known.session) == (path, self.session):
            return True
        (node,) = await self.batch(until, Read(path))
        if isinstance(node, Node) and node.session == self.session:
            contender.adopt(node)
            return True
        await self.batch(until, Delete(path))
        self.restart(contender)
        return False

    async def check_length(self, contender: Contender, count: int, until: float) -> None:
        """Refuse to join a queue whose list would then not fit into a reply."""
        if count <= MOST_WAITERS:
            return
        await self.release(contender.claim, tombstone=True, until=until)
        raise NotApplied(
            f"{count - 1} wait for {contender.claim.name!r} already: a longer list would not fit "
            "into one reply of ZooKeeper (jute.maxbuffer), and would block all of them; use more "
            "locks"
        )
