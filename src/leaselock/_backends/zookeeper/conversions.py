"""Changing the mode of a hold in a queue of nodes.

    update → exclusive   create <owner>__lock__<own sequence>, not numbered by the server: all
                         behind it wait for it. Then wait for the readers that held before.
    back to update       delete that node
    to another mode      replace the node by one of that mode with the same sequence, in one
                         transaction

Which readers held before is decided once, from a list that was read after the node was created:
those before the first other writer, if they are older than the node. One behind a writer that
leaves at the same moment may be among them although it sees the upgrade, and waits for it. So a
reader that finds itself behind an upgrade says so in its own node, and the upgrade does not wait
for it. A reader of kazoo does not; the upgrade then waits until its timeout.

An upgrade overtakes those that wait, whose nodes, and so whose tokens, are older. So it also writes
the node of the lock. A claim that is granted the lock, and finds that this was done after its own
node was written, writes both again: its token is the transaction that did so.

A path is noted in `Conversion` before the request that may create it, and forgotten only after a
reply that shows the outcome. So a lost reply leaves at most one path too many to delete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.zookeeper.data import written
from leaselock._backends.zookeeper.lock_state import hold_record, is_before
from leaselock._backends.zookeeper.paths import path_of
from leaselock._backends.zookeeper.queue_order import (
    CURATOR_READ,
    CURATOR_WRITE,
    KAZOO,
    KAZOO_READ,
    entry,
    in_order,
    name_of,
)
from leaselock._backends.zookeeper.requests import (
    Check,
    Children,
    Create,
    Delete,
    GetChildren,
    Node,
    QuorumBarrier,
    Read,
    SetData,
    Transaction,
    rewriting,
)
from leaselock._backends.zookeeper.session_backend import RECHECK_INTERVAL
from leaselock._core.contract.backend import Converted
from leaselock._core.contract.effects import Signal, Wait
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from leaselock._backends.zookeeper.contender import Contender
    from leaselock._backends.zookeeper.entering import EnteringBackend
    from leaselock._backends.zookeeper.queue_order import Entry
    from leaselock._core.contract.backend import Claim, Mode

ENDED = Converted(None, RECHECK_INTERVAL, ())


class Conversions:
    """The conversions of the holds of one backend."""

    def __init__(self, backend: EnteringBackend) -> None:
        self.backend = backend

    async def convert(self, claim: Claim, step: int, mode: Mode, until: float) -> Converted:
        """Change the mode of a hold. Those of one hold are done one after the other."""
        contender = self.backend.contenders.get(claim.id)
        if contender is None or contender.node is None:
            return ENDED
        conversion = contender.conversion
        while conversion.running is not None:
            if not await Wait(conversion.running, until):
                raise OutcomeUnknown(f"the hold on {claim.name!r} was still being converted")
        done = conversion.running = Signal()
        try:
            if step < conversion.step:
                return await self._as_it_is(contender, until)
            conversion.step = step
            if contender.alternate:
                # The reply to an earlier downgrade was not received.
                reply = await self._finish_replacement(contender, until)
                if reply.held is None:
                    return reply
            if mode == "exclusive":
                return await self._upgrade(contender, until)
            own_entry = entry(contender.node.path.rpartition("/")[2], self.backend.pattern)
            if own_entry is None or own_entry.mode == mode:
                return await self._give_up(contender, mode, until)
            return await self._replace(contender, own_entry, mode, until)
        finally:
            conversion.running = None
            done.set()
            if self.backend.contenders.get(claim.id) is not contender and contender.others:
                # Its hold has ended meanwhile, perhaps before these nodes were created.
                self.backend.pending_deletes.append(contender)
                self.backend.mailbox.put("")

    def _is_own(self, node: object) -> bool:
        return isinstance(node, Node) and node.session == self.backend.session

    def _replied(self, contender: Contender, node: object, mode: Mode) -> Converted:
        """The reply for a hold whose node is *node*; it has ended if that is not there."""
        if contender.has_ended() or not self._is_own(node):
            return ENDED
        contender.mode = mode
        held = hold_record(node, mode, step=contender.conversion.step)
        assert held is not None
        return Converted(held._replace(token=contender.token), RECHECK_INTERVAL, ())

    async def _as_it_is(self, contender: Contender, until: float) -> Converted:
        assert contender.node is not None
        path = contender.node.path
        _, node = await self.backend.batch(until, QuorumBarrier(path), Read(path))
        return self._replied(contender, node, contender.mode)

    # --- update → exclusive -----------------------------------------------------------------------

    async def _upgrade(self, contender: Contender, until: float) -> Converted:
        backend, node = self.backend, contender.node
        assert node is not None
        if contender.mode == "exclusive":
            return await self._as_it_is(contender, until)
        backend.expect_wakeup(contender.claim)
        path = path_of(backend.root, contender.claim.name)
        target = self._sibling(node.path, name_of(contender.owner, "exclusive", KAZOO))
        conversion = contender.conversion
        conversion.begin_upgrade(target)
        while True:
            barrier = QuorumBarrier(path)
            reads = (Read(node.path), Read(target), Read(path))
            _, own_node, upgrade, lock = await backend.batch(until, barrier, *reads)
            if contender.has_ended() or not self._is_own(own_node):
                return ENDED
            if isinstance(upgrade, Node):
                break
            conversion.readers = None
            create = Create(target, written(contender.claim, contender.owner))
            if not isinstance(lock, Node):
                continue  # both were just deleted
            steps = (Check(node.path), create, *rewriting(lock))
            await backend.batch(until, Transaction(steps), session=node.session)
        if conversion.readers is None:
            conversion.readers = await self._readers(contender, path, upgrade, until)
        if await self._blocked(contender, upgrade, until):
            return self._replied(contender, own_node, "upgrading")
        contender.complete_upgrade(await self._token(path, upgrade, until))
        return self._replied(contender, own_node, "exclusive")

    async def _token(self, path: str, upgrade: Node, until: float) -> int:
        """The token of a completed upgrade. A reader may have drawn a greater one meanwhile."""
        while True:
            token = max(upgrade.token, upgrade.written)
            (lock,) = await self.backend.batch(until, Read(path))
            if not isinstance(lock, Node) or lock.written <= token:
                return token
            write = Transaction((SetData(upgrade.path, upgrade.data), *rewriting(lock)))
            _, node = await self.backend.batch(until, write, Read(upgrade.path))
            if not isinstance(node, Node):
                return token
            upgrade = node

    async def _readers(
        self, contender: Contender, path: str, upgrade: Node, until: float
    ) -> list[str]:
        """The paths of the readers that may hold beside the upgrade."""
        backend = self.backend
        (listed,) = await backend.batch(until, GetChildren(path))
        names = listed.names if isinstance(listed, Children) else ()
        readers = []
        for one in in_order(names, backend.pattern):
            if one.owner == contender.owner:
                continue
            if one.mode == "exclusive":
                break
            if one.mode == "shared":
                readers.append(Read(f"{path}/{one.node}"))
        nodes = await backend.batch(until, *readers) if readers else ()
        return [n.path for n in nodes if isinstance(n, Node) and is_before(n, upgrade)]

    async def _blocked(self, contender: Contender, upgrade: Node, until: float) -> bool:
        """Whether a reader of those is still there; it is watched."""
        blockers = contender.conversion.readers or []
        while blockers:
            self.backend.watch(contender, blockers[0])
            (reader,) = await self.backend.batch(until, Read(blockers[0], watch=True))
            if isinstance(reader, Node) and is_before(reader, upgrade):
                return True
            del blockers[0]
        return False

    # --- to a weaker mode -------------------------------------------------------------------------

    async def _give_up(self, contender: Contender, mode: Mode, until: float) -> Converted:
        """Delete the upgrade, if there is one."""
        backend, node = self.backend, contender.node
        assert node is not None
        # From here on it may be deleted, whether the reply arrives or not.
        contender.give_up_upgrade(mode)
        deletes = [Delete(path) for path in contender.others]
        _, *_, own_node = await backend.batch(
            until, QuorumBarrier(node.path), *deletes, Read(node.path)
        )
        contender.conversion.reset()
        return self._replied(contender, own_node, mode)

    async def _finish_replacement(self, contender: Contender, until: float) -> Converted:
        assert contender.node is not None
        pattern = self.backend.pattern
        own_entry = entry(contender.node.path.rpartition("/")[2], pattern)
        weaker = entry(contender.conversion.weaker.rpartition("/")[2], pattern)
        assert own_entry is not None
        assert weaker is not None
        return await self._replace(contender, own_entry, weaker.mode, until)

    async def _replace(
        self, contender: Contender, own_entry: Entry, mode: Mode, until: float
    ) -> Converted:
        """Replace the own node, so that all behind it see a weaker contender in its place."""
        backend, node = self.backend, contender.node
        assert node is not None
        mark = CURATOR_READ if own_entry.mark == CURATOR_WRITE else KAZOO_READ
        weaker = self._sibling(node.path, name_of(contender.owner, mode, mark))
        conversion = contender.conversion
        upgrades = [conversion.upgrade] if conversion.upgrade else []
        conversion.begin_replacement(weaker)
        # Those that watch the node are not next when it is deleted: another one takes its position.
        for claim in backend.watchers.get(node.path, ()):
            if claim in backend.contenders:
                backend.contenders[claim].doubt_holder()
        while True:
            reads = [Read(path) for path in (node.path, weaker, *upgrades)]
            _, old, new, *rest = await backend.batch(until, QuorumBarrier(node.path), *reads)
            if self._is_own(new) or contender.has_ended() or not self._is_own(old):
                break
            data = written(contender.claim, contender.owner, token=contender.token)
            # A watch on the old node reports a change, not its deletion: the lock is not free.
            steps = (SetData(node.path, node.data), Create(weaker, data), Delete(node.path))
            more = tuple(Delete(one.path) for one in rest if isinstance(one, Node))
            await backend.batch(until, Transaction((*steps, *more)), session=node.session)
        if isinstance(new, Node) and self._is_own(new):
            contender.replace_node(new)
        else:
            conversion.end_replacement()
        return self._replied(contender, new, mode)

    def _sibling(self, path: str, name: str) -> str:
        """The path of another node, with the sequence of the one at *path*."""
        folder, _, own_node = path.rpartition("/")
        own_entry = entry(own_node, self.backend.pattern)
        assert own_entry is not None
        return f"{folder}/{name}{own_entry.digits}"
