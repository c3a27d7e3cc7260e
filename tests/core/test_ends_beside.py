"""Ends that meet: an interrupt at one step, and another end of the same hold beside it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.test_modes import OPTIONS
from tests.core.test_service import Fixture, mutex_of

from leaselock._core.client import break_notice
from leaselock._core.client.attempts import Attempts
from leaselock._core.client.hold import Hold, State
from leaselock._core.client.lease_reference import UnderWay
from leaselock._core.client.timing import Retry
from leaselock.errors import NotApplied, NotHeld

if TYPE_CHECKING:
    from leaselock._core.client.lease_handle import LeaseHandle


def interrupted(*_: object) -> Any:
    raise KeyboardInterrupt


def held_by(fixture: Fixture) -> list[str]:
    return [name for name, entry in fixture.store.table.entries.items() if entry.holds]


def test_a_lease_whose_body_was_interrupted_as_it_began_is_released() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def begin() -> None:
        lease = await mutex_of(service).acquire(None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(lease), "ensure", interrupted)
            with pytest.raises(KeyboardInterrupt):
                await lease.begin_body(lease)

    fixture.do(machine, begin())
    assert held_by(fixture) == []


def test_leases_whose_body_was_interrupted_as_it_began_are_released() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def begin() -> None:
        locks = service.lock_all(["a", "b"], None, reentrant=True, **OPTIONS)
        leases = await locks.acquire(None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(leases), "ensure", interrupted)
            with pytest.raises(KeyboardInterrupt):
                await leases.begin_body(leases)

    fixture.do(machine, begin())
    assert held_by(fixture) == []


def test_a_release_by_the_lock_that_was_interrupted_as_it_began_is_done() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def release() -> None:
        mutex = mutex_of(service)
        await mutex.acquire(None)
        newest = mutex._newest
        answers = iter([interrupted, newest])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mutex, "_newest", lambda: next(answers)())
            with pytest.raises(KeyboardInterrupt):
                await mutex.release()

    fixture.do(machine, release())
    assert held_by(fixture) == []


def test_the_interrupted_end_of_an_inner_body_is_not_that_of_the_outer_one() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def bodies() -> None:
        mutex, key = mutex_of(service), object()
        await mutex.enter(key)
        inner = await mutex.enter(key)
        inner.reference.left_by = weakref.ref(UnderWay())
        assert len(mutex.leases()) == 1
        await mutex.leave(None, key, UnderWay())
        assert mutex.leases() == []

    fixture.do(machine, bodies())
    assert held_by(fixture) == []


def test_the_same_for_several_locks() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def bodies() -> None:
        key = object()
        locks = service.lock_all(["a", "b"], None, reentrant=True, **OPTIONS)
        await locks.enter(key)
        inner = await locks.enter(key)
        inner.group.left_by = weakref.ref(UnderWay())
        await locks.leave(None, key, UnderWay())
        assert not locks.kept
        alone = await locks.acquire(None)
        alone.forget_body()  # it has none
        await alone.release()
        with pytest.raises(NotHeld):
            await alone.begin_body(alone)
        await locks.enter(key)
        await locks.enter(key)
        await locks.leave(None, key)
        await locks.leave(None, key)

    fixture.do(machine, bodies())
    assert held_by(fixture) == []


def test_a_nested_lease_ends_beside_the_release_of_its_hold() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def nested() -> None:
        mutex = mutex_of(service)
        await mutex.acquire(None)
        inner: LeaseHandle = await mutex.acquire(None)
        inner.hold.state = State.ENDING
        await inner.release()
        inner.hold.state = State.HELD
        await mutex.release()

    fixture.do(machine, nested())
    assert held_by(fixture) == []


def test_a_release_that_failed_is_not_repeated_where_another_has_ended_the_row() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    context = service.contexts[None]
    late, registry = context.renewer.unfinished.late, context.registry

    async def fails(hold: Any, free_until: float) -> bool:
        registry.remove(hold)
        return False

    async def release() -> None:
        lease = await mutex_of(service).acquire(None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(late, "_is_released", fails)
            registry.release_later(lease.hold)
            await late.release(1e9)
        assert not registry.table

    fixture.do(machine, release())


def test_a_frozen_process_tries_again() -> None:
    fixture = Fixture()
    _, service = fixture.client()
    registry = service.contexts[None].registry
    retry = Retry(registry.env, 1.0, registry.env.now())
    retry.extended = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retry, "was_frozen", lambda: True)
        retry.failed(NotApplied("the store does not answer", "unreachable"))
    assert retry.give_up == registry.env.now() + 1.0


def test_two_that_break_a_hold_leave_one_notice() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    registry = service.contexts[None].registry

    async def leave() -> None:
        await mutex_of(service).acquire(None)
        (state,) = await registry.inspect("a", "*")
        await break_notice.leave(registry, state.holds[0], "one")
        await break_notice.leave(registry, state.holds[0], "two")

    fixture.do(machine, leave())
    assert len([name for name in held_by(fixture) if name != "a"]) == 1


def test_a_refusal_after_an_answer_leaves_the_claim_to_the_renewer() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def fail() -> None:
        mutex, registry = mutex_of(service), service.contexts[None].registry
        hold = Hold(registry.claim("a", 30.0))
        registry.enter(hold, registry.env.now())
        attempts = Attempts(registry, hold, mutex.options, registry.env.now(), wait=False)
        attempts.known = True
        with pytest.raises(NotApplied):
            attempts.failed(NotApplied("no", "refused"))
        assert hold.claim.id in registry.table

    fixture.do(machine, fail())
