"""What is held ends with its client: by `close`, by the end of a `with`, by the interpreter's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import leaselock
from leaselock.errors import ClientClosed, LeaseLost
from leaselock.testing.conformance.child import hear, say
from leaselock.testing.conformance.queues import AT_ONCE, GRACE
from leaselock.testing.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from leaselock.testing.conformance.face import Lease, Lock
    from leaselock.testing.conformance.world import World


@scenario()
async def close_releases_what_is_held(world: World) -> None:
    """The next one has it at once, and the lease of the closed client is lost."""
    client, rival = world.client(), world.lock("a")
    lock = client.lock("a")
    lease = await world.take(lock)
    await world.take(lock)
    told: list[Lease] = []
    lease.on_lost(told.append)
    await client.close()
    assert lease.lost
    assert not lock.owned()
    with raising(LeaseLost, "a"):
        lease.ensure()
    await (await world.take(rival, 0)).release()


@scenario()
async def a_closed_client_says_so(world: World) -> None:
    """Closed, whatever it is asked; to close it again is no error."""
    client = world.client()
    lock = client.lock("a")
    await (await world.take(lock)).release()
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
async def a_client_that_was_never_used_can_be_closed(world: World) -> None:
    """Nothing was opened, nothing is closed."""
    client = world.connect(world.url)
    await client.close()
    with raising(ClientClosed):
        await client.lock("a").acquire()


@scenario("queue")
async def a_wait_ends_when_the_client_is_closed(world: World) -> None:
    """Each waiting acquire gets Closed, and none is left in the queue."""
    lock, client = world.lock("a"), world.client()
    async with lock:
        others = [world.spawn(client.lock("a").acquire, t) for t in (None, None, 25.0)]
        await world.until_waiting(client.lock("a"), 3)
        await client.close()
        errors = [await other.end() for other in others]
        assert [type(error) for error in errors] == [ClientClosed] * 3
        # A server may see a moment later that a connection has ended.
        await world.until_waiting(lock, 0)


@scenario()
async def a_body_that_outlives_its_client_is_told(world: World) -> None:
    """The end of the body says that the lease was lost with the client."""
    client = world.client()
    other = world.spawn(_outlive, world, client.lock("a"))
    await world.until(world.lock("a").locked)
    await client.close()
    assert isinstance(await other.end(), LeaseLost)


async def _outlive(world: World, lock: Lock) -> None:
    async with lock as lease:
        await world.until(lambda: lease.lost)


@scenario()
async def the_end_of_with_closes_the_client(world: World) -> None:
    """Its holds are released."""
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


@scenario("expiry", "processes")
async def the_end_of_the_interpreter_releases(world: World) -> None:
    """A program that ends while it holds leaves nothing behind, closed or not."""

    async def attempt(name: str) -> None:
        lock = world.lock(name)
        program = world.process(end_while_holding, name)
        await program.says("holds")
        assert await lock.acquire(timeout=0) is None
        program.tell("end")
        await program.end()
        began = world.now()
        lease = await world.take(lock)
        told = world.store.life or world.driver == "threads"
        world.punctual(began, AT_ONCE if told else world.store.outlived + GRACE)
        await lease.release()

    await world.best_of(3, attempt)


_KEPT: list[Any] = []


async def end_while_holding(world: World, name: str) -> None:
    """In a process: take the lock and end, with the lease still in hand."""
    length = 30.0 if world.driver == "threads" or world.store.life else world.store.lease
    _KEPT.append(await world.take(world.lock(name, lease=length)))
    say("holds")
    await hear(world, "end")


@scenario("queue", "processes")
async def the_end_of_the_interpreter_ends_a_wait(world: World) -> None:
    """A program that ends while a thread or task of it waits leaves the queue."""
    lock = world.lock("a")
    async with lock:
        program = world.process(end_while_waiting, "a")
        await world.until_waiting(lock, 1)
        program.tell("end")
        await program.end()
        if world.store.life or world.driver == "threads":
            await world.until_waiting(lock, 0)
    await (await world.take(world.client().lock("a"))).release()


async def end_while_waiting(world: World, name: str) -> None:
    """In a process: let another wait for the lock, and end."""
    _KEPT.append(world.spawn(world.lock(name).acquire))
    await hear(world, "end")
