"""The registry of holds and the renewer: reported losses, renewals without an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.core.test_service import Refusing, Scene, mutex_of
from tests.simulation.world import Machine

from leaselock.core.backend import Grant, Renew
from leaselock.core.client_core import ClientCore
from leaselock.core.effects import FOREVER, Signal, Sleep, Wait
from leaselock.core.hold import TAKEN
from leaselock.core.mutex import as_handle
from leaselock.core.singleton_process import Background
from leaselock.errors import LeaseLost, NotHeld

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.core.backend import Busy, Claim
    from leaselock.core.effects import Process


class Reporting(Refusing):
    """A backend that is notified when a hold ends."""

    lose: Callable[[str, str], None]

    def report_to(self, lose: Callable[[str, str], None]) -> None:
        self.lose = lose


def test_a_loss_that_the_store_reports_is_a_loss_once() -> None:
    scene = Scene()
    machine = Machine(scene.world, "one")
    backend = Reporting(scene.store)
    service = ClientCore(machine, lambda protocol: backend, label=None, op_timeout=1.0)
    lost: list[object] = []

    async def whole() -> None:
        handle = await mutex_of(service).acquire(None)
        assert handle is not None
        handle.on_lost(lost.append, handle, lambda handle: handle)
        await Sleep(machine.now() + 0.5)  # now the renewer rests until the first renewal
        claim_id = handle.hold.claim.id
        backend.lose("another claim", "its session ended")
        assert not handle.lost()
        backend.lose(claim_id, "its session ended")
        backend.lose(claim_id, "reported again")
        assert handle.lost()
        await Sleep(machine.now() + 0.1)
        assert lost == [handle]
        with pytest.raises(LeaseLost, match="its session ended"):
            handle.ensure()

    scene.do(machine, whole())


@pytest.mark.parametrize("ours", [True, False])
def test_an_abandoned_client_releases_its_own_holds_and_not_those_of_its_parent(ours: bool) -> None:
    scene = Scene()
    machine, service = scene.client()

    handle = scene.do(machine, mutex_of(service).acquire(None))
    registry = service.contexts[None].registry
    other = scene.do(machine, mutex_of(service, "b").acquire(None))
    registry.release_later(other.hold.claim)
    before = registry.client
    registry.abandon("why", ours)
    assert handle.lost()
    assert handle.hold.reason == "why"
    assert registry.client != before
    assert registry.held() == []
    pending = registry.pending_releases
    for hold in (handle.hold, other.hold):
        assert (hold.claim.id in pending) is ours


def test_a_renewal_whose_outcome_is_unknown_is_repeated() -> None:
    scene = Scene()
    machine, service = scene.client()
    backend: Any = service.contexts[None].registry.backend
    renew, tried = backend.renew, []

    async def unknown_once(claims: list[Claim], until: float) -> object:
        tried.append(machine.now())
        return [None for _ in claims] if len(tried) == 1 else await renew(claims, until)

    async def whole() -> None:
        handle = await mutex_of(service, lease=3.0).acquire(None)
        assert handle is not None
        backend.renew = unknown_once
        await Sleep(machine.now() + 1.2)
        assert len(tried) == 2
        # After a pause, but long before the next renewal would be due.
        assert 0.0005 < tried[1] - tried[0] < 0.1
        assert handle.remaining() > 2.7
        await handle.release()

    scene.do(machine, whole())


def test_a_renewal_that_finds_another_holder_loses_the_hold() -> None:
    scene = Scene()
    machine, service = scene.client()
    _, operator = scene.client("operator")

    async def whole() -> None:
        handle = await mutex_of(service, lease=3.0).acquire(None)
        assert handle is not None
        await operator.break_lock("a", None)
        assert not handle.lost()
        await Sleep(machine.now() + 1.2)
        assert handle.hold.reason == TAKEN
        with pytest.raises(LeaseLost, match="the lock was broken by force"):
            handle.ensure()

    scene.do(machine, whole())
    assert [r for r in scene.store.seen if isinstance(r, Renew)]


def test_a_refused_renewal_of_a_hold_that_is_being_released_changes_nothing() -> None:
    scene = Scene()
    machine, service = scene.client()
    context = service.contexts[None]
    handle = scene.do(machine, mutex_of(service).acquire(None))
    handle.hold.step("release")
    context.renewer._taken(handle.hold)
    assert handle.hold.step("done")
    assert handle.hold.reason == ""


def test_a_grant_is_valid_from_the_time_that_it_names() -> None:
    scene = Scene()
    machine, service = scene.client()
    backend: Any = service.contexts[None].registry.backend
    acquire = backend.acquire

    async def earlier(claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        reply = await acquire(claim, wait=wait, until=until)
        assert isinstance(reply, Grant)
        return reply._replace(asked=machine.now() - 10.0)

    async def whole() -> None:
        handle = await mutex_of(service, lease=30.0).acquire(None)
        assert handle is not None
        assert 19.0 < handle.remaining() <= 20.0

    backend.acquire = earlier
    scene.do(machine, whole())


def test_a_background_process_that_runs_is_not_started_again() -> None:
    background = Background()
    background.running = True

    def make() -> Process[None]:
        raise AssertionError("it was made a second time")

    with pytest.raises(StopIteration):
        _ = background.start(make, "renewer").send(None)
    assert background.running


def test_a_background_process_that_began_before_an_interruption_runs() -> None:
    background, signal = Background(), Signal()

    async def wait() -> None:
        await Wait(signal, FOREVER)

    starting: Any = background.start(wait, "renewer")
    process = starting.send(None).process
    process.send(None)
    with pytest.raises(KeyboardInterrupt):
        starting.throw(KeyboardInterrupt())
    assert background.running
    process.close()
    assert not background.running


def test_the_end_of_a_body_raises_the_loss() -> None:
    scene = Scene()
    machine, service = scene.client()
    mutex = mutex_of(service)

    async def whole() -> None:
        await mutex.enter(as_handle)
        await service.break_lock("a", None)
        with pytest.raises(LeaseLost, match="no longer had this hold"):
            await mutex.leave(None)
        assert not mutex.owned()

    scene.do(machine, whole())


class Guard:
    """Guards a body, and counts how often the guarding has ended."""

    settled = 0

    def interrupt(self) -> None:
        raise AssertionError("the lease was not lost")

    def settle(self, exception: BaseException | None) -> bool:
        self.settled += 1
        return False


def test_the_body_of_a_lease_that_was_released_in_it_is_not_guarded_any_more() -> None:
    scene = Scene()
    machine, service = scene.client()
    guards: list[Guard] = []

    def guard() -> Guard:
        guards.append(Guard())
        return guards[-1]

    machine.guard = guard  # type: ignore[method-assign]

    async def whole() -> None:
        handle = await mutex_of(service).acquire(None)
        assert handle is not None
        # A body within the body has the same guard.
        assert await handle.begin_body(handle) is handle
        assert await handle.begin_body(handle) is handle
        assert len(guards) == 1
        await handle.release()
        await handle.end_body(None)
        await handle.end_body(None)
        assert guards[0].settled == 1
        assert handle.hold.guards == ()

    scene.do(machine, whole())


def test_the_end_of_a_body_without_a_lease_is_refused_or_noted() -> None:
    scene = Scene()
    machine, service = scene.client()
    mutex = mutex_of(service)

    async def whole() -> None:
        with pytest.raises(NotHeld, match="cannot leave 'a'"):
            await mutex.leave(None)
        error = ValueError("the body's own")
        await mutex.leave(error)
        assert "leaselock: cannot leave 'a'" in error.__notes__[0]

    scene.do(machine, whole())
