"""A client behind a proxy, a server, and somebody who looks at it directly.

Invariant: what a client reports is true, or it is `OutcomeUnknown`; at the end no client holds or
left anything behind, though leases are so long that none has run out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.pace import pace

from leaselock.testing.conformance import Store
from leaselock.testing.conformance.asyncio_world import AsyncioWorld
from leaselock.testing.conformance.thread_world import ThreadWorld
from leaselock.testing.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from tests.servers.redis import Redis

    from leaselock.testing.conformance.api_types import Lock
    from leaselock.testing.conformance.world import World
    from leaselock.testing.proxy import Fault

STORE = Store("redis", lambda folder: "", protocols=("hash",))
WORLDS: dict[str, type[World]] = {"threads": ThreadWorld, "asyncio": AsyncioWorld}
OP_TIMEOUT = 0.6
LEASE = 60.0
# Much less than a lease, much more than a slow machine needs.
PATIENCE = 20.0
# What stays on purpose: the token counters, and what remembers a claim that was given up.
KEPT = ("redisson_lock_token:", "leaselock:tombstone:", "redisson_unlock_latch:")
SCRIPT = b"EVALSHA"


class Scene:
    """One test's client, faults and witness; *watcher* is a client that no fault touches."""

    def __init__(self, server: Redis, proxy: Proxy, world: World) -> None:
        self.server = server
        self.proxy = proxy
        self.world = world
        self.pace = pace()
        self.client = world.client(op_timeout=OP_TIMEOUT * self.pace)
        self.watcher = world.connect(server.url)
        world.clients.append(self.watcher)
        self.faults: list[Fault] = []

    def lock(self, **terms: Any) -> Lock:
        """The lock, as the client behind the proxy takes it."""
        return self.client.lock("a", **{"lease": LEASE, **terms})

    def direct(self) -> Lock:
        """The lock, as the witness takes it."""
        return self.watcher.lock("a", lease=LEASE)

    async def warm(self) -> None:
        """Have the connections made and the scripts loaded, so that a fault strikes the request."""
        for lock in (self.lock(), self.direct()):
            lease = await self.world.must_acquire(lock)
            await lease.release()

    def plan(self, action: str, where: bytes = SCRIPT, nth: int = 1) -> Fault:
        """A fault, from now on."""
        fault = self.proxy.plan(action, where, nth)
        self.faults.append(fault)
        return fault

    async def token(self) -> int | None:
        """The token of whoever holds the lock, as the store says."""
        holder = await self.direct().holder()
        return None if holder is None else holder.token

    async def late(self) -> None:
        """Deliver what was held, to a server where somebody else has the lock by now."""
        held = [fault for fault in self.faults if fault.action.startswith("hold")]
        other = await self.world.must_acquire(self.direct())
        for fault in held:
            fault.pass_on()
        # Two round trips: what arrived before the first one has been carried out by then.
        self.server.ask("PING")
        self.server.ask("PING")
        await other.extend(LEASE)
        assert await self.token() == other.token
        await other.release()

    async def empty(self) -> None:
        """Nobody holds and nobody waits, and nothing else is left."""
        for fault in self.faults:
            fault.wait()

        async def over() -> bool:
            return not await self.watcher.locks("*") and not self.left()

        await self.world.wait_until(over, PATIENCE)

    def left(self) -> list[str]:
        """The keys that should not be there."""
        return [key for key in self.server.ask("KEYS", "*") if not key.startswith(KEPT)]


def play(
    server: Redis, colour: str, folder: Path, story: Callable[[Scene], Coroutine[Any, Any, None]]
) -> None:
    """Run a story in one colour, on an empty server, through a proxy of its own."""
    server.ask("FLUSHALL")
    with Proxy(server.port) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/0"
        world = WORLDS[colour](STORE, url, folder)
        world.run(world.run_and_close(_told(server, proxy, world, story)))


async def _told(
    server: Redis,
    proxy: Proxy,
    world: World,
    story: Callable[[Scene], Coroutine[Any, Any, None]],
) -> None:
    scene = Scene(server, proxy, world)
    await scene.warm()
    await story(scene)
    await scene.late()
    await scene.empty()
