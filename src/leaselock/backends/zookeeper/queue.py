"""Protocol "queue": ephemeral sequential nodes below the node of the lock.

    1  create <lock>/<owner>__lock__N and list the children, in one batch
    2  the own node is the lowest: the claim holds; its token is the transaction that created it
    3  else watch the node directly before the own, and read the holder's; if it is gone, list again
    4  woken: list, and continue at 2. But if the node before the own was the holder's and was
       deleted, the claim holds without a request (the session was proved while it waited)
    to release or to cancel: delete the own node

The owner in the name is unique, so a node whose creation got no reply is found by it. Only the
session of the owner creates it, and a server refuses a request that the session had sent over a
connection that it has left. So the children listed behind a `QuorumBarrier` contain every node of
this owner that can ever exist (hazards D2, I2).
"""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from leaselock.backends.zookeeper.data import read, written
from leaselock.backends.zookeeper.paths import decoded, owner_of, path_of
from leaselock.backends.zookeeper.queue_order import (
    Position,
    entries_of,
    in_order,
    incompatible,
    position,
)
from leaselock.backends.zookeeper.requests import (
    CreateSequential,
    Delete,
    EnsurePath,
    GetChildren,
    Node,
    QuorumBarrier,
    Read,
)
from leaselock.backends.zookeeper.session_backend import RECHECK_INTERVAL, SessionBackend
from leaselock.core.backend import Broken, Busy, Claim, Grant, HoldRecord, LockState
from leaselock.core.effects import FOREVER
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock.backends.zookeeper.connection import Connection
    from leaselock.backends.zookeeper.contender import Contender

# The names of so many nodes fit into the megabyte that a reply may have (hazard I9), with room
# for longer names of other programs and for nodes created meanwhile.
MOST_WAITERS = 10_000


class QueueBackend(SessionBackend):
    """The queue of nodes. *mark* separates owner and sequence in the names of the own nodes."""

    def __init__(
        self, connection: Connection, root: str, mark: str, now: Callable[[], float]
    ) -> None:
        super().__init__(connection, root, now)
        self.mark = mark

    # --- acquiring -------------------------------------------------------------------------------

    async def acquire(self, claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        """Acquire the lock, or take a place in the queue."""
        contender = self.contender(claim)
        if wait:
            self.prepare_wait(claim)
            if self.is_next(contender):
                return await self._grant(contender, self.last_proof)
        elif not contender.created and (busy := await self._peek(claim, until)):
            return busy
        while True:
            place = await self._place(contender, until)
            if place is None:
                contender = self.reenter(contender)
                continue
            if place.ahead is None:
                return await self._grant(contender)
            busy = await self._behind(contender, place, wait, until)
            if busy:
                return busy

    async def _peek(self, claim: Claim, until: float) -> Busy | None:
        """A claim that does not wait creates no node behind others (hazard I3)."""
        path = path_of(self.root, claim.name)
        _, names = await self.batch(until, QuorumBarrier(path), GetChildren(path))
        queue = in_order(_names(names))
        if not queue:
            return None
        (holder,) = await self.batch(until, Read(f"{path}/{queue[0].node}"))
        return Busy(_hold(holder), RECHECK_INTERVAL, ()) if holder else None

    async def _place(self, contender: Contender, until: float) -> Position | None:
        """The claim's position in the queue, which it enters if it has none; None when its lease
        has ended.
        """
        if contender.has_ended():
            return None
        path = path_of(self.root, contender.claim.name)
        names = None if contender.created else await self._enter(contender, path, until)
        if names is not None and len(names) > MOST_WAITERS:
            await self._refuse_long_queue(contender, len(names), until)
        if names is None:
            _, listed = await self.batch(until, QuorumBarrier(path), GetChildren(path))
            names = _names(listed)
        place = position(names, contender.owner)
        if contender.has_ended():
            return None  # before another node of this owner is created
        if place is None:
            # Its session has ended, or an operator deleted the node.
            contender.restart()
            return await self._place(contender, until)
        if not await self._is_own(contender, f"{path}/{place.own.node}", until):
            return await self._place(contender, until)
        if other := incompatible(names, self.mark):
            await self._refuse_mixed_queue(contender, other.node, until)
        return None if contender.has_ended() else place

    async def _enter(self, contender: Contender, path: str, until: float) -> tuple[str, ...]:
        data = written(contender.claim, contender.owner)
        create = CreateSequential(f"{path}/{contender.owner}{self.mark}", data)
        contender.created = True
        made, names = await self.batch(until, create, GetChildren(path))
        while made is None:
            await self.batch(until, EnsurePath(path))
            made, names = await self.batch(until, create, GetChildren(path))
        assert isinstance(made, Node)
        contender.node = made
        return _names(names)

    async def _is_own(self, contender: Contender, path: str, until: float) -> bool:
        """Make sure that the node belongs to this session, not to one that is ending
        (CURATOR-498).
        """
        known = contender.node
        if known is not None and (known.path, known.session) == (path, self.session):
            return True
        (node,) = await self.batch(until, Read(path))
        if isinstance(node, Node) and node.session == self.session:
            contender.node = node
            return True
        await self.batch(until, Delete(path))
        contender.restart()
        return False

    async def _refuse_long_queue(self, contender: Contender, count: int, until: float) -> None:
        await self.release(contender.claim, tombstone=True, until=until)
        raise NotApplied(
            f"{count - 1} wait for {contender.claim.name!r} already: a longer list would not fit "
            "into one reply of ZooKeeper (jute.maxbuffer), and would block all of them; use more "
            "locks"
        )

    async def _refuse_mixed_queue(self, contender: Contender, node: str, until: float) -> None:
        await self.release(contender.claim, tombstone=True, until=until)
        raise NotApplied(
            f"{contender.claim.name!r} is shared with Curator ({node}), which does not wait for "
            "nodes of kazoo's format: use ?names=curator in the URL of every client"
        )

    async def _grant(self, contender: Contender, proof: float = FOREVER) -> Grant:
        assert contender.node is not None
        await self.granted(contender)
        return Grant(contender.node.token, (), proof)

    async def _behind(
        self, contender: Contender, place: Position, wait: bool, until: float
    ) -> Busy | None:
        """Watch the node ahead; None if it is gone already."""
        assert place.ahead is not None
        path = path_of(self.root, contender.claim.name)
        ahead, first = f"{path}/{place.ahead.node}", f"{path}/{place.first.node}"
        if wait:
            self.watch(contender, ahead, holder=place.ahead == place.first)
        found, holder = await self.batch(until, Read(ahead, watch=wait), Read(first))
        if not found:
            return None
        if not wait:
            await self.release(contender.claim, tombstone=True, until=until)
        return Busy(_hold(holder), RECHECK_INTERVAL, ())

    # --- releasing ------------------------------------------------------------------------------

    async def release(self, claim: Claim, *, tombstone: bool, until: float) -> bool:
        """Delete the claim's node: the known one or, after a lost reply, every node of it."""
        contender = self.contenders.get(claim.id)
        held = contender is None or contender.lease_end < FOREVER
        node = contender.node if contender is not None and not contender.attempt else None
        if node is not None and not tombstone:
            paths = [node.path]
        else:
            path = path_of(self.root, claim.name)
            _, names = await self.batch(until, QuorumBarrier(path), GetChildren(path))
            paths = [f"{path}/{one.node}" for one in entries_of(_names(names), owner_of(claim.id))]
        deleted = await self.delete(until, paths)
        self.drop(claim)
        return held and deleted > 0

    # --- inspecting -----------------------------------------------------------------------------

    async def inspect(self, name: str | None, pattern: str, until: float) -> Sequence[LockState]:
        """The state of one lock, or of all whose names match."""
        if name is not None:
            return await self._inspect([name], until)
        _, children = await self.batch(until, QuorumBarrier(self.root), GetChildren(self.root))
        names = [text for node in _names(children) if (text := decoded(node)) is not None]
        wanted = sorted(text for text in names if fnmatch.fnmatchcase(text, pattern))
        return [
            state for state in await self._inspect(wanted, until) if state.held or state.waiting
        ]

    async def _inspect(self, names: Sequence[str], until: float) -> list[LockState]:
        paths = [path_of(self.root, name) for name in names]
        _, *lists = await self.batch(until, QuorumBarrier(self.root), *map(GetChildren, paths))
        queues = [
            [f"{path}/{one.node}" for one in in_order(_names(children))]
            for path, children in zip(paths, lists, strict=True)
        ]
        reads = [Read(path) for queue in queues for path in queue]
        nodes = iter(await self.batch(until, *reads) if reads else ())
        found = [[node for _ in queue if isinstance(node := next(nodes), Node)] for queue in queues]
        return [_state(name, queue) for name, queue in zip(names, found, strict=True)]

    async def break_lock(self, name: str, token: int | None, until: float) -> Broken:
        """Delete the holder's node."""
        path = path_of(self.root, name)
        while True:
            _, names = await self.batch(until, QuorumBarrier(path), GetChildren(path))
            queue = in_order(_names(names))
            if not queue:
                return Broken(None, False, ())
            (node,) = await self.batch(until, Read(f"{path}/{queue[0].node}"))
            hold = _hold(node)
            if hold is not None and token not in (None, hold.token):
                return Broken(hold, False, ())
            if hold is not None and await self.delete(until, [f"{path}/{queue[0].node}"]):
                return Broken(hold, True, ())


def _names(reply: object) -> tuple[str, ...]:
    return reply if isinstance(reply, tuple) else ()


def _hold(node: object) -> HoldRecord | None:
    if not isinstance(node, Node):
        return None
    text = read(node.data, node.created)
    client = f"{node.session:x}"
    return HoldRecord(node.path, client, "client", node.token, 0.0, text.metadata, text.since)


def _state(name: str, queue: Sequence[Node]) -> LockState:
    """The end of a hold is unknown: it is the end of its session."""
    if not queue:
        return LockState.exclusive(name, None, None, ())
    waiting = []
    for node in queue[1:]:
        text = read(node.data, node.created)
        waiting.append(Claim(name, node.path, f"{node.session:x}", 0.0, text.metadata, text.since))
    return LockState.exclusive(name, _hold(queue[0]), None, tuple(waiting))
