"""Holds end with their client: by `close`, at the end of a `with`, at interpreter exit."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import leaselock
from leaselock.errors import ClientClosed, LeaseLost
from testkit.conformance.child_process import send_to_parent, wait_for_word
from testkit.conformance.queues import AT_ONCE, GRACE, LONG
from testkit.conformance.scenario import raising, scenario
from testkit.conformance.world import NotInTime

if TYPE_CHECKING:
    from testkit.conformance.api_types import Lease, Lock
    from testkit.conformance.world import World


@scenario()
async def close_releases_held_locks(world: World) -> None:
    """The lock is free at once, and the lease of the closed client is lost."""
    client, rival = world.client(), world.lock("a")
    lock = client.lock("a")
    lease = await world.must_acquire(lock)
    await world.must_acquire(lock)
    reported: list[Lease] = []
    lease.on_lost(reported.append)
    await client.close()
    assert lease.lost
    assert not lock.owned()
    with raising(LeaseLost, "a"):
        lease.ensure()
    await (await world.must_acquire(rival, 0)).release()


@scenario()
async def closed_client_raises_client_closed(world: World) -> None:
    """Every operation raises ClientClosed; closing again is no error."""
    client = world.client()
    lock = client.lock("a")
    await (await world.must_acquire(lock)).release()
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
    assert not await world.lock("a").locked()


@scenario()
async def unused_client_can_be_closed(world: World) -> None:
    """Closing a client that has sent no request works."""
    client = world.connect(world.url)
    await client.close()
    with raising(ClientClosed):
        await client.lock("a").acquire()


@scenario("has_queue")
async def close_ends_waits(world: World) -> None:
    """Each waiting acquire raises ClientClosed, and no waiter is left in the queue."""
    lock, client = world.lock("a"), world.client()
    async with lock:
        others = [
            world.spawn(partial(client.lock("a").acquire, timeout=t)) for t in (None, None, 25.0)
        ]
        await world.wait_for_waiters(client.lock("a"), 3)
        await client.close()
        errors = [await other.end() for other in others]
        assert [type(error) for error in errors] == [ClientClosed] * 3
        # A server may notice the end of a connection a moment later.
        await world.wait_for_waiters(lock, 0)


@scenario()
async def body_that_outlives_its_client_raises_lease_lost(world: World) -> None:
    """The end of the body reports that the lease was lost with the client."""
    client = world.client()
    held: list[Lease] = []
    other = world.spawn(_outlive, world, client.lock("a"), held)
    # The store may have granted the lock before the body begins.
    await world.wait_until(lambda: bool(held))
    await client.close()
    assert isinstance(await other.end(), LeaseLost)


async def _outlive(world: World, lock: Lock, held: list[Lease]) -> None:
    async with lock as lease:
        held.append(lease)
        await world.wait_until(lambda: lease.lost)


@scenario()
async def end_of_with_closes_the_client(world: World) -> None:
    """Leaving the client's `with` releases its locks."""
    lock = world.lock("a")
    if world.driver == "threads":
        with leaselock.Client(world.url) as client:
            kept = client.lock("a").acquire()
            assert kept is not None
            assert await lock.locked()
    else:
        async with leaselock.AsyncClient(world.url) as coloured:
            also_kept = await coloured.lock("a").acquire()
            assert also_kept is not None
            assert await lock.locked()
    assert not await lock.locked()


@scenario("leases_expire", "multiprocess")
async def interpreter_exit_releases(world: World) -> None:
    """A program that ends while it holds a lock leaves no hold behind, closed or not."""

    async def attempt(name: str) -> None:
        lock = world.lock(name)
        program = world.process(end_while_holding, name)
        await program.wait_for_word("holds")
        if await world.try_once(lock) is not None:
            raise NotInTime("the lease of the program could not be renewed in time")
        program.send("end")
        await program.end()
        began = world.now()
        lease = await world.must_acquire(lock)
        at_once = world.store.detects_death or world.driver == "threads"
        world.check_elapsed(began, AT_ONCE if at_once else world.store.death_bound + GRACE)
        await lease.release()

    await world.retry_if_slow(3, attempt)


_KEPT: list[Any] = []


async def end_while_holding(world: World, name: str) -> None:
    """In a process: acquire the lock and end without releasing it."""
    length = LONG if world.driver == "threads" or world.store.detects_death else world.store.lease
    _KEPT.append(await world.must_acquire(world.lock(name, lease=length)))
    send_to_parent("holds")
    await wait_for_word(world, "end")


@scenario("has_queue", "multiprocess")
async def interpreter_exit_ends_waits(world: World) -> None:
    """A program that ends while one of its threads or tasks waits leaves no waiter behind."""
    lock = world.lock("a")
    async with lock:
        program = world.process(end_while_waiting, "a")
        await world.wait_for_waiters(lock, 1)
        program.send("end")
        await program.end()
        if world.store.detects_death or world.driver == "threads":
            await world.wait_for_waiters(lock, 0)
    await (await world.must_acquire(world.client().lock("a"))).release()


async def end_while_waiting(world: World, name: str) -> None:
    """In a process: start a peer that waits for the lock, and end."""
    _KEPT.append(world.spawn(world.lock(name).acquire))
    await wait_for_word(world, "end")
