"""A garbage collection is done in steps, each with a deadline of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leaselock._backends.memory.store import CAPABILITIES
from leaselock._core.client.client_core import ClientCore
from leaselock._core.contract.backend import Collected
from leaselock._core.rows.queue import NodeBackend
from leaselock._drivers.threads import Threads
from leaselock.errors import ClientClosed, OutcomeUnknown, StoreError, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 5
# Seconds, both of a clock that does not run by itself.
OP_TIMEOUT = 10.0
STEP = 9.0


class Clock(Threads):
    """A driver whose time is set."""

    time = 0.0

    def now(self) -> float:
        """The time that was set."""
        return self.time


class Steps(NodeBackend):
    """A store with as many steps as STEPS, each of which takes nearly all of its time."""

    def __init__(self, driver: Clock) -> None:
        super().__init__(CAPABILITIES, None, None)
        self.driver = driver
        self.before: Callable[[int], object] = int

    async def request(self, request: Any, until: float) -> Any:
        """Remove ten records."""
        done = request.position or 0
        self.before(done)
        assert until - self.driver.time == OP_TIMEOUT
        self.driver.time += STEP
        return Collected(10, None if done + 1 == STEPS else done + 1)


class Fixture:
    """A client of that store."""

    def __init__(self) -> None:
        self.driver = Clock()
        self.store = Steps(self.driver)
        self.core = ClientCore(self.driver, lambda _: self.store, label=None, op_timeout=OP_TIMEOUT)

    def gc(self) -> int:
        """Collect garbage."""
        return self.driver.run(self.core.gc())

    def fail(self, number: int, error: StoreError) -> None:
        """Let the store fail in one of the steps."""

        def check(done: int) -> None:
            if done == number:
                raise error

        self.store.before = check


def test_each_step_has_a_deadline_of_its_own() -> None:
    fixture = Fixture()
    assert fixture.gc() == 10 * STEPS
    assert fixture.driver.time == STEPS * STEP


def test_the_error_of_a_step_says_what_was_removed_before() -> None:
    fixture = Fixture()
    fixture.fail(3, OutcomeUnknown("no answer in time"))
    with pytest.raises(OutcomeUnknown, match=r"^no answer in time \(30 records were removed befo"):
        fixture.gc()


def test_the_error_of_the_first_step_is_that_of_the_store() -> None:
    fixture = Fixture()
    fixture.fail(0, StoreUnreachable("refused"))
    with pytest.raises(StoreUnreachable, match=r"^refused$"):
        fixture.gc()


def test_closing_the_client_ends_it_between_two_steps() -> None:
    fixture = Fixture()

    def close(done: int) -> None:
        fixture.core.context(None).registry.closed = done == 2

    fixture.store.before = close
    with pytest.raises(ClientClosed):
        fixture.gc()
    assert fixture.driver.time == 3 * STEP
