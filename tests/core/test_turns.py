"""Rare situations between the local waiters of a client and its store, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.core.test_local import asked, client_of, mutex_of
from tests.core.test_service import Fixture

from leaselock._core.backend import Acquire, Busy, Claim, Grant, Release
from leaselock._core.effects import Sleep
from leaselock._core.local_handoff import SharedLease, start_observer
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from verification.simulation.simulator import Machine

    from leaselock._core.local_handoff import LocalHandoff


def claim_of(serial: int) -> Claim:
    return Claim("a", f"m0.1:{serial}", "m0.1", 30.0, "{}", 0.0, 4)


def layer_of(fixture: Fixture) -> tuple[Machine, LocalHandoff]:
    machine, service = client_of(fixture)
    mutex_of(service)
    layer: Any = service.contexts[None].registry.backend
    return machine, layer


def test_a_grant_that_is_confirmed_keeps_its_token() -> None:
    _, layer = layer_of(Fixture())
    claim = claim_of(1)
    waiter, lease = layer.waiter_for(claim), SharedLease(claim)
    assert layer._granted(waiter, lease, Grant(7, ()), 0.0).token == 7
    next_one = layer.waiter_for(claim_of(2))
    waiter.queue.give(lease, next_one)
    lease.expire()
    # The token that the first waiter used is not given out again.
    assert layer._granted(next_one, lease, Grant(7, ()), 0.0).token == 8
    assert lease.token == 8
    assert lease.fits(claim.lease, 0.0)
    lease.holder = None
    layer._renewed(lease, 0.0, held=False)
    assert not lease.fits(claim.lease, 0.0)


def test_a_waiter_that_comes_too_late_does_not_overtake() -> None:
    fixture = Fixture()
    machine, layer = layer_of(fixture)
    waiter, late = layer.waiter_for(claim_of(1)), SharedLease(claim_of(2))
    other = layer.waiter_for(claim_of(3))
    waiter.queue.lease = SharedLease(other.claim)
    waiter.queue.enqueue(other)
    waiter.lease, late.holder, late.granted = waiter.lease or late, waiter, True
    reply = fixture.do(machine, layer._acquire(waiter.claim, True, 5.0))
    assert isinstance(reply, Busy)
    assert list(waiter.queue.waiters) == [other.claim.id, waiter.claim.id]
    assert waiter.to_release is None
    assert isinstance(fixture.do(machine, layer._acquire(waiter.claim, False, 10.0)), Busy)


def test_a_lease_with_another_lifetime_is_not_handed_on() -> None:
    fixture = Fixture()
    machine, layer = layer_of(fixture)
    claim = claim_of(1)
    assert isinstance(fixture.do(machine, layer._acquire(claim, True, 5.0)), Grant)
    waiter = layer.waiters[claim.id]
    assert fixture.do(machine, layer.set_lifetime(claim, "either", 10.0)).held
    assert waiter.lease is not None
    assert not waiter.lease.fits(claim.lease, 0.0)
    waiter.queue.lease = None
    assert fixture.do(machine, layer.set_lifetime(claim, "lease", 15.0)).held
    assert layer.waiters == {}


def test_a_lease_without_a_watcher_is_not_cached() -> None:
    _, layer = layer_of(Fixture())
    claim = claim_of(1)
    waiter, lease = layer.waiter_for(claim), SharedLease(claim)
    lease.grant(7, 0.0, 0.0, 30.0)
    operation = start_observer(layer, waiter.queue, lease)
    effect: Any = operation.send(None)
    effect.operation.close()
    with pytest.raises(KeyboardInterrupt):
        operation.throw(KeyboardInterrupt())
    assert not lease.fits(claim.lease, 0.0)


def test_a_plain_lock_waits_and_is_detached_as_before() -> None:
    fixture = Fixture()
    machine, service = client_of(fixture)
    mutex_of(service)
    steps: list[str] = []

    async def first() -> None:
        handle = await mutex_of(service, local_handoffs=0, lease=1.0).acquire(None)
        assert handle is not None
        steps.append("first holds")
        await Sleep(machine.now() + 0.1)
        steps.append("first releases")
        await handle.release()

    async def second() -> None:
        handle = await mutex_of(service, local_handoffs=0, lease=1.0).acquire(None)
        assert handle is not None
        steps.append("second holds")
        await handle.detach()

    machine.start(first())
    fixture.do(machine, second())
    assert steps == ["first holds", "first releases", "second holds"]
    (hold,) = fixture.store.table.entries["a"].holds.values()
    assert hold.lifetime == "lease"
    # The second one has asked twice: nothing was handed on within the client.
    assert (asked(fixture.store, Acquire), asked(fixture.store, Release)) == (3, 1)


def test_a_cached_lease_is_shown_as_held() -> None:
    fixture = Fixture()
    machine, service = client_of(fixture)

    async def one() -> None:
        mutex = mutex_of(service, cached=True)
        handle = await mutex.acquire(None)
        assert handle is not None
        await handle.release()
        assert await mutex.holder() is not None

    fixture.do(machine, one())


def test_the_release_of_a_cached_lease_is_repeated_for_a_limited_time() -> None:
    fixture = Fixture()
    machine, service = client_of(fixture)
    fixture.store.silent = (Release,)

    async def one() -> None:
        handle = await mutex_of(service, lease=1.0, cached=True).acquire(None)
        assert handle is not None
        await handle.release()

    fixture.do(machine, one())
    fixture.simulator.play(30.0)
    tried = asked(fixture.store, Release)
    assert tried > 1
    fixture.simulator.play(60.0)
    assert asked(fixture.store, Release) == tried


@pytest.mark.parametrize("timeout", [0.0, 5.0])
def test_a_lease_taken_out_of_the_queue_is_released_later_if_not_now(timeout: float) -> None:
    """Even if the request of the waiter itself is refused: no other waiter knows the lease."""
    fixture = Fixture()
    machine, service = client_of(fixture)

    async def one() -> None:
        handle = await mutex_of(service, lease=60.0, cached=True).acquire(None)
        assert handle is not None
        await handle.release()
        fixture.store.refused = (Acquire, Release)
        with pytest.raises(OutcomeUnknown, match="out of reach"):
            await mutex_of(service, lease=30.0, cached=True).acquire(timeout)

    fixture.do(machine, one())
    layer: Any = service.contexts[None].registry.backend
    assert fixture.store.table.entries["a"].holds
    fixture.store.refused = ()
    fixture.simulator.play(fixture.simulator.time + 5.0)
    assert not fixture.store.table.entries["a"].holds
    assert (layer.waiters, layer.queues) == ({}, {})
