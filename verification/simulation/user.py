"""The users of a scenario, which acquire locks and check the results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.judge import EXTENSION, Violation
from verification.simulation.simulator import Interrupted

from leaselock._core.contract.effects import Sleep
from leaselock.errors import LeaseLost, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from verification.simulation.forks import Child
    from verification.simulation.scenario import Scenario
    from verification.simulation.simulator import Machine

    from leaselock._core.client.client_core import ClientCore
    from leaselock._core.client.lease_handle import LeaseHandle
    from leaselock._core.client.mutex import Mutex


class User:
    """One thread or task of a machine, which acquires and releases locks."""

    def __init__(self, scenario: Scenario, machine: Machine, service: ClientCore) -> None:
        self.scenario = scenario
        self.chance = scenario.simulator.chance
        self.machine = machine
        self.service = service
        self.rounds = self.chance.choice(scenario.rounds)

    async def live(self) -> None:
        """Acquire a lock, work, release it; several times."""
        for _ in range(self.rounds):
            await self._pause(0.3)
            try:
                await self._once()
            except StoreError:
                if self.scenario.calm:
                    raise Violation(
                        "answer", "a request failed although the store answered all"
                    ) from None

    async def live_on(self, child: Child) -> None:
        """In a forked child: nothing is held, and no lock of the parent is released."""
        if not child.handle.lost():
            raise Violation("exclusion", "a forked child has a valid hold of its parent's lock")
        await self._tolerant(child.handle.release)
        inner = await child.mutex.try_acquire()
        if inner is not None:
            await self._release(inner)
        await self.live()

    async def _pause(self, mean: float) -> None:
        await Sleep(self.machine.now() + self.chance.expovariate(1.0 / mean))

    def _mutex(self) -> Mutex:
        return self.service.mutex(
            self.chance.choice(self.scenario.names),
            lease=self.chance.choice(self.scenario.leases),
            renew=self.chance.random() < self.scenario.renewed,
            timeout=None,
            reentrant=True,
            protocol=None,
            label=None,
        )

    async def _once(self) -> None:
        mutex = self._mutex()
        timeout = self.chance.choice((None, None, None, 0.0, 0.05, 1.0, 10.0))
        asked = self.machine.now()
        handle = await mutex.try_acquire(timeout)
        if handle is None:
            self._refused(timeout, self.machine.now() - asked)
            return
        try:
            await self._work(mutex, handle)
        except GeneratorExit:
            raise  # the machine has crashed
        except BaseException:
            await self._release(handle)
            raise
        await self._release(handle)

    def _refused(self, timeout: float | None, waited: float) -> None:
        if timeout is None:
            raise Violation("answer", "a wait without end ended without the lock")
        if self.scenario.calm and not timeout - 1e-9 <= waited <= timeout + 0.2:
            raise Violation("answer", f"a wait of {timeout} s ended after {waited:.3f} s")

    async def _work(self, mutex: Mutex, handle: LeaseHandle) -> None:
        for _ in range(self.chance.choice((1, 2, 4))):
            await self._pause(self.chance.choice(self.scenario.works))
            if handle.lost():
                return
            self.scenario.perhaps_fork(self.machine, self.service, mutex, handle)
            if self.chance.random() < 0.2:
                await self._nest(mutex, handle)
            if self.chance.random() < 0.05 and not handle.lost():
                await self._tolerant(lambda: handle.extend(EXTENSION))

    async def _nest(self, mutex: Mutex, handle: LeaseHandle) -> None:
        before = handle.hold.depth
        try:
            inner = await mutex.try_acquire()
        except LeaseLost:
            return
        if inner is None or inner.hold is not handle.hold:
            raise Violation("answer", "a nested acquire did not find the hold it is nested in")
        try:
            await self._pause(0.05)
        except Interrupted:
            await self._release(inner)
            raise
        await self._release(inner)
        if handle.hold.depth != before:
            raise Violation("answer", "the depth does not agree with the releases")

    async def _tolerant(self, action: Callable[[], object]) -> None:
        try:
            await action()  # type: ignore[misc]
        except (LeaseLost, StoreError):
            return

    async def _release(self, handle: LeaseHandle) -> None:
        if handle.released:
            return
        hold = handle.hold
        valid = hold.is_valid(self.machine.now())
        try:
            await handle.release()
        except (LeaseLost, StoreError):
            if valid and self.scenario.calm and hold.renew:
                raise Violation("loss", f"{hold.claim.name} was lost without a fault") from None
