"""An ensemble whose servers may be stopped, with a proxy in front of each server."""

from __future__ import annotations

from typing import Any, Self

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from testkit.proxy import Proxy
from testkit.servers.process import HOST
from testkit.servers.zookeeper import Ensemble
from tests.backends.rivals import Waiter, loss_time, take

import leaselock

__all__ = ["Waiter", "Zoo", "has_pending_releases", "loss_time", "take"]
SESSION = 2.0


class Zoo:
    """The ensemble, the proxies, and a client that reads the nodes directly."""

    def __init__(self) -> None:
        self.ensemble = Ensemble()
        self.proxies = [Proxy(server.port) for server in self.ensemble.servers]
        self.witness: Any = KazooClient(self.ensemble.hosts, timeout=10)
        self.witness.start()
        self.clients: list[leaselock.Client] = []

    def client(
        self, *, through: bool = False, op_timeout: float = 3.0, **words: object
    ) -> leaselock.Client:
        """A client of the servers, or of the proxies."""
        made = leaselock.Client(self.url(through=through, **words), op_timeout=op_timeout)
        self.clients.append(made)
        return made

    def url(self, *, through: bool = False, **words: object) -> str:
        """The URL for a client."""
        hosts = ",".join(f"{HOST}:{proxy.port}" for proxy in self.proxies)
        query = "&".join(f"{k}={v}" for k, v in ({"timeout": SESSION} | words).items())
        return f"zookeeper://{hosts if through else self.ensemble.hosts}/zoo?{query}"

    def silence(self) -> None:
        """Let no proxy forward anything."""
        for proxy in self.proxies:
            proxy.silence()

    def heal(self) -> None:
        """Let the proxies forward everything again."""
        for proxy in self.proxies:
            proxy.heal()

    def nodes(self, name: str) -> list[str]:
        """The nodes in the queue of the lock."""
        self.witness.sync(f"/zoo/{name}")
        path = f"/zoo/{name}"
        return list(self.witness.get_children(path)) if self.witness.exists(path) else []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()
        for client in self.clients:
            client.close()
        self.witness.stop()
        self.witness.close()
        for proxy in self.proxies:
            proxy.stop()
        self.ensemble.close()


def has_pending_releases(client: leaselock.Client | leaselock.AsyncClient) -> bool:
    """Whether the client has pending releases."""
    return any(context.registry.pending() for context in client._core.contexts.values())


def connection_of(client: leaselock.Client | leaselock.AsyncClient) -> Any:
    """The client's connection."""
    (connection,) = client._driver.parts
    return connection
