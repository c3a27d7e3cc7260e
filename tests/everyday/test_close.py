"""The end of a client."""

from __future__ import annotations

import asyncio
import threading

import leaselock

LIMIT = 60.0


def test_close_calls_on_lost(file: str) -> None:
    called = threading.Event()
    client = leaselock.Client(file)
    lease = client.lock("a").acquire()
    lease.on_lost(lambda _: called.set())
    client.close()
    assert called.wait(LIMIT)
    assert lease.lost


def test_close_in_asyncio_calls_on_lost(file: str) -> None:
    async def main() -> None:
        called = asyncio.Event()
        client = leaselock.AsyncClient(file)
        lease = await client.lock("a").acquire()
        lease.on_lost(lambda _: called.set())
        await client.close()
        await asyncio.wait_for(called.wait(), LIMIT)
        assert lease.lost

    asyncio.run(main())


def test_close_does_not_call_for_what_was_released(file: str) -> None:
    called: list[leaselock.Lease] = []
    with leaselock.Client(file) as client, client.lock("a") as lease:
        lease.on_lost(called.append)
    assert called == []
