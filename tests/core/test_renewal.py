"""The registry of holds and the renewer: reported losses, renewals without an answer."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.test_modes import acquired, modes_in_store, written_and_read
from tests.core.test_service import Fixture, Refusing, answer_by, mutex_of
from verification.simulation.simulator import Interrupted, Machine, Run, Simulator

from leaselock._core.client import timing
from leaselock._core.client.client_core import ClientCore
from leaselock._core.client.events import LATE
from leaselock._core.client.hold import TAKEN
from leaselock._core.contract.backend import Convert, Grant, Renew
from leaselock._core.contract.background import Background
from leaselock._core.contract.effects import FOREVER, CallUser, Signal, Sleep, Spawn, Wait
from leaselock.errors import LeaseLost, NotApplied, NotHeld

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._core.contract.backend import Busy, Claim
    from leaselock._core.contract.effects import Operation


def test_a_loss_that_the_store_reports_is_a_loss_once() -> None:
    fixture = Fixture()
    machine = Machine(fixture.simulator, "one")
    backend = Refusing(fixture.store)
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

    fixture.do(machine, whole())


@pytest.mark.parametrize("ours", [True, False])
def test_an_abandoned_client_releases_its_own_holds_and_not_those_of_its_parent(ours: bool) -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    handle = fixture.do(machine, mutex_of(service).acquire(None))
    registry = service.contexts[None].registry
    other = fixture.do(machine, mutex_of(service, "b").acquire(None))
    registry.release_later(other.hold)
    before = registry.client
    registry.abandon("why", ours)
    assert handle.lost()
    assert handle.hold.reason == "why"
    assert registry.client != before
    assert registry.held() == []
    assert registry.pending() == ([handle.hold, other.hold] if ours else [])


def test_a_renewal_whose_outcome_is_unknown_is_repeated() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    backend: Any = service.contexts[None].registry.backend
    carry_out, tried = backend.request, []

    async def unknown_once(request: Renew, until: float) -> object:
        tried.append(machine.now())
        first = len(tried) == 1
        return [None for _ in request.claims] if first else await carry_out(request, until)

    async def whole() -> None:
        handle = await mutex_of(service, lease=3.0).acquire(None)
        assert handle is not None
        answer_by(backend, Renew, unknown_once)
        await Sleep(machine.now() + 1.2)
        assert len(tried) == 2
        # After a pause, but long before the next renewal would be due.
        assert 0.0005 < tried[1] - tried[0] < 0.1
        assert handle.remaining() > 2.7
        await handle.release()

    fixture.do(machine, whole())


def test_renewals_that_stay_unknown_are_repeated_after_growing_pauses() -> None:
    """Such as on Redlock, while as many masters confirm as deny, and one does not answer."""
    fixture = Fixture()
    machine, service = fixture.client()
    backend: Any = service.contexts[None].registry.backend
    tried: list[float] = []

    async def unknown(request: Renew, until: float) -> object:
        tried.append(machine.now())
        return [None for _ in request.claims]

    async def whole() -> None:
        handle = await mutex_of(service, lease=30.0).acquire(None)
        answer_by(backend, Renew, unknown)
        await Sleep(handle.hold.valid_until)
        assert handle.lost()

    fixture.do(machine, whole(), 35.0)
    # 20 s are left after the first renewal, and the longest pauses are of some seconds.
    assert 5 < len(tried) < 100


@pytest.mark.parametrize("events", [False, True])
@pytest.mark.parametrize("lease", [0.3, 3.0, 30.0])
def test_refused_renewals_are_few_until_the_end_of_the_lease(events: bool, lease: float) -> None:
    """Not one after another: neither shortly before the end, nor woken by the report of a failure,
    by another hold or by a pending release. The notice of the loss is on time all the same.
    """
    fixture = Fixture()
    machine, service = fixture.client()
    registry = service.contexts[None].registry
    backend: Any = registry.backend
    tries: list[float] = []
    lost: list[float] = []
    if events:
        service.listen(lambda event: None, rare=True)

    async def refused(request: Renew, until: float) -> object:
        tries.append(machine.now())
        await Sleep(machine.now() + 0.0005)
        raise NotApplied("connection refused")

    async def release(claim: Claim, *, tombstone: bool, until: float) -> bool:
        raise NotApplied("connection refused")

    async def whole() -> None:
        others = [await mutex_of(service, name, lease=lease).acquire(None) for name in "bcde"]
        handle = await mutex_of(service, lease=lease).acquire(None)
        handle.on_lost(lambda lease: lost.append(machine.now()), handle, lambda lost: lost)
        answer_by(backend, Renew, refused)
        backend.release = release
        registry.release_later(others.pop().hold)
        await Sleep(handle.hold.valid_until + 0.1)
        assert lost == [pytest.approx(handle.hold.valid_until, abs=0.001)]
        assert all(each.lost() for each in others)
        # One of the last tries is near the end: until then the store may be back.
        assert handle.hold.valid_until - tries[-1] < 0.05

    fixture.do(machine, whole(), lease + 1.0)
    assert 5 < len(tries) < 70, [round(after - before, 4) for before, after in pairwise(tries)]
    assert min(after - before for before, after in pairwise(tries)) >= timing.RENEWAL_PAUSE


def test_a_silent_store_does_not_delay_the_report_of_a_loss() -> None:
    """Not even while the renewer waits for the answer to a release."""
    fixture = Fixture()
    machine = Machine(fixture.simulator, "one")
    backend: Any = Refusing(fixture.store)
    service = ClientCore(machine, lambda protocol: backend, label=None, op_timeout=1.0)
    registry = service.contexts[None].registry
    reported: list[float] = []

    async def silent(claim: Claim, *, tombstone: bool, until: float) -> bool:
        await Sleep(until)
        raise NotApplied("no answer")

    async def whole() -> None:
        handle = await mutex_of(service).acquire(None)
        other = await mutex_of(service, "b").acquire(None)
        handle.on_lost(lambda lease: reported.append(machine.now()), handle, lambda lost: lost)
        backend.release = silent
        began = machine.now()
        registry.release_later(other.hold)
        backend.lose(handle.hold.claim.id, "its session ended")
        await Sleep(began + 3.0)
        assert reported == [pytest.approx(began, abs=0.01)]

    fixture.do(machine, whole())


def test_a_renewal_that_finds_another_holder_loses_the_hold() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    _, operator = fixture.client("operator")

    async def whole() -> None:
        handle = await mutex_of(service, lease=3.0).acquire(None)
        assert handle is not None
        await operator.break_lock("a", None)
        assert not handle.lost()
        await Sleep(machine.now() + 1.2)
        assert handle.hold.reason == TAKEN
        with pytest.raises(LeaseLost, match="the lock was broken by force"):
            handle.ensure()

    fixture.do(machine, whole())
    assert [r for r in fixture.store.seen if isinstance(r, Renew)]


def test_a_refused_renewal_of_a_hold_that_is_being_released_changes_nothing() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    context = service.contexts[None]
    handle = fixture.do(machine, mutex_of(service).acquire(None))
    handle.hold.transition("release")
    fixture.do(machine, context.renewer._taken([handle.hold]))
    assert handle.hold.transition("done")
    assert handle.hold.reason == ""


def test_a_grant_is_valid_from_the_time_that_it_names() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    backend: Any = service.contexts[None].registry.backend
    acquire = backend.acquire

    async def earlier(claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        reply = await acquire(claim, wait=wait, until=until)
        assert isinstance(reply, Grant)
        return reply._replace(sent_at=machine.now() - 10.0)

    async def whole() -> None:
        handle = await mutex_of(service, lease=30.0).acquire(None)
        assert handle is not None
        assert 19.0 < handle.remaining() <= 20.0

    backend.acquire = earlier
    fixture.do(machine, whole())


def test_a_background_process_that_runs_is_not_started_again() -> None:
    background = Background()
    background.running = True

    def make() -> Operation[None]:
        raise AssertionError("it was made a second time")

    with pytest.raises(StopIteration):
        _ = background.start(make, "renewer").send(None)
    assert background.running


def test_a_background_process_that_began_before_an_interruption_runs() -> None:
    background, signal = Background(), Signal()

    async def wait() -> None:
        await Wait(signal, FOREVER)

    starting: Any = background.start(wait, "renewer")
    operation = starting.send(None).operation
    operation.send(None)
    with pytest.raises(KeyboardInterrupt):
        starting.throw(KeyboardInterrupt())
    assert background.running
    operation.close()
    assert not background.running


def test_the_end_of_a_body_raises_the_loss() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    mutex = mutex_of(service)

    async def whole() -> None:
        await mutex.enter()
        await service.break_lock("a", None)
        with pytest.raises(LeaseLost, match="no longer had this hold"):
            await mutex.leave(None)
        assert not mutex.owned()

    fixture.do(machine, whole())


class Interrupter:
    """Guards a body, and counts how often the guarding has ended."""

    finished = 0

    def interrupt(self) -> None:
        raise AssertionError("the lease was not lost")

    def finish(self, exception: BaseException | None) -> bool:
        self.finished += 1
        return False


def test_the_body_of_a_lease_that_was_released_in_it_is_not_guarded_any_more() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    interrupters: list[Interrupter] = []

    def interrupter() -> Interrupter:
        interrupters.append(Interrupter())
        return interrupters[-1]

    machine.body_interrupter = interrupter  # type: ignore[method-assign]

    async def whole() -> None:
        handle = await mutex_of(service).acquire(None)
        assert handle is not None
        # A body within the body has the same interrupter.
        assert await handle.begin_body(handle) is handle
        assert await handle.begin_body(handle) is handle
        assert len(interrupters) == 1
        await handle.release()
        await handle.end_body(None)
        await handle.end_body(None)
        assert interrupters[0].finished == 1
        assert handle.hold.interrupters == ()

    fixture.do(machine, whole())


def test_the_end_of_a_body_without_a_lease_is_refused_or_noted() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    mutex = mutex_of(service)

    async def whole() -> None:
        with pytest.raises(NotHeld, match="cannot leave 'a'"):
            await mutex.leave(None)
        error = ValueError("the body's own")
        await mutex.leave(error)
        assert "leaselock: cannot leave 'a'" in error.__notes__[0]

    fixture.do(machine, whole())


class Refused(AssertionError):
    """The renewer asks without a pause."""


def test_a_downgrade_that_is_refused_is_repeated_after_growing_pauses() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    write, read = fixture.do(machine, written_and_read(service))
    backend: Any = service.contexts[None].registry.backend
    answered, tried = backend.request, []

    async def refuse(request: Convert, until: float) -> object:
        tried.append(machine.now())
        if len(tried) > 1000:
            raise Refused
        raise NotApplied("the store refuses it at once")

    answer_by(backend, Convert, refuse)
    fixture.do(machine, write.release(), 10.0)
    pauses = [later - earlier for earlier, later in pairwise(tried)]
    # The first repetition follows the refusal at once.
    assert 10 < len(tried) < 100
    assert min(pauses[1:]) > 0.0005
    assert max(pauses) > 0.1
    assert modes_in_store(fixture) == ["exclusive"]
    backend.request = answered
    fixture.simulator.play(fixture.simulator.time + 2.0)
    assert modes_in_store(fixture) == ["shared"]
    read.ensure()


def test_a_slow_listener_delays_no_renewal() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    heard: list[Any] = []

    async def slow(event: Any) -> None:
        if event.kind == "renewed":
            heard.append(event)
            await Sleep(machine.now() + 1.2)

    async def whole() -> None:
        handle = acquired(await mutex_of(service, lease=1.0).acquire(None))
        await Sleep(machine.now() + 10.0)
        handle.ensure()
        await handle.release()

    service.listen(slow)
    fixture.do(machine, whole(), 20.0)
    # All renewals are reported, in their order, with what was left of the lease before each.
    renewals = [request for request in fixture.store.seen if isinstance(request, Renew)]
    assert len(renewals) > len(heard) > 10
    assert all(0.5 < event.seconds < 0.8 for event in heard)
    assert [event.at for event in heard] == sorted(event.at for event in heard)


def test_a_listener_that_ends_its_process_ends_neither_renewals_nor_reports() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    heard: list[tuple[str, float]] = []

    async def ends(event: Any) -> None:
        if event.kind == "renewed":
            heard.append(("one", event.at))
            raise Interrupted

    async def hears(event: Any) -> None:
        if event.kind == "renewed":
            heard.append(("other", event.at))

    async def whole() -> None:
        handle = acquired(await mutex_of(service, lease=1.0).acquire(None))
        await Sleep(machine.now() + 3.0)
        handle.ensure()
        await handle.release()

    service.listen(ends)
    service.listen(hears)
    fixture.do(machine, whole())
    times = [at for _, at in heard[::2]]
    assert len(times) > 5
    assert heard == [(who, at) for at in times for who in ("one", "other")]


class Full(Simulator):
    """A simulator that can start no process while it is full. It keeps the reported errors."""

    full = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.reported: list[Exception] = []

    def _perform(self, run: Run, effect: Any) -> None:
        turn = run.turn
        if self.full and isinstance(effect, Spawn):
            effect.operation.close()
            error = RuntimeError("can't start new thread")
            self.after(0.0, lambda: self.step(run, turn, None, error))
        else:
            super()._perform(run, effect)

    def _call_user(self, run: Run, effect: CallUser, resume: Callable[..., None]) -> None:
        try:
            super()._call_user(run, effect, resume)
        except RuntimeError as error:
            self.reported.append(error)
            self.after(0.0, resume)


class FullFixture(Fixture):
    simulator_type: type[Simulator] = Full
    simulator: Full


def test_a_loss_names_its_cause() -> None:
    """Why the last renewal has failed, unless one has succeeded since."""
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        lease = acquired(await mutex_of(service, "a", lease=3.0).acquire(None))
        fixture.store.silent = (Renew,)
        await Sleep(machine.now() + 2.0)
        fixture.store.silent = ()
        await Sleep(machine.now() + 3.0)
        lease.ensure()
        assert lease.hold.failure == ""
        fixture.store.silent = (Renew,)
        await Sleep(machine.now() + 5.0)
        with pytest.raises(LeaseLost, match=r"renewal was confirmed \(.+\)\. Another"):
            lease.ensure()

    heard: list[Any] = []
    service.listen(heard.append)
    fixture.do(machine, whole(), 20.0)
    failed = [event.reason for event in heard if event.kind == "renewal_failed"]
    (lost,) = (event.reason for event in heard if event.kind == "lost")
    assert lost.endswith(f"({failed[-1]})")


def test_a_closing_client_calls_its_callbacks_itself() -> None:
    """At the end of the interpreter no other thread can be started, and that is no error."""
    fixture = FullFixture()
    machine, service = fixture.client()
    called: list[object] = []

    async def whole() -> None:
        lease = acquired(await mutex_of(service, "a").acquire(None))
        lease.on_lost(called.append, lease, lambda handle: handle)
        await Sleep(machine.now() + 1.0)
        fixture.simulator.full = True
        await service.close()
        await Sleep(machine.now() + 1.0)

    fixture.do(machine, whole(), 10.0)
    assert len(called) == 1
    assert fixture.simulator.reported == []


def test_the_renewer_survives_that_no_callback_can_be_started() -> None:
    fixture = FullFixture()
    machine, service = fixture.client()
    called: list[object] = []
    heard: list[Any] = []

    async def whole() -> None:
        kept = acquired(await mutex_of(service, "a", lease=1.0).acquire(None))
        ends = acquired(await mutex_of(service, "b", lease=0.5, renew=False).acquire(None))
        ends.on_lost(called.append, ends, lambda handle: handle)
        fixture.simulator.full = True
        await Sleep(machine.now() + 5.0)
        kept.ensure()
        assert ends.lost()
        assert called == []
        assert [str(error) for error in fixture.simulator.reported] == ["can't start new thread"]
        fixture.simulator.full = False
        await Sleep(machine.now() + 1.1)
        assert called == [ends]
        await kept.release()

    service.listen(heard.append)
    fixture.do(machine, whole(), 10.0)
    kinds = [event.kind for event in heard]
    assert kinds.count("lost") == 1
    assert kinds.count("renewed") > 10


def test_listeners_of_rare_events_hear_of_late_renewals_only() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    heard: list[Any] = []

    async def whole() -> None:
        handle = acquired(await mutex_of(service, lease=3.0).acquire(None))
        await Sleep(machine.now() + 2.5)
        assert heard == []
        fixture.store.silent = (Renew,)
        await Sleep(machine.now() + 2.0)
        fixture.store.silent = ()
        await Sleep(machine.now() + 1.0)
        await handle.release()

    service.listen(heard.append, rare=True)
    fixture.do(machine, whole(), 10.0)
    kinds = [event.kind for event in heard]
    assert kinds == ["renewal_failed"] * (len(heard) - 1) + ["renewed"]
    assert heard[-1].seconds < heard[-1].lease * LATE
