"""Conversions and several locks, on a store that refuses, is silent, or replies late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.core.test_service import LATE, Fixture, mutex_of
from verification.simulation.simulator import Interrupted

from leaselock._backends import stores_with
from leaselock._core.client import conversion
from leaselock._core.client.conversion_state import PendingConversion
from leaselock._core.client.hold import State
from leaselock._core.client.together import TogetherHandle
from leaselock._core.client.upgrade import upgrade
from leaselock._core.client.validation import lock_of_mode
from leaselock._core.contract.backend import BreakLock, Convert, Converted, Release, Renew
from leaselock._core.contract.effects import FOREVER, Call, Wait
from leaselock._core.rows.queue import QueueBackend
from leaselock.errors import (
    ClientClosed,
    InvalidName,
    LeaseLost,
    LimitMismatch,
    NotHeld,
    OutcomeUnknown,
    WouldDeadlock,
)

if TYPE_CHECKING:
    from verification.simulation.simulator import Run

    from leaselock._core.client.client_core import ClientCore
    from leaselock._core.client.lease_handle import LeaseHandle
    from leaselock._core.client.mutex import Mutex
    from leaselock._core.contract.backend import Mode

OPTIONS = {"lease": 3.0, "renew": True, "protocol": None, "label": None}


def side(service: ClientCore, mode: Mode, name: str = "a", **options: Any) -> Mutex:
    terms = OPTIONS | {"reentrant": True, "timeout": None} | options
    return service.rwlock(name, **terms)[mode]


def modes_in_store(fixture: Fixture) -> list[str]:
    return [hold.mode for hold in fixture.store.table.entries["a"].holds.values()]


def acquired(handle: LeaseHandle | None) -> LeaseHandle:
    assert handle is not None
    return handle


async def written_and_read(service: ClientCore) -> tuple[LeaseHandle, LeaseHandle]:
    write = acquired(await side(service, "exclusive").acquire(None))
    return write, acquired(await side(service, "shared").acquire(None))


def test_a_downgrade_that_is_not_answered_is_repeated_by_the_renewer() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    write, read = fixture.do(machine, written_and_read(service))
    fixture.store.silent = (Convert,)
    fixture.do(machine, write.release())
    assert read.hold.claim.mode == "shared"
    assert read.hold.pending_conversion
    assert modes_in_store(fixture) == ["exclusive"]
    fixture.simulator.play(fixture.simulator.time + 2.0)
    fixture.store.silent = ()
    fixture.simulator.play(fixture.simulator.time + 3.0)
    assert modes_in_store(fixture) == ["shared"]
    assert not read.hold.pending_conversion
    assert not read.lost()


def test_conversions_that_are_not_answered_do_not_hold_up_renewals() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def written_and_read_all() -> list[LeaseHandle]:
        pairs = [
            (
                acquired(await side(service, "exclusive", name, lease=3.0).acquire(None)),
                acquired(await side(service, "shared", name, lease=3.0).acquire(None)),
            )
            for name in "abcdef"
        ]
        fixture.store.silent = (Convert,)
        for write, _ in pairs:
            write.drop()
        return [read for _, read in pairs]

    reads = fixture.do(machine, written_and_read_all())
    fixture.simulator.play(fixture.simulator.time + 12.0)
    assert [read.lost() for read in reads] == [False] * 6


async def upgraded_after_an_unanswered_downgrade(
    fixture: Fixture, service: ClientCore
) -> LeaseHandle:
    update = acquired(await side(service, "update").acquire(None))
    write = acquired(await side(service, "exclusive").acquire(None))
    fixture.store.silent = (Convert,)
    await write.release()
    assert update.hold.pending_conversion
    assert await upgrade(service.context(None).registry, update.hold, FOREVER, None)
    return update


def test_an_upgrade_takes_the_place_of_a_downgrade_that_is_in_doubt() -> None:
    """The renewer must not repeat the downgrade under the number of the upgrade."""
    fixture = Fixture()
    machine, service = fixture.client()
    upgrading = fixture.begin(machine, upgraded_after_an_unanswered_downgrade(fixture, service))
    fixture.simulator.play(fixture.simulator.time + 0.7)
    (hold,) = service.context(None).registry.held()
    assert not hold.pending_conversion, "the renewer has nothing to repeat"
    fixture.store.silent = ()
    fixture.simulator.play(fixture.simulator.time + 3.0)
    assert upgrading.ended
    assert upgrading.result.hold.claim.mode == "exclusive"
    assert modes_in_store(fixture) == ["exclusive"]


def test_a_downgrade_is_one_request_and_leaves_nothing_behind() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    write, read = fixture.do(machine, written_and_read(service))
    fixture.do(machine, write.release())
    assert modes_in_store(fixture) == ["shared"]
    fixture.do(machine, read.release())
    assert [type(request) for request in fixture.store.seen].count(Convert) == 1
    backend = service.context(None).registry.backend
    assert isinstance(backend, QueueBackend)
    assert not backend.signals


def two_upgrades(fixture: Fixture, timeout: float) -> tuple[LeaseHandle, LeaseHandle, Run, Run]:
    """A hold beside a reader, and two upgrades of it: the first one waits for *timeout* only."""
    machine, service = fixture.client()
    other, rival = fixture.client("two")
    update = acquired(fixture.do(machine, side(service, "update").acquire(None), 0.5))
    read = acquired(fixture.do(other, side(rival, "shared").acquire(None), 0.5))
    first = fixture.begin(machine, update.upgrade(timeout))
    second = fixture.begin(machine, update.upgrade(None))
    return update, read, first, second


def test_an_upgrade_goes_on_when_another_of_the_same_hold_gives_up() -> None:
    fixture = Fixture()
    update, read, first, second = two_upgrades(fixture, 1.0)
    fixture.simulator.play(fixture.simulator.time + 1.5)
    assert first.result is False
    assert not second.ended
    assert "upgrading" in modes_in_store(fixture)
    fixture.store.table.answer("", Release(read.hold.claim, False))
    fixture.simulator.play(fixture.simulator.time + 2.5)
    assert second.result is True
    assert modes_in_store(fixture) == ["exclusive"]
    assert update.hold.claim.mode == "exclusive"


def test_an_upgrade_that_is_interrupted_leaves_the_other_one_exclusive() -> None:
    fixture = Fixture()
    update, read, first, second = two_upgrades(fixture, 60.0)
    fixture.simulator.play(fixture.simulator.time + 0.5)
    fixture.simulator.interrupt(first)
    fixture.simulator.play(fixture.simulator.time + 0.5)
    fixture.store.table.answer("", Release(read.hold.claim, False))
    fixture.simulator.play(fixture.simulator.time + 2.5)
    assert isinstance(first.error, Interrupted)
    assert second.result is True
    assert modes_in_store(fixture) == ["exclusive"]
    assert update.hold.claim.mode == "exclusive"


def test_several_upgrades_of_a_hold_send_the_requests_of_one() -> None:
    fixture = Fixture()
    _update, read, *_ = two_upgrades(fixture, 60.0)
    fixture.simulator.play(fixture.simulator.time + 0.5)
    assert [type(request) for request in fixture.store.seen].count(Convert) == 1
    fixture.store.table.answer("", Release(read.hold.claim, False))


def test_a_try_to_upgrade_beside_one_that_waits_has_the_store_asked_again() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    other, rival = fixture.client("two")
    update = acquired(fixture.do(machine, side(service, "update").acquire(None), 0.5))
    read = acquired(fixture.do(other, side(rival, "shared").acquire(None), 0.5))
    fixture.store.late = (Convert,)
    waiting = fixture.begin(machine, update.upgrade(None))
    # Its request is on its way: the reply to it may be of a moment before the call.
    assert fixture.do(machine, update.upgrade(0.0), 1.0) is False
    assert not waiting.ended
    # The waiting one does not learn of the release by itself.
    fixture.store.table.answer("", Release(read.hold.claim, False))
    assert fixture.do(machine, update.upgrade(0.0), 1.0) is True
    assert waiting.result is True


def test_a_try_to_upgrade_beside_one_that_the_store_does_not_answer_ends() -> None:
    fixture = Fixture()
    update, read, first, second = two_upgrades(fixture, 60.0)
    machine = first.machine
    fixture.store.silent = (Convert,)
    assert fixture.do(machine, update.upgrade(0.0), 1.5) is False
    # The one that asked has failed by now, and the other one asks.
    assert isinstance(first.error, OutcomeUnknown)
    assert not second.ended
    fixture.store.silent = ()
    fixture.store.table.answer("", Release(read.hold.claim, False))
    fixture.simulator.play(fixture.simulator.time + 5.0)
    assert second.result is True


def test_the_release_of_a_hold_ends_its_upgrades() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    other, rival = fixture.client("two")
    update = acquired(fixture.do(machine, side(service, "update").acquire(None), 0.5))
    acquired(fixture.do(other, side(rival, "shared").acquire(None), 0.5))
    runs = [fixture.begin(machine, each) for each in (update.upgrade(None), update.upgrade(None))]
    fixture.do(machine, update.release(), 0.5)
    assert [type(run.error) for run in runs] == [NotHeld, NotHeld]
    assert modes_in_store(fixture) == ["shared"]


def test_an_upgrade_ends_when_its_update_lease_is_released_meanwhile() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    other, rival = fixture.client("two")
    fixture.do(other, side(rival, "shared").acquire(None), 0.5)

    async def nested() -> tuple[LeaseHandle, LeaseHandle]:
        update = acquired(await side(service, "update").acquire(None))
        return update, acquired(await side(service, "shared").acquire(None))

    update, read = fixture.do(machine, nested(), 0.5)
    upgrade = fixture.begin(machine, update.upgrade(None))
    fixture.simulator.play(fixture.simulator.time + 0.5)
    fixture.do(machine, update.release())
    fixture.simulator.play(fixture.simulator.time + 2.5)
    assert isinstance(upgrade.error, NotHeld)
    assert modes_in_store(fixture) == ["shared", "shared"]
    assert not read.lost()


@pytest.mark.parametrize("reads", [True, False], ids=["a read is left", "nothing is left"])
def test_a_write_inside_an_update_lease_ends_when_that_is_released_meanwhile(reads: bool) -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    other, rival = fixture.client("two")
    fixture.do(other, side(rival, "shared").acquire(None), 0.5)
    leases: list[LeaseHandle] = []

    async def nested() -> None:
        leases.append(acquired(await side(service, "update").acquire(None)))
        if reads:
            leases.append(acquired(await side(service, "shared").acquire(None)))
        await side(service, "exclusive").acquire(None)

    write = fixture.begin(machine, nested())
    fixture.simulator.play(fixture.simulator.time + 0.5)
    fixture.do(machine, leases[0].release())
    fixture.simulator.play(fixture.simulator.time + 2.5)
    assert isinstance(write.error, WouldDeadlock if reads else NotHeld)
    assert modes_in_store(fixture) == ["shared"] * len(leases)


def test_an_upgrade_ends_when_its_update_lease_is_released_before_the_reply() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def nested() -> tuple[LeaseHandle, LeaseHandle]:
        update = acquired(await side(service, "update").acquire(None))
        return update, acquired(await side(service, "shared").acquire(None))

    update, read = fixture.do(machine, nested(), 0.5)
    fixture.store.late = (Convert,)
    upgrade = machine.start(update.upgrade(None))
    fixture.simulator.play(fixture.simulator.time + LATE / 3)
    release = machine.start(update.release())
    fixture.simulator.play(fixture.simulator.time + 4.0)
    assert isinstance(upgrade.error, NotHeld)
    assert release.ended
    assert modes_in_store(fixture) == ["shared"]
    assert not read.lost()


def test_no_upgrade_is_left_if_one_was_released_and_the_other_interrupted() -> None:
    """The first one asks; the reply arrives when its lease is released and the second one ends."""
    fixture = Fixture()
    machine, service = fixture.client()

    async def nested() -> tuple[LeaseHandle, LeaseHandle]:
        outer = acquired(await side(service, "update").acquire(None))
        return outer, acquired(await side(service, "update").acquire(None))

    outer, inner = fixture.do(machine, nested(), 0.5)
    fixture.store.late = (Convert,)

    first = machine.start(outer.upgrade(None))
    fixture.simulator.play(fixture.simulator.time + LATE / 3)
    # Driven by hand: an asyncio task may be cancelled when it is awake and has not run yet.
    second = inner.upgrade(None)
    assert isinstance(second.send(None), Wait)
    release = machine.start(outer.release())
    fixture.simulator.play(fixture.simulator.time + 5.0)
    assert isinstance(first.error, NotHeld)
    assert release.ended
    with pytest.raises(Interrupted):
        second.throw(Interrupted())
    fixture.simulator.play(fixture.simulator.time + 5.0)
    assert modes_in_store(fixture) == ["update"]
    assert inner.hold.claim.mode == "update"


def test_an_upgrade_during_a_downgrade_is_what_counts() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def nested() -> tuple[LeaseHandle, LeaseHandle]:
        update = acquired(await side(service, "update").acquire(None))
        return update, acquired(await side(service, "exclusive").acquire(None))

    update, write = fixture.do(machine, nested(), 0.5)
    fixture.store.late = (Convert,)
    release = machine.start(write.release())
    fixture.simulator.play(fixture.simulator.time + LATE / 3)
    upgrade = machine.start(update.upgrade(None))
    fixture.simulator.play(fixture.simulator.time + 4.0)
    assert release.ended
    assert upgrade.result is True
    assert modes_in_store(fixture) == ["exclusive"]
    assert update.hold.claim.mode == "exclusive"


def test_a_lost_hold_is_not_converted_for_ever() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    write, read = fixture.do(machine, written_and_read(service))
    fixture.store.silent = (Convert, Renew)
    fixture.do(machine, write.release(), 1.5)
    fixture.store.table.answer("", BreakLock("a", None))
    fixture.store.silent = ()
    fixture.simulator.play(fixture.simulator.time + 5.0)
    assert read.hold.state is State.LOST


def test_a_conversion_during_one_that_is_repeated_is_repeated_in_turn() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    update = fixture.do(machine, side(service, "update").acquire(None))
    fixture.store.silent = (Convert,)
    with pytest.raises(OutcomeUnknown):
        fixture.do(machine, update.upgrade(None), 4.0)
    assert update.hold.pending_conversion
    update.hold.conversions += 1
    fixture.store.silent = ()
    fixture.simulator.play(fixture.simulator.time + 3.0)
    assert modes_in_store(fixture) == ["update"]


def test_an_upgrade_that_is_not_answered_leaves_an_update() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    update = fixture.do(machine, side(service, "update").acquire(None))
    fixture.store.lost_replies = 100
    with pytest.raises(OutcomeUnknown):
        fixture.do(machine, update.upgrade(None), 2.5)
    fixture.store.lost_replies = 0
    fixture.simulator.play(fixture.simulator.time + 3.0)
    assert modes_in_store(fixture) == ["update"]
    assert update.hold.claim.mode == "update"


def test_an_upgrade_of_a_broken_hold_reports_the_loss() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    update = fixture.do(machine, side(service, "update").acquire(None))
    fixture.store.table.answer("", BreakLock("a", None))
    with pytest.raises(LeaseLost, match="broken by force"):
        fixture.do(machine, update.upgrade(None))


def test_an_upgrade_that_outlasts_its_fixed_lease_reports_the_loss() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    other, rival = fixture.client("two")
    update = fixture.do(machine, side(service, "update", renew=False).acquire(None), 0.5)
    fixture.do(other, side(rival, "shared").acquire(None), 0.5)
    with pytest.raises(LeaseLost):
        fixture.do(machine, update.upgrade(None))
    fixture.simulator.play(fixture.simulator.time + 3.0)
    short = side(service, "update", renew=False, lease=0.6)
    update = fixture.do(machine, short.acquire(None), 0.2)
    fixture.store.silent = (Convert,)
    with pytest.raises(LeaseLost) as lost:
        fixture.do(machine, update.upgrade(None))
    assert isinstance(lost.value.__cause__, OutcomeUnknown)


def test_closing_ends_an_upgrade_that_waits() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    other, rival = fixture.client("two")
    update = fixture.do(machine, side(service, "update").acquire(None))
    fixture.do(other, side(rival, "shared").acquire(None), 0.5)
    upgrade = fixture.begin(machine, update.upgrade(None))
    fixture.do(machine, service.close())
    assert isinstance(upgrade.error, ClientClosed | LeaseLost)


def test_a_reader_that_writes_is_refused_before_any_request() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    stronger: tuple[Mode, ...] = ("exclusive", "update")

    async def whole() -> None:
        read = acquired(await side(service, "shared").acquire(None))
        for mode in stronger:
            with pytest.raises(WouldDeadlock):
                await side(service, mode).acquire(None)
        with pytest.raises(WouldDeadlock):
            await read.upgrade(1.0)
        assert side(service, "shared").owned()
        assert not side(service, "exclusive").owned()

    fixture.do(machine, whole())
    assert [request for request in fixture.store.seen if isinstance(request, Convert)] == []


def test_a_read_lease_inside_a_write_may_be_upgraded_without_a_request() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    _, read = fixture.do(machine, written_and_read(service))
    assert fixture.do(machine, read.upgrade(0.0))
    assert read.mode == "exclusive"
    assert not [request for request in fixture.store.seen if isinstance(request, Convert)]


def test_permits_are_owned_by_the_one_that_acquired_them() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        semaphore = service.semaphore("s", 2, timeout=None, **OPTIONS)
        assert not semaphore.owned()
        lease = acquired(await semaphore.acquire(None))
        assert semaphore.owned()
        await lease.release()
        assert not semaphore.owned()

    fixture.do(machine, whole())
    with pytest.raises(TypeError, match="permits"):
        service.semaphore("s", "2", timeout=None, **OPTIONS)
    with pytest.raises(ValueError, match="from 1"):
        service.semaphore("s", 0, timeout=None, **OPTIONS)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (LimitMismatch("s", 2, 0), "the semaphore 's' is new"),
        (LimitMismatch("s", 0, 2, 3), "'s' has 2 permits: 3 can never be acquired"),
        (LimitMismatch("s", 1, None), "in use as a lock, not as a semaphore of 1 permit"),
        (LimitMismatch("s", 0, None), "in use as a lock, not as a semaphore"),
        (LimitMismatch("s", None, 2), "in use as a semaphore of 2 permits, not as a lock"),
    ],
)
def test_a_mismatch_names_both(error: LimitMismatch, words: str) -> None:
    assert words in str(error)


def test_a_hold_that_was_converted_again_meanwhile_stays_pending() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    update = fixture.do(machine, side(service, "update").acquire(None))
    hold, registry = update.hold, update.registry
    for again, finished in ((True, False), (False, True)):
        pending = hold.pending_conversion = PendingConversion()
        finishing = conversion.repeat(registry, hold, pending, FOREVER)
        assert isinstance(finishing.send(None), Call)
        if again:
            hold.pending_conversion = PendingConversion()
        with pytest.raises(StopIteration):
            finishing.send(Converted(None, 1.0, ()))
        assert (hold.pending_conversion is None) is finished


def test_a_protocol_without_update_says_so() -> None:
    fixture = Fixture()
    _, service = fixture.client()
    backend = service.context(None).registry.backend
    service.able = stores_with
    modes: frozenset[Mode] = frozenset({"exclusive", "shared"})
    backend.capabilities = backend.capabilities._replace(modes=modes)
    locks = service.rwlock("a", reentrant=True, timeout=None, **OPTIONS)
    assert set(locks) == modes
    with pytest.raises(ValueError, match=r"without .update. .*SQLite"):
        lock_of_mode(locks, "update", stores_with)
    with pytest.raises(ValueError, match=r"has no semaphores .*: memory, SQLite"):
        service.semaphore("s", 2, timeout=None, **OPTIONS)


# --- several locks --------------------------------------------------------------------------------


def test_a_cancelled_acquire_of_several_locks_leaves_nothing() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    other, rival = fixture.client("two")
    fixture.do(other, side(rival, "exclusive").acquire(None), 0.5)
    locks = service.lock_all(["0", "a"], None, reentrant=True, **OPTIONS)
    waiting = fixture.begin(machine, locks.acquire(None))
    fixture.simulator.interrupt(waiting)
    fixture.simulator.play(fixture.simulator.time + 2.0)
    assert isinstance(waiting.error, Interrupted)
    assert not fixture.store.table.entries["0"].holds
    assert not fixture.store.table.entries["a"].queue


def test_a_dropped_write_inside_an_update_lets_readers_in_again() -> None:
    """Here `lock_all` is interrupted, and the owner had one of the locks for update before."""
    fixture = Fixture()
    machine, service = fixture.client()
    other, rival = fixture.client("two")
    fixture.do(other, mutex_of(rival, "b").acquire(None), 0.5)
    found: list[LeaseHandle] = []

    async def whole() -> None:
        found.append(acquired(await side(service, "update").acquire(None)))
        locks = service.lock_all([side(service, "exclusive"), "b"], None, reentrant=True, **OPTIONS)
        await locks.acquire(None)

    waiting = fixture.begin(machine, whole())
    fixture.simulator.play(fixture.simulator.time + 0.5)
    assert modes_in_store(fixture) == ["exclusive"]
    fixture.simulator.interrupt(waiting)
    fixture.simulator.play(fixture.simulator.time + 2.0)
    assert isinstance(waiting.error, Interrupted)
    assert modes_in_store(fixture) == ["update"]
    assert not found[0].lost()


def test_a_minimum_time_of_a_write_is_kept_when_a_read_goes_on() -> None:
    """Nobody else may have the lock within this time, so the store keeps it exclusive."""
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        write = acquired(await mutex_of(service, min_hold=60.0).acquire(None))
        read = acquired(await side(service, "shared").acquire(None))
        await write.release()
        assert modes_in_store(fixture) == ["exclusive"]
        await read.release()

    fixture.do(machine, whole())
    (hold,) = fixture.store.table.entries["a"].holds.values()
    assert hold.lifetime == "cooling"


def test_each_of_several_locks_is_released_whatever_fails() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    locks = service.lock_all(["b", "a", "b"], None, reentrant=True, **OPTIONS)
    assert locks.names() == "'a', 'b'"

    async def whole() -> None:
        leases = await locks.acquire(None)
        assert leases is not None
        assert leases.remaining() > 0.0
        assert leases.names() == "'a', 'b'"
        fixture.store.refused = (Release,)
        await leases.release()

    with pytest.raises(LeaseLost, match="'b'"):
        fixture.do(machine, whole())
    fixture.store.refused = ()
    fixture.simulator.play(fixture.simulator.time + 3.0)
    assert not any(entry.holds for entry in fixture.store.table.entries.values())
    assert TogetherHandle().remaining() == 0.0


def test_a_body_on_several_locks_ends_once() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    locks = service.lock_all(["a", "b"], 1.0, reentrant=True, **OPTIONS)

    async def whole() -> None:
        await locks.enter()
        await locks.leave(None)
        with pytest.raises(NotHeld):
            await locks.leave(None)
        leases = await locks.acquire(None)
        assert leases is not None
        assert await leases.begin_body(leases) is leases
        await leases.handles[0].release()
        await leases.withdraw_after(GeneratorExit())
        assert not leases.lost()

    fixture.do(machine, whole())
    fixture.simulator.play(fixture.simulator.time + 1.0)
    assert not any(entry.holds for entry in fixture.store.table.entries.values())


def test_several_locks_are_checked_before_any_request() -> None:
    fixture = Fixture()
    _, service = fixture.client()
    _, rival = fixture.client("two")
    semaphore = service.semaphore("s", 2, timeout=None, **OPTIONS)
    read, write = side(service, "shared"), side(service, "exclusive")
    for wrong in ([], [semaphore, "s"], [semaphore] * 3, [side(rival, "shared")]):
        with pytest.raises(ValueError, match=r"named|permits|client"):
            service.lock_all(wrong, None, reentrant=True, **OPTIONS)
    with pytest.raises(InvalidName):
        service.lock_all([""], None, reentrant=True, **OPTIONS)
    for mutexes in ([read, write], [write, read]):
        (member,) = service.lock_all(mutexes, None, reentrant=True, **OPTIONS).members
        assert member.mutex is write
    assert fixture.store.seen == []
