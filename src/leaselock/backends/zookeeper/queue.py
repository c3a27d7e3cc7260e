"""Protocol "queue": ephemeral sequential nodes below the lock's node, as one text.

    1  create <lock>/<owner>__lock__N and list the children, in one flight
    2  ours is the lowest: it holds; its token is the transaction that created it
    3  else watch the one directly before ours, and read who holds; is it gone, list again
    4  woken: list, and go on at 2; but if the one before us was the first, and is gone,
       we are, and hold without a question (the session was proven while we waited)
    to give up, or to give back: delete it

The owner in the name is unique, so a create whose reply was lost is found by it; and it is the
session's own: a request left behind on a lost connection is refused by the server that it moved
from. So behind an `Agree` whatever of ours can ever be there is there (hazards D2, I2).
"""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from leaselock.backends.zookeeper.data import read, written
from leaselock.backends.zookeeper.holds import RECHECK_INTERVAL, Holds
from leaselock.backends.zookeeper.places import decoded, owner_of, path_of
from leaselock.backends.zookeeper.requests import (
    Agree,
    Children,
    Create,
    Delete,
    Ensure,
    Node,
    Read,
)
from leaselock.backends.zookeeper.turn import Turn, in_order, owned, stranger, turn
from leaselock.core.backend import Broken, Busy, Claim, Grant, HoldRecord, LockState
from leaselock.core.effects import FOREVER
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock.backends.zookeeper.stay import Stay

# The names of so many fit into the megabyte that an answer may have (hazard I9), those of other
# programs with theirs, and what enters while this one is read.
MOST_WAITERS = 10_000


class Queue(Holds):
    """The queue of nodes; *mark* is how ours are written."""

    def __init__(self, root: str, timeout: float, mark: str, now: Callable[[], float]) -> None:
        super().__init__(root, timeout, now)
        self.mark = mark

    # --- taking ---------------------------------------------------------------------------------

    async def acquire(self, claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        """One try."""
        stay = self.stay(claim)
        if wait:
            await self.prepare(claim)
            if self.is_next(stay):
                return await self._grant(stay, self.proven)
        elif not stay.tried and (busy := await self._peek(claim, until)):
            return busy
        while True:
            place = await self._place(stay, until)
            if place is None:
                stay = self.again(stay)
                continue
            if place.ahead is None:
                return await self._grant(stay)
            busy = await self._behind(stay, place, wait, until)
            if busy:
                return busy

    async def _peek(self, claim: Claim, until: float) -> Busy | None:
        """Who will not wait makes no node in a queue where somebody is (hazard I3)."""
        path = path_of(self.root, claim.name)
        _, nodes = await self.fly(until, Agree(path), Children(path))
        queue = in_order(_names(nodes))
        if not queue:
            return None
        (holder,) = await self.fly(until, Read(f"{path}/{queue[0].node}"))
        return Busy(_held(holder), RECHECK_INTERVAL, ()) if holder else None

    async def _place(self, stay: Stay, until: float) -> Turn | None:
        """Our place in the queue, at the tail if we had none; None when the stay is over."""
        if stay.has_ended():
            return None
        path = path_of(self.root, stay.claim.name)
        nodes = await self._enter(stay, path, until) if not stay.tried else None
        if nodes is not None and len(nodes) > MOST_WAITERS:
            await self._leave_the_crowd(stay, len(nodes), until)
        if nodes is None:
            _, listed = await self.fly(until, Agree(path), Children(path))
            nodes = _names(listed)
        place = turn(nodes, stay.owner)
        if stay.has_ended():
            return None  # before another node of it is made
        if place is None:
            # The session in which it was made has ended, or it was removed by force.
            stay.begin_anew()
            return await self._place(stay, until)
        if not await self._ours(stay, f"{path}/{place.mine.node}", until):
            return await self._place(stay, until)
        if foreign := stranger(nodes, self.mark):
            await self._turn_back(stay, foreign.node, until)
        return None if stay.has_ended() else place

    async def _enter(self, stay: Stay, path: str, until: float) -> tuple[str, ...]:
        create = Create(f"{path}/{stay.owner}{self.mark}", written(stay.claim, stay.owner))
        stay.tried = True
        made, nodes = await self.fly(until, create, Children(path))
        while made is None:
            await self.fly(until, Ensure(path))
            made, nodes = await self.fly(until, create, Children(path))
        assert isinstance(made, Node)
        stay.node = made
        return _names(nodes)

    async def _ours(self, stay: Stay, path: str, until: float) -> bool:
        """Make sure which node is ours: not one of a session that is ending (CURATOR-498)."""
        known = stay.node
        if known is not None and (known.path, known.session) == (path, self.session):
            return True
        (node,) = await self.fly(until, Read(path))
        if isinstance(node, Node) and node.session == self.session:
            stay.node = node
            return True
        await self.fly(until, Delete(path))
        stay.begin_anew()
        return False

    async def _leave_the_crowd(self, stay: Stay, count: int, until: float) -> None:
        await self.release(stay.claim, tombstone=True, until=until)
        raise NotApplied(
            f"{count - 1} wait for {stay.claim.name!r} already: a longer list would not fit into "
            "one answer of ZooKeeper (jute.maxbuffer), and then nobody could go on; use more locks"
        )

    async def _turn_back(self, stay: Stay, foreign: str, until: float) -> None:
        await self.release(stay.claim, tombstone=True, until=until)
        raise NotApplied(
            f"{stay.claim.name!r} is shared with Curator ({foreign}), which does not wait for "
            "nodes of kazoo's kind: use ?names=curator in the URL of every client"
        )

    async def _grant(self, stay: Stay, proven: float = FOREVER) -> Grant:
        assert stay.node is not None
        await self.granted(stay)
        return Grant(stay.node.token, (), proven)

    async def _behind(self, stay: Stay, place: Turn, wait: bool, until: float) -> Busy | None:
        """Watch whoever is before us; None when that one is gone already."""
        assert place.ahead is not None
        path = path_of(self.root, stay.claim.name)
        ahead, first = f"{path}/{place.ahead.node}", f"{path}/{place.first.node}"
        if wait:
            self.watch(stay, ahead, second=place.ahead == place.first)
        seen, holder = await self.fly(until, Read(ahead, watch=wait), Read(first))
        if not seen:
            return None
        if not wait:
            await self.release(stay.claim, tombstone=True, until=until)
        return Busy(_held(holder), RECHECK_INTERVAL, ())

    # --- giving back ----------------------------------------------------------------------------

    async def release(self, claim: Claim, *, tombstone: bool, until: float) -> bool:
        """Delete the node: the known one, or, when a reply was lost, whatever there is of ours."""
        stay = self.stays.get(claim.id)
        held = stay is None or stay.ends < FOREVER
        if stay is not None and stay.node is not None and not (tombstone or stay.times):
            paths = [stay.node.path]
        else:
            path = path_of(self.root, claim.name)
            _, nodes = await self.fly(until, Agree(path), Children(path))
            paths = [f"{path}/{one.node}" for one in owned(_names(nodes), owner_of(claim.id))]
        found = await self.delete(until, paths)
        self.drop(claim)
        return held and found > 0

    # --- looking --------------------------------------------------------------------------------

    async def inspect(self, name: str | None, pattern: str, until: float) -> Sequence[LockState]:
        """One lock, or all that match."""
        if name is not None:
            return await self._inspect([name], until)
        _, nodes = await self.fly(until, Agree(self.root), Children(self.root))
        names = [text for node in _names(nodes) if (text := decoded(node)) is not None]
        wanted = sorted(text for text in names if fnmatch.fnmatchcase(text, pattern))
        return [
            sight for sight in await self._inspect(wanted, until) if sight.held or sight.waiting
        ]

    async def _inspect(self, names: Sequence[str], until: float) -> list[LockState]:
        paths = [path_of(self.root, name) for name in names]
        _, *lists = await self.fly(until, Agree(self.root), *map(Children, paths))
        queues = [
            [f"{p}/{one.node}" for one in in_order(_names(nodes))]
            for p, nodes in zip(paths, lists, strict=True)
        ]
        reads = [Read(path) for queue in queues for path in queue]
        seen = iter(await self.fly(until, *reads) if reads else ())
        found = [[node for _ in queue if isinstance(node := next(seen), Node)] for queue in queues]
        return [_sight(name, queue) for name, queue in zip(names, found, strict=True)]

    async def break_lock(self, name: str, token: int | None, until: float) -> Broken:
        """Delete the holder's node."""
        path = path_of(self.root, name)
        while True:
            _, nodes = await self.fly(until, Agree(path), Children(path))
            queue = in_order(_names(nodes))
            if not queue:
                return Broken(None, False, ())
            (node,) = await self.fly(until, Read(f"{path}/{queue[0].node}"))
            held = _held(node)
            if held is not None and token not in (None, held.token):
                return Broken(held, False, ())
            if held is not None and await self.delete(until, [f"{path}/{queue[0].node}"]):
                return Broken(held, True, ())


def _names(answer: object) -> tuple[str, ...]:
    return answer if isinstance(answer, tuple) else ()


def _held(node: object) -> HoldRecord | None:
    if not isinstance(node, Node):
        return None
    text = read(node.data, node.created)
    client = f"{node.session:x}"
    return HoldRecord(node.path, client, "client", node.token, 0.0, text.about, text.since)


def _sight(name: str, queue: Sequence[Node]) -> LockState:
    """Until when it holds, only its session knows."""
    if not queue:
        return LockState.exclusive(name, None, None, ())
    waiting = []
    for node in queue[1:]:
        text = read(node.data, node.created)
        waiting.append(Claim(name, node.path, f"{node.session:x}", 0.0, text.about, text.since))
    return LockState.exclusive(name, _held(queue[0]), None, tuple(waiting))
