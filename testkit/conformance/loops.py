"""One AsyncClient works in one event loop after another, but not in two at once."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from leaselock.errors import LeaseLost
from testkit.conformance.queues import LONG
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from collections.abc import Callable

    from testkit.conformance.api_types import Client, Lease
    from testkit.conformance.harness import Harness


async def _in_a_thread(harness: Harness, function: Callable[[], None]) -> None:
    """Run *function* in a thread without an event loop."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:
            # Raised again in the scenario's thread.
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    await harness.wait_until(lambda: not thread.is_alive())
    for error in errors:
        raise error


@scenario("leases_expire", "asyncio")
async def client_works_in_a_second_loop(harness: Harness) -> None:
    """Leases of the closed loop are lost and reported, and the locks can be acquired again."""

    async def attempt(name: str) -> None:
        client = harness.connect(harness.url)

        def twice() -> None:
            lease = asyncio.run(_take(harness, client, name, harness.store.lease))
            asyncio.run(_take_again(harness, client, name, lease))

        await _in_a_thread(harness, twice)

    await harness.retry_if_slow(5, attempt)


async def _take(harness: Harness, client: Client, name: str, length: float) -> Lease:
    other = asyncio.create_task(client.lock(f"other {name}", lease=length).acquire())
    lease = await harness.must_acquire(client.lock(name, lease=length))
    await other
    return lease


async def _take_again(harness: Harness, client: Client, name: str, before: Lease) -> None:
    lease = await harness.must_acquire(client.lock(name, lease=harness.store.lease))
    assert lease.token > before.token
    assert before.lost
    with raising(LeaseLost, name):
        before.ensure()
    with raising(LeaseLost, name):
        await before.release()
    ended = harness.now() + 2 * harness.store.lease
    await harness.wait_until(lambda: harness.now() >= ended)
    try:
        lease.ensure()
        other = client.lock(f"other {name}")
        async with other:
            assert [report.name for report in await client.locks(other.name)] == [other.name]
    finally:
        await client.close()


@scenario("leases_expire", "asyncio")
async def client_can_be_closed_in_a_second_loop(harness: Harness) -> None:
    """Leases of the first loop are released."""
    client = harness.connect(harness.url)

    def twice() -> None:
        lease = asyncio.run(_take(harness, client, "a", LONG))
        asyncio.run(_close(client))
        assert lease.lost

    await _in_a_thread(harness, twice)
    began = harness.now()
    await (await harness.must_acquire(harness.lock("a"))).release()
    harness.check_elapsed(began, LONG / 2)


async def _close(client: Client) -> None:
    await client.close()


@scenario("asyncio")
async def two_loops_at_once_are_refused(harness: Harness) -> None:
    """RuntimeError is raised, by close as well, and the first loop keeps its leases."""
    lock, rival = harness.lock("a"), harness.client().lock("a")
    lease = await harness.must_acquire(lock)

    def elsewhere() -> None:
        with raising(RuntimeError, "loop"):
            asyncio.run(_acquire(harness, harness.first))
        with raising(RuntimeError, "loop"):
            asyncio.run(_close(harness.first))

    await _in_a_thread(harness, elsewhere)
    assert await harness.try_once(rival) is None
    lease.ensure()
    assert lock.owned()
    await lease.release()


async def _acquire(harness: Harness, client: Client) -> Any:
    return await harness.try_once(client.lock("b"))


@scenario("has_queue", "asyncio")
async def waiter_of_an_ended_loop_is_removed(harness: Harness) -> None:
    """It delays neither the queue nor the client's next loop."""
    client = harness.connect(harness.url)
    lease = await harness.must_acquire(harness.lock("a"))

    def twice() -> None:
        asyncio.run(_leave_one_waiting(harness, client))
        asyncio.run(_close(client))

    await _in_a_thread(harness, twice)
    await harness.wait_for_waiters(harness.lock("a"), 0)
    await lease.release()
    await (await harness.must_acquire(harness.lock("a"), 0)).release()


async def _leave_one_waiting(harness: Harness, client: Client) -> None:
    task = asyncio.create_task(client.lock("a").acquire())
    await harness.wait_for_waiters(client.lock("a"), 1)
    assert not task.done()
