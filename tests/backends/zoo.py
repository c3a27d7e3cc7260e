"""An ensemble that may be broken, a proxy before each server, and clients that know only those."""

from __future__ import annotations

from typing import Any, Self

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from tests.backends.rivals import Waiter, take, told
from tests.servers.process import HOST
from tests.servers.zookeeper import Ensemble

import leaselock
from leaselock.testing.proxy import Proxy

__all__ = ["Waiter", "Zoo", "orphans", "take", "told"]
SESSION = 2.0


class Zoo:
    """The ensemble, the proxies, and one who looks at the nodes directly."""

    def __init__(self) -> None:
        self.ensemble = Ensemble()
        self.proxies = [Proxy(server.port) for server in self.ensemble.servers]
        self.witness: Any = KazooClient(self.ensemble.hosts, timeout=10)
        self.witness.start()
        self.clients: list[leaselock.Client] = []

    def client(
        self, *, through: bool = False, patience: float = 3.0, **words: object
    ) -> leaselock.Client:
        """A client of the servers; or of the proxies, which can keep it from them."""
        made = leaselock.Client(self.url(through=through, **words), op_timeout=patience)
        self.clients.append(made)
        return made

    def url(self, *, through: bool = False, **words: object) -> str:
        """How it names the store."""
        hosts = ",".join(f"{HOST}:{proxy.port}" for proxy in self.proxies)
        query = "&".join(f"{k}={v}" for k, v in ({"timeout": SESSION} | words).items())
        return f"zookeeper://{hosts if through else self.ensemble.hosts}/zoo?{query}"

    def silence(self) -> None:
        """Nothing passes any proxy."""
        for proxy in self.proxies:
            proxy.silence()

    def heal(self) -> None:
        """Everything passes again."""
        for proxy in self.proxies:
            proxy.heal()

    def nodes(self, name: str) -> list[str]:
        """Who is in the queue, as the ensemble has it."""
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


def orphans(client: leaselock.Client | leaselock.AsyncClient) -> bool:
    """Whether it has something yet to give back."""
    return any(desk.registry.pending_releases for desk in client._service.contexts.values())


def connection_of(client: leaselock.Client | leaselock.AsyncClient) -> Any:
    """The client's connection."""
    (connection,) = client._driver.stores
    return connection
