"""The sweep: every operation interrupted at its k-th suspension, for every k.

Afterwards no hold without an owner is left, although the lease is long, and no hold of another
client was released. Each suspension is interrupted twice: before the effect is executed, and
after, so that its answer is lost.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import TYPE_CHECKING, Any

import pytest
from verification.models.sqlite_model import Model
from verification.simulation.simulator import Faults, Machine, Run, Simulator

from leaselock._backends import open_store
from leaselock._backends.memory.store import MemoryRow
from leaselock._backends.sqlite.store import CAPABILITIES
from leaselock._core import rules
from leaselock._core.client_core import ClientCore
from leaselock._core.lease_handle import LeaseHandle
from leaselock._core.queue import NodeBackend
from leaselock._drivers.aio import Aio
from leaselock._drivers.system_env import now
from leaselock._drivers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._core.effects import Effect
    from leaselock._core.mutex import Mutex

NUMBERS = itertools.count()
LIMIT = 10.0


def mutex_of(service: ClientCore) -> Mutex:
    return service.mutex(
        "a", lease=60.0, renew=True, timeout=None, reentrant=True, protocol=None, label=None
    )


async def with_body(mutex: Mutex) -> None:
    handle = await mutex.enter()
    try:
        handle.ensure()
    except BaseException as error:
        await mutex.leave(error)
        raise
    await mutex.leave(None)


# A nested acquire is not among them, because it never suspends (as tests/core checks).
# The operations, and whether each needs a lease, or a lock that another client holds.
OPERATIONS: dict[str, tuple[str, Callable[[ClientCore, Mutex, LeaseHandle | None], Any]]] = {
    "acquire": ("free", lambda service, mutex, handle: mutex.acquire(None)),
    "try": ("free", lambda service, mutex, handle: mutex.try_acquire()),
    "wait": ("taken", lambda service, mutex, handle: mutex.try_acquire(0.02)),
    "body": ("free", lambda service, mutex, handle: with_body(mutex)),
    "release": ("held", lambda service, mutex, handle: mutex.release()),
    "extend": ("held", lambda service, mutex, handle: known(handle).extend(70.0)),
    "detach": ("held", lambda service, mutex, handle: known(handle).detach()),
    "close": ("held", lambda service, mutex, handle: service.close()),
}


def known(handle: LeaseHandle | None) -> LeaseHandle:
    assert handle is not None
    return handle


class InterruptedThreads(Threads):
    """Raises KeyboardInterrupt at one suspension of the thread that armed it."""

    nth = 0
    after = False
    armed: threading.Thread | None = None

    def _perform(self, effect: Effect[Any]) -> object:
        if self.armed is not threading.current_thread():
            return super()._perform(effect)
        self.nth -= 1
        if self.nth == 0 and not self.after:
            raise KeyboardInterrupt
        answer = super()._perform(effect)
        if self.nth == 0:
            raise KeyboardInterrupt
        return answer


def party(driver: Any, url: str) -> ClientCore:
    opened = open_store(url, now)
    driver.__init__(opened.parts)
    return ClientCore(driver, opened.backend, protocol=opened.protocol, label=None, op_timeout=2.0)


def interrupt_threads(url: str, operation: str, nth: int, after: bool) -> bool:
    """Return whether the interruption was planned after the operation's last suspension."""
    situation, begin = OPERATIONS[operation]
    driver, other = InterruptedThreads.__new__(InterruptedThreads), Threads.__new__(Threads)
    mine, theirs = party(driver, url), party(other, url)
    mutex, rival = mutex_of(mine), mutex_of(theirs)
    handle = driver.run(mutex.acquire(None)) if situation == "held" else None
    taken = other.run(rival.acquire(None)) if situation == "taken" else None
    driver.nth, driver.after, driver.armed = nth, after, threading.current_thread()
    survived = True
    try:
        result = driver.run(begin(mine, mutex, handle))
    except KeyboardInterrupt:
        survived, result = False, None
    driver.armed = None
    if taken is not None:
        assert taken.hold.is_valid(now()), "what was another's was released"
        other.run(taken.release())
    for held in (result, handle):
        if (
            isinstance(held, LeaseHandle)
            and not held.released
            and not mine.contexts["queue"].registry.closed
        ):
            driver.run(held.release())
    if operation == "close":
        driver.end(mine.close())
    if operation == "detach":
        other.run(theirs.break_lock("a", None))
    assert other.run(rival.try_acquire(LIMIT)) is not None, "the lock is held without an owner"
    other.end(theirs.close())
    driver.end(mine.close())
    return survived


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_threads_interrupted_by_ctrl_c(operation: str, after: bool) -> None:
    for nth in itertools.count(1):
        if interrupt_threads(f"memory://sweep{next(NUMBERS)}", operation, nth, after):
            break
    assert nth > 1, "nothing was interrupted"


class InterruptedAio(Aio):
    """Raises CancelledError at one suspension of the task that armed it."""

    nth = 0
    after = False
    armed: asyncio.Task[Any] | None = None

    async def _perform(self, effect: Effect[Any]) -> object:
        if self.armed is not asyncio.current_task():
            return await super()._perform(effect)
        self.nth -= 1
        if self.nth == 0 and not self.after:
            raise asyncio.CancelledError
        answer = await super()._perform(effect)
        if self.nth == 0:
            raise asyncio.CancelledError
        return answer


async def interrupt_tasks(url: str, operation: str, nth: int, after: bool) -> bool:
    situation, begin = OPERATIONS[operation]
    driver, other = InterruptedAio.__new__(InterruptedAio), Aio.__new__(Aio)
    mine, theirs = party(driver, url), party(other, url)
    mutex, rival = mutex_of(mine), mutex_of(theirs)
    handle = await driver.run(mutex.acquire(None)) if situation == "held" else None
    taken = await other.run(rival.acquire(None)) if situation == "taken" else None
    driver.nth, driver.after, driver.armed = nth, after, asyncio.current_task()
    survived = True
    try:
        result = await driver.run(begin(mine, mutex, handle))
    except asyncio.CancelledError:
        survived, result = False, None
    driver.armed = None
    if taken is not None:
        assert taken.hold.is_valid(now()), "what was another's was released"
        await other.run(taken.release())
    for held in (result, handle):
        if (
            isinstance(held, LeaseHandle)
            and not held.released
            and not mine.contexts["queue"].registry.closed
        ):
            await driver.run(held.release())
    if operation == "close":
        await driver.end(mine.close())
    if operation == "detach":
        await other.run(theirs.break_lock("a", None))
    assert await other.run(rival.try_acquire(LIMIT)) is not None, (
        "the lock is held without an owner"
    )
    await other.end(theirs.close())
    await driver.end(mine.close())
    return survived


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_tasks_interrupted_by_cancellation(operation: str, after: bool) -> None:
    for nth in itertools.count(1):
        url = f"memory://sweep{next(NUMBERS)}"
        if asyncio.run(interrupt_tasks(url, operation, nth, after)):
            break
    assert nth > 1, "nothing was interrupted"


class Fixture:
    """Two simulated machines; the first is interrupted at its k-th step."""

    def __init__(self) -> None:
        self.simulator = Simulator(1, {}, Faults())
        self.model = Model(lambda: self.simulator.time, lambda: int(self.simulator.time * 1e6) + 1)
        self.simulator.models = {"store": self.model, "listener": self.model}
        self.run: Run | None = None

    def service(self, name: str) -> tuple[Machine, ClientCore]:
        machine = Machine(self.simulator, name)
        return machine, ClientCore(
            machine,
            lambda protocol: NodeBackend(CAPABILITIES, "store", "listener"),
            label=None,
            op_timeout=2.0,
        )

    def do(self, machine: Machine, operation: Any) -> Any:
        run = machine.start(operation)
        self.simulator.play(self.simulator.time + 3.0)
        assert run.ended
        return run.result


@pytest.mark.parametrize("how", ["interrupt", "crash"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_simulated_processes_interrupted(operation: str, how: str) -> None:
    for nth in itertools.count(1):
        if interrupt_simulated(operation, nth, how):
            break
    assert nth > 1, "nothing was interrupted"


def interrupt_simulated(operation: str, nth: int, how: str) -> bool:
    situation, begin = OPERATIONS[operation]
    fixture = Fixture()
    machine, mine = fixture.service("mine")
    other, theirs = fixture.service("other")
    mutex, rival = mutex_of(mine), mutex_of(theirs)
    taken = fixture.do(other, rival.acquire(None)) if situation == "taken" else None

    base = 10**6

    async def whole() -> None:
        nonlocal base
        handle = await mutex.acquire(None) if situation == "held" else None
        base = run.turn
        await begin(mine, mutex, handle)

    interrupted = False
    run = machine.start(whole())

    def check() -> None:
        nonlocal interrupted
        if not interrupted and not run.ended and run.turn >= base + nth - 1:
            interrupted = True
            fixture.simulator.interrupt(run) if how == "interrupt" else machine.crash()

    fixture.simulator.check = check
    fixture.simulator.play(fixture.simulator.time + 5.0)
    fixture.simulator.check = lambda: None
    if taken is not None:
        assert taken.hold.is_valid(other.now()), "what was another's was released"
        fixture.do(other, taken.release())
    machine.crash()
    if operation == "detach":
        fixture.do(other, theirs.break_lock("a", None))
    assert fixture.do(other, rival.try_acquire(2.5)) is not None, (
        "the lock is held without an owner"
    )
    entry = fixture.model.table.entries["a"]
    (held,) = entry.holds.values()
    assert not rules.expired(MemoryRow(fixture.model.table, "", "a"), held)
    assert not entry.queue
    return not interrupted
