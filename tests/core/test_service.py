"""The processes of a client on a simulated store that refuses, is silent, or replies late."""

from __future__ import annotations

import pickle
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import pytest
from verification.models.sqlite_model import Model
from verification.simulation.simulator import EPOCH, Faults, Machine, Run, Simulator

from leaselock._backends.memory.store import MemoryRow, Table
from leaselock._backends.sqlite.store import CAPABILITIES
from leaselock._core.client.client_core import ClientCore, _kept
from leaselock._core.client.inspection import Holder, Waiter, waiter_of
from leaselock._core.contract.backend import (
    Acquire,
    BreakLock,
    Busy,
    Claim,
    Doctor,
    Grant,
    HoldRecord,
    Inspect,
    Listen,
    PoolExhausted,
    Release,
    Renew,
    SetLifetime,
    Walk,
)
from leaselock._core.contract.effects import Call, CallUser, Owner, Sleep, Spawn
from leaselock._core.rows.queue import NodeBackend
from leaselock.errors import (
    AcquireTimeout,
    ClientClosed,
    LeaseLost,
    NotApplied,
    NotHeld,
    OutcomeUnknown,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._core.client.mutex import Mutex


# Seconds by which some replies are delayed.
LATE = 0.3


class Store(Model):
    """A model that refuses, loses or delays the kinds of request that a test names."""

    def __init__(self, simulator: Simulator) -> None:
        super().__init__(lambda: simulator.time, lambda: int((EPOCH + simulator.time) * 1e6))
        self.after = simulator.after
        self.refused: tuple[type, ...] = ()
        self.silent: tuple[type, ...] = ()
        self.late: tuple[type, ...] = ()
        self.lost_replies = 0
        self.pool_exhausted = False
        self.seen: list[Any] = []

    def ask(self, machine: str, request: Any, reply: Callable[[object], None]) -> None:
        if not isinstance(request, Listen):
            self.seen.append(request)
        if isinstance(request, self.silent):
            return
        if self.lost_replies and not hasattr(request, "client"):
            self.lost_replies -= 1
            super().ask(machine, request, lambda answer: None)
        elif isinstance(request, self.late):
            super().ask(machine, request, lambda answer: self.after(LATE, lambda: reply(answer)))
        else:
            super().ask(machine, request, reply)


# What a machine can start.
Started = Coroutine[Any, Any, Any]


class Refusing(NodeBackend):
    """A backend whose store can become unreachable."""

    def __init__(self, store: Store) -> None:
        super().__init__(CAPABILITIES, "store", "listener")
        self.store = store

    def check(self, kind: type) -> None:
        if kind in self.store.refused:
            raise NotApplied("out of reach", "unreachable")
        if self.store.pool_exhausted and kind is Acquire:
            raise PoolExhausted("all connections were busy")

    async def acquire(self, claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        self.check(Acquire)
        return await super().acquire(claim, wait=wait, until=until)

    async def release(self, claim: Claim, *, tombstone: bool, until: float) -> bool:
        self.check(Release)
        return await super().release(claim, tombstone=tombstone, until=until)


def answer_by(backend: Any, kind: type, answer: Callable[..., Any]) -> None:
    """Let *answer* carry out the requests of one kind in place of *backend*."""
    carry_out = backend.request

    def request(request: Any, until: float) -> Any:
        return answer(request, until) if type(request) is kind else carry_out(request, until)

    backend.request = request


class Indexed(Refusing):
    """A backend whose store lists an index, which lacks a lock."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.capabilities = CAPABILITIES._replace(indexed=True)

    def request(self, request: Any, until: float) -> Any:
        if isinstance(request, Walk):
            return super().request(Inspect(None, request.pattern), until)
        if isinstance(request, Inspect) and request.name is None:
            return super().request(Inspect(None, "in the index"), until)
        return super().request(request, until)


class Fixture:
    """A simulator with some machines."""

    simulator_type: type[Simulator] = Simulator
    backend_type: type[Refusing] = Refusing

    def __init__(self) -> None:
        self.simulator = self.simulator_type(1, {}, Faults())
        self.store = Store(self.simulator)
        self.simulator.models = {"store": self.store, "listener": self.store}
        # Their results: a lease that nothing refers to is released.
        self.runs: list[Run] = []

    def client(self, name: str = "one") -> tuple[Machine, ClientCore]:
        machine = Machine(self.simulator, name)
        backend = self.backend_type(self.store)
        service = ClientCore(machine, lambda protocol: backend, label="test", op_timeout=1.0)
        return machine, service

    def begin(self, machine: Machine, operation: Started) -> Run:
        run = machine.start(operation)
        self.runs.append(run)
        self.simulator.play(self.simulator.time + 0.5)
        return run

    def do(self, machine: Machine, operation: Started, seconds: float = 5.0) -> Any:
        run = machine.start(operation)
        self.runs.append(run)
        self.simulator.play(self.simulator.time + seconds)
        assert run.ended
        if run.error is not None:
            raise run.error
        return run.result


def mutex_of(service: ClientCore, name: str = "a", **terms: Any) -> Mutex:
    words: dict[str, Any] = {
        "lease": 30.0,
        "renew": True,
        "timeout": None,
        "reentrant": True,
        "protocol": None,
        "label": None,
    }
    return service.mutex(name, **words | terms)


def test_a_request_with_a_lost_reply_is_repeated() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    fixture.store.lost_replies = 1
    handle = fixture.do(machine, mutex_of(service).acquire(None))
    assert handle.hold.uncertain
    claim = fixture.store.seen[0].claim
    assert [r.claim for r in fixture.store.seen if isinstance(r, Acquire)] == [claim, claim]


def test_a_silent_store_means_an_unknown_outcome_and_leaves_nothing() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    fixture.store.silent = (Acquire,)
    with pytest.raises(OutcomeUnknown):
        fixture.do(machine, mutex_of(service).acquire(None))
    assert isinstance(fixture.store.seen[-1], Release)
    assert fixture.store.seen[-1].tombstone
    assert not service.contexts[None].registry.pending()


def test_an_acquire_goes_on_after_a_freeze_that_its_reply_did_not_survive() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    fixture.store.lost_replies = 1
    run = machine.start(mutex_of(service).acquire(None))
    fixture.simulator.after(0.1, lambda: machine.freeze(10.0))
    fixture.simulator.play(fixture.simulator.time + 15.0)
    assert run.result is not None
    assert sum(isinstance(request, Acquire) for request in fixture.store.seen) == 2


def test_a_freeze_gives_a_silent_store_one_more_request_and_no_other() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    fixture.store.silent = (Acquire,)
    run = machine.start(mutex_of(service).acquire(None))
    fixture.simulator.after(0.1, lambda: machine.freeze(10.0))
    fixture.simulator.play(fixture.simulator.time + 15.0)
    assert isinstance(run.error, OutcomeUnknown)


def test_an_unreachable_store_means_not_applied_and_no_pending_release() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    fixture.store.refused = (Acquire,)
    with pytest.raises(NotApplied):
        fixture.do(machine, mutex_of(service).acquire(None))
    assert not service.contexts[None].registry.pending()
    assert fixture.store.seen == []


def test_a_client_waits_for_a_connection_until_its_timeout() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    fixture.store.pool_exhausted = True
    run = fixture.begin(machine, mutex_of(service).try_acquire(0.9))
    fixture.simulator.play(fixture.simulator.time + 0.2)
    fixture.store.pool_exhausted = False
    fixture.simulator.play(fixture.simulator.time + 0.2)
    assert run.ended
    assert run.result is not None
    fixture.store.pool_exhausted = True
    with pytest.raises(NotApplied, match="all connections were busy"):
        fixture.do(machine, mutex_of(service, "b").try_acquire(0.9))
    assert not service.contexts[None].registry.pending()


def test_a_waiter_tolerates_busy_connections_for_one_lease() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    fixture.store.pool_exhausted = True
    run = fixture.begin(machine, mutex_of(service).acquire(None))
    fixture.simulator.play(fixture.simulator.time + 2 * service.contexts[None].registry.op_timeout)
    assert not run.ended
    fixture.store.pool_exhausted = False
    fixture.simulator.play(fixture.simulator.time + 2.0)
    assert run.result is not None


def test_a_refusal_does_not_resolve_an_earlier_request_without_a_reply() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    fixture.store.lost_replies = 1
    run = fixture.begin(machine, mutex_of(service).acquire(None))
    fixture.store.refused = (Acquire, Release)
    fixture.simulator.play(fixture.simulator.time + 2.0)
    assert isinstance(run.error, OutcomeUnknown)
    assert service.contexts[None].registry.pending()
    fixture.store.refused = ()
    fixture.simulator.play(fixture.simulator.time + 3.0)
    assert not fixture.store.table.entries["a"].holds


def test_a_release_refused_after_a_lost_reply_loses_the_lease_and_is_repeated() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    mutex = mutex_of(service)

    async def whole() -> None:
        await mutex.acquire(None)
        fixture.store.silent = (Release,)
        await mutex.release()

    run = fixture.begin(machine, whole())
    fixture.store.refused = (Release,)
    fixture.simulator.play(fixture.simulator.time + 2.0)
    assert isinstance(run.error, LeaseLost)
    assert isinstance(run.error.__cause__, OutcomeUnknown)
    fixture.store.silent = fixture.store.refused = ()
    fixture.simulator.play(fixture.simulator.time + 3.0)
    assert not fixture.store.table.entries["a"].holds


def test_a_refused_release_is_repeated_later() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    mutex = mutex_of(service)

    async def whole() -> None:
        await mutex.acquire(None)
        fixture.store.refused = (Release,)
        await mutex.release()

    with pytest.raises(LeaseLost) as raised:
        fixture.do(machine, whole())
    assert isinstance(raised.value.__cause__, NotApplied)
    fixture.store.refused = ()
    fixture.simulator.play(fixture.simulator.time + 3.0)
    assert not fixture.store.table.entries["a"].holds


def test_a_grant_that_is_always_late_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    monkeypatch.setattr(Simulator, "delay", lambda simulator, faults: 0.1)
    with pytest.raises(OutcomeUnknown, match="take longer than the lease"):
        fixture.do(machine, mutex_of(service, lease=0.05).acquire(None), 60.0)
    fixture.simulator.play(fixture.simulator.time + 10.0)
    assert not fixture.store.table.entries["a"].holds


def test_a_waiter_that_cannot_release_its_claim_releases_it_later() -> None:
    fixture = Fixture()
    one, first = fixture.client("one")
    two, second = fixture.client("two")
    fixture.do(one, mutex_of(first).acquire(None))
    run = fixture.begin(two, mutex_of(second).try_acquire(1.0))
    fixture.store.silent = (Release,)
    fixture.simulator.play(fixture.simulator.time + 3.0)
    assert run.ended
    assert run.result is None
    fixture.store.silent = ()
    fixture.simulator.play(fixture.simulator.time + 3.0)
    assert not fixture.store.table.entries["a"].queue


def test_a_try_on_a_busy_lock_sends_one_request_and_leaves_nothing() -> None:
    fixture = Fixture()
    one, first = fixture.client("one")
    two, second = fixture.client("two")
    fixture.do(one, mutex_of(first).acquire(None))
    before = len(fixture.store.seen)
    assert fixture.do(two, mutex_of(second).try_acquire(), 1.0) is None
    assert [type(request) for request in fixture.store.seen[before:]] == [Acquire]


def test_an_uncertain_try_is_released_with_a_tombstone() -> None:
    fixture = Fixture()
    one, first = fixture.client("one")
    two, second = fixture.client("two")
    fixture.do(one, mutex_of(first).acquire(None))
    fixture.store.lost_replies = 1
    assert fixture.do(two, mutex_of(second).try_acquire(), 3.0) is None
    assert any(isinstance(r, Release) and r.tombstone for r in fixture.store.seen)


def test_a_nested_acquire_never_suspends() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    mutex = mutex_of(service, lease=5.0)
    longer = mutex_of(service, lease=60.0)

    async def whole() -> None:
        outer = await mutex.acquire(None)
        assert outer is not None
        operation = longer.acquire(None)
        with pytest.raises(StopIteration) as done:
            _ = operation.send(None)
        inner = done.value.value
        assert inner.hold is outer.hold
        assert outer.hold.claim.lease == 60.0
        with pytest.raises(NotHeld, match="nested"):
            await inner.detach()
        await inner.release()
        await mutex.release()
        with pytest.raises(NotHeld, match="already"):
            outer.ensure()
        assert outer.remaining() == 0.0
        assert not outer.lost()
        with pytest.raises(NotHeld, match="does not hold"):
            await mutex.release()

    fixture.do(machine, whole())


def test_a_release_without_a_reply_is_repeated_then_left_to_the_renewer() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    mutex = mutex_of(service)

    async def lose_one_reply() -> None:
        await mutex.acquire(None)
        fixture.store.lost_replies = 1
        await mutex.release()

    fixture.do(machine, lose_one_reply())

    async def silence() -> None:
        await mutex.acquire(None)
        fixture.store.silent = (Release,)
        await mutex.release()

    with pytest.raises(LeaseLost) as raised:
        fixture.do(machine, silence())
    assert isinstance(raised.value.__cause__, OutcomeUnknown)
    assert service.contexts[None].registry.pending()
    fixture.store.silent = ()
    fixture.simulator.play(fixture.simulator.time + 3.0)
    assert not fixture.store.table.entries["a"].holds


def broken_by(fixture: Fixture, then: Callable[[Any], Coroutine[Any, Any, object]]) -> None:
    machine, service = fixture.client("victim")
    _, operator = fixture.client("operator")
    mutex = mutex_of(service)

    async def whole() -> None:
        handle = await mutex.acquire(None)
        assert handle is not None
        await operator.break_lock("a", handle.hold.token)
        await then(handle)

    with pytest.raises(LeaseLost, match=r"broken|no longer"):
        fixture.do(machine, whole())


def test_each_operation_on_a_broken_lock_reports_the_loss() -> None:
    broken_by(Fixture(), lambda handle: handle.extend(40.0))
    broken_by(Fixture(), lambda handle: handle.detach())
    broken_by(Fixture(), lambda handle: handle.make_inheritable())
    broken_by(Fixture(), lambda handle: handle.release())


def test_an_inheritable_lease_needs_a_store_that_notices_deaths() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    service.contexts[None].registry.backend.capabilities = CAPABILITIES._replace(inheritable=False)

    async def whole() -> None:
        handle = await mutex_of(service).acquire(None)
        assert handle is not None
        assert await handle.make_inheritable() == ()

    fixture.do(machine, whole())


def test_a_closing_client_releases_until_its_timeout() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        handle = await mutex_of(service).acquire(None)
        fixture.store.silent = (Release,)
        await service.close()
        assert handle is not None
        with pytest.raises(LeaseLost, match="closed"):
            await handle.release()

    fixture.do(machine, whole())
    assert service.contexts[None].registry.pending()


def test_a_body_that_was_interrupted_by_the_loss_ends_with_the_loss() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    mutex = mutex_of(service, lease=1.0, renew=False)

    class Interrupter:
        interrupted = False

        def interrupt(self) -> None:
            self.interrupted = True

        def finish(self, exception: BaseException | None) -> bool:
            return self.interrupted

    interrupters = [Interrupter(), Interrupter()]
    machine.body_interrupter = lambda: interrupters[0]  # type: ignore[method-assign]

    async def whole() -> None:
        await mutex.enter()
        await Sleep(machine.now() + 2.0)
        assert interrupters[0].interrupted
        body = RuntimeError("the cancellation")
        with pytest.raises(LeaseLost) as lost:
            await mutex.leave(body)
        assert lost.value.__cause__ is body
        interrupters.reverse()
        handle = await mutex.enter()
        handle.hold.interrupters = ()
        error = ValueError("the body's own")
        await service.break_lock("a", None)
        await mutex.leave(error)
        assert "leaselock:" in error.__notes__[0]

    fixture.do(machine, whole())


def test_the_table_refuses_unknown_requests() -> None:
    table = Table(lambda: 1.0, lambda: 1, lambda client: True, lambda *_: None, lambda *_: None)
    claim = Claim("a", "c:1", "c", 30.0, "{}", 0.0)
    assert isinstance(table.answer("c", Acquire(claim, False)), Grant)
    assert table.answer("c", SetLifetime(claim._replace(id="c:2"), "client")) == (False, ())
    assert table.answer("c", Renew([claim])) == (True,)
    assert table.answer("c", Inspect("a", "*"))[0].name == "a"  # type: ignore[index]
    assert table.answer("c", BreakLock("a", None)).done  # type: ignore[attr-defined]

    class Odd:
        pass

    odd = Odd()
    odd.claim = claim  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="not a request"):
        table.answer("c", odd)


def test_any_metadata_of_others_is_shown() -> None:
    claim = Claim("a", "c:1", "c", 30.0, "nonsense", 5.0)
    assert waiter_of(claim).host == "unknown host"
    assert str(Holder("h", 1, "t", 0.0, "why", None, None)) == "h, process 1, t (why)"
    assert str(Waiter("h", 1, "t", 0.0, None)) == "h, process 1, t"


def test_the_error_of_a_timeout_has_the_holder_and_the_number_of_waiters() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    other, its = fixture.client("two")
    fixture.do(other, mutex_of(its).acquire(None))
    held = next(iter(fixture.store.table.entries["a"].holds.values()), None)
    assert held is not None
    with pytest.raises(AcquireTimeout) as caught:
        fixture.do(machine, mutex_of(service, timeout=2.5).enter())
    error = caught.value
    assert error.holder is not None
    assert (error.name, error.timeout, error.holder.token) == ("a", 2.5, held.token)
    assert error.waiting == 1
    assert str(error) == (
        f"could not acquire 'a' within 2.5 s: held by {error.holder} for {error.detail[-5:]}"
    )
    assert str(AcquireTimeout("a", None)) == "could not acquire 'a'"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.holder) == (str(error), error.holder)


def test_the_error_of_a_timeout_without_a_known_holder() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    backend: Any = service.contexts[None].registry.backend

    async def busy(claim: Claim, *, wait: bool, until: float) -> Busy:
        return Busy(None, 1.0, ())

    backend.acquire = busy
    with pytest.raises(AcquireTimeout, match=r"could not acquire 'a' within 0 s$"):
        fixture.do(machine, mutex_of(service, timeout=0.0).enter())


def test_the_simulated_driver_calls_callbacks_and_refuses_what_is_no_effect() -> None:
    fixture = Fixture()
    machine, _ = fixture.client()
    called: list[object] = []

    async def whole() -> None:
        await CallUser(called.append, "x")
        await Call("store", Inspect("a", "*"), machine.now() + 1.0)

    fixture.do(machine, whole())
    assert called == ["x"]
    with pytest.raises(TypeError, match="not an effect"):
        fixture.do(machine, strange())


async def strange() -> None:
    class Strange:
        def __await__(self) -> Any:
            yield "nonsense"

    await Strange()


def test_an_inspection_is_repeated_until_its_reply() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    fixture.store.lost_replies = 1
    assert fixture.do(machine, mutex_of(service).holder()) is None
    assert [type(request) for request in fixture.store.seen] == [Inspect, Inspect]
    fixture.store.silent = (Inspect,)
    with pytest.raises(OutcomeUnknown):
        fixture.do(machine, mutex_of(service).holder())


def test_a_walk_lists_what_is_in_no_index() -> None:
    fixture = Fixture()
    fixture.backend_type = Indexed
    machine, service = fixture.client()
    handle = fixture.do(machine, mutex_of(service).acquire(None))
    assert service.indexed
    assert fixture.do(machine, service.locks("*", walk=False)) == []
    (info,) = fixture.do(machine, service.locks("*", walk=True))
    assert info.name == "a"
    fixture.do(machine, handle.release())


def test_a_store_without_an_index_lists_all_locks() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    fixture.do(machine, mutex_of(service).acquire(None))
    assert not service.indexed
    for walk in (False, True):
        assert len(fixture.do(machine, service.locks("*", walk))) == 1
    assert [type(request) for request in fixture.store.seen].count(Inspect) == 2


def test_a_waiter_tolerates_an_unreachable_store() -> None:
    fixture = Fixture()
    one, first = fixture.client("one")
    two, second = fixture.client("two")
    handle = fixture.do(one, mutex_of(first).acquire(None))
    waiting = fixture.begin(two, mutex_of(second).acquire(None))
    fixture.store.refused = (Acquire,)
    fixture.simulator.play(fixture.simulator.time + 20.0)
    assert not waiting.ended
    fixture.store.refused = ()
    fixture.do(one, handle.release())
    assert waiting.result is not None


def test_a_waiter_tolerates_an_unreachable_store_for_one_lease_only() -> None:
    fixture = Fixture()
    one, first = fixture.client("one")
    two, second = fixture.client("two")
    fixture.do(one, mutex_of(first).acquire(None))
    waiting = fixture.begin(two, mutex_of(second, lease=10.0).acquire(None))
    fixture.store.refused = (Acquire,)
    fixture.simulator.play(fixture.simulator.time + 25.0)
    assert isinstance(waiting.error, OutcomeUnknown)


def test_a_client_can_be_closed_while_its_waiter_tolerates_an_outage() -> None:
    fixture = Fixture()
    one, first = fixture.client("one")
    two, second = fixture.client("two")
    fixture.do(one, mutex_of(first).acquire(None))
    waiting = fixture.begin(two, mutex_of(second).acquire(None))
    fixture.store.refused = (Acquire,)
    fixture.simulator.play(fixture.simulator.time + 8.0)
    fixture.do(two, second.close())
    assert isinstance(waiting.error, ClientClosed)


def test_an_unreachable_store_is_a_finding() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    fixture.store.silent = (Doctor,)
    (finding,) = fixture.do(machine, service.doctor())
    assert finding.level == "fail"


def test_closing_repeats_a_failed_release() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    handle = fixture.do(machine, mutex_of(service).acquire(None))
    fixture.store.refused = (Release,)
    fixture.begin(machine, service.close())
    fixture.store.refused = ()
    fixture.simulator.play(fixture.simulator.time + 3.0)
    assert handle.lost()
    assert not fixture.store.table.entries["a"].holds


def test_a_dropped_nested_body_keeps_the_lock_of_the_outer_one() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    mutex = mutex_of(service)

    async def whole() -> int:
        outer = await mutex.enter()
        inner = await mutex.enter()
        await mutex.leave(GeneratorExit())
        assert inner.released
        outer.ensure()
        return outer.hold.depth

    assert fixture.do(machine, whole()) == 1


def test_a_body_whose_lease_was_released_in_it_leaves_nothing() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    mutex = mutex_of(service)

    async def whole() -> None:
        outer = await mutex.enter("outer")
        await outer.release()
        with pytest.raises(NotHeld, match="cannot leave"):
            await mutex.leave(None, "outer")
        assert not mutex.kept

    fixture.do(machine, whole())


def test_a_client_that_does_not_wait_has_no_predecessor() -> None:
    table = Table(lambda: 1.0, lambda: 1, lambda client: True, lambda *_: None, lambda *_: None)
    assert list(MemoryRow(table, "one", "a").ahead("other")) == []


def test_a_client_that_is_closed_while_its_renewer_starts_sends_nothing() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    acquiring = mutex_of(service).acquire(None)
    machine.current = Owner("user")
    spawn: Any = acquiring.send(None)  # the renewer is being started
    assert isinstance(spawn, Spawn)
    assert fixture.begin(machine, service.close()).ended
    with pytest.raises(ClientClosed):
        _ = acquiring.send(None)
    assert not fixture.store.seen
    spawn.operation.close()
    fixture.simulator.play(fixture.simulator.time + 0.1)
    assert not [request for request in fixture.store.seen if isinstance(request, Acquire)]


def service_of_two(fixture: Fixture) -> tuple[Machine, ClientCore]:
    """Two protocols on one store, whose locks are visible to each other."""
    machine = Machine(fixture.simulator, "one")
    return machine, ClientCore(
        machine, lambda protocol: Refusing(fixture.store), label=None, op_timeout=1.0
    )


def test_a_lock_of_another_protocol_does_not_nest() -> None:
    """If the protocols did not see each other, both would grant the lock."""
    fixture = Fixture()
    machine, service = service_of_two(fixture)
    ways = [mutex_of(service, protocol=protocol) for protocol in ("lease", "row")]

    async def whole() -> None:
        handle = await ways[0].acquire(None)
        assert handle is not None
        assert [way.owned() for way in ways] == [True, False]
        assert await ways[1].try_acquire() is None
        await handle.release()
        other = await ways[1].acquire(0.0)
        assert [way.owned() for way in ways] == [False, True]
        await other.release()

    fixture.do(machine, whole())


def test_two_concurrent_threads_share_one_context() -> None:
    """A second context would not be closed, and a forked child would not reset it."""
    fixture = Fixture()
    machine = Machine(fixture.simulator, "one")

    others: list[Any] = []

    def backend(protocol: str | None) -> Refusing:
        if protocol == "row" and not others:
            others.append(None)
            others[0] = service.context("row")  # another thread, during this call
        return Refusing(fixture.store)

    service = ClientCore(machine, backend, label=None, op_timeout=1.0)
    assert service.context("row") is others[0]
    assert service.context("row") is others[0]


def test_a_closed_client_acquires_no_lock_of_another_protocol() -> None:
    fixture = Fixture()
    machine, service = service_of_two(fixture)
    fixture.do(machine, service.close())
    with pytest.raises(ClientClosed):
        fixture.do(machine, mutex_of(service, protocol="row").acquire(None))
    assert fixture.store.seen == []


def test_an_extension_with_an_unknown_outcome_raises_outcome_unknown() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    backend: Any = service.contexts[None].registry.backend

    async def unknown(request: Renew, until: float) -> list[bool | None]:
        return [None for _ in request.claims]

    async def whole() -> None:
        handle = await mutex_of(service).acquire(None)
        assert handle is not None
        answer_by(backend, Renew, unknown)
        with pytest.raises(OutcomeUnknown, match="not known whether 'a' is still held"):
            await handle.extend(60.0)
        await handle.release()

    fixture.do(machine, whole())


def test_the_lock_of_a_stopped_holder_passes_on_when_its_lease_ends() -> None:
    """To one that was not the first waiter when that holder was granted the lock."""
    fixture = Fixture()
    one, first = fixture.client("one")
    two, second = fixture.client("two")
    three, third = fixture.client("three")
    held = fixture.do(one, mutex_of(first).acquire(None))
    holder = fixture.begin(two, mutex_of(second, lease=1.5).acquire(None))
    waiter = fixture.begin(three, mutex_of(third).acquire(None))
    fixture.begin(one, held.release())
    assert holder.ended
    two.freeze(600.0)
    fixture.simulator.play(fixture.simulator.time + 2.0)
    assert waiter.ended


# --- what is refused, and what is said ------------------------------------------------------------


def test_min_hold_needs_a_store_that_has_it() -> None:
    _, service = Fixture().client()
    registry = service.context(None).registry
    registry.backend.capabilities = registry.backend.capabilities._replace(min_hold=False)
    with pytest.raises(ValueError, match="min_hold= needs a store"):
        mutex_of(service, min_hold=1.0)


def test_a_holder_without_a_known_start_is_named() -> None:
    _, service = Fixture().client()
    java = '{"host": "java", "pid": 0, "thread": ""}'
    held = HoldRecord("other", "", "either", 0, 0.0, java, 0.0)
    error = mutex_of(service).timed_out(Busy(held, 1.0, (), holds=2), 2.0)
    assert "held by java" in str(error)
    assert error.detail == "held by java, and by 1 more"


def test_the_place_of_an_acquire_is_kept_where_it_is_recorded() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    machine.records_call_sites = lambda: True  # type: ignore[method-assign]
    machine.call_site = lambda: "the user's line"  # type: ignore[method-assign]
    handle = fixture.do(machine, mutex_of(service).acquire(None))
    assert handle.hold.call_site == "the user's line"


@pytest.mark.parametrize(
    ("descendants", "kept"),
    [((7, 0, 9), "processes that it has started: 7, 9"), ((0,), "processes of another user")],
)
def test_doctor_names_what_keeps_a_lock_whose_holder_has_ended(
    descendants: tuple[int, ...], kept: str
) -> None:
    holder = Holder("h", 1, "t", 0.0, None, None, None, descendants=descendants)
    assert _kept("a", holder) == (
        f"'a' was acquired by h, process 1, t, which has ended, and is kept by {kept}"
    )
