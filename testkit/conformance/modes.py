"""Read/write locks, semaphores, and several locks at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.errors import (
    AcquireCancelled,
    AcquireTimeout,
    AlreadyHeld,
    LeaseLost,
    LimitMismatch,
    NotHeld,
    WouldDeadlock,
)
from testkit.conformance.harness import TIMEOUT
from testkit.conformance.scenario import raising, scenario
from testkit.conformance.watching import report_changes

if TYPE_CHECKING:
    from leaselock import LockChange
    from leaselock._core.client.hold import Hold
    from testkit.conformance.api_types import Lease, Lock, Semaphore
    from testkit.conformance.harness import Harness


async def _is_free(lock: Lock) -> bool:
    lease = await lock.try_acquire()
    if lease is not None:
        await lease.release()
    return lease is not None


async def _hold(lock: Lock, order: list[str], title: str, *permits: Any) -> None:
    lease = await lock.acquire(*permits, timeout=TIMEOUT)
    order.append(title)
    await lease.release()


# --- read and write -------------------------------------------------------------------------------


@scenario("sharing")
async def readers_share_and_a_writer_is_alone(harness: Harness) -> None:
    """Readers of two clients hold at once; a writer excludes readers and writers."""
    mine, theirs = harness.first.rwlock("a"), harness.client().rwlock("a")
    async with mine.read as one:
        other = await harness.must_acquire(theirs.read, 0)
        assert other.token > one.token
        assert not await _is_free(harness.client().rwlock("a").write)
        await other.release()
    async with mine.write as writer:
        assert writer.token > other.token
        assert not await _is_free(theirs.read)
        assert not await _is_free(theirs.write)
        assert not await _is_free(harness.client().lock("a"))
    assert await _is_free(theirs.write)


@scenario("sharing", "leases_expire", "detachable")
async def adopted_read_lease_leaves_the_other_readers(harness: Harness) -> None:
    """The adopted lease has its mode, and its release ends no other hold."""
    oldest = await harness.must_acquire(harness.first.rwlock("a").read)
    client = harness.client()
    detached = await harness.must_acquire(client.rwlock("a").read, 0)
    await detached.detach()
    await client.close()
    adopted = await harness.client().adopt("a", detached.token)
    await adopted.release()
    writer = harness.client().rwlock("a").write
    assert not await _is_free(writer)
    assert [holder.token for holder in await writer.holders()] == [oldest.token]
    await oldest.release()
    assert await _is_free(writer)


@scenario("sharing")
async def lock_is_the_write_side(harness: Harness) -> None:
    """A plain lock of the same name excludes readers, and nests with the write side."""
    lock, shared = harness.lock("a"), harness.client().rwlock("a")
    async with lock:
        assert not await _is_free(shared.read)
        async with harness.first.rwlock("a").write as inner:
            inner.ensure()
    async with shared.read:
        assert not await _is_free(lock)


@scenario("sharing", "has_queue", "fair")
async def waiting_writer_goes_before_later_readers(harness: Harness) -> None:
    """A reader that comes after a waiting writer waits; so does a try."""
    shared, order = harness.first.rwlock("a"), list[str]()
    reader = await harness.must_acquire(shared.read)
    writing = harness.spawn(_hold, harness.client().rwlock("a").write, order, "writer")
    await harness.wait_for_waiters(shared.read, 1)
    assert not await _is_free(harness.client().rwlock("a").read)
    reading = harness.spawn(_hold, harness.client().rwlock("a").read, order, "reader")
    await harness.wait_for_waiters(shared.read, 2)
    await reader.release()
    await writing.join()
    await reading.join()
    assert order == ["writer", "reader"]


@scenario("sharing", "has_queue", "fair")
async def readers_behind_a_writer_are_granted_together(harness: Harness) -> None:
    """When a writer releases, all readers that waited hold at once."""
    shared, inside = harness.first.rwlock("a"), list[int]()
    writer = await harness.must_acquire(shared.write)

    async def read() -> None:
        async with harness.first.rwlock("a").read as lease:
            inside.append(lease.token)
            await harness.wait_until(lambda: len(inside) == 3)

    readers = [harness.spawn(read) for _ in range(3)]
    await harness.wait_for_waiters(shared.read, 3)
    await writer.release()
    for reader in readers:
        await reader.join()


@scenario("sharing", "has_queue")
async def lock_that_was_handed_over_is_free_after_its_release(harness: Harness) -> None:
    """For a reader of a third client, too, at once."""
    shared, order = harness.first.rwlock("a"), list[str]()
    writer = await harness.must_acquire(shared.write)
    writing = harness.spawn(_hold, harness.client().rwlock("a").write, order, "writer")
    await harness.wait_for_waiters(shared.read, 1)
    await writer.release()
    await writing.join()
    assert await _is_free(harness.client().rwlock("a").read)


@scenario("sharing", "downgrades")
async def sides_nest_and_a_writer_becomes_a_reader(harness: Harness) -> None:
    """A writer may read; when it releases the write side first, others can read, too."""
    mine, theirs = harness.first.rwlock("a"), harness.client().rwlock("a")
    write = await harness.must_acquire(mine.write)
    read = await harness.must_acquire(mine.read, 0)
    again = await harness.must_acquire(mine.read, 0)
    assert not await _is_free(theirs.read)
    await write.release()
    read.ensure()
    assert mine.read.owned()
    assert not mine.write.owned()
    await (await harness.must_acquire(theirs.read)).release()
    assert not await _is_free(theirs.write)
    await read.release()
    await again.release()
    assert await _is_free(theirs.write)


@scenario("sharing")
async def writer_may_read_and_counts_as_a_reader_afterwards(harness: Harness) -> None:
    """Its lease is valid, and it may not write again before it has released everything."""
    mine, theirs = harness.first.rwlock("a"), harness.client().rwlock("a")
    write = await harness.must_acquire(mine.write)
    read = await harness.must_acquire(mine.read, 0)
    await write.release()
    read.ensure()
    assert mine.read.owned()
    assert not mine.write.owned()
    with raising(WouldDeadlock):
        await mine.write.acquire(timeout=0)
    assert not await _is_free(theirs.write)
    await read.release()
    assert await _is_free(theirs.write)


@scenario("sharing")
async def reader_that_wants_to_write_is_refused_at_once(harness: Harness) -> None:
    """WouldDeadlock, for a try and for a wait; the read lease stays valid."""
    shared = harness.first.rwlock("a")
    async with shared.read as lease:
        for timeout in (0, None):
            with raising(WouldDeadlock, "a", "read"):
                await shared.write.acquire(timeout=timeout)
        with raising(WouldDeadlock):
            await lease.upgrade(1.0)
        lease.ensure()


@scenario("permits")
async def permits_cannot_be_upgraded(harness: Harness) -> None:
    """The error names the semaphore; the lease stays valid."""
    async with harness.first.semaphore("a", 2) as lease:
        with raising(ValueError, "'a' is a semaphore"):
            await lease.upgrade()
        lease.ensure()


@scenario("sharing")
async def side_that_is_not_reentrant_says_so(harness: Harness) -> None:
    """AlreadyHeld, as for any lock."""
    shared = harness.first.rwlock("a", reentrant=False)
    async with shared.read:
        with raising(AlreadyHeld):
            await shared.read.acquire(timeout=0)


@scenario("sharing", "leases_expire")
async def lost_reader_does_not_end_the_others(harness: Harness) -> None:
    """A broken read lease is lost; the other reader keeps its own."""
    mine, theirs = harness.first.rwlock("a", lease=1.5), harness.client().rwlock("a")
    one = await harness.must_acquire(mine.read)
    other = await harness.must_acquire(theirs.read)
    broken = await harness.client().break_lock("a", token=one.token)
    assert broken is not None
    assert broken.token == one.token
    await harness.wait_until(lambda: one.lost)
    other.ensure()
    assert [holder.token for holder in await theirs.read.holders()] == [other.token]
    with raising(LeaseLost):
        await one.release()
    await other.release()


@scenario("sharing")
async def whole_lock_is_watched_and_asked(harness: Harness) -> None:
    """It is locked while any side is held, and a watch of it reports holders of any side."""
    shared, client = harness.client().rwlock("a"), harness.client()
    changes: list[LockChange] = []
    reporting = harness.spawn(report_changes, client.rwlock("a"), changes.append)
    await harness.wait_until(lambda: len(changes) == 1)
    for side in (shared.read, shared.write):
        assert not await shared.locked()
        lease = await harness.must_acquire(side)
        assert await shared.locked()
        await harness.wait_until(lambda: changes[-1].holder is not None)
        await lease.release()
        await harness.wait_until(lambda: changes[-1].holder is None)
    await client.close()
    await reporting.end()


@scenario("sharing")
async def all_holders_are_shown(harness: Harness) -> None:
    """The oldest first, each with its mode; break_lock without a token ends all of them."""
    mine, theirs = harness.first.rwlock("a"), harness.client().rwlock("a")
    one = await harness.must_acquire(mine.read)
    other = await harness.must_acquire(theirs.read)
    shown = await mine.write.holders()
    assert [(holder.token, holder.mode) for holder in shown] == [
        (one.token, "shared"),
        (other.token, "shared"),
    ]
    (info,) = await harness.first.locks()
    assert (info.holder, len(info.holders)) == (info.holders[0], 2)
    with raising(AcquireTimeout, "and by 1 more"):
        async with harness.client().rwlock("a", timeout=0.01).write:
            pass
    broken = await harness.client().break_lock("a")
    assert broken is not None
    assert broken.token == one.token
    assert await mine.write.holders() == []


# --- update ---------------------------------------------------------------------------------------


@scenario("updates")
async def update_is_beside_readers_and_alone_among_updates(harness: Harness) -> None:
    """One update beside readers; alone, it is upgraded at once, with a greater token."""
    mine, theirs = harness.first.rwlock("a"), harness.client().rwlock("a")
    async with mine.update as lease:
        first = lease.token
        async with theirs.read:
            assert not await _is_free(harness.client().rwlock("a").update)
            assert not await lease.upgrade(0)
            assert await _is_free(harness.client().rwlock("a").read)
        assert await lease.upgrade(TIMEOUT)
        assert lease.token > first
        assert mine.write.owned()
        assert not await _is_free(theirs.read)
    assert await _is_free(theirs.write)


@scenario("updates", "has_queue")
async def upgrade_waits_for_readers_and_lets_no_new_ones_in(harness: Harness) -> None:
    """It goes before a writer that waits already."""
    shared, order = harness.first.rwlock("a"), list[str]()
    reader = await harness.must_acquire(shared.read)

    async def upgrade() -> None:
        async with harness.first.rwlock("a").update as lease:
            writer = harness.spawn(_hold, harness.client().rwlock("a").write, order, "writer")
            await harness.wait_for_waiters(shared.read, 1)
            assert await lease.upgrade(TIMEOUT)
            order.append("upgraded")
        await writer.join()

    async def upgrading() -> bool:
        return "upgrading" in [holder.mode for holder in await shared.read.holders()]

    upgraded = harness.spawn(upgrade)
    await harness.wait_until(upgrading)
    assert not await _is_free(harness.client().rwlock("a").read)
    assert order == []
    await reader.release()
    await upgraded.join()
    assert order == ["upgraded", "writer"]


@scenario("updates")
async def write_while_holding_update_is_an_upgrade(harness: Harness) -> None:
    """Released, it is an update again."""
    mine, theirs = harness.first.rwlock("a"), harness.client().rwlock("a")
    async with mine.update:
        async with mine.write as inner:
            inner.ensure()
            assert not await _is_free(theirs.read)
        assert await _is_free(theirs.read)
        assert not await _is_free(theirs.update)
        async with theirs.read:
            assert await mine.write.try_acquire() is None


@scenario("updates", "has_queue")
async def cancel_ends_a_wait_for_an_upgrade(harness: Harness) -> None:
    """By the update side where a lease is upgraded, by the write side where that is acquired. The
    hold is an update again, which new readers may join.
    """
    mine, theirs = harness.first.rwlock("a"), harness.client().rwlock("a")

    async def upgrading() -> bool:
        return "upgrading" in [holder.mode for holder in await theirs.read.holders()]

    async def upgrade() -> None:
        async with mine.update as lease:
            with raising(AcquireCancelled, "a"):
                await lease.upgrade()
            lease.ensure()
            assert await _is_free(theirs.read)

    async def write() -> None:
        async with mine.update as lease:
            with raising(AcquireCancelled, "a"):
                await mine.write.acquire()
            lease.ensure()
            assert await _is_free(theirs.read)

    async with theirs.read:
        for wait, side, other in (
            (upgrade, mine.update, mine.write),
            (write, mine.write, mine.update),
        ):
            waiting = harness.spawn(wait)
            await harness.wait_until(upgrading)
            assert other.cancel() == 0
            assert side.cancel() == 1
            await waiting.join()
            assert side.cancel() == 0
    assert await _is_free(theirs.write)


def _upgrades(hold: Hold) -> int:
    return 0 if hold.upgrade is None else len(hold.upgrade.waits)


@scenario("updates", "has_queue")
async def upgrades_of_one_lease_are_one_conversion(harness: Harness) -> None:
    """Threads or tasks that upgrade one lease at the same time all get it exclusive, with one new
    token. Those that give up before, the first one among them, do not end the wait of the others.
    """
    mine, theirs = harness.first.rwlock("a"), harness.client().rwlock("a")
    lease = await harness.must_acquire(mine.update)
    first, hold = lease.token, lease._handle.hold
    reader = await harness.must_acquire(theirs.read)
    hasty = harness.spawn(lease.upgrade, 0.2)
    await harness.wait_until(lambda: _upgrades(hold) == 1 or hasty.ended())
    patient = [harness.spawn(lease.upgrade, TIMEOUT) for _ in range(4)]
    assert await hasty.join() is False
    await harness.wait_until(lambda: _upgrades(hold) == 4)
    assert not await lease.upgrade(0)
    assert not await _is_free(harness.client().rwlock("a").read)
    await reader.release()
    assert [await upgrade.join() for upgrade in patient] == [True] * 4
    assert lease.token > first
    assert [(one.token, one.mode) for one in await theirs.read.holders()] == [
        (lease.token, "exclusive")
    ]
    assert await lease.upgrade(0)
    await lease.release()
    assert await _is_free(theirs.write)


@scenario("updates", "has_queue")
async def release_ends_the_upgrades_of_its_lease(harness: Harness) -> None:
    """NotHeld for each, also where another lease keeps the hold."""
    mine, theirs = harness.first.rwlock("a"), harness.client().rwlock("a")
    async with theirs.read:
        await _release_while_upgrading(harness, await harness.must_acquire(mine.update))
        outer = await harness.must_acquire(mine.update)
        await _release_while_upgrading(harness, await harness.must_acquire(mine.update))
        outer.ensure()
        assert await _is_free(theirs.read)
        assert not await _is_free(harness.client().rwlock("a").update)
        await outer.release()
    assert await _is_free(theirs.write)


async def _release_while_upgrading(harness: Harness, lease: Lease) -> None:
    hold = lease._handle.hold
    upgrades = [harness.spawn(lease.upgrade, TIMEOUT) for _ in range(3)]
    await harness.wait_until(lambda: _upgrades(hold) == 3)
    await lease.release()
    for upgrade in upgrades:
        assert isinstance(error := await upgrade.end(), NotHeld), error


@scenario("updates", "has_queue")
async def cancel_ends_all_upgrades_of_a_lease(harness: Harness) -> None:
    """AcquireCancelled for each; the hold is an update again, and can be upgraded later."""
    mine, theirs = harness.first.rwlock("a"), harness.client().rwlock("a")
    lease = await harness.must_acquire(mine.update)
    hold = lease._handle.hold
    async with theirs.read:
        upgrades = [harness.spawn(lease.upgrade) for _ in range(3)]
        await harness.wait_until(lambda: _upgrades(hold) == 3)
        assert mine.update.cancel() == 3
        for upgrade in upgrades:
            assert isinstance(error := await upgrade.end(), AcquireCancelled), error
        assert await _is_free(theirs.read)
    assert await lease.upgrade(TIMEOUT)
    await lease.release()
    assert await _is_free(theirs.write)


# --- semaphores -----------------------------------------------------------------------------------


@scenario("permits")
async def permits_are_never_exceeded(harness: Harness) -> None:
    """As many permits are granted as there are, and no more; each grant is a lease of its own."""
    mine, theirs = (
        harness.first.semaphore("a", permits=3),
        harness.client().semaphore("a", permits=3),
    )
    one = await harness.must_acquire(mine, 0)
    assert not await theirs.locked()
    two = await theirs.acquire(2, timeout=0)
    assert (await mine.available(), await mine.try_acquire()) == (0, None)
    assert await theirs.locked()
    await one.release()
    assert (await theirs.available(), await theirs.locked()) == (1, False)
    again = await harness.must_acquire(theirs, 0)
    assert again.token > two.token > one.token
    await again.release()
    await two.release()
    with raising(NotHeld):
        await mine.release()
    with raising(ValueError, "3"):
        await mine.acquire(4, timeout=0)


@scenario("permits", "has_queue", "fair")
async def claim_for_many_permits_is_not_overtaken(harness: Harness) -> None:
    """A claim for one that comes later waits behind it, and so does a try."""
    semaphore, order = harness.first.semaphore("a", permits=2), list[str]()
    one = await harness.must_acquire(semaphore)
    many = harness.spawn(_hold, harness.client().semaphore("a", permits=2), order, "many", 2)
    await harness.wait_for_waiters(semaphore, 1)
    assert await harness.client().semaphore("a", permits=2).try_acquire() is None
    few = harness.spawn(_hold, harness.client().semaphore("a", permits=2), order, "few")
    await harness.wait_for_waiters(semaphore, 2)
    await one.release()
    await many.join()
    await few.join()
    assert order == ["many", "few"]


@scenario("permits")
async def other_limit_is_an_error_that_names_both(harness: Harness) -> None:
    """While the name is in use. None takes the number in the store."""
    semaphore, client = harness.first.semaphore("a", permits=2), harness.client()
    async with semaphore:
        with raising(LimitMismatch, "2 permits", "3 permits"):
            await client.semaphore("a", permits=3).acquire(timeout=0)
        with raising(LimitMismatch, "a semaphore of 2 permits", "a lock"):
            await client.lock("a").acquire(timeout=0)
        any_number = client.semaphore("a", permits=None)
        assert await any_number.available() == 1
        await (await harness.must_acquire(any_number, 0)).release()
        with raising(LimitMismatch, "2 permits", "3"):
            await any_number.acquire(3, timeout=0)
    async with client.semaphore("a", permits=3), client.semaphore("a", permits=3):
        assert await client.semaphore("a", permits=3).available() == 1
    async with harness.lock("b"):
        with raising(LimitMismatch, "a lock", "a semaphore of 2 permits"):
            await client.semaphore("b", permits=2).acquire(timeout=0)
        with raising(LimitMismatch, "a lock"):
            await client.semaphore("b", permits=2).resize(3)
    with raising(LimitMismatch, "new"):
        await client.semaphore("c", permits=None).acquire(timeout=0)


@scenario("permits", "has_queue")
async def resize_takes_nothing_from_holders(harness: Harness) -> None:
    """Smaller: nothing is granted until the sum fits. Larger: waiters are granted."""
    semaphore = harness.first.semaphore("a", permits=2)
    leases = [await harness.must_acquire(semaphore) for _ in range(2)]
    waiting = harness.spawn(_acquire, harness.client().semaphore("a", permits=2))
    await harness.wait_for_waiters(semaphore, 1)
    await semaphore.resize(3)
    third = await waiting.join()
    await semaphore.resize(1)
    for lease in (*leases, third):
        lease.ensure()
        assert await semaphore.try_acquire() is None
        await lease.release()
    await (await harness.must_acquire(semaphore, 0)).release()


@scenario("permits", "has_queue")
async def resize_refuses_waiters_for_more(harness: Harness) -> None:
    """They would wait for ever."""
    semaphore = harness.first.semaphore("a", permits=2)
    async with semaphore:
        waiting = harness.spawn(_acquire, harness.client().semaphore("a", permits=2), 2)
        await harness.wait_for_waiters(semaphore, 1)
        await semaphore.resize(1)
        assert isinstance(await waiting.end(), LimitMismatch)
        assert await semaphore.waiters() == []


async def _acquire(semaphore: Semaphore, permits: int = 1) -> Lease:
    return await semaphore.acquire(permits, timeout=TIMEOUT)


@scenario("permits", "leases_expire")
async def permits_expire_one_by_one(harness: Harness) -> None:
    """One grant ends with its lease; the others are renewed."""

    async def attempt(name: str) -> None:
        lease = harness.store.lease
        fixed = harness.first.semaphore(name, permits=2, lease=lease, renew=False)
        renewed = harness.first.semaphore(name, permits=2, lease=lease)
        ended = await harness.must_acquire(fixed)
        kept = await harness.must_acquire(renewed)
        third = await harness.must_acquire(harness.client().semaphore(name, permits=2))
        available = await renewed.available()
        kept.ensure()
        assert ended.lost
        assert available == 0
        await third.release()
        await kept.release()

    await harness.retry_if_slow(3, attempt)


# --- several locks --------------------------------------------------------------------------------


@scenario()
async def all_locks_or_none(harness: Harness) -> None:
    """If one cannot be acquired in time, none is held afterwards; the error names it."""
    client = harness.client()
    async with harness.first.lock_all(["b", "a"]) as leases:
        assert [lease.name for lease in leases.leases] == ["a", "b"]
        leases.ensure()
        assert not await _is_free(client.lock("a"))
        assert not await _is_free(client.lock("b"))
    async with client.lock("b"):
        assert await harness.first.lock_all(["a", "b", "c"]).try_acquire() is None
        with raising(AcquireTimeout, "'b'"):
            async with harness.first.lock_all(["a", "b"], timeout=0.01):
                pass
        assert await _is_free(client.lock("a"))
        assert await _is_free(client.lock("c"))
    assert await _is_free(client.lock("b"))


@scenario()
async def opposite_orders_do_not_deadlock(harness: Harness) -> None:
    """Two clients that name the locks in opposite orders both get them, again and again."""
    total: list[int] = []

    async def add_up(*names: str) -> None:
        locks = harness.client().lock_all(names, timeout=TIMEOUT)
        for _ in range(10):
            async with locks:
                total.append(len(total))

    peers = [harness.spawn(add_up, "a", "b"), harness.spawn(add_up, "b", "a")]
    for peer in peers:
        await peer.join()
    assert total == list(range(20))


@scenario("leases_expire")
async def all_are_lost_when_one_is(harness: Harness) -> None:
    """The callback is called once; the release ends the others and reports the loss."""
    leases = await harness.first.lock_all(["a", "b"], lease=1.5).acquire()
    assert leases is not None
    reported: list[object] = []
    leases.on_lost(reported.append)
    await leases.extend(2.0)
    await harness.client().break_lock("b")
    await harness.wait_until(lambda: leases.lost)
    with raising(LeaseLost, "b"):
        leases.ensure()
    await harness.wait_until(lambda: bool(reported))
    with raising(LeaseLost, "b"):
        await leases.release()
    assert len(reported) == 1
    assert await _is_free(harness.client().lock("a"))


@scenario("sharing", "permits")
async def sides_and_permits_can_be_acquired_together(harness: Harness) -> None:
    """A name that is given twice counts once in its stronger mode; permits add up."""
    client, other = harness.first, harness.client()
    shared, semaphore = client.rwlock("a"), client.semaphore("s", permits=3)
    async with client.lock_all([shared.read, "b", semaphore, semaphore]) as leases:
        assert [lease.name for lease in leases.leases] == ["a", "b", "s"]
        assert await semaphore.available() == 1
        assert await _is_free(other.rwlock("a").read)
    async with client.lock_all([shared.read, shared.write]):
        assert not await _is_free(other.rwlock("a").read)
    wrong: Any
    for wrong in ([], [semaphore, "s"], [*[semaphore] * 4], [other.lock("a")]):
        with raising(ValueError):
            client.lock_all(wrong)


# --- stores without them --------------------------------------------------------------------------


@scenario()
async def store_without_a_mode_names_those_that_have_it(harness: Harness) -> None:
    """ValueError, before any request."""
    if not harness.store.sharing:
        with raising(ValueError, "no read/write locks", "SQLite"):
            harness.first.rwlock("a")
    elif not harness.store.updates:
        with raising(ValueError, "update", "SQLite"):
            _ = harness.first.rwlock("a").update
    if not harness.store.permits:
        with raising(ValueError, "no semaphores", "SQLite"):
            harness.first.semaphore("a", permits=2)
