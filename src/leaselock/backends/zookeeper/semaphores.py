"""Semaphores, as kazoo has them: permits are ephemeral nodes, and a queue of its own orders claims.

    <lock>               its data is the number of permits
    <lock>/<owner>.1…k   the permits of one hold
    <lock>-__lock__      the queue, as that of a lock; only its first claim may take permits

    1  enter the queue; list it and the permits
    2  not the first: watch the node before the own, and the number of permits
    3  the first, and too few are free: watch the permits, and their number
    4  the first, and enough are free: in one transaction create the permits, delete the own node of
       the queue, and check that their number is still the same

The token of a hold is the transaction that created its permits.

Invariant: no two claims are the first at once, so no other takes permits between 3 or 4 and the
transaction. A name that is in use as a lock has contenders among the children of its node. Both
kinds look for the other after they have created a node, so at least the later one finds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leaselock.backends.zookeeper.data import read, written
from leaselock.backends.zookeeper.lock_state import hold_record, waiting_claim
from leaselock.backends.zookeeper.paths import QUEUE, path_of
from leaselock.backends.zookeeper.queue_order import KAZOO, entry, in_order, position
from leaselock.backends.zookeeper.requests import (
    CHILDREN,
    Check,
    Create,
    Delete,
    EnsurePath,
    GetChildren,
    Node,
    Operation,
    QuorumBarrier,
    Read,
    SetData,
    Transaction,
    names_of,
)
from leaselock.backends.zookeeper.session_backend import RECHECK_INTERVAL
from leaselock.core.backend import Busy, Grant, HoldState, LockState, Resized
from leaselock.errors import LimitMismatch, NotApplied

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leaselock.backends.zookeeper.contender import Contender
    from leaselock.backends.zookeeper.entering import EnteringBackend
    from leaselock.backends.zookeeper.queue_order import Position
    from leaselock.core.backend import Claim, HoldRecord

# The oldest holder, which a message names, is looked for among so many at most.
MOST_READ = 20
# So many permits can be created in one transaction, which may have a megabyte (jute.maxbuffer).
MOST_AT_ONCE = 5_000


class View(NamedTuple):
    """What a claim sees of its semaphore."""

    queue: tuple[str, ...]
    children: tuple[str, ...]
    node: Node | None
    """The node of the name, whose data is the number of permits."""

    @property
    def permits(self) -> list[str]:
        """The names of the permits."""
        return [name for name in self.children if entry(name) is None]

    @property
    def stored(self) -> int:
        """The stored number of permits; 0 if there is none."""
        return limit_of(self.node)


def limit_of(node: object) -> int:
    """The number of permits in the data of a node; 0 if there is none."""
    data = node.data if isinstance(node, Node) else b""
    return int(data) if data.isdigit() and len(data) < len(str(2**63)) else 0


def queue_path(path: str) -> str:
    """The path of the queue of the semaphore at *path*."""
    return path + QUEUE


def semaphore_state(
    name: str, node: object, permits: Sequence[Node], queue: Sequence[Node]
) -> LockState:
    """The state of a semaphore."""
    groups = held_together(permits)
    records = [hold_record(group[0], "permits", len(group)) for group in groups]
    claims = [
        waiting_claim(name, one, "permits", read(one.data, one.created).permits) for one in queue
    ]
    holds = tuple(HoldState(record, None) for record in records if record is not None)
    return LockState(name, holds, tuple(claims), limit_of(node))


def held_together(permits: Iterable[Node]) -> list[list[Node]]:
    """The permits of each hold, the oldest first: one transaction has created them."""
    groups: dict[int, list[Node]] = {}
    for node in sorted(permits, key=lambda one: (one.token, one.path)):
        groups.setdefault(node.token, []).append(node)
    return list(groups.values())


class Semaphores:
    """The semaphores of one backend."""

    def __init__(self, backend: EnteringBackend) -> None:
        self.backend = backend

    async def acquire(self, claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        """Take permits, or a place in the queue."""
        backend, watching = self.backend, False
        if claim.permits > MOST_AT_ONCE:
            raise NotApplied(
                f"{claim.permits} permits of {claim.name!r} do not fit into one transaction of "
                f"ZooKeeper, {MOST_AT_ONCE} do: let a permit stand for more"
            )
        contender = backend.contender(claim)
        path = path_of(backend.root, claim.name)
        if wait:
            backend.prepare_wait(claim)
        elif not contender.created and (busy := await self._peek(contender, path, until)):
            return busy
        while True:
            if contender.has_ended():
                contender, watching = backend.reenter(contender), False
            view = await self._view(contender, path, watching, until)
            if contender.has_ended() or view.node is None:
                continue
            if f"{contender.owner}.1" in view.children:
                if grant := await self._granted(contender, path, view, until):
                    return grant
                continue
            place = position(view.queue, contender.owner)
            if place is None:
                contender.restart()
                continue
            own = f"{queue_path(path)}/{place.own.node}"
            if not await backend.is_own(contender, own, until):
                continue
            limit = self._limit(contender, view, first=place.ahead is None)
            if isinstance(limit, LimitMismatch):
                await backend.release(claim, tombstone=True, until=until)
                raise limit
            if place.ahead is None and len(view.permits) + claim.permits <= limit:
                await self._take(contender, path, view, limit, until)
            elif not wait:
                await backend.release(claim, tombstone=True, until=until)
                return await self._busy(path, view, until)
            elif place.ahead is not None:
                if await self._watch_ahead(contender, path, view, place, until):
                    return await self._busy(path, view, until)
            elif watching:
                return await self._busy(path, view, until)
            else:
                backend.watch(contender, path + CHILDREN, path)
                watching = True

    async def _peek(self, contender: Contender, path: str, until: float) -> Busy | None:
        """A claim that does not wait creates no node behind others."""
        look = self._look(path, watch=False)
        view = _view(await self.backend.batch(until, QuorumBarrier(path), *look))
        first = not in_order(view.queue)
        limit = self._limit(contender, view, first=first)
        if isinstance(limit, LimitMismatch):
            raise limit
        if first and len(view.permits) + contender.claim.permits <= limit:
            return None
        return await self._busy(path, view, until)

    async def _view(self, contender: Contender, path: str, watching: bool, until: float) -> View:
        """Enter the queue, unless that is done; list it and the permits."""
        backend, look = self.backend, self._look(path, watch=watching)
        if contender.created:
            _, *replies = await backend.batch(until, QuorumBarrier(path), *look)
        else:
            name = f"{queue_path(path)}/{contender.owner}{KAZOO}"
            replies = list(await backend.enter(contender, name, look, until))
        view = _view([None, *replies])
        if view.node is None:
            await backend.batch(until, EnsurePath(path))
        await backend.check_length(contender, len(view.queue), until)
        return view

    def _look(self, path: str, *, watch: bool) -> tuple[Operation, ...]:
        return (GetChildren(queue_path(path)), GetChildren(path, watch), Read(path, watch))

    def _limit(self, contender: Contender, view: View, *, first: bool) -> int | LimitMismatch:
        """The number of permits for the claim, or why it cannot wait.

        While the semaphore is in use, a claim must agree with what is stored; one that has may wait
        on when that is changed. The first claim to an idle one decides.
        """
        claim, stored, permits = contender.claim, view.stored, view.permits
        limit: int | None = stored or claim.limit
        if len(permits) < len(view.children):
            limit = None
        elif permits and stored and not contender.limit and claim.limit in (0, stored):
            contender.limit = stored
        elif not contender.limit and not permits:
            # Those ahead may change the number yet.
            limit = (claim.limit or stored) if first else claim.permits
        agrees = contender.limit or not permits or claim.limit in (0, limit)
        if limit is not None and agrees and claim.permits <= limit:
            return limit
        return LimitMismatch(claim.name, claim.limit, limit, claim.permits)

    async def _take(
        self, contender: Contender, path: str, view: View, limit: int, until: float
    ) -> None:
        """Create the permits. Whether that was done is seen when they are listed again."""
        claim, node = contender.claim, contender.node
        assert node is not None
        assert view.node is not None
        permits = [f"{path}/{contender.owner}.{n}" for n in range(1, claim.permits + 1)]
        # The node of the queue is deleted first, so that they cannot be created after an end.
        contender.others = tuple(permits)
        data = written(claim, contender.owner, permits=claim.permits)
        change = () if view.stored == limit else (SetData(path, str(limit).encode()),)
        steps = (
            Delete(node.path),
            Check(path, view.node.version),
            *change,
            # Only the first one of a hold is read.
            *(Create(permit, b"" if n else data) for n, permit in enumerate(permits)),
        )
        await self.backend.batch(until, Transaction(steps), session=node.session)

    async def _granted(
        self, contender: Contender, path: str, view: View, until: float
    ) -> Grant | None:
        """The grant, if the permits belong to this session."""
        claim, backend = contender.claim, self.backend
        permits = [f"{path}/{contender.owner}.{n}" for n in range(1, claim.permits + 1)]
        (node,) = await backend.batch(until, Read(permits[0]))
        if not isinstance(node, Node) or node.session != backend.session:
            await backend.delete(until, permits)
            return None
        if len(view.permits) < len(view.children):
            await backend.release(claim, tombstone=True, until=until)
            raise LimitMismatch(claim.name, claim.limit, None)
        contender.adopt(node)
        contender.others = contender.needed = tuple(permits[1:])
        await backend.granted(contender)
        return Grant(contender.token, ())

    async def _watch_ahead(
        self, contender: Contender, path: str, view: View, place: Position, until: float
    ) -> bool:
        """Watch the node ahead, and the number of permits; False if one has changed already."""
        assert place.ahead is not None
        ahead = f"{queue_path(path)}/{place.ahead.node}"
        self.backend.watch(contender, ahead, path)
        found, node = await self.backend.batch(
            until, Read(ahead, watch=True), Read(path, watch=True)
        )
        return bool(found) and limit_of(node) == view.stored

    async def _busy(self, path: str, view: View, until: float) -> Busy:
        permits = sorted(view.permits)
        owners = {name.rpartition(".")[0] or name for name in permits}
        reads = [Read(f"{path}/{name}") for name in permits[:MOST_READ]]
        nodes = await self.backend.batch(until, *reads) if reads else ()
        groups = held_together(node for node in nodes if isinstance(node, Node))
        held: HoldRecord | None = None
        if groups:
            held = hold_record(groups[0][0], "permits", len(groups[0]))
        return Busy(held, RECHECK_INTERVAL, (), holds=len(owners))

    async def resize(self, name: str, limit: int, until: float) -> Resized:
        """Change the number of permits. All waiters watch it, and ask again."""
        path = path_of(self.backend.root, name)
        look = (QuorumBarrier(path), GetChildren(path))
        while True:
            _, children = await self.backend.batch(until, *look)
            if in_order(names_of(children)):
                return Resized(None, ())
            (done,) = await self.backend.batch(until, SetData(path, str(limit).encode()))
            if done:
                return Resized(limit, ())
            await self.backend.batch(until, EnsurePath(path))


def _view(replies: Sequence[object]) -> View:
    """From the replies to a barrier and to `_look`."""
    _, queue, children, node = replies
    return View(names_of(queue), names_of(children), node if isinstance(node, Node) else None)
