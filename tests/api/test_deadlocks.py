"""`Client.deadlocks` on threads and tasks that wait for one another."""

from __future__ import annotations

import asyncio
import threading

import leaselock

STORE = "memory://deadlocks"


def test_threads_of_two_clients() -> None:
    """A thread is one owner, with whichever client it locks."""
    found: list[leaselock.Deadlock] = []
    both = threading.Barrier(2)

    def run(first: str, second: str) -> None:
        with leaselock.Client(STORE) as one, leaselock.Client(STORE) as two:
            try:
                with one.lock(first):
                    both.wait()
                    with two.lock(second):
                        """The other one has lost it."""
            except leaselock.LeaseLost as error:
                lost.append(error)

    lost: list[leaselock.LeaseLost] = []
    threads = [threading.Thread(target=run, args=names) for names in (("a", "b"), ("b", "a"))]
    with leaselock.Client(STORE) as client:
        assert client.deadlocks() == []
        for thread in threads:
            thread.start()
        while not found:
            found = client.deadlocks()
        (cycle,) = found
        assert {wait.name for wait in cycle} == {"a", "b"}
        assert cycle[0].waiter.since == max(wait.waiter.since for wait in cycle)
        # Break the lock of the youngest: its holder loses it, and the other one goes on.
        client.break_lock(cycle[1].name, token=cycle[1].holder.token)
        for thread in threads:
            thread.join()
        assert client.deadlocks() == []
        assert len(lost) == 1


def test_tasks() -> None:
    async def main() -> None:
        async with leaselock.AsyncClient(STORE) as client:
            inside = asyncio.Barrier(2)

            async def run(first: str, second: str) -> None:
                async with client.lock(first):
                    await inside.wait()
                    async with client.lock(second):
                        pass

            tasks = [asyncio.create_task(run("a", "b")), asyncio.create_task(run("b", "a"))]
            found: list[leaselock.Deadlock] = []
            while not found:
                found = await client.deadlocks()
                await asyncio.sleep(0)
            assert {wait.name for wait in found[0]} == {"a", "b"}
            tasks[0].cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(result) for result in results] == [asyncio.CancelledError, type(None)]
            assert await client.deadlocks() == []

    asyncio.run(main())
