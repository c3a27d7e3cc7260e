"""Protocol "single": one ephemeral node, the lock's own, and everybody watches it.

It is what scripts and older programs do, and is kept for them. Each release wakes all who wait
(the herd), who then race; and where a hold was broken by force, a release that comes too late may
remove the next one's node, for all of them have the same path.
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
    Delete,
    Ensure,
    Node,
    Put,
    Read,
)
from leaselock.core.backend import Broken, Busy, Claim, Grant, HoldRecord, LockState
from leaselock.core.effects import Signal, Wait
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from leaselock.backends.zookeeper.stay import Stay


class Single(Holds):
    """The one node."""

    def __init__(self, root: str, timeout: float, now: Callable[[], float]) -> None:
        super().__init__(root, timeout, now)
        self.removing: dict[str, Signal] = {}

    def reset_identity(self) -> None:
        """After a fork, or in a new loop."""
        super().reset_identity()
        self.removing = {}

    async def acquire(self, claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        """One try."""
        stay, path = self.stay(claim), path_of(self.root, claim.name)
        if wait:
            await self.prepare(claim)
            self.watch(stay, path)
        while True:
            if stay.over:
                stay = self.again(stay)
            made = await self._put(stay, path, until)
            if made and stay.over:
                self.refuse.append(stay)  # it ended while this was under way
            node = made or await self._read(path, wait, until)
            if node is None or stay.over:
                continue
            if made or self._is_ours(stay.owner.__eq__, node):
                stay.node = node
                await self.granted(stay)
                return Grant(node.token, ())
            return Busy(_held(node), RECHECK_INTERVAL, ())

    async def _put(self, stay: Stay, path: str, until: float) -> Node | None:
        put = Put(path, written(stay.claim, stay.owner))
        (made,) = await self.fly(until, put)
        while made is None:
            await self.fly(until, Ensure(self.root))
            (made,) = await self.fly(until, put)
        return made if isinstance(made, Node) else None

    async def _read(self, path: str, watch: bool, until: float) -> Node | None:
        (node,) = await self.fly(until, Read(path, watch=watch))
        if not isinstance(node, Node) or node.session:
            return node if isinstance(node, Node) else None
        # What the protocol "queue" has left behind makes room, unless it is in use.
        (gone,) = await self.fly(until, Delete(path))
        if not gone:
            raise NotApplied(
                f'{path} is a lock of the protocol "queue" in use, or somebody\'s folder'
            )
        return None

    def _is_ours(self, ours: Callable[[str], bool], node: Node) -> bool:
        return node.session == self.session and ours(read(node.data, node.created).holder)

    async def release(self, claim: Claim, *, tombstone: bool, until: float) -> bool:
        """Delete the node if it is ours, by whichever name the claim entered."""
        mine = owner_of(claim.id)
        held = await self._remove(
            claim.name, lambda holder: f"{holder}.".startswith(f"{mine}."), until
        )
        self.drop(claim)
        return held

    async def remove(self, until: float, stays: Iterable[Stay]) -> None:
        """That the first deletion was not answered does not say that it was not done: the node of
        that path may be another's by now.
        """
        for stay in stays:
            await self._remove(stay.claim.name, stay.owner.__eq__, until)

    async def _remove(self, name: str, ours: Callable[[str], bool], until: float) -> bool:
        """Only one process looks and deletes at a time, and in one session: what is ours when it
        looks is so until it is deleted, unless it is broken by force.
        """
        path = path_of(self.root, name)
        while (other := self.removing.get(path)) is not None:
            if not await Wait(other, until):
                raise OutcomeUnknown(f"{path} was still being removed")
        done = self.removing[path] = Signal()
        try:
            _, node = await self.fly(until, Agree(path), Read(path))
            if not (isinstance(node, Node) and self._is_ours(ours, node)):
                return False
            (gone,) = await self.fly(until, Delete(path), session=node.session)
            return bool(gone)
        finally:
            self.removing.pop(path, None)
            done.set()

    async def inspect(self, name: str | None, pattern: str, until: float) -> Sequence[LockState]:
        """Who waits is known to nobody."""
        if name is not None:
            return await self._inspect([name], until)
        _, nodes = await self.fly(until, Agree(self.root), Children(self.root))
        found = nodes if isinstance(nodes, tuple) else ()
        names = [text for node in found if (text := decoded(node)) is not None]
        wanted = sorted(text for text in names if fnmatch.fnmatchcase(text, pattern))
        return [sight for sight in await self._inspect(wanted, until) if sight.held]

    async def _inspect(self, names: Sequence[str], until: float) -> list[LockState]:
        reads = [Read(path_of(self.root, name)) for name in names]
        _, *nodes = await self.fly(until, Agree(self.root), *reads)
        return [
            LockState.exclusive(n, _held(node), None, ())
            for n, node in zip(names, nodes, strict=True)
        ]

    async def break_lock(self, name: str, token: int | None, until: float) -> Broken:
        """Delete the node."""
        path = path_of(self.root, name)
        _, node = await self.fly(until, Agree(path), Read(path))
        held = _held(node)
        if held is None or token not in (None, held.token):
            return Broken(held, False, ())
        (done,) = await self.fly(until, Delete(path))
        return Broken(held, bool(done), ())


def _held(node: object) -> HoldRecord | None:
    if not isinstance(node, Node) or not node.session:
        return None
    text = read(node.data, node.created)
    return HoldRecord(
        node.path, f"{node.session:x}", "client", node.token, 0.0, text.about, text.since
    )
