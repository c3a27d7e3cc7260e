"""A client behind a proxy, a server, and a second client that is connected to it directly.

Invariant: what a client reports is true, or it is `OutcomeUnknown`; at the end no client holds or
left anything behind. The leases are long, so none has run out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from testkit.conformance import Store
from testkit.conformance.asyncio_harness import AsyncioHarness
from testkit.conformance.thread_harness import ThreadHarness
from testkit.proxy import Proxy
from tests.pace import pace

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from testkit.conformance.api_types import Lock
    from testkit.conformance.harness import Harness
    from testkit.proxy import Fault
    from testkit.servers.redis import Redis

STORE = Store("redis", lambda folder: "", protocols=("hash",))
HARNESSES: dict[str, type[Harness]] = {"threads": ThreadHarness, "asyncio": AsyncioHarness}
OP_TIMEOUT = 0.6
LEASE = 600.0
# Much shorter than a lease, and much longer than a slow machine needs.
TIMEOUT = 60.0
# Keys that remain on purpose: token counters, tombstones, and the limits of idle semaphores.
KEPT = (
    *("redisson_lock_token:", "leaselock:tombstone:", "redisson_unlock_latch:"),
    "leaselock:limit:",
)
SCRIPT = b"EVALSHA"


class Fixture:
    """One test's client, faults and witness; *watcher* is a client that no fault touches."""

    def __init__(self, server: Redis, proxy: Proxy, harness: Harness) -> None:
        self.server = server
        self.proxy = proxy
        self.harness = harness
        self.pace = pace()
        self.client = harness.client(op_timeout=OP_TIMEOUT * self.pace)
        self.watcher = harness.connect(server.url)
        harness.clients.append(self.watcher)
        self.faults: list[Fault] = []

    def lock(self, **terms: Any) -> Lock:
        """The lock of the client behind the proxy."""
        return self.client.lock("a", **{"lease": LEASE, **terms})

    def direct(self) -> Lock:
        """The lock of the client without a proxy."""
        return self.watcher.lock("a", lease=LEASE)

    async def warm(self) -> None:
        """Make connections and load scripts, so that a fault affects the request itself."""
        for lock in (self.lock(), self.direct()):
            lease = await self.harness.must_acquire(lock)
            await lease.release()

    def plan(self, action: str, where: bytes = SCRIPT, nth: int = 1) -> Fault:
        """Plan a fault."""
        fault = self.proxy.plan(action, where, nth)
        self.faults.append(fault)
        return fault

    async def token(self) -> int | None:
        """The token of the present holder, according to the store."""
        holder = await self.direct().holder()
        return None if holder is None else holder.token

    async def late(self) -> None:
        """Deliver the delayed messages while another client holds the lock."""
        held = [fault for fault in self.faults if fault.action.startswith("hold")]
        other = await self.harness.must_acquire(self.direct())
        for fault in held:
            fault.pass_on()
        # After two round trips, everything that arrived before the first one has been executed.
        self.server.ask("PING")
        self.server.ask("PING")
        await other.extend(LEASE)
        assert await self.token() == other.token
        await other.release()

    async def empty(self) -> None:
        """Wait until there is no holder, no waiter and no unexpected key."""
        for fault in self.faults:
            fault.wait()

        async def over() -> bool:
            return not await self.watcher.locks("*") and not self.left()

        await self.harness.wait_until(over, TIMEOUT)

    def left(self) -> list[str]:
        """The unexpected keys."""
        return [key for key in self.server.stored_keys() if not key.startswith(KEPT)]


def play(
    server: Redis,
    colour: str,
    folder: Path,
    scenario: Callable[[Fixture], Coroutine[Any, Any, None]],
) -> None:
    """Run a scenario with threads or asyncio, on an empty server, through a private proxy."""
    server.ask("FLUSHALL")
    with Proxy(server.port) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/0"
        harness = HARNESSES[colour](STORE, url, folder)
        harness.run(harness.run_and_close(_play(server, proxy, harness, scenario)))


async def _play(
    server: Redis,
    proxy: Proxy,
    harness: Harness,
    scenario: Callable[[Fixture], Coroutine[Any, Any, None]],
) -> None:
    fixture = Fixture(server, proxy, harness)
    await fixture.warm()
    await scenario(fixture)
    await fixture.late()
    await fixture.empty()
