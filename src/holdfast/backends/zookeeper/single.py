"""Protocol "single": one ephemeral node, the lock's own, and everybody watches it.

It is what scripts and older programs do, and is kept for them. Each release wakes all who wait
(the herd), who then race; and where a hold was broken by force, a release that comes too late may
remove the next one's node, for all of them have the same path.
"""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from holdfast.backends.zookeeper.data import read, written
from holdfast.backends.zookeeper.holds import LOOK_AGAIN, Holds
from holdfast.backends.zookeeper.places import decoded, path_of
from holdfast.backends.zookeeper.requests import (
    Children,
    Delete,
    Ensure,
    Node,
    Put,
    Read,
    Sync,
)
from holdfast.core.backend import Broken, Busy, Claim, Grant, Held, Sight
from holdfast.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.backends.zookeeper.stay import Stay


class Single(Holds):
    """The one node."""

    async def ask(self, claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        """One try."""
        stay, path = self.stay(claim), path_of(self.root, claim.name)
        if wait:
            await self.prepare(claim)
            self.watch(stay, path)
        while True:
            made = await self._put(stay, path, until)
            node = made or await self._read(path, wait, until)
            if node is None:
                continue
            if stay.over:
                stay = self.again(stay)
                continue
            if made or self._is_ours(stay, node):
                stay.node = node
                await self.granted(stay)
                return Grant(node.token, ())
            return Busy(_held(node), LOOK_AGAIN, ())

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
            raise Refused(f'{path} is a lock of the protocol "queue" in use, or somebody\'s folder')
        return None

    def _is_ours(self, stay: Stay, node: Node) -> bool:
        holder = read(node.data, node.created).holder
        return node.session == self.session and holder == stay.owner

    async def leave(self, claim: Claim, *, bury: bool, until: float) -> bool:
        """Delete the node if it is ours."""
        stay, path = self.stay(claim), path_of(self.root, claim.name)
        _, node = await self.fly(until, Sync(path), Read(path))
        held = isinstance(node, Node) and self._is_ours(stay, node)
        if held:
            held = bool(await self.delete(until, [path]))
        self.drop(claim)
        return held

    async def look(self, name: str | None, pattern: str, until: float) -> Sequence[Sight]:
        """Who waits is known to nobody."""
        if name is not None:
            return await self._look([name], until)
        _, nodes = await self.fly(until, Sync(self.root), Children(self.root))
        found = nodes if isinstance(nodes, tuple) else ()
        names = [text for node in found if (text := decoded(node)) is not None]
        wanted = sorted(text for text in names if fnmatch.fnmatchcase(text, pattern))
        return [sight for sight in await self._look(wanted, until) if sight.held]

    async def _look(self, names: Sequence[str], until: float) -> list[Sight]:
        reads = [Read(path_of(self.root, name)) for name in names]
        _, *nodes = await self.fly(until, Sync(self.root), *reads)
        return [Sight(n, _held(node), None, ()) for n, node in zip(names, nodes, strict=True)]

    async def evict(self, name: str, token: int | None, until: float) -> Broken:
        """Delete the node."""
        path = path_of(self.root, name)
        _, node = await self.fly(until, Sync(path), Read(path))
        held = _held(node)
        if held is None or token not in (None, held.token):
            return Broken(held, False, ())
        (done,) = await self.fly(until, Delete(path))
        return Broken(held, bool(done), ())


def _held(node: object) -> Held | None:
    if not isinstance(node, Node) or not node.session:
        return None
    text = read(node.data, node.created)
    return Held(node.path, f"{node.session:x}", "life", node.token, 0.0, text.about, text.since)
