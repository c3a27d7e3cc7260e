"""asyncio: the same names, awaited. Run it: python examples/asyncio_.py"""

from __future__ import annotations

import asyncio

import leaselock


async def work(client: leaselock.AsyncClient, name: str, order: list[str]) -> None:
    """Tasks exclude one another just as threads and processes do."""
    async with client.lock("report") as lease:
        order.append(name)
        await asyncio.sleep(0.01)
        lease.ensure()  # raises LeaseLost if somebody else may hold the lock by now


async def main() -> None:
    order: list[str] = []
    async with leaselock.AsyncClient() as client:
        async with asyncio.TaskGroup() as tasks:
            for name in ("ann", "ben", "cleo"):
                tasks.create_task(work(client, name, order))
        print(f"one after another: {', '.join(order)}")

        async with client.lock("report"):
            busy = asyncio.create_task(client.lock("report", timeout=0.1).acquire())
            print(f"another task in the meantime: {await busy}")


if __name__ == "__main__":
    asyncio.run(main())
