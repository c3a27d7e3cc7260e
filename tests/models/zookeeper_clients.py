"""A client of the library as the twins of ZooKeeper play it, and the process that a request is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.backends.zookeeper.nodes import Store
from leaselock.backends.zookeeper.url import parsed
from leaselock.core.backend import EVERYONE, Ask, Break, Leave, Left, Look, Renew, Retie
from leaselock.drivers import machine

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
        self.store = Store(parsed(url), self.words.append, machine.now)
        self.listeners: list[tuple[Any, float]] = []
        self.unheard: list[str] = []
        self.fault = ""

    def heard(self) -> list[str]:
        """What the real side has said of nodes since the last time."""
        said = [word for word in self.words if word != EVERYONE]
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
    return request.claim.client if isinstance(request, (Ask, Leave, Retie)) else OPERATOR


def process_of(backend: Queue | Single, request: object, until: float) -> Any:
    """The process that a request is."""
    if isinstance(request, Ask):
        return backend.ask(request.claim, wait=request.wait, until=until)
    if isinstance(request, Leave):
        return _left(backend.leave(request.claim, bury=request.bury, until=until))
    if isinstance(request, Retie):
        return backend.retie(request.claim, request.tie, until)
    if isinstance(request, Renew):
        return _tuple(backend.renew(request.claims, until))
    if isinstance(request, Break):
        return backend.evict(request.name, request.token, until)
    assert isinstance(request, Look)
    return _tuple(backend.look(request.name, request.pattern, until))


async def _left(leaving: Any) -> Left:
    return Left("held" if await leaving else "absent", ())


async def _tuple(process: Any) -> tuple[object, ...]:
    return tuple(await process)
