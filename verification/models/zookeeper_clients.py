"""A client in the comparison of ZooKeeper with its model, and the process of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock._backends.zookeeper.connection import BlockingConnection
from leaselock._backends.zookeeper.requests import SESSION_ENDED, Mailbox
from leaselock._backends.zookeeper.url import parsed
from leaselock._core.contract.backend import (
    WAKE_ALL,
    Acquire,
    BreakLock,
    Convert,
    Inspect,
    Release,
    Released,
    Renew,
    Resize,
    SetLifetime,
)
from leaselock._drivers import system_env

if TYPE_CHECKING:
    from leaselock._backends.zookeeper.session_backend import SessionBackend

# The client of requests without a claim.
OPERATOR = "operator"


class Stub:
    """The connection of a backend, whose requests the test executes."""

    connected = True
    closing = False

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout

    def subscribe(self, mailbox: Mailbox) -> None:
        """Deliver nothing: the test fills the mailbox."""


def is_of_node(event: str) -> bool:
    """Whether an event is about a node, not about the connection or the session."""
    return event != WAKE_ALL and not event.startswith(SESSION_ENDED)


class Client:
    """One client: its backend, its connection on the real side, and its listening processes."""

    def __init__(self, url: str, backend: SessionBackend) -> None:
        self.backend = backend
        self.connection = BlockingConnection(parsed(url), system_env.now)
        self.mailbox = Mailbox()
        self.connection.subscribe(self.mailbox)
        # Events of the model that have not been compared yet.
        self.modelled_events: list[str] = []
        self.sent = 0
        self.listeners: list[tuple[Any, float]] = []
        self.fault = ""

    def heard(self) -> list[str]:
        """The events about nodes on the real side since the last call."""
        return [event for event in self.mailbox.take() if is_of_node(event)]

    def close(self) -> None:
        """End the session and the listening processes."""
        for process, _ in self.listeners:
            process.close()
        self.connection.close()


def asker(request: object) -> str:
    """The client that sends the request."""
    if isinstance(request, Renew):
        return request.claims[0].client
    if isinstance(request, (Acquire, Release, SetLifetime, Convert)):
        return request.claim.client
    return OPERATOR


def process_of(backend: Any, request: object, until: float) -> Any:
    """The process that executes the request."""
    if isinstance(request, Acquire):
        return backend.acquire(request.claim, wait=request.wait, until=until)
    if isinstance(request, Release):
        return _released(backend.release(request.claim, tombstone=request.tombstone, until=until))
    if isinstance(request, SetLifetime):
        return backend.set_lifetime(request.claim, request.lifetime, until)
    if isinstance(request, Renew):
        return _tuple(backend.renew(request.claims, until))
    if isinstance(request, BreakLock):
        return backend.break_lock(request.name, request.token, until)
    if isinstance(request, Convert):
        return backend.convert(request.claim, request.step, request.mode, until)
    if isinstance(request, Resize):
        return backend.resize(request.name, request.limit, until)
    assert isinstance(request, Inspect)
    return _tuple(backend.inspect(request.name, request.pattern, until))


async def _released(process: Any) -> Released:
    return Released("held" if await process else "absent", ())


async def _tuple(process: Any) -> tuple[object, ...]:
    return tuple(await process)
