"""Scenarios in which holders keep a lock until they learn that others wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verification.simulation.document import DocumentScenario
from verification.simulation.judge import Violation
from verification.simulation.redis import RedisScenario
from verification.simulation.redis_modes import read
from verification.simulation.scenario import SHORT, Scenario
from verification.simulation.sql import SqlScenario
from verification.simulation.user import User
from verification.simulation.zoo import ROOT, SESSION, ZooScenario

from leaselock._backends.memory.store import CAPABILITIES
from leaselock._backends.zookeeper.paths import path_of
from leaselock._core.contract.effects import Sleep
from leaselock._core.rows.queue import NodeBackend
from leaselock.errors import LeaseLost, StoreError

if TYPE_CHECKING:
    from verification.simulation.simulator import Faults, Machine

    from leaselock._core.client.lease_handle import LeaseHandle

# Seconds between two looks of a holder at what it was told, and for how long it keeps the lock.
LOOK, LONGEST = 0.1, 12.0
# Without faults a holder must hear of a waiter within this number of looks, where the store
# notifies it.
PUSHED = 12
# Where it looks by itself, within one interval more. With faults, within this number of intervals,
# and of looks after them.
INTERVALS, MORE = 6, 60


class YieldingUser(User):
    """Works until it is told that others wait."""

    scenario: YieldPlay

    async def _once(self) -> None:
        mutex = self._mutex()
        handle = await mutex.try_acquire(None)
        if handle is None:
            raise Violation("answer", "a wait without end ended without the lock")
        try:
            await self._until_told(handle)
        except (LeaseLost, StoreError):
            pass
        except GeneratorExit:
            raise  # the machine has crashed
        except BaseException:
            await self._release(handle)
            raise
        await self._release(handle)

    async def _until_told(self, handle: LeaseHandle) -> None:
        told: list[object] = []
        handle.on_contended(told.append, handle, lambda its: its)
        bound, unheard, end = self._bound(handle), 0, self.machine.now() + LONGEST
        while not told and self.machine.now() < end and not handle.lost():
            await Sleep(self.machine.now() + LOOK)
            # What the machine does not run, it cannot hear: so looks are counted, not seconds.
            unheard = unheard + 1 if self.scenario.others_wait(handle.hold.claim.name) else 0
            if unheard > bound and not told and not handle.lost():
                raise Violation("progress", f"a holder was not told of a waiter in {unheard} looks")

    def _bound(self, handle: LeaseHandle) -> int:
        looks = self.scenario.interval(handle.hold.claim.lease) / LOOK
        if self.scenario.calm:
            return PUSHED + (0 if self.scenario.pushed else round(looks))
        return round(INTERVALS * looks) + MORE


class YieldPlay(Scenario):
    """Holders that yield, on any store."""

    users: tuple[int, ...] = (1, 2)
    pushed = True
    """The store notifies the holder of the first waiter."""

    def __init__(self, seed: int, traced: bool = False) -> None:
        super().__init__(seed, traced)
        self.children_left = 0

    def make_user(self, machine: Machine, service: Any) -> User:
        """Make a user. Its holds are long, so they are few."""
        self.rounds = SHORT
        return YieldingUser(self, machine, service)

    def interval(self, lease: float) -> float:
        """How often a holder looks."""
        return lease / 3

    def others_wait(self, name: str) -> bool:
        """Whether the store has waiters that live."""
        entry = self.model.table.entries.get(name)
        claims = entry.queue.values() if entry is not None else ()
        return any(self.model.alive(claim.client) for claim in claims)


class YieldScenario(YieldPlay):
    """The rules, with the guarantees of the store in memory."""

    def make_backend(self, machine: Machine) -> NodeBackend:
        """Make the backend of a machine."""
        return NodeBackend(CAPABILITIES, "store", "listener")


class SqliteYieldScenario(YieldPlay):
    """The rules, with the guarantees of SQLite."""


class SqlYieldScenario(YieldPlay, SqlScenario):
    """Protocol "lease" of PostgreSQL."""

    def others_wait(self, name: str) -> bool:
        """Whether the tables have waiters that have not ended."""
        model: Any = self.model
        waiters = model.tables.waiters.get(name, ())
        return any(waiter["expires"] > model.tables.micros() for waiter in waiters)


class RedisYieldScenario(YieldPlay, RedisScenario):
    """The scripts of Redis."""

    form = "hash"

    def others_wait(self, name: str) -> bool:
        """Whether the queue has members."""
        return bool(read(self.net.hosts[self.master].server, name).queue)


class DocumentYieldScenario(YieldPlay, DocumentScenario):
    """Protocol "document"; where the store reports no changes, holders look at intervals."""

    def make_model(self) -> Any:
        """Make the store."""
        model = super().make_model()
        self.pushed = self.watch
        return model


class ZooYieldScenario(YieldPlay, ZooScenario):
    """Protocol "queue" of ZooKeeper: holders look as often as they prove their session."""

    pushed = False

    def interval(self, lease: float) -> float:
        """How often a holder looks."""
        return min(lease, SESSION / 2) / 3

    def _faults(self) -> Faults:
        # A look takes two requests, and a lost one two seconds: several in a row are no defect.
        return super()._faults()._replace(lost_request=0.0, lost_reply=0.0)

    def others_wait(self, name: str) -> bool:
        """Whether there are nodes behind the first one."""
        tree: Any = self.model.tree
        return len(tree.below.get(path_of(ROOT, name), ())) > 1
