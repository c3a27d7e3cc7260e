"""Deadlocks in virtual time: each is ended by its youngest member, and nothing else is.

Clients take several locks in an order of their own. The wait-for graph of the simulated store,
which is looked at after each step, says whether a deadlock that a client reports has existed.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, ClassVar, TypeVar

import pytest
from verification.models.sqlite_model import Model
from verification.simulation.simulator import EPOCH, Faults, Machine, Simulator

from leaselock._backends.sqlite.store import CAPABILITIES
from leaselock._core.client import deadlocks
from leaselock._core.client.client_core import ClientCore
from leaselock._core.client.inspection import lock_info
from leaselock._core.contract.backend import Inspect
from leaselock._core.contract.effects import Owner, Sleep
from leaselock._core.rows.queue import NodeBackend
from leaselock.errors import DeadlockDetected, LeaseLost, NotApplied

if TYPE_CHECKING:
    from leaselock._core.client.inspection import LockInfo
    from leaselock._core.client.lease_handle import LeaseHandle
    from leaselock._core.contract.effects import Request

R = TypeVar("R")
pytestmark = [pytest.mark.covers, pytest.mark.first_tier]

TIMEOUT = 1.0
LEASE = 30.0
# More of them are in the second tier.
MORE = pytest.mark.statistical
SEEDS = (*range(8), *(pytest.param(seed, marks=MORE) for seed in range(8, 30)))


class Scenario:
    """Clients that take locks in their own order, on one store."""

    def __init__(self, seed: int, faults: Faults, timeout: float | None = TIMEOUT) -> None:
        self.chance = random.Random(seed)
        self.simulator = Simulator(seed, {}, faults)
        self.store = Model(
            lambda: self.simulator.time, lambda: int((EPOCH + self.simulator.time) * 1e6)
        )
        self.simulator.models = {"store": self.store, "listener": self.store}
        self.timeout = timeout
        self.backend = NodeBackend
        self.reported: list[frozenset[tuple[object, ...]]] = []
        self.existed: set[frozenset[tuple[object, ...]]] = set()
        self.simulator.check = self.look
        self.done = 0

    def look(self) -> None:
        """Remember the deadlocks of this moment."""
        self.existed |= {deadlocks.unchanged(cycle) for cycle in deadlocks.cycles(self.snapshot())}

    def snapshot(self) -> list[LockInfo]:
        """What the store knows at this moment."""
        names = sorted(self.store.table.entries)
        return [lock_info(self.store.state(name)) for name in names]

    def client(self, number: int, orders: list[list[str]]) -> None:
        """Start a client with one process for each order."""
        machine = Machine(self.simulator, f"m{number}")
        backend = self.backend(CAPABILITIES, "store", "listener")
        core = ClientCore(
            machine,
            lambda _: backend,
            label=None,
            op_timeout=1.0,
            deadlock_timeout=self.timeout,
        )
        for index, order in enumerate(orders):
            run = machine.start(self.take_all(core, order))
            run.owner = Owner(f"p{index}", f"{number}.{index}")

    async def take_all(self, core: ClientCore, order: list[str]) -> None:
        """Take all locks, hold them for a while, release them; start over after a deadlock."""
        while True:
            taken = []
            try:
                for name in order:
                    taken.append(await self.lock(core, name))
                    await Sleep(core.env.now() + self.chance.random() * 0.3)
            except DeadlockDetected as error:
                self.reported.append(deadlocks.unchanged(error.deadlock))
            for handle in reversed(taken):
                try:
                    await handle.release()
                except LeaseLost:
                    continue
            if len(taken) == len(order):
                self.done += 1
                return
            await Sleep(core.env.now() + self.chance.random())

    async def lock(self, core: ClientCore, name: str) -> LeaseHandle:
        """Acquire one lock."""
        mutex = core.mutex(
            name, lease=LEASE, renew=True, timeout=None, reentrant=True, protocol=None, label=None
        )
        handle = await mutex.acquire(None)
        assert handle is not None
        return handle


def orders(chance: random.Random, names: str) -> list[str]:
    found = list(names)
    chance.shuffle(found)
    return found[: chance.randint(2, len(found))]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_deadlock_is_ended(seed: int) -> None:
    scenario = Scenario(seed, Faults())
    chance = random.Random(seed)
    processes = 0
    for number in range(3):
        taken = [orders(chance, "abcd") for _ in range(2)]
        processes += len(taken)
        scenario.client(number, taken)
    scenario.simulator.play(300.0)
    assert scenario.done == processes
    assert deadlocks.cycles(scenario.snapshot()) == []
    assert set(scenario.reported) <= scenario.existed
    assert len(scenario.reported) == len(set(scenario.reported)), "one of its members is enough"
    assert scenario.existed == set(scenario.reported)


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_one_order_is_never_a_deadlock(seed: int) -> None:
    scenario = Scenario(seed, Faults())
    for number in range(4):
        scenario.client(number, [list("abc"), list("ac")])
    scenario.simulator.play(300.0)
    assert (scenario.done, scenario.reported) == (8, [])


def test_without_a_timeout_it_stays() -> None:
    scenario = Scenario(1, Faults(), timeout=None)
    scenario.client(1, [["a", "b"]])
    scenario.client(2, [["b", "a"]])
    scenario.simulator.play(60.0)
    assert scenario.done == 0
    (cycle,) = deadlocks.cycles(scenario.snapshot())
    assert {wait.name for wait in cycle} == {"a", "b"}


class Curious(NodeBackend):
    """A store that remembers which locks it was asked about; None stands for all."""

    questions: ClassVar[list[str | None]] = []

    async def request(self, request: Request[R], until: float) -> R:
        if isinstance(request, Inspect):
            self.questions.append(request.name)
        return await super().request(request, until)


@pytest.mark.parametrize(
    ("taken", "asked"),
    [
        ([["a"]] * 4, set()),
        ([["a", "x"], ["b", "x"], ["x"]], {"b", "x"}),
        ([["a", "b"], ["b", "a"]], {"a", "b"}),
        ([["a", "b"], ["b", "c"], ["c", "a"]], {"a", "b", "c"}),
    ],
    ids=["nothing held", "nobody waits for what is held", "two members", "three members"],
)
def test_a_search_asks_only_for_locks_of_its_wait(
    taken: list[list[str]], asked: set[str | None]
) -> None:
    Curious.questions.clear()
    scenario = Scenario(2, Faults(), timeout=0.05)
    scenario.backend = Curious
    for number, order in enumerate(taken):
        scenario.client(number, [order])
    scenario.simulator.play(60.0)
    assert scenario.done == len(taken)
    assert scenario.existed == set(scenario.reported)
    assert set(Curious.questions) == asked


def test_an_owner_of_many_locks_lists_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlocks, "MOST_ASKED", 16)
    Curious.questions.clear()
    scenario = Scenario(1, Faults())
    scenario.backend = Curious
    many = [f"lock {number}" for number in range(deadlocks.MOST_ASKED + 1)]
    scenario.client(1, [[*many, "a", "b"]])
    scenario.client(2, [["b", *many[:1]]])
    scenario.simulator.play(60.0)
    assert scenario.done == 2
    assert None in Curious.questions


def test_a_waiter_that_does_not_say_what_it_holds_is_found_by_listing_all() -> None:
    """Its client does not search for deadlocks itself, or is of another version."""
    Curious.questions.clear()
    scenario = Scenario(1, Faults())
    scenario.backend = Curious
    scenario.client(1, [["a", "b"]])
    scenario.timeout = None
    scenario.client(2, [["b", "c"]])
    scenario.client(3, [["c", "a"]])
    scenario.simulator.play(10.0)
    assert scenario.existed
    assert None in Curious.questions


class Silent(NodeBackend):
    """A store that answers no question about its locks for a while."""

    questions = 0

    async def request(self, request: Request[R], until: float) -> R:
        if isinstance(request, Inspect):
            self.questions += 1
            if self.questions < 3:
                raise NotApplied("out of reach")
        return await super().request(request, until)


def test_a_search_that_fails_is_repeated() -> None:
    scenario = Scenario(1, Faults())
    scenario.backend = Silent
    scenario.client(1, [["a", "b"]])
    scenario.client(2, [["b", "a"]])
    scenario.simulator.play(60.0)
    assert (scenario.done, len(scenario.reported)) == (2, 1)
