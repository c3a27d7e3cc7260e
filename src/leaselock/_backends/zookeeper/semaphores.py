"""Semaphores, as kazoo has them: permits are ephemeral nodes, and a queue of its own orders claims.

    <lock>               its data is the number of permits
    <lock>/<owner>.1…k   the permits of one hold
    <lock>-__lock__      the queue, as that of a lock; a node says how many permits it is for

    1  enter the queue; read the number of permits, list the queue, list the permits
    2  enough are free for the claim and all before it: in one transaction create its permits,
       delete its node of the queue, and check that their number was not written since
    3  else, if it is not the first: watch the node before the own, and the number of permits
    4  the first: watch the permits, and their number

The token of a hold is the transaction that created its permits.

Invariant 1: a claim counts the permits of all that entered the queue before it, as queued or as
held, because a claim becomes a hold in one transaction, and the queue is listed before the permits.
So at any time the latest one that holds has counted all others, and they are within the limit.
Invariant 2: who takes permits while none are held writes their number again. So a claim that has
seen the semaphore idle, and may change the number, is refused by its check if it is not idle now.
Invariant 3: who takes numbered permits writes the queue's own node, `<lock>-__lock__`, which was
read before the numbers of the others. So of two that have chosen the same number, the later one is
refused.

A name that is in use as a lock has contenders among the children of its node. Both kinds look for
the other after they have created a node, so at least the later one finds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leaselock._backends.zookeeper.data import read, written
from leaselock._backends.zookeeper.lock_state import hold_record, waiting_claim
from leaselock._backends.zookeeper.paths import QUEUE, path_of
from leaselock._backends.zookeeper.queue_order import KAZOO, entry, in_order, position_of
from leaselock._backends.zookeeper.requests import (
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
    rewriting,
)
from leaselock._backends.zookeeper.session_backend import RECHECK_INTERVAL
from leaselock._core.contract.backend import Busy, Grant, HoldState, LockState, Resized, Unreadable
from leaselock._core.contract.marks import lowest_free, slots_of, with_marks
from leaselock.errors import LimitMismatch, NotApplied

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leaselock._backends.zookeeper.contender import Contender
    from leaselock._backends.zookeeper.entering import EnteringBackend
    from leaselock._backends.zookeeper.queue_order import Position
    from leaselock._core.contract.backend import Claim, HoldRecord

# The oldest holder, which a message names, is looked for among this many at most.
MOST_READ = 20
# Upper limit of the permits of one transaction, which may have a megabyte (jute.maxbuffer).
MOST_AT_ONCE = 5_000
# Upper limit of the bytes that a message quotes of another program's data.
MOST_SHOWN = 40


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
    def holders(self) -> set[str]:
        """The owners of the permits."""
        return {name.rpartition(".")[0] or name for name in self.permits}

    @property
    def stored(self) -> int:
        """The stored number of permits; 0 if there is none."""
        return limit_of(self.node)

    def ahead(self, own_node: str = "") -> list[str]:
        """The nodes in the queue before *own_node*, or all, without those that hold by now."""
        entries, holders = [], self.holders
        for one in in_order(self.queue):
            if one.node == own_node:
                break
            if one.owner not in holders:
                entries.append(one.node)
        return entries


def limit_of(node: object) -> int:
    """The number of permits in the data of a node; 0 if there is none."""
    data = node.data if isinstance(node, Node) else b""
    return int(data) if data.isdigit() and len(data) < len(str(2**63)) else 0


def foreign_data(name: str, node: object) -> Unreadable | None:
    """The error for a node with data that is no number of permits: another program's."""
    if not isinstance(node, Node) or not node.data or limit_of(node):
        return None
    return Unreadable(
        f"the semaphore {name!r} would store its number of permits in {node.path}, which has data "
        f"of another program ({node.data[:MOST_SHOWN]!r}): use another name, or remove that data"
    )


def writes_limit(view: View, limit: int) -> bool:
    """Whether a claim that takes permits writes their number: see invariant 2."""
    return not view.permits or view.stored != limit


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
        """Take permits, or enter the queue."""
        backend, watching = self.backend, False
        if claim.permits > MOST_AT_ONCE:
            raise NotApplied(
                f"{claim.permits} permits of {claim.name!r} do not fit into one transaction of "
                f"ZooKeeper, {MOST_AT_ONCE} do: let a permit stand for more"
            )
        contender = backend.contender(claim)
        path = path_of(backend.root, claim.name)
        if wait:
            backend.expect_wakeup(claim)
        elif not contender.has_entered() and (busy := await self._peek(contender, path, until)):
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
            position = position_of(view.queue, contender.owner)
            if position is None:
                backend.restart(contender)
                continue
            own_node = f"{queue_path(path)}/{position.entry.node}"
            if not await backend.is_own(contender, own_node, until):
                continue
            limit = self._limit(contender, view, first=position.ahead is None)
            if not isinstance(limit, int):
                await backend.release(claim, tombstone=True, until=until)
                raise limit
            fits = await self._fits(claim, path, view, position, limit, until)
            if fits is None:
                continue
            if fits:
                await self._take(contender, path, view, limit, until)
            elif not wait:
                await backend.release(claim, tombstone=True, until=until)
                return await self._busy(path, view, until)
            elif position.ahead is not None:
                if await self._watch_ahead(contender, path, view, position, until):
                    return await self._busy(path, view, until)
            elif watching:
                return await self._busy(path, view, until)
            else:
                backend.watch(contender, path + CHILDREN, path)
                watching = True

    async def _peek(self, contender: Contender, path: str, until: float) -> Busy | None:
        """A claim that does not wait creates no node behind others."""
        view = await self._complete_view(path, None, self._look(path, watch=False), until)
        ahead = view.ahead()
        limit = self._limit(contender, view, first=not ahead)
        if not isinstance(limit, int):
            raise limit
        if len(view.permits) + len(ahead) + contender.claim.permits <= limit:
            return None
        return await self._busy(path, view, until)

    async def _fits(
        self, claim: Claim, path: str, view: View, position: Position, limit: int, until: float
    ) -> bool | None:
        """Whether there are enough permits for the claim and all before it; None if one of those
        has just left.
        """
        free = limit - len(view.permits) - claim.permits
        if position.ahead is None or free < 1:
            return position.ahead is None and free >= 0
        ahead = view.ahead(position.entry.node)
        if len(ahead) > free:
            return False
        reads = [Read(f"{queue_path(path)}/{node}") for node in ahead]
        nodes = await self.backend.batch(until, *reads) if reads else ()
        entries = [read(one.data, one.created) for one in nodes if isinstance(one, Node)]
        if len(entries) < len(ahead):
            return None
        # kazoo goes by the number that it has read, and does not write it again.
        if limit != view.stored and not all(one.owner for one in entries):
            return False
        return sum(one.permits for one in entries) <= free

    async def _view(self, contender: Contender, path: str, watching: bool, until: float) -> View:
        """Enter the queue, unless that is done; list it and the permits."""
        backend, look = self.backend, self._look(path, watch=watching)
        joins = not contender.has_entered()
        if not joins:
            view = await self._complete_view(path, None, look, until)
        else:
            name = f"{queue_path(path)}/{contender.owner}{KAZOO}"
            replies = await backend.enter(contender, name, look, until)
            view = await self._complete_view(path, _view(replies), look, until)
        if view.node is None:
            await backend.batch(until, EnsurePath(path))
        if joins:
            await backend.check_length(contender, len(view.queue), until)
        return view

    async def _complete_view(
        self, path: str, view: View | None, look: tuple[Operation, ...], until: float
    ) -> View:
        """The view; look again if the number of permits was written meanwhile."""
        while view is None:
            _, *replies = await self.backend.batch(until, QuorumBarrier(path), *look)
            view = _view(replies)
        return view

    def _look(self, path: str, *, watch: bool) -> tuple[Operation, ...]:
        lists = (GetChildren(queue_path(path)), GetChildren(path, watch))
        return (Read(path, watch), *lists, Read(path))

    def _limit(
        self, contender: Contender, view: View, *, first: bool
    ) -> int | LimitMismatch | NotApplied:
        """The number of permits for the claim, or why it cannot wait.

        | the semaphore | the number |
        |---|---|
        | its node has contenders of a lock | none: a mismatch |
        | idle, and the claim is the first | its own; without one, what is stored |
        | idle, and others are before it | the same; if it is too small, it may wait for theirs |
        | in use | what is stored: the claim's own must be that, or none |
        | in use, and the claim has agreed before | what is stored |
        """
        claim, stored, permits = contender.claim, view.stored, view.permits
        if error := foreign_data(claim.name, view.node):
            return error
        limit: int | None = stored or claim.limit
        if len(permits) < len(view.children):
            limit = None
        elif permits and stored and not contender.limit and claim.limit in (0, stored):
            contender.limit = stored
        elif not contender.limit and not permits:
            limit = claim.limit or stored
            if not first and claim.permits > limit:
                return limit
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
        numbering: tuple[Check | SetData, ...] = ()
        if claim.is_numbered:
            queue, metadata = await self._number(claim, path, until)
            if queue is None or contender.has_ended():
                return
            claim, numbering = claim._replace(metadata=metadata), rewriting(queue)
        permits = [f"{path}/{contender.owner}.{n}" for n in range(1, claim.permits + 1)]
        # The node of the queue is deleted first, so that they cannot be created after an end.
        contender.take_permits(tuple(permits))
        data = written(claim, contender.owner, permits=claim.permits)
        change = (SetData(path, str(limit).encode()),) if writes_limit(view, limit) else ()
        steps = (
            Delete(node.path),
            Check(path, view.node.version),
            *change,
            *numbering,
            # Only the first one of a hold is read.
            *(Create(permit, b"" if n else data) for n, permit in enumerate(permits)),
        )
        await self.backend.batch(until, Transaction(steps), session=node.session)

    async def _number(self, claim: Claim, path: str, until: float) -> tuple[Node | None, str]:
        """The node of the queue, and the metadata of the claim with the lowest free numbers."""
        queue, listed = await self.backend.batch(until, Read(queue_path(path)), GetChildren(path))
        permits = [name for name in names_of(listed) if entry(name) is None]
        # The first permit of each hold has its data; those of kazoo have none.
        reads = [Read(f"{path}/{name}") for name in permits if name.endswith(".1")]
        nodes = await self.backend.batch(until, *reads) if reads else ()
        entries = [read(one.data, one.created) for one in nodes if isinstance(one, Node)]
        taken = [slot for one in entries for slot in slots_of(one.metadata) or ()]
        slots = lowest_free(taken, claim.permits)
        return queue if isinstance(queue, Node) else None, with_marks(claim.metadata, slots)

    async def _granted(
        self, contender: Contender, path: str, view: View, until: float
    ) -> Grant | None:
        """The grant, if the permits belong to this session."""
        claim, backend = contender.claim, self.backend
        permits = [f"{path}/{contender.owner}.{n}" for n in range(1, claim.permits + 1)]
        (node,) = await backend.batch(until, Read(permits[0]))
        if contender.has_ended():
            return None  # its nodes are being deleted
        if not isinstance(node, Node) or node.session != backend.session:
            await backend.delete(until, permits)
            return None
        if len(view.permits) < len(view.children):
            await backend.release(claim, tombstone=True, until=until)
            raise LimitMismatch(claim.name, claim.limit, None)
        contender.adopt(node)
        contender.take_permits(tuple(permits[1:]))
        await backend.granted(contender)
        slots = slots_of(read(node.data, node.created).metadata)
        return Grant(contender.token, (), slots=slots or ())

    async def _watch_ahead(
        self, contender: Contender, path: str, view: View, position: Position, until: float
    ) -> bool:
        """Watch the node ahead, and the number of permits; False if one has changed already."""
        assert position.ahead is not None
        ahead = f"{queue_path(path)}/{position.ahead.node}"
        self.backend.watch(contender, ahead, path)
        exists, node = await self.backend.batch(
            until, Read(ahead, watch=True), Read(path, watch=True)
        )
        return bool(exists) and limit_of(node) == view.stored

    async def _busy(self, path: str, view: View, until: float) -> Busy:
        reads = [Read(f"{path}/{name}") for name in sorted(view.permits)[:MOST_READ]]
        nodes = await self.backend.batch(until, *reads) if reads else ()
        groups = held_together(node for node in nodes if isinstance(node, Node))
        held: HoldRecord | None = None
        if groups:
            held = hold_record(groups[0][0], "permits", len(groups[0]))
        return Busy(held, RECHECK_INTERVAL, (), holds=len(view.holders))

    async def resize(self, name: str, limit: int, until: float) -> Resized:
        """Change the number of permits. All waiters watch it, and ask again."""
        path = path_of(self.backend.root, name)
        look = (QuorumBarrier(path), Read(path), GetChildren(path))
        while True:
            _, node, children = await self.backend.batch(until, *look)
            if in_order(names_of(children)):
                return Resized(None, ())
            if error := foreign_data(name, node):
                raise error
            if not isinstance(node, Node):
                await self.backend.batch(until, EnsurePath(path))
                continue
            steps = (Check(path, node.version), SetData(path, str(limit).encode()))
            (done,) = await self.backend.batch(until, Transaction(steps))
            if done:
                return Resized(limit, ())


def _view(replies: Sequence[object]) -> View | None:
    """From the replies to `_look`; None if the node was written between its two reads: then what
    was listed does not belong to that number of permits.
    """
    node, queue, children, again = replies
    if isinstance(node, Node) and not (isinstance(again, Node) and again.written == node.written):
        return None
    return View(names_of(queue), names_of(children), node if isinstance(node, Node) else None)
