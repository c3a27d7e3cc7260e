"""A lease without a lock, where a request was sent and not answered."""

from __future__ import annotations

from tests.core.test_service import Scene, mutex_of

from leaselock._core.backend import Acquire, Release


def test_a_claim_that_may_have_arrived_is_released_when_the_store_answers() -> None:
    scene = Scene()
    machine, service = scene.client()
    scene.store.silent = (Acquire, Release)
    handle = scene.do(machine, mutex_of(service, on_outage="unlocked").acquire(None))
    assert handle.hold.is_unlocked
    assert handle.state() == "not locked: the store was out of reach"
    claim = next(seen.claim for seen in scene.store.seen if isinstance(seen, Acquire))
    scene.store.silent = ()
    before = len(scene.store.seen)
    scene.begin(machine, handle.release())
    scene.world.play(scene.world.time + 10.0)
    released = [seen.claim.id for seen in scene.store.seen[before:] if isinstance(seen, Release)]
    assert released == [claim.id]
