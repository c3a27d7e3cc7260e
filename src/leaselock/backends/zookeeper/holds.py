"""What every protocol here has in common: holds that end with a session, and waits for a watch.

Law 1: a node is in ZooKeeper no longer than its claim's lease: where nobody renews that, the
node is deleted from here. A process that cannot do it any more is one whose session ends.
Law 2: whether a hold stands is asked behind an `Agree`, which a majority of the servers answers.
One that is cut off from it still answers pings and reads, even `sync`, and proves nothing.
Law 3: a watch is only a hint that asking again helps. Whatever was missed while the connection
was down is made up for by asking again when it is back.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from leaselock.backends.zookeeper.requests import (
    GONE,
    Agree,
    Create,
    Delete,
    Flight,
    Landed,
    Node,
    Operation,
    Poke,
    Put,
    Read,
)
from leaselock.backends.zookeeper.stay import Stay
from leaselock.core.backend import (
    WAKE_ALL,
    Capabilities,
    Claim,
    Lifetime,
    LifetimeSet,
    Listen,
)
from leaselock.core.effects import FOREVER, Call, Signal, Wait
from leaselock.core.maintenance import StoreMaintenance
from leaselock.core.singleton_process import Background
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# A watch tells of every release, so looking again is for what nobody thinks of.
RECHECK_INTERVAL = 20.0
DELETE_PATIENCE = 2.0
TRY_AGAIN = 0.5
MARGIN = 0.001
SOON = 1.0
# What a majority has answered.
PROOFS = (Agree, Create, Put, Delete)
# While somebody waits, the session is proven so often, for a grant that comes without a question.
PROOFS_PER_SESSION = 6


class Holds(StoreMaintenance):
    """The claims of one client by one protocol."""

    def __init__(self, root: str, timeout: float, now: Callable[[], float]) -> None:
        self.root = root
        self.now = now
        self.capabilities = Capabilities(
            0.0, MARGIN, life=False, inheritable=False, session_timeout=timeout
        )
        self.stays: dict[str, Stay] = {}
        self.signals: dict[str, Signal] = {}
        self.watchers: dict[str, set[str]] = {}
        self.attending = Background()
        self.planned = FOREVER
        # Holds that are over, whose nodes are to be deleted; and when that was tried last.
        self.refuse: list[Stay] = []
        self.cleared = 0.0
        self.session = 0
        self.proven = 0.0
        self.tried = 0.0
        self.flights = 0

    async def fly(self, until: float, *operations: Operation, session: int = 0) -> Sequence[object]:
        """Have operations done in one flight, in that *session* if any; their answers."""
        asked = self.now()
        self.flights += 1
        landed: Landed = await Call("store", Flight(operations, self.flights, session), until)  # type: ignore[arg-type]
        if any(isinstance(operation, PROOFS) for operation in operations):
            self.proven = max(self.proven, asked)
        if landed.timeout != self.capabilities.session_timeout:
            self.capabilities = self.capabilities._replace(session_timeout=landed.timeout)
        self.session = landed.session
        return landed.answers

    # --- waiting --------------------------------------------------------------------------------

    async def prepare(self, claim: Claim) -> None:
        """Before the question leaves, so that no wake-up is missed."""
        signal = self.signals.get(claim.id)
        if signal is not None:
            signal.clear()
            return
        self.signals[claim.id] = Signal()
        await self._attended(claim.client)

    def watch(self, stay: Stay, path: str, second: bool = False) -> None:
        """The ear will say *path* when this claim should look again."""
        self._unwatch(stay)
        stay.watching, stay.second, stay.free = path, second, False
        self.watchers.setdefault(path, set()).add(stay.claim.id)

    def _unwatch(self, stay: Stay) -> None:
        holders = self.watchers.get(stay.watching, set())
        holders.discard(stay.claim.id)
        if not holders:
            self.watchers.pop(stay.watching, None)

    async def _attended(self, client: str) -> None:
        if not self.attending.running:
            await self.attending.start(lambda: self._attend(client), "attendant")

    async def _attend(self, client: str) -> None:
        """Hear what is watched; and when a lease is over that nobody renews, delete its node."""
        try:
            while True:
                self.planned = self._clear_at()
                self._heard(await self._next(client))
                await self._prove()
                await self._clear_away()
        except StoreError:
            # The client was closed, or its ear is gone; the next wait finds another attendant.
            self.wake_all()

    async def _next(self, client: str) -> Iterable[str]:
        try:
            until = min(self.planned, self._prove_at())
            paths: tuple[str, ...] = await Call("ear", Listen(client), until)
        except OutcomeUnknown:
            return ()
        return paths

    def _prove_at(self) -> float:
        if not self.signals:
            return FOREVER
        return self.tried + self.capabilities.session_timeout / PROOFS_PER_SESSION

    async def _prove(self) -> None:
        if self.now() < self._prove_at():
            return
        self.tried = self.now()
        with contextlib.suppress(OutcomeUnknown):
            await self.fly(self.tried + SOON, Agree(self.root))

    def _heard(self, paths: Iterable[str]) -> None:
        for path in paths:
            if path == WAKE_ALL:
                self.wake_all()
            gone = path.startswith(GONE)
            for holder in tuple(self.watchers.get(path.removeprefix(GONE), ())):
                self._woken(holder, gone)

    def _woken(self, holder: str, gone: bool) -> None:
        stay, signal = self.stays.get(holder), self.signals.get(holder)
        if stay is not None:
            stay.free = gone and stay.second
        if signal is not None:
            signal.set()

    def is_next(self, stay: Stay) -> bool:
        """Whether the one that held, directly before us, has gone, and our session surely not:
        then the lock is ours, and nobody needs to be asked.
        """
        free, stay.free = stay.free, False
        recent = self.now() - self.proven < self.capabilities.session_timeout / 4
        return free and recent and stay.node is not None and stay.node.session == self.session

    async def await_wakeup(self, claim: Claim, until: float) -> None:
        """Wait to be woken."""
        await Wait(self.signals[claim.id], until)

    def forget(self, claim: Claim) -> None:
        """The claim waits no more."""
        self.signals.pop(claim.id, None)
        stay = self.stays.get(claim.id)
        if stay is not None:
            self._unwatch(stay)
            if stay.ends == FOREVER:
                self.drop(claim)

    def drop(self, claim: Claim) -> None:
        """The claim is over."""
        stay = self.stays.pop(claim.id, None)
        if stay is not None:
            self._unwatch(stay)

    def wake_all(self) -> None:
        """Wake every waiter, to look again."""
        for signal in self.signals.values():
            signal.set()

    # --- holding --------------------------------------------------------------------------------

    def stay(self, claim: Claim) -> Stay:
        """What is known of the claim. One that comes again, while what is left of its last time is
        being deleted, enters by another name.
        """
        ended = [stay.times for stay in self.refuse if stay.claim.id == claim.id]
        return self.stays.setdefault(claim.id, Stay(claim, max(ended, default=-1) + 1))

    def again(self, stay: Stay) -> Stay:
        """What is known of a claim whose stay is over, and which was not told so in time."""
        return self.stays.setdefault(stay.claim.id, Stay(stay.claim, stay.times + 1))

    async def granted(self, stay: Stay) -> None:
        """The claim holds from now on, for its lease at the most."""
        stay.ends = self.now() + stay.claim.lease
        for holder in self.watchers.get(stay.node.path if stay.node else "", ()):
            # Of our own client, so we know it: whom they watch has become the holder.
            self.stays[holder].second = True
        if stay.ends < self.planned and self.attending.running:
            self.planned = stay.ends
            with contextlib.suppress(OutcomeUnknown):
                await Call("ear", Poke(stay.claim.client), self.now() + SOON)  # type: ignore[arg-type]
        await self._attended(stay.claim.client)

    async def renew(self, claims: Sequence[Claim], until: float) -> Sequence[bool]:
        """Prove the session, and that each node stands: one flight for all."""
        stays = [self.stays.get(claim.id) for claim in claims]
        reads = [Read(stay.node.path) for stay in stays if stay is not None and stay.node]
        _, *seen = await self.fly(until, Agree(self.root), *reads)
        found = [node for node in seen if isinstance(node, Node)]
        standing = {node.token for node in found if node.session == self.session}
        return [self._renewed(claim, standing) for claim in claims]

    def _renewed(self, claim: Claim, standing: set[int]) -> bool:
        # A release that was answered meanwhile has made it old news.
        stay = self.stays.get(claim.id)
        if stay is None or stay.node is None or stay.node.token not in standing:
            return False
        stay.ends = max(stay.ends, self.now() + claim.lease)
        return True

    async def _clear_away(self) -> None:
        """End what is over. From this step on it is nobody's, whatever answer is still to come."""
        for stay in [s for s in self.stays.values() if s.ends <= self.now()]:
            stay.over = True
            self.drop(stay.claim)
            if stay.node is not None:
                self.refuse.append(stay)
        if self.refuse and self.now() >= self.cleared + TRY_AGAIN:
            self.cleared = self.now()
            await self._empty()

    async def _empty(self) -> None:
        stays = tuple(self.refuse)
        with contextlib.suppress(StoreError):
            await self.remove(self.now() + DELETE_PATIENCE, stays)
            self.refuse = [stay for stay in self.refuse if stay not in stays]

    async def remove(self, until: float, stays: Iterable[Stay]) -> None:
        """Delete the nodes of holds that are over, if they are still there."""
        await self.delete(until, [stay.node.path for stay in stays if stay.node])

    def _clear_at(self) -> float:
        ends = min((stay.ends for stay in self.stays.values()), default=FOREVER)
        return min(ends, self.cleared + TRY_AGAIN) if self.refuse else ends

    async def release(self, claim: Claim, *, tombstone: bool, until: float) -> bool:
        """Give up; says whether it held."""
        raise NotImplementedError

    async def delete(self, until: float, paths: Sequence[str]) -> int:
        """Delete nodes; how many of them were there."""
        if not paths:
            return 0
        return sum(map(bool, await self.fly(until, *map(Delete, paths))))

    async def set_lifetime(self, claim: Claim, tie: Lifetime, until: float) -> LifetimeSet:
        """Nothing here outlives its session."""
        raise NotApplied(
            f"the hold on {claim.name!r} cannot be detached: in ZooKeeper it ends with the "
            "session of its client"
        )

    def reset_identity(self) -> None:
        """After a fork, or in a new loop: nothing here is ours, and nobody listens."""
        self.stays = {}
        self.signals = {}
        self.watchers = {}
        self.refuse = []
        self.flights = 0
        self.attending = Background()
        self.planned = FOREVER
