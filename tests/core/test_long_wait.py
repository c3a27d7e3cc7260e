"""A wait that reaches 30 seconds is reported once, with the holder; a shorter one is not."""

from __future__ import annotations

import pytest
from tests.core.test_service import Fixture, mutex_of

from leaselock._api.log import WARNING, described
from leaselock._core.client.events import LONG_WAIT, Event
from leaselock._core.contract.effects import Sleep
from leaselock.errors import AcquireTimeout


@pytest.mark.parametrize(
    ("held", "timeout", "reported"),
    [(100.0, None, 1), (40.0, None, 1), (100.0, 30.0, 1), (100.0, 20.0, 0), (20.0, None, 0)],
)
def test_a_long_wait_is_reported_once(held: float, timeout: float | None, reported: int) -> None:
    fixture = Fixture()
    holder, theirs = fixture.client("holder")
    machine, service = fixture.client("waiter")
    events: list[Event] = []
    service.listen(events.append, rare=True)

    async def hold() -> None:
        handle = await mutex_of(theirs).acquire(None)
        await Sleep(holder.now() + held)
        await handle.release()

    async def wait() -> None:
        try:
            handle = await mutex_of(service).acquire(timeout)
        except AcquireTimeout:
            return
        await handle.release()

    fixture.begin(holder, hold())
    fixture.do(machine, wait(), 150.0)
    logged = [event for event in events if described(event)[0] >= WARNING]
    assert [event.kind for event in logged] == ["waiting"] * reported
    for event in logged:
        assert LONG_WAIT <= event.seconds < LONG_WAIT + 1
        assert event.holder is not None
        assert "held by" in described(event)[1]
