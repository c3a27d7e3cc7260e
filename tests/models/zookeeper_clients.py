"""A client of the library as the twins of ZooKeeper play it, and the process that a request is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.backends.zookeeper.nodes import Store
from leaselock.backends.zookeeper.url import parsed
from leaselock.core.backend import (
    WAKE_ALL,
    Acquire,
    BreakLock,
    Inspect,
    Release,
    Released,
    Renew,
    SetLifetime,
)
from leaselock.drivers import system_env

if TYPE_CHECKING:
    from leaselock.backends.zookeeper.queue import Queue
    from leaselock.backends.zookeeper.single import Single

# Who asks for no claim.
OPERATOR = "operator"


class Client:
    """One client: its protocol, its session on the real side, and its processes that listen."""

    def __init__(self, url: str, backend: Queue | Single) -> None:
        self.backend = backend
        self.words: list[str] = []
        self.store = Store(parsed(url), self.words.append, system_env.now)
        self.listeners: list[tuple[Any, float]] = []
        self.unheard: list[str] = []
        self.fault = ""

    def heard(self) -> list[str]:
        """What the real side has said of nodes since the last time."""
        said = [word for word in self.words if word != WAKE_ALL]
        self.words.clear()
        return said

    def close(self) -> None:
        """End the session, and whoever listens."""
        for process, _ in self.listeners:
            process.close()
        self.store.close()


def asker(request: object) -> str:
    """The client whose request it is."""
    if isinstance(request, Renew):
        return request.claims[0].client
    return (
        request.claim.client if isinstance(request, (Acquire, Release, SetLifetime)) else OPERATOR
    )


def process_of(backend: Queue | Single, request: object, until: float) -> Any:
    """The process that a request is."""
    if isinstance(request, Acquire):
        return backend.acquire(request.claim, wait=request.wait, until=until)
    if isinstance(request, Release):
        return _left(backend.release(request.claim, tombstone=request.tombstone, until=until))
    if isinstance(request, SetLifetime):
        return backend.set_lifetime(request.claim, request.lifetime, until)
    if isinstance(request, Renew):
        return _tuple(backend.renew(request.claims, until))
    if isinstance(request, BreakLock):
        return backend.break_lock(request.name, request.token, until)
    assert isinstance(request, Inspect)
    return _tuple(backend.inspect(request.name, request.pattern, until))


async def _left(leaving: Any) -> Released:
    return Released("held" if await leaving else "absent", ())


async def _tuple(process: Any) -> tuple[object, ...]:
    return tuple(await process)
