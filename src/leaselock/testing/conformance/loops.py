"""One AsyncClient may serve one event loop after another, but not two at once."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from leaselock.errors import LeaseLost
from leaselock.testing.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.testing.conformance.face import Client, Lease
    from leaselock.testing.conformance.world import World


async def _in_a_thread(world: World, function: Callable[[], None]) -> None:
    """Where no loop runs yet."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:
            # Raised again where the scenario is played.
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    await world.until(lambda: not thread.is_alive())
    for error in errors:
        raise error


@scenario("expiry", "asyncio")
async def a_client_serves_a_second_loop(world: World) -> None:
    """What was held in the closed one is lost, is told so, and can be taken again."""
    client = world.connect(world.url)

    def twice() -> None:
        lease = asyncio.run(_take(world, client))
        asyncio.run(_take_again(world, client, lease))

    await _in_a_thread(world, twice)


async def _take(world: World, client: Client) -> Lease:
    other = asyncio.create_task(client.lock("b", lease=world.store.lease).acquire())
    lease = await world.take(client.lock("a", lease=world.store.lease))
    await other
    return lease


async def _take_again(world: World, client: Client, before: Lease) -> None:
    lock = client.lock("a", lease=world.store.lease)
    lease = await world.take(lock)
    assert lease.token > before.token
    assert before.lost
    with raising(LeaseLost, "a"):
        before.ensure()
    with raising(LeaseLost, "a"):
        await before.release()
    lease.ensure()
    ended = world.now() + 2 * world.store.lease
    await world.until(lambda: world.now() >= ended or lease.lost)
    async with client.lock("b"):
        assert [report.name for report in await client.locks("b")] == ["b"]
    await client.close()


@scenario("expiry", "asyncio")
async def a_client_is_closed_in_a_second_loop(world: World) -> None:
    """Nothing of the first one is left in its way, and what was held there is given back."""
    client = world.connect(world.url)

    def twice() -> None:
        lease = asyncio.run(_take(world, client))
        asyncio.run(_close(client))
        assert lease.lost

    await _in_a_thread(world, twice)
    # Much sooner than its lease is over.
    await (await world.take(world.lock("a"), 10.0)).release()


async def _close(client: Client) -> None:
    await client.close()


@scenario("asyncio")
async def a_client_refuses_a_second_loop_at_the_same_time(world: World) -> None:
    """RuntimeError, to close it as well, and what is held in the first loop stays."""
    lock, rival = world.lock("a"), world.client().lock("a")
    lease = await world.take(lock)

    def elsewhere() -> None:
        with raising(RuntimeError, "loop"):
            asyncio.run(_acquire(world, world.first))
        with raising(RuntimeError, "loop"):
            asyncio.run(_close(world.first))

    await _in_a_thread(world, elsewhere)
    assert await rival.acquire(timeout=0) is None
    lease.ensure()
    assert lock.owned()
    await lease.release()


async def _acquire(world: World, client: Client) -> Any:
    return await client.lock("b").acquire(timeout=0)


@scenario("queue", "asyncio")
async def a_task_that_was_waiting_when_its_loop_ended_is_forgotten(world: World) -> None:
    """It holds up nobody: neither in the queue, nor in the client's next loop."""
    client = world.connect(world.url)
    lease = await world.take(world.lock("a"))

    def twice() -> None:
        asyncio.run(_leave_one_waiting(world, client))
        asyncio.run(_close(client))

    await _in_a_thread(world, twice)
    await world.until_waiting(world.lock("a"), 0)
    await lease.release()
    await (await world.take(world.lock("a"), 0)).release()


async def _leave_one_waiting(world: World, client: Client) -> None:
    task = asyncio.create_task(client.lock("a").acquire())
    await world.until_waiting(client.lock("a"), 1)
    assert not task.done()
