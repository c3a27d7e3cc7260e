"""Protocol "queue": ephemeral sequential nodes below the node of the lock.

    1  create <lock>/<owner>__lock__N and list the children, in one batch
    2  no node before the own conflicts: the claim holds; its token is the transaction that created
       its node
    3  else watch the nearest node before that conflicts, and read the holder's; if it is gone, list
       again
    4  woken: list, and continue at 2. But if the node before was the holder's and was deleted, the
       claim holds without a request (the session was proved while it waited)
    to release or to cancel: delete the own node

Which contenders conflict is in `queue_order`, upgrades and downgrades are in `conversions`,
semaphores in `semaphores`.

The owner in the name is unique, so a node whose creation got no reply is found by it. Only the
session of the owner creates it, and a server refuses a request that the session had sent over a
connection that it has left. So the children listed behind a `QuorumBarrier` contain every node of
this owner that can ever exist (hazards D2, I2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leaselock._backends.zookeeper.conversions import Conversions
from leaselock._backends.zookeeper.data import written
from leaselock._backends.zookeeper.entering import EnteringBackend
from leaselock._backends.zookeeper.lock_state import hold_record, lock_state
from leaselock._backends.zookeeper.paths import QUEUE, decoded, owner_of, path_of
from leaselock._backends.zookeeper.queue_order import (
    CURATOR,
    SIDES,
    Entry,
    Position,
    conflicting,
    count_holds,
    entries_of,
    in_order,
    incompatible,
    name_of,
    own_mark,
    position_of,
)
from leaselock._backends.zookeeper.requests import (
    Children,
    GetChildren,
    Node,
    QuorumBarrier,
    Read,
    SetData,
    Transaction,
    in_parts,
    names_of,
    rewriting,
)
from leaselock._backends.zookeeper.semaphores import (
    Semaphores,
    foreign_data,
    held_together,
    limit_of,
    queue_path,
    semaphore_state,
)
from leaselock._backends.zookeeper.session_backend import RECHECK_INTERVAL
from leaselock._core.contract.backend import (
    ALL_MODES,
    Broken,
    Busy,
    Claim,
    Grant,
    LockState,
    Mode,
    matching,
)
from leaselock._core.contract.effects import FOREVER
from leaselock.errors import LimitMismatch, NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from leaselock._backends.zookeeper.connection import Connection
    from leaselock._backends.zookeeper.contender import Contender
    from leaselock._backends.zookeeper.lock_state import Contending


class QueueBackend(EnteringBackend):
    """The queue of nodes. *mark* separates owner and sequence in the names of the own nodes;
    *extra* are patterns for the marks of other programs.
    """

    def __init__(
        self,
        connection: Connection,
        root: str,
        mark: str,
        now: Callable[[], float],
        extra: Sequence[str] = (),
    ) -> None:
        super().__init__(connection, root, now, extra)
        self.mark = mark
        modes: frozenset[Mode] = frozenset({"exclusive", "shared"})
        modes = modes if mark == CURATOR else ALL_MODES
        self.capabilities = self.capabilities._replace(modes=modes)
        self.semaphores = Semaphores(self)
        self.conversions = Conversions(self)
        self.convert = self.conversions.convert
        self.resize = self.semaphores.resize

    # --- acquiring -------------------------------------------------------------------------------

    async def acquire(self, claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        """Acquire the lock, or enter the queue.

        A token is greater than all earlier ones. A contender is *outdated* if a greater one may
        have been granted since its node was written, by an upgrade, an update or another token that
        was drawn. It then draws one by writing its node, and looks again that nothing is ahead: a
        token that was drawn at this node is final.
        """
        if claim.mode == "permits":
            return await self.semaphores.acquire(claim, wait=wait, until=until)
        contender = self.contender(claim)
        if wait:
            self.expect_wakeup(claim)
            if self.holds_by_handoff(contender):
                return await self._grant(contender, self.last_proof)
        elif not contender.has_entered() and (busy := await self._peek(claim, until)):
            return busy
        drawn: Node | None = None
        while True:
            position = await self._position(contender, until)
            if position is None:
                contender = self.reenter(contender)
                continue
            if position.ahead is None:
                own_node = contender.node
                if not contender.outdated or (drawn and own_node and drawn.token == own_node.token):
                    return await self._grant(contender)
                # Draw another token, and look whether it still holds. Once is enough, although
                # readers beside it may draw theirs: all writers before it are gone.
                await self._write(contender, until)
                drawn = own_node
                continue
            drawn = None
            busy = await self._behind(contender, position, wait, until)
            if busy:
                return busy

    async def _peek(self, claim: Claim, until: float) -> Busy | None:
        """A claim that does not wait creates no node behind others (hazard I3)."""
        path = path_of(self.root, claim.name)
        _, listed = await self.batch(until, QuorumBarrier(path), GetChildren(path))
        names = names_of(listed)
        if not conflicting(names, claim.mode, self.pattern):
            return None
        queue = in_order(names, self.pattern)
        (holder,) = await self.batch(until, Read(f"{path}/{queue[0].node}"))
        if not holder:
            return None
        held = hold_record(holder, queue[0].mode)
        return Busy(held, RECHECK_INTERVAL, (), holds=count_holds(queue))

    async def _position(self, contender: Contender, until: float) -> Position | None:
        """The claim's position in the queue, which it enters if it has none; None when its lease
        has ended.
        """
        if contender.has_ended():
            return None
        path = path_of(self.root, contender.claim.name)
        waited = contender.has_entered()
        listed = None if waited else await self._enter(contender, path, until)
        if isinstance(listed, Children):
            await self.check_length(contender, len(listed.names), until)
        if listed is None:
            _, listed = await self.batch(until, QuorumBarrier(path), GetChildren(path))
        names = names_of(listed)
        position = position_of(names, contender.owner, self.pattern)
        if contender.has_ended():
            return None  # before another node of this owner is created
        if position is None:
            # Its session has ended, or an operator deleted the node.
            self.restart(contender)
            return await self._position(contender, until)
        if not await self.is_own(contender, f"{path}/{position.entry.node}", until):
            return await self._position(contender, until)
        if other := incompatible(names, position.entry.mark):
            await self._refuse_mixed_queue(contender, other, until)
        if position.others:
            await self._refuse_semaphore(contender, path, until)
        contender.outdated = is_outdated(contender, listed, waited=waited)
        return None if contender.has_ended() else position

    async def _enter(self, contender: Contender, path: str, until: float) -> object:
        claim, mark = contender.claim, own_mark(contender.claim, self.mark)
        name = name_of(contender.owner, claim.mode, mark)
        (listed,) = await self.enter(contender, f"{path}/{name}", (GetChildren(path),), until)
        return listed

    async def _refuse_mixed_queue(self, contender: Contender, other: Entry, until: float) -> None:
        await self.release(contender.claim, tombstone=True, until=until)
        name = contender.claim.name
        if own_mark(contender.claim, self.mark) in SIDES:
            raise NotApplied(
                f"{name!r} is shared with a lock ({other.node}) that a read-write lock of Curator "
                "does not wait for: use another name"
            )
        if other.mark == CURATOR:
            raise NotApplied(
                f"{name!r} is shared with Curator ({other.node}), which does not wait for nodes of "
                "kazoo's format: use ?names=curator in the URL of every client"
            )
        raise NotApplied(
            f"{name!r} is shared with a read-write lock of Curator ({other.node}), which does not "
            "wait for other programs' nodes: use another name"
        )

    async def _refuse_semaphore(self, contender: Contender, path: str, until: float) -> None:
        """LimitMismatch if the children that are no contenders are permits."""
        (node,) = await self.batch(until, Read(path))
        limit = limit_of(node)
        if limit:
            await self.release(contender.claim, tombstone=True, until=until)
            raise LimitMismatch(contender.claim.name, None, limit)

    async def _say_it_waits(self, contender: Contender, upgrade: Node, until: float) -> None:
        """The upgrade may take a reader that is older for one that held before."""
        own_node = contender.node
        assert own_node is not None
        if own_node.token < upgrade.token != contender.waits_for:
            await self._write(contender, until, waits_for=upgrade.token)

    async def _write(self, contender: Contender, until: float, waits_for: int = 0) -> None:
        """Write the claim's node again, which draws another token, and that of the lock: the others
        in the queue then need another one, too. The data of the lock's node may be another
        program's, and stays.
        """
        own_node = contender.node
        assert own_node is not None
        data = written(contender.claim, contender.owner, waits_for=waits_for)
        path = path_of(self.root, contender.claim.name)
        while True:
            (lock,) = await self.batch(until, Read(path))
            if not isinstance(lock, Node):
                return
            write = Transaction((SetData(own_node.path, data), *rewriting(lock)))
            done, node = await self.batch(until, write, Read(own_node.path))
            if not isinstance(node, Node) or node.token != own_node.token:
                return
            contender.adopt(node)
            if done:
                contender.waits_for = waits_for
                return

    async def _grant(self, contender: Contender, proof: float = FOREVER) -> Grant:
        assert contender.node is not None
        await self.granted(contender)
        return Grant(contender.token, (), proof)

    async def _behind(
        self, contender: Contender, position: Position, wait: bool, until: float
    ) -> Busy | None:
        """Watch the node ahead; None if it is gone already."""
        assert position.ahead is not None
        path = path_of(self.root, contender.claim.name)
        ahead, first = f"{path}/{position.ahead.node}", f"{path}/{position.first.node}"
        if wait:
            self.watch(contender, ahead, holder=position.is_next)
        # Without the reply, the node ahead may have drawn its token after the list was read.
        outdated, contender.outdated = contender.outdated, True
        node, holder = await self.batch(until, Read(ahead, watch=wait), Read(first))
        if not isinstance(node, Node):
            return None
        contender.outdated = outdated or node.written > contender.token
        if not wait:
            await self.release(contender.claim, tombstone=True, until=until)
        elif position.upgrades and position.entry.mode == "shared":
            await self._say_it_waits(contender, node, until)
        return Busy(
            hold_record(holder, position.first.mode), RECHECK_INTERVAL, (), holds=position.holds
        )

    # --- releasing ------------------------------------------------------------------------------

    async def release(self, claim: Claim, *, tombstone: bool, until: float) -> bool:
        """Delete the claim's node: the known one or, after a lost reply, every node of it."""
        contender = self.contenders.get(claim.id)
        held = contender is None or claim.id in self.leases
        known = contender.paths if contender is not None and not contender.attempt else []
        paths = known if known and not tombstone else await self._nodes_of(claim, until)
        deleted = await self.delete(until, paths)
        # The renewer may have been converting the hold, and have created another node meanwhile.
        while contender is not None and (more := [p for p in contender.paths if p not in paths]):
            paths = [*paths, *more]
            deleted += await self.delete(until, paths)
        self.drop(claim)
        return held and deleted > 0

    async def _nodes_of(self, claim: Claim, until: float) -> list[str]:
        """All nodes of the claim. Others are created only as long as the first one exists."""
        path, owner = path_of(self.root, claim.name), owner_of(claim.id)
        folders = [path] if claim.mode != "permits" else [queue_path(path), path]
        _, *lists = await self.batch(until, QuorumBarrier(path), *map(GetChildren, folders))
        paths = []
        for folder, listed in zip(folders, lists, strict=True):
            entries = entries_of(names_of(listed), owner)
            entries.sort(key=lambda one: one.mode != "update")
            paths += [f"{folder}/{one.node}" for one in entries]
        if claim.mode == "permits":
            names = names_of(lists[1])
            paths += [f"{path}/{name}" for name in names if name.startswith(f"{owner}.")]
        return paths

    # --- inspecting -----------------------------------------------------------------------------

    async def inspect(self, name: str | None, pattern: str, until: float) -> Sequence[LockState]:
        """The state of one lock, or of all whose names match."""
        if name is not None:
            return [seen.state for seen in await self._examine([name], {name}, until)]
        _, children = await self.batch(until, QuorumBarrier(self.root), GetChildren(self.root))
        names = [text for node in names_of(children) if (text := decoded(node)) is not None]
        wanted = matching(names, pattern)
        queues = {text.removesuffix(QUEUE) for text in names if text.endswith(QUEUE)}
        queues &= set(names)
        wanted = [text for text in wanted if text.removesuffix(QUEUE) not in queues - {text}]
        states: list[LockState] = []
        for some in in_parts(wanted):
            states += [seen.state for seen in await self._examine(some, queues, until)]
        return [state for state in states if state.in_use]

    async def _examine(
        self, names: Sequence[str], queues: Collection[str], until: float
    ) -> list[Seen]:
        """What the nodes of these names are; those in *queues* may be semaphores."""
        paths = [path_of(self.root, name) for name in names]
        folders = [
            folder
            for name, path in zip(names, paths, strict=True)
            for folder in ((path, queue_path(path)) if name in queues else (path,))
        ]
        looks = [Read(path) for path in paths]
        lists = [GetChildren(folder) for folder in folders]
        _, *replies = await self.batch(until, QuorumBarrier(self.root), *looks, *lists)
        below = {
            folder: [f"{folder}/{child}" for child in names_of(listed)]
            for folder, listed in zip(folders, replies[len(paths) :], strict=True)
        }
        reads = [Read(path) for folder in folders for path in below[folder]]
        read = await self.batch(until, *reads) if reads else ()
        nodes = {node.path: node for node in read if isinstance(node, Node)}
        return [
            self._examined(
                name,
                top,
                *(
                    [nodes[one] for one in below.get(folder, ()) if one in nodes]
                    for folder in (path, queue_path(path))
                ),
            )
            for name, path, top in zip(names, paths, replies, strict=False)
        ]

    def _examined(
        self, name: str, top: object, children: Sequence[Node], queue: Sequence[Node]
    ) -> Seen:
        """What a name is, from the nodes below its own and those in the queue of its semaphore."""
        contending = self._contending(children)
        others = {node.path for node in children} - {node.path for _, node in contending}
        permits = [node for node in children if node.path in others]
        waiting = [node for _, node in self._contending(queue)]
        if not contending and limit_of(top) and (permits or waiting):
            state = semaphore_state(name, top, permits, waiting)
            groups = {group[0].path: group for group in held_together(permits)}
            return Seen(state, {key: [n.path for n in group] for key, group in groups.items()})
        paths = {
            node.path: [node.path, *(n.path for e, n in contending if e.owner == entry.owner)]
            for entry, node in contending
        }
        state = lock_state(name, contending)
        return Seen(state._replace(unreadable=_unknown(name, top, permits, waiting)), paths)

    def _contending(self, nodes: Sequence[Node]) -> list[Contending]:
        """The contenders among nodes of one folder, in their order."""
        named = {node.path.rpartition("/")[2]: node for node in nodes}
        return [(one, named[one.node]) for one in in_order(named, self.pattern)]

    async def break_lock(self, name: str, token: int | str | None, until: float) -> Broken:
        """Delete the nodes of the hold with that token, or of all."""
        while True:
            (seen,) = await self._examine([name], {name}, until)
            records = [hold.record for hold in seen.state.holds]
            meant = [record for record in records if record.is_meant(token)]
            if not meant:
                return Broken(seen.state.held, False, ())
            paths = [path for record in meant for path in seen.paths[record.id]]
            if await self.delete(until, list(dict.fromkeys(paths))):
                return Broken(meant[0], True, ())


def _unknown(name: str, top: object, others: Sequence[Node], waiting: Sequence[Node]) -> str:
    """What cannot be read below the node of a lock, or of a semaphore without a number of permits.
    A persistent child may be a folder with locks of another root.
    """
    strange = next((node.path for node in others if node.session), None)
    if strange is None and not waiting:
        return ""
    if limit_of(top):
        return ""
    if error := foreign_data(name, top):
        return str(error)
    if strange is None:
        return ""
    return (
        f"the node {strange} is neither a contender for the lock nor a permit of a semaphore. To "
        f"remove it: delete {strange}"
    )


def is_outdated(contender: Contender, listed: object, *, waited: bool) -> bool:
    """Whether a greater token may have been granted than that of the claim's node: an upgrade, a
    node that was written again, or a later reader beside the update that an update waits for.
    """
    raised = isinstance(listed, Children) and listed.written > contender.token
    return raised or (waited and contender.claim.mode == "update")


class Seen(NamedTuple):
    """What is known of a name: its state, and the paths of the nodes of each hold, by its id."""

    state: LockState
    paths: dict[str, list[str]]
