"""Holds end with their client: by `close`, at the end of a `with`, at interpreter exit."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import leaselock
from leaselock.errors import ClientClosed, LeaseLost
from testkit.conformance.child_process import send_to_parent, wait_for_word
from testkit.conformance.harness import NotInTime
from testkit.conformance.queues import AT_ONCE, GRACE, LONG
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from testkit.conformance.api_types import Lease, Lock
    from testkit.conformance.harness import Harness


@scenario()
async def close_releases_held_locks(harness: Harness) -> None:
    """The lock is free at once; the lease of the closed client is lost, and reported so."""
    client, rival = harness.client(), harness.lock("a")
    lock = client.lock("a")
    lease = await harness.must_acquire(lock)
    await harness.must_acquire(lock)
    reported: list[Lease] = []
    lease.on_lost(reported.append)
    await client.close()
    assert lease.lost
    await harness.wait_until(lambda: reported == [lease])
    assert not lock.owned()
    with raising(LeaseLost, "a"):
        lease.ensure()
    await (await harness.must_acquire(rival, 0)).release()


@scenario()
async def closed_client_raises_client_closed(harness: Harness) -> None:
    """Every operation raises ClientClosed; closing again is no error."""
    client = harness.client()
    lock = client.lock("a")
    await (await harness.must_acquire(lock)).release()
    await client.close()
    await client.close()
    for question in (lock.acquire, lock.locked, lock.holder, lock.waiters, client.locks):
        with raising(ClientClosed):
            await question()
    with raising(ClientClosed):
        await client.break_lock("a")
    with raising(ClientClosed):
        async with lock:
            raise AssertionError("entered")
    assert not await harness.lock("a").locked()


@scenario()
async def unused_client_can_be_closed(harness: Harness) -> None:
    """Closing a client that has sent no request works."""
    client = harness.connect(harness.url)
    await client.close()
    with raising(ClientClosed):
        await client.lock("a").acquire()


@scenario("has_queue")
async def close_ends_waits(harness: Harness) -> None:
    """Each waiting acquire raises ClientClosed, and no waiter is left in the queue."""
    lock, client = harness.lock("a"), harness.client()
    async with lock:
        others = [
            harness.spawn(partial(client.lock("a").acquire, timeout=t)) for t in (None, None, 25.0)
        ]
        await harness.wait_for_waiters(client.lock("a"), 3)
        await client.close()
        errors = [await other.end() for other in others]
        assert [type(error) for error in errors] == [ClientClosed] * 3
        # A server may notice the end of a connection a moment later.
        await harness.wait_for_waiters(lock, 0)


@scenario()
async def body_that_outlives_its_client_raises_lease_lost(harness: Harness) -> None:
    """The end of the body reports that the lease was lost with the client."""
    client = harness.client()
    held: list[Lease] = []
    other = harness.spawn(_outlive, harness, client.lock("a"), held)
    # The store may have granted the lock before the body begins.
    await harness.wait_until(lambda: bool(held))
    await client.close()
    assert isinstance(await other.end(), LeaseLost)


async def _outlive(harness: Harness, lock: Lock, held: list[Lease]) -> None:
    async with lock as lease:
        held.append(lease)
        await harness.wait_until(lambda: lease.lost)


@scenario()
async def end_of_with_closes_the_client(harness: Harness) -> None:
    """Leaving the client's `with` releases its locks."""
    lock = harness.lock("a")
    if harness.driver == "threads":
        with leaselock.Client(harness.url) as client:
            kept = client.lock("a").acquire()
            assert kept is not None
            assert await lock.locked()
    else:
        async with leaselock.AsyncClient(harness.url) as coloured:
            also_kept = await coloured.lock("a").acquire()
            assert also_kept is not None
            assert await lock.locked()
    assert not await lock.locked()


@scenario("leases_expire", "multiprocess")
async def interpreter_exit_releases(harness: Harness) -> None:
    """A program that ends while it holds a lock leaves no hold behind, closed or not."""

    async def attempt(name: str) -> None:
        lock = harness.lock(name)
        program = harness.process(end_while_holding, name)
        await program.wait_for_word("holds")
        if await harness.try_once(lock) is not None:
            raise NotInTime("the lease of the program could not be renewed in time")
        program.send("end")
        await program.end()
        began = harness.now()
        lease = await harness.must_acquire(lock)
        at_once = harness.store.detects_death or harness.driver == "threads"
        harness.check_elapsed(began, AT_ONCE if at_once else harness.store.death_bound + GRACE)
        await lease.release()

    await harness.retry_if_slow(3, attempt)


_KEPT: list[Any] = []


async def end_while_holding(harness: Harness, name: str) -> None:
    """In a process: acquire the lock and end without releasing it."""
    length = (
        LONG if harness.driver == "threads" or harness.store.detects_death else harness.store.lease
    )
    _KEPT.append(await harness.must_acquire(harness.lock(name, lease=length)))
    send_to_parent("holds")
    await wait_for_word(harness, "end")


@scenario("has_queue", "multiprocess")
async def interpreter_exit_ends_waits(harness: Harness) -> None:
    """A program that ends while one of its threads or tasks waits leaves no waiter behind."""
    lock = harness.lock("a")
    async with lock:
        program = harness.process(end_while_waiting, "a")
        await harness.wait_for_waiters(lock, 1)
        program.send("end")
        await program.end()
        if harness.store.detects_death or harness.driver == "threads":
            await harness.wait_for_waiters(lock, 0)
    await (await harness.must_acquire(harness.client().lock("a"))).release()


async def end_while_waiting(harness: Harness, name: str) -> None:
    """In a process: start a peer that waits for the lock, and end."""
    _KEPT.append(harness.spawn(harness.lock(name).acquire))
    await wait_for_word(harness, "end")
