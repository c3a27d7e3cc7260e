"""The queue of the local claims of one lock, step by step: the time is handed in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.core.test_local import asked, client_of, mutex_of
from tests.core.test_service import Fixture
from tests.core.test_turns import claim_of, layer_of

from leaselock._core.backend import Acquire, Busy, Claim, Grant, HoldRecord, LockState, Release
from leaselock._core.effects import Sleep
from leaselock._core.local_handoff import (
    REACQUIRE_WINDOW,
    LocalQueue,
    LocalWaiter,
    SharedLease,
    hold_of,
    start_observer,
)
from leaselock._core.rules import RECHECK_INTERVAL
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Sequence

NOTHING = LockState("a", (), ())


def queue_of(waiters: int, *, cached: bool = False) -> tuple[LocalQueue, list[LocalWaiter]]:
    """A queue with a granted lease of 30 s that is free, and some claims that are not queued."""
    queue = LocalQueue()
    claims = [claim_of(serial)._replace(cached=cached) for serial in range(waiters)]
    queue.lease = SharedLease(claims[0])
    queue.lease.grant(7, 0.0, 0.0, 30.0)
    return queue, [LocalWaiter(claim, queue) for claim in claims]


def held_by(claim: Claim) -> LockState:
    record = HoldRecord(claim.id, claim.client, "either", 7, 30.0, claim.metadata, claim.since)
    return LockState.exclusive("a", record, 30.0, ())


def ids(claims: Sequence[Claim]) -> list[str]:
    return [claim.id for claim in claims]


def test_a_state_without_a_shared_lease_is_shown_as_the_store_has_it() -> None:
    queue, (first, second) = queue_of(2)
    queue.lease = None
    queue.enqueue(second)
    state = held_by(first.claim)
    assert queue.shown(state) is state


def test_the_local_waiters_are_shown_in_place_of_the_shared_claim() -> None:
    queue, (first, second) = queue_of(2)
    assert queue.lease is not None
    other = claim_of(9)._replace(id="other:1", client="other")
    for waiter in (first, second):
        queue.enqueue(waiter)
    state = held_by(other)._replace(waiting=(other, queue.lease.claim))
    shown = queue.shown(state)
    assert shown.held == state.held
    assert ids(shown.waiting) == ["other:1", first.claim.id, second.claim.id]


def test_the_holder_is_shown_in_place_of_the_shared_claim() -> None:
    queue, (first, second, third) = queue_of(3)
    assert queue.lease is not None
    state = held_by(queue.lease.claim)
    assert queue.shown(state).held == state.held  # the lease is free
    assert queue.take(second, 0.01)
    queue.enqueue(third)
    shown = queue.shown(state._replace(waiting=(first.claim,)))
    assert shown.held == hold_of(queue.lease)
    assert shown.held is not None
    assert (shown.held.id, shown.held.token) == (second.claim.id, 7)
    assert ids(shown.waiting) == [third.claim.id, first.claim.id]


def test_a_waiter_that_takes_a_free_lease_may_take_it_again_before_the_next_one() -> None:
    queue, (first, second) = queue_of(2)
    lease = queue.lease
    assert lease is not None
    queue.enqueue(first)
    assert queue.take(first, 0.01)
    assert not queue.take(second, 0.01)
    queue.enqueue(second)
    # In the window the lease stays free, and the next waiter is woken.
    assert queue.hand_over(lease, 0.01 + REACQUIRE_WINDOW / 2)
    assert lease.holder is None
    assert second.signal.is_set
    # It is woken once.
    assert queue.hand_over(lease, 0.01 + REACQUIRE_WINDOW / 2)
    assert second.signal.is_set
    assert queue.hand_over(lease, 0.02)
    assert lease.holder is second
    assert (first.token, second.token) == (7, 8)


def test_a_lease_that_is_out_of_its_queue_is_not_handed_over() -> None:
    queue, (first, second) = queue_of(2)
    lease = queue.lease
    assert lease is not None
    assert queue.take(first, 0.01)
    queue.enqueue(second)
    queue.lease = None
    assert not queue.hand_over(lease, 0.02)
    assert lease.holder is first


def test_a_lease_is_taken_by_a_claim_of_its_length_only() -> None:
    queue, (first,) = queue_of(1)
    longer = LocalWaiter(claim_of(8)._replace(lease=60.0), queue)
    assert not queue.take(longer, 0.01)
    assert queue.must_release_first(longer)
    assert queue.take(first, 0.01)
    assert not queue.must_release_first(longer)


def test_a_cached_lease_is_taken_if_it_is_free_and_no_waiter_comes_first() -> None:
    queue, (first, second) = queue_of(2, cached=True)
    lease = queue.lease
    assert lease is not None
    assert queue.cached_lease(30.0, 1.0) is lease
    assert queue.cached_lease(60.0, 1.0) is None
    queue.enqueue(second)
    assert queue.cached_lease(30.0, 1.0) is None
    queue.remove(second)
    assert queue.take(first, 1.0)
    assert queue.cached_lease(30.0, 1.0) is None
    lease.expire()
    assert queue.cached_lease(30.0, 1.0) is None


def test_a_shared_lease_whose_time_has_passed_is_void() -> None:
    queue, (first, second) = queue_of(2)
    assert queue.take(first, 0.01)
    assert not queue.may_ask_store(second, 29.9, wait=True)
    assert queue.may_ask_store(second, 30.0, wait=True)
    assert queue.lease is None


def test_a_refused_claim_asks_again_when_the_lease_may_have_ended() -> None:
    queue, (first, second) = queue_of(2)
    lease = queue.lease
    assert lease is not None
    assert queue.take(first, 0.01)
    queue.last_busy = Busy(None, 5.0, ("a claim",), 3)
    assert queue.refusal(0.01) == Busy(hold_of(lease), RECHECK_INTERVAL, ())
    assert queue.refusal(29.5) == Busy(hold_of(lease), 0.5, ())
    lease.expire()
    assert queue.refusal(29.5) == Busy(None, RECHECK_INTERVAL, (), 3)
    assert not queue.take(second, 29.5)


def test_a_waiter_that_got_the_lease_too_late_asks_first() -> None:
    fixture = Fixture()
    machine, layer = layer_of(fixture)
    first, second = (layer.waiter_for(claim_of(serial)) for serial in (1, 2))
    late = SharedLease(first.claim)
    late.grant(7, 0.0, -40.0, -10.0)
    first.queue.enqueue(second)
    first.queue.lease = late
    first.queue.give(late, first)
    reply = fixture.do(machine, layer._acquire(first.claim, True, 5.0))
    assert isinstance(reply, Grant)
    assert first.lease is late
    assert asked(fixture.store, Release) == 0
    assert list(first.queue.waiters) == [second.claim.id]


def test_no_waiter_goes_on_with_a_claim_that_has_a_tombstone() -> None:
    fixture = Fixture()
    machine, layer = layer_of(fixture)
    waiters = [layer.waiter_for(claim_of(serial)) for serial in (91, 92)]
    queue = waiters[0].queue
    for waiter in waiters:
        queue.enqueue(waiter)
    lease = queue.lease = SharedLease(waiters[0].claim)
    lease.uncertain = True
    assert not fixture.do(machine, layer.release_lease(queue, lease, 5.0))
    (request,) = fixture.store.seen
    assert (request.claim, request.tombstone) == (waiters[0].claim, True)
    fresh = [layer.with_new_id(waiters[0].claim).id for _ in range(2)]
    assert len({waiters[0].claim.id, waiters[0].own_claim.id, *fresh}) == 4
    assert waiters[1].own_claim is waiters[1].claim
    assert queue.lease is None


def test_a_try_that_the_store_refuses_leaves_nothing() -> None:
    fixture = Fixture()
    machine, service = client_of(fixture)
    other, its = client_of(fixture, "m1")

    async def take() -> None:
        assert await mutex_of(its, local_handoffs=0).acquire(None) is not None

    async def one() -> None:
        assert await mutex_of(service).try_acquire() is None

    fixture.do(other, take())
    fixture.do(machine, one())
    layer = service.contexts[None].registry.backend
    assert (layer.waiters, layer.queues) == ({}, {})  # type: ignore[attr-defined]
    assert not fixture.store.table.entries["a"].queue


def test_a_refused_try_with_the_claim_of_a_waiter_leaves_its_lease() -> None:
    """The shared claim is that of the first waiter, not that of the refused one."""
    fixture = Fixture()
    machine, layer = layer_of(fixture)
    first, second = (layer.waiter_for(claim_of(serial)) for serial in (1, 2))
    lease = first.queue.lease = SharedLease(first.claim)
    fixture.store.refused = (Acquire,)

    async def one() -> None:
        try:
            await layer._acquire(second.claim, True, 5.0)
        except NotApplied:
            layer._discard(second)

    fixture.do(machine, one())
    assert first.queue.lease is lease
    assert list(layer.waiters) == [first.claim.id]


def test_a_request_that_is_not_answered_leaves_the_lease_uncertain() -> None:
    fixture = Fixture()
    machine, layer = layer_of(fixture)
    claim = claim_of(1)
    fixture.store.silent = (Acquire,)
    with pytest.raises(OutcomeUnknown):
        fixture.do(machine, layer._acquire(claim, True, 1.0))
    waiter = layer.waiters[claim.id]
    assert waiter.queue.lease is not None
    assert waiter.queue.lease.may_be_in_flight()
    fixture.do(machine, layer.release(claim, tombstone=False, until=10.0))
    releases = [request for request in fixture.store.seen if isinstance(request, Release)]
    assert [release.tombstone for release in releases] == [True]


def test_a_cached_lease_is_taken_without_a_request() -> None:
    fixture = Fixture()
    machine, service = client_of(fixture)
    tokens: list[int] = []

    async def one() -> None:
        mutex = mutex_of(service, cached=True)
        for _ in range(3):
            handle = await mutex.acquire(None)
            assert handle is not None
            tokens.append(handle.hold.token)
            await handle.release()
            await Sleep(machine.now() + 0.1)

    fixture.do(machine, one())
    assert tokens == list(range(tokens[0], tokens[0] + 3))
    # One to acquire, and one of the watcher.
    assert (asked(fixture.store, Acquire), asked(fixture.store, Release)) == (2, 0)


def test_a_renewal_of_a_lease_that_is_cached_moves_its_end() -> None:
    fixture = Fixture()
    machine, service = client_of(fixture)

    async def one() -> None:
        handle = await mutex_of(service, lease=3.0, cached=True).acquire(None)
        assert handle is not None
        await Sleep(machine.now() + 2.5)
        layer = service.contexts[None].registry.backend
        lease = layer.queues["a"].lease  # type: ignore[attr-defined]
        assert lease.valid_until - machine.now() > 1.0
        await handle.release()

    fixture.do(machine, one())


def test_an_abandoned_client_lets_a_free_lease_be_released() -> None:
    fixture = Fixture()
    _, layer = layer_of(fixture)
    first, second = (layer.waiter_for(claim_of(serial)) for serial in (1, 2))
    lease = first.queue.lease = SharedLease(claim_of(3))
    lease.grant(7, 0.0, 0.0, 30.0)
    layer.after_fork()
    assert layer.queues == {}
    assert first.lease is lease
    assert second.lease is None
    assert first.queue is not second.queue
    assert first.queue.lease is None


def test_a_watcher_that_cannot_confirm_the_lease_ends_its_caching() -> None:
    fixture = Fixture()
    machine, layer = layer_of(fixture)
    claim = claim_of(1)._replace(cached=True)
    waiter, lease = layer.waiter_for(claim), SharedLease(claim)
    waiter.queue.lease = lease
    lease.grant(7, 0.0, 0.0, 30.0)

    async def busy(claim: Claim, *, wait: bool, until: float) -> Busy:
        return Busy(None, 1.0, ())

    layer.backend.acquire = busy  # type: ignore[method-assign]
    fixture.do(machine, start_observer(layer, waiter.queue, lease))
    assert lease.uncertain
    assert not lease.fits(claim.lease, 0.0)
    assert waiter.queue.lease is None
    assert [request.tombstone for request in fixture.store.seen] == [True]


def test_a_watcher_leaves_the_release_of_a_lease_in_use_to_its_holder() -> None:
    fixture = Fixture()
    machine, service = client_of(fixture)
    other, its = client_of(fixture, "m1")

    async def one() -> None:
        handle = await mutex_of(service, cached=True).acquire(None)
        assert handle is not None
        await Sleep(machine.now() + 1.0)
        assert asked(fixture.store, Release) == 0
        await handle.release()
        assert asked(fixture.store, Release) == 1

    async def two() -> None:
        await Sleep(other.now() + 0.5)
        handle = await mutex_of(its, cached=True).acquire(None)
        assert handle is not None

    waiting = other.start(two())
    fixture.do(machine, one())
    assert waiting.ended
    assert waiting.error is None
