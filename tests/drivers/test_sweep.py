"""Each operation of a simulated process, interrupted or ended by a crash at its k-th step.

Afterwards no hold without an owner is left, although the lease is long, and no hold of another
client was released. Threads and tasks: `testkit/conformance/interruption.py`, `test_every_call.py`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from verification.models.sqlite_model import Model
from verification.simulation.simulator import Faults, Machine, Run, Simulator

from leaselock._backends.memory.store import MemoryRow
from leaselock._backends.sqlite.store import CAPABILITIES
from leaselock._core.client.client_core import ClientCore
from leaselock._core.rows import rules
from leaselock._core.rows.queue import NodeBackend

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._core.client.lease_handle import LeaseHandle
    from leaselock._core.client.mutex import Mutex


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
