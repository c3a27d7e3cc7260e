"""Rare situations between the local waiters of a client and its store, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.core.test_local import asked, client_of, mutex_of
from tests.core.test_service import Scene

from leaselock._core.backend import Acquire, Busy, Claim, Grant, Release
from leaselock._core.effects import Sleep
from leaselock._core.local_handoff import SharedLease, start_observer
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from verification.simulation.simulator import Machine

    from leaselock._core.local_handoff import LocalHandoff


def claim_of(serial: int) -> Claim:
    return Claim("a", f"m0.1:{serial}", "m0.1", 30.0, "{}", 0.0, 4)


def layer_of(scene: Scene) -> tuple[Machine, LocalHandoff]:
    machine, service = client_of(scene)
    mutex_of(service)
    layer: Any = service.contexts[None].registry.backend
    return machine, layer


def test_a_grant_that_is_confirmed_keeps_its_token() -> None:
    _, layer = layer_of(Scene())
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
    scene = Scene()
    machine, layer = layer_of(scene)
    waiter, late = layer.waiter_for(claim_of(1)), SharedLease(claim_of(2))
    other = layer.waiter_for(claim_of(3))
    waiter.queue.lease = SharedLease(other.claim)
    waiter.queue.enqueue(other)
    waiter.lease, late.holder, late.granted = waiter.lease or late, waiter, True
    reply = scene.do(machine, layer._acquire(waiter.claim, True, 5.0))
    assert isinstance(reply, Busy)
    assert list(waiter.queue.waiters) == [other.claim.id, waiter.claim.id]
    assert waiter.to_release is None
    assert isinstance(scene.do(machine, layer._acquire(waiter.claim, False, 10.0)), Busy)


def test_a_lease_with_another_lifetime_is_not_handed_on() -> None:
    scene = Scene()
    machine, layer = layer_of(scene)
    claim = claim_of(1)
    assert isinstance(scene.do(machine, layer._acquire(claim, True, 5.0)), Grant)
    waiter = layer.waiters[claim.id]
    assert scene.do(machine, layer.set_lifetime(claim, "either", 10.0)).held
    assert waiter.lease is not None
    assert not waiter.lease.fits(claim.lease, 0.0)
    waiter.queue.lease = None
    assert scene.do(machine, layer.set_lifetime(claim, "lease", 15.0)).held
    assert layer.waiters == {}


def test_a_lease_without_a_watcher_is_not_cached() -> None:
    _, layer = layer_of(Scene())
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
    scene = Scene()
    machine, service = client_of(scene)
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
    scene.do(machine, second())
    assert steps == ["first holds", "first releases", "second holds"]
    (hold,) = scene.store.table.entries["a"].holds.values()
    assert hold.lifetime == "lease"
    # The second one has asked twice: nothing was handed on within the client.
    assert (asked(scene.store, Acquire), asked(scene.store, Release)) == (3, 1)


def test_a_cached_lease_is_shown_as_held() -> None:
    scene = Scene()
    machine, service = client_of(scene)

    async def one() -> None:
        mutex = mutex_of(service, cached=True)
        handle = await mutex.acquire(None)
        assert handle is not None
        await handle.release()
        assert await mutex.holder() is not None

    scene.do(machine, one())


def test_the_release_of_a_cached_lease_is_repeated_for_a_limited_time() -> None:
    scene = Scene()
    machine, service = client_of(scene)
    scene.store.silent = (Release,)

    async def one() -> None:
        handle = await mutex_of(service, lease=1.0, cached=True).acquire(None)
        assert handle is not None
        await handle.release()

    scene.do(machine, one())
    scene.simulator.play(30.0)
    tried = asked(scene.store, Release)
    assert tried > 1
    scene.simulator.play(60.0)
    assert asked(scene.store, Release) == tried


@pytest.mark.parametrize("timeout", [0.0, 5.0])
def test_a_lease_taken_out_of_the_queue_is_released_later_if_not_now(timeout: float) -> None:
    """Even if the request of the waiter itself is refused: no other waiter knows the lease."""
    scene = Scene()
    machine, service = client_of(scene)

    async def one() -> None:
        handle = await mutex_of(service, lease=60.0, cached=True).acquire(None)
        assert handle is not None
        await handle.release()
        scene.store.refused = (Acquire, Release)
        with pytest.raises(OutcomeUnknown, match="out of reach"):
            await mutex_of(service, lease=30.0, cached=True).acquire(timeout)

    scene.do(machine, one())
    layer: Any = service.contexts[None].registry.backend
    assert scene.store.table.entries["a"].holds
    scene.store.refused = ()
    scene.simulator.play(scene.simulator.time + 5.0)
    assert not scene.store.table.entries["a"].holds
    assert (layer.waiters, layer.queues) == ({}, {})
