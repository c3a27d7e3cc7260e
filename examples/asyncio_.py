"""asyncio: the same names, awaited. Run it: python examples/asyncio_.py"""

from __future__ import annotations

import asyncio

import leaselock


async def work(client: leaselock.AsyncClient, name: str, order: list[str]) -> None:
    """Append to *order* while holding the lock; tasks exclude each other as threads do."""
    async with client.lock("report") as lease:
        order.append(name)
        await asyncio.sleep(0.01)
        lease.ensure()  # raises LeaseLost if the lease is no longer valid


async def main() -> None:
    order: list[str] = []
    async with leaselock.AsyncClient() as client:
        async with asyncio.TaskGroup() as tasks:
            for name in ("ann", "ben", "cleo"):
                tasks.create_task(work(client, name, order))
        print(f"one after another: {', '.join(order)}")

        async with client.lock("report"):
            busy = asyncio.create_task(client.lock("report").try_acquire(timeout=0.1))
            print(f"another task, after 0.1 s: {await busy}")


if __name__ == "__main__":
    asyncio.run(main())
