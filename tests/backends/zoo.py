"""An ensemble that may be broken, a proxy before each server, and clients that know only those."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Self

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from tests.servers.process import HOST
from tests.servers.proxy import Proxy
from tests.servers.zookeeper import Ensemble

import holdfast

if TYPE_CHECKING:
    from collections.abc import Callable

SESSION = 2.0


class Zoo:
    """The ensemble, the proxies, and one who looks at the nodes directly."""

    def __init__(self) -> None:
        self.ensemble = Ensemble()
        self.proxies = [Proxy(server.port) for server in self.ensemble.servers]
        self.witness: Any = KazooClient(self.ensemble.hosts, timeout=10)
        self.witness.start()
        self.clients: list[holdfast.Client] = []

    def client(
        self, *, through: bool = False, patience: float = 3.0, **words: object
    ) -> holdfast.Client:
        """A client of the servers; or of the proxies, which can keep it from them."""
        made = holdfast.Client(self.url(through=through, **words), op_timeout=patience)
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


class Waiter:
    """A thread that acquires, and says when it had the lock."""

    def __init__(self, client: holdfast.Client, name: str, timeout: float = 30.0) -> None:
        self.lease: holdfast.Lease | None = None
        self.granted = float("inf")
        self.error: BaseException | None = None
        self.lock = client.lock(name)
        self.timeout = timeout
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.lease = self.lock.acquire(self.timeout)
            self.granted = time.monotonic()
        except BaseException as error:
            # It belongs to whoever joins.
            self.error = error

    def join(self) -> holdfast.Lease:
        """The lease that it got."""
        self.thread.join(40.0)
        assert not self.thread.is_alive()
        if self.error is not None:
            raise self.error
        assert self.lease is not None
        return self.lease


def told(lease: holdfast.Lease) -> Callable[[], float]:
    """When the holder is told of the loss."""
    times: list[float] = []
    lease.on_lost(lambda _: times.append(time.monotonic()))

    def when() -> float:
        return times[0] if times else float("inf")

    return when


def orphans(client: holdfast.Client | holdfast.AsyncClient) -> bool:
    """Whether it has something yet to give back."""
    return any(desk.books.orphans for desk in client._service.desks.values())


def take(client: holdfast.Client, name: str, timeout: float = 20.0) -> holdfast.Lease:
    """Acquire, which must succeed."""
    lease = client.lock(name).acquire(timeout)
    assert lease is not None
    return lease
