"""Local hand-off, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.core.test_service import Fixture, Store

from leaselock._backends.memory.store import CAPABILITIES
from leaselock._core.backend import Acquire, Release, Renew, SetLifetime
from leaselock._core.effects import FOREVER, Sleep
from leaselock._core.local_handoff import LocalHandoff
from leaselock._core.validation import MOST_LOCAL_HANDOFFS, checked_local_handoffs
from leaselock.errors import LeaseLost, NotApplied

if TYPE_CHECKING:
    from verification.simulation.simulator import Machine

    from leaselock._core.client_core import ClientCore
    from leaselock._core.local_handoff import LocalQueue
    from leaselock._core.mutex import Mutex


def mutex_of(
    service: ClientCore, local_handoffs: int = 3, lease: float = 30.0, **terms: Any
) -> Mutex:
    words: dict[str, Any] = {"renew": True, "timeout": None, "reentrant": True, "label": None}
    return service.mutex(
        "a", lease=lease, protocol=None, local_handoffs=local_handoffs, **words | terms
    )


def client_of(fixture: Fixture, name: str = "m0") -> tuple[Machine, ClientCore]:
    machine, service = fixture.client(name)
    service.contexts[None].registry.backend.capabilities = CAPABILITIES
    return machine, service


def asked(store: Store, kind: type) -> int:
    return sum(isinstance(request, kind) for request in store.seen)


def test_local_handoffs_is_a_number_in_its_range() -> None:
    assert checked_local_handoffs(0) == 0
    for wrong in (True, 1.5, "3"):
        with pytest.raises(TypeError, match="local_handoffs is an int"):
            checked_local_handoffs(wrong)
    for wrong in (-1, MOST_LOCAL_HANDOFFS + 1):
        with pytest.raises(ValueError, match="local_handoffs is from 0 to"):
            checked_local_handoffs(wrong)


def test_a_store_that_cannot_reserve_tokens_refuses_it() -> None:
    _, service = Fixture().client()
    with pytest.raises(ValueError, match="reserve fencing tokens"):
        mutex_of(service)


def test_a_lease_is_handed_on_without_a_request_and_with_the_next_token() -> None:
    fixture = Fixture()
    machine, service = client_of(fixture)
    tokens: list[int] = []

    async def one() -> None:
        handle = await mutex_of(service).acquire(None)
        assert handle is not None
        tokens.append(handle.hold.token)
        await Sleep(machine.now() + 0.005)
        await handle.release()

    for _ in range(4):
        machine.start(one())
    fixture.simulator.play(1.0)
    assert tokens == list(range(tokens[0], tokens[0] + 4))
    assert (asked(fixture.store, Acquire), asked(fixture.store, Release)) == (1, 1)


def test_a_lease_is_handed_on_for_a_limited_time() -> None:
    fixture = Fixture()
    machine, service = client_of(fixture)

    async def one() -> None:
        handle = await mutex_of(service, local_handoffs=100).acquire(None)
        assert handle is not None
        await Sleep(machine.now() + 0.06)
        await handle.release()

    for _ in range(4):
        machine.start(one())
    fixture.simulator.play(1.0)
    assert asked(fixture.store, Release) == 2


def test_the_holder_of_a_lease_that_was_handed_on_learns_of_its_loss() -> None:
    fixture = Fixture()
    machine, service = client_of(fixture)

    async def one(work: float) -> None:
        handle = await mutex_of(service, lease=3.0).acquire(None)
        assert handle is not None
        await Sleep(machine.now() + work)
        if work > 1.0:
            assert handle.lost()
            with pytest.raises(LeaseLost):
                await handle.release()
        else:
            await handle.release()

    machine.start(one(0.01))
    last = machine.start(one(2.0))
    fixture.simulator.play(0.1)
    fixture.store.table.entries["a"].holds.clear()
    fixture.simulator.play(10.0)
    assert last.ended
    assert last.error is None


def test_a_refused_try_leaves_nothing() -> None:
    fixture = Fixture()
    machine, service = client_of(fixture)
    fixture.store.refused = (Acquire,)

    async def one() -> None:
        with pytest.raises(NotApplied):
            await mutex_of(service).acquire(0.0)

    fixture.do(machine, one())
    layer: Any = service.contexts[None].registry.backend
    assert isinstance(layer, LocalHandoff)
    assert (layer.waiters, layer.queues) == ({}, {})


def test_a_claim_that_has_no_lease_is_not_released() -> None:
    fixture = Fixture()
    machine, service = client_of(fixture)
    held: list[bool] = []

    async def one() -> None:
        handle = await mutex_of(service).acquire(None)
        assert handle is not None
        await handle.release()
        registry = service.contexts[None].registry
        held.append(
            await registry.backend.release(handle.hold.claim, tombstone=True, until=FOREVER)
        )

    fixture.do(machine, one())
    assert held == [False]
    assert asked(fixture.store, Release) == 1


def test_a_detached_lease_is_not_handed_on() -> None:
    fixture = Fixture()
    machine, service = client_of(fixture)

    async def first() -> None:
        handle = await mutex_of(service, lease=1.0).acquire(None)
        assert handle is not None
        await Sleep(machine.now() + 0.01)
        await handle.detach()

    async def second() -> None:
        handle = await mutex_of(service, lease=1.0).acquire(None)
        assert handle is not None
        assert machine.now() > 1.0

    machine.start(first())
    last = machine.start(second())
    fixture.simulator.play(5.0)
    assert last.ended
    assert last.error is None
    assert asked(fixture.store, SetLifetime) == 1


def test_nothing_is_kept_of_a_cached_lease_that_was_released() -> None:
    fixture = Fixture()
    machine, service = client_of(fixture)

    async def one() -> None:
        handle = await mutex_of(service, local_handoffs=0, cached=True, lease=1.0).acquire(None)
        assert handle is not None
        await handle.release()
        assert len(queues()) == 1

    def queues() -> dict[str, LocalQueue]:
        backend = service.contexts[None].registry.backend
        assert isinstance(backend, LocalHandoff)
        return backend.queues

    fixture.do(machine, one())
    fixture.simulator.play(fixture.simulator.time + 10.0)
    assert asked(fixture.store, Release) == 1
    assert queues() == {}


def test_a_lock_without_local_handoffs_goes_to_the_store() -> None:
    fixture = Fixture()
    machine, service = client_of(fixture)

    async def both() -> None:
        passing = await mutex_of(service).acquire(None)
        assert passing is not None
        await passing.release()
        plain = await mutex_of(service, local_handoffs=0, lease=1.0).acquire(None)
        assert plain is not None
        await Sleep(machine.now() + 0.5)
        assert await plain.make_inheritable() == ()
        await plain.release()

    fixture.do(machine, both(), 5.0)
    assert asked(fixture.store, Renew) >= 1
