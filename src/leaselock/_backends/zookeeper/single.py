"""Protocol "single": one ephemeral node, that of the lock, which every waiter watches.

Scripts and older programs lock like this, and the protocol exists for them. Each release wakes all
waiters, which then race (thundering herd). After a forced release, a late release of the former
holder may delete the node of the next one, because all use the same path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.zookeeper.data import read, written
from leaselock._backends.zookeeper.paths import decoded, owner_of, path_of
from leaselock._backends.zookeeper.requests import (
    Create,
    Delete,
    EnsurePath,
    GetChildren,
    Node,
    QuorumBarrier,
    Read,
    in_parts,
    names_of,
)
from leaselock._backends.zookeeper.session_backend import RECHECK_INTERVAL, SessionBackend
from leaselock._core.contract.backend import (
    Broken,
    Busy,
    Claim,
    Grant,
    HoldRecord,
    LockState,
    matching,
)
from leaselock._core.contract.effects import Signal, Wait
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from leaselock._backends.zookeeper.connection import Connection
    from leaselock._backends.zookeeper.contender import Contender


class SingleBackend(SessionBackend):
    """The one node."""

    def __init__(self, connection: Connection, root: str, now: Callable[[], float]) -> None:
        super().__init__(connection, root, now)
        self.removing: dict[str, Signal] = {}

    def after_fork(self) -> None:
        """Forget all claims: after a fork, or in a new event loop."""
        super().after_fork()
        self.removing = {}

    async def acquire(self, claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        """Create the node, or watch it."""
        contender, path = self.contender(claim), path_of(self.root, claim.name)
        if wait:
            self.expect_wakeup(claim)
            self.watch(contender, path)
        while True:
            if contender.has_ended():
                contender = self.reenter(contender)
            made = await self._create(contender, path, until)
            if made and contender.has_ended():
                self.pending_deletes.append(contender)  # the lease ended during the request
            node = made or await self._read(path, wait, until)
            if node is None or contender.has_ended():
                continue
            if made or self._is_own(contender.owner.__eq__, node, None):
                contender.hold_by(node)
                await self.granted(contender)
                return Grant(node.token, ())
            return Busy(_hold(node), RECHECK_INTERVAL, ())

    async def _create(self, contender: Contender, path: str, until: float) -> Node | None:
        create = Create(path, written(contender.claim, contender.owner))
        (made,) = await self.batch(until, create)
        while made is None:
            await self.batch(until, EnsurePath(self.root))
            (made,) = await self.batch(until, create)
        return made if isinstance(made, Node) else None

    async def _read(self, path: str, watch: bool, until: float) -> Node | None:
        (node,) = await self.batch(until, Read(path, watch=watch))
        if not isinstance(node, Node) or node.session:
            return node if isinstance(node, Node) else None
        # Delete the persistent node of the protocol "queue", unless that is in use.
        (deleted,) = await self.batch(until, Delete(path))
        if not deleted:
            raise NotApplied(
                f'{path} has children: it is a lock of the protocol "queue" in use, or no lock; '
                "use one protocol for each lock"
            )
        return None

    def _is_own(self, ours: Callable[[str], bool], node: Node, held: Node | None) -> bool:
        """Whether the node is ours by its data; or *held*, whose data others may have changed."""
        if held is not None and node.token == held.token:
            return node.session == self.session
        return node.session == self.session and ours(read(node.data, node.created).owner)

    async def release(self, claim: Claim, *, tombstone: bool, until: float) -> bool:
        """Delete the node if it belongs to the claim, in whichever of its attempts."""
        first_attempt, contender = owner_of(claim.id), self.contenders.get(claim.id)
        held = await self._remove(
            claim.name,
            lambda owner: f"{owner}.".startswith(f"{first_attempt}."),
            None if contender is None else contender.node,
            until,
        )
        self.drop(claim)
        return held

    async def remove(self, until: float, ended: Iterable[Contender]) -> None:
        """Delete the nodes of ended holds. A first deletion without a reply may have been executed,
        and the node of that path may belong to another client by now.
        """
        for contender in ended:
            await self._remove(contender.claim.name, contender.owner.__eq__, contender.node, until)

    async def _remove(
        self, name: str, ours: Callable[[str], bool], held: Node | None, until: float
    ) -> bool:
        """Read the node, and delete it if it is ours. One process does so at a time, in one
        session, so the node stays ours between both requests, unless an operator deletes it.
        """
        path = path_of(self.root, name)
        while (other := self.removing.get(path)) is not None:
            if not await Wait(other, until):
                raise OutcomeUnknown(f"{path} was still being removed")
        done = self.removing[path] = Signal()
        try:
            _, node = await self.batch(until, QuorumBarrier(path), Read(path))
            if not (isinstance(node, Node) and self._is_own(ours, node, held)):
                return False
            (deleted,) = await self.batch(until, Delete(path), session=node.session)
            return bool(deleted)
        finally:
            self.removing.pop(path, None)
            done.set()

    async def inspect(self, name: str | None, pattern: str, until: float) -> Sequence[LockState]:
        """The state of one lock, or of all whose names match. The waiters are not known."""
        if name is not None:
            return await self._inspect([name], until)
        _, nodes = await self.batch(until, QuorumBarrier(self.root), GetChildren(self.root))
        names = [text for node in names_of(nodes) if (text := decoded(node)) is not None]
        wanted = matching(names, pattern)
        states: list[LockState] = []
        for some in in_parts(wanted):
            states += await self._inspect(some, until)
        return [state for state in states if state.held]

    async def _inspect(self, names: Sequence[str], until: float) -> list[LockState]:
        reads = [Read(path_of(self.root, name)) for name in names]
        _, *nodes = await self.batch(until, QuorumBarrier(self.root), *reads)
        return [
            LockState.exclusive(n, _hold(node), None, ())
            for n, node in zip(names, nodes, strict=True)
        ]

    async def break_lock(self, name: str, token: int | str | None, until: float) -> Broken:
        """Delete the node."""
        path = path_of(self.root, name)
        _, node = await self.batch(until, QuorumBarrier(path), Read(path))
        hold = _hold(node)
        if hold is None or not hold.is_meant(token):
            return Broken(hold, False, ())
        (deleted,) = await self.batch(until, Delete(path))
        return Broken(hold, bool(deleted), ())


def _hold(node: object) -> HoldRecord | None:
    if not isinstance(node, Node) or not node.session:
        return None
    text = read(node.data, node.created)
    return HoldRecord(
        node.path, f"{node.session:x}", "client", node.token, 0.0, text.metadata, text.since
    )
