"""A database as a store: opening it, its protocols, and its lifecycle."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

from leaselock._backends import Opened, StoreType
from leaselock._backends.sql.disconnect_watcher import TaskWatcher, ThreadWatcher
from leaselock._backends.sql.lease import Lease, client_of
from leaselock._backends.sql.maintenance import MAINTENANCE, maintain
from leaselock._backends.sql.notification_listener import NotificationListener
from leaselock._backends.sql.pool import Pool
from leaselock._backends.sql.session_backend import CAPABILITIES as OF_SESSIONS
from leaselock._backends.sql.session_backend import NAMED_LOCKS, SessionBackend
from leaselock._backends.sql.session_pool import SessionPool
from leaselock._backends.sql.url import parsed
from leaselock._core.contract.backend import (
    ALL_MODES,
    Acquire,
    Capabilities,
    Convert,
    Inspect,
    Renew,
    Resize,
    Watch,
)
from leaselock._core.contract.background import Background
from leaselock._core.contract.lifecycle import Lifecycle
from leaselock._core.rows.queue import QueueBackend
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from types import ModuleType

    from leaselock._backends.sql.connection import Connection
    from leaselock._backends.sql.executor import Executor
    from leaselock._backends.sql.url import Target
    from leaselock._core.contract.backend import Claim
    from leaselock._core.contract.effects import Request

R = TypeVar("R")

# The server measures leases by its wall clock, which may be adjusted. The drift covers a clock that
# is slewed, not one that jumps.
CAPABILITIES = Capabilities(
    clock_drift=0.001,
    clock_margin=0.002,
    detects_death=False,
    inheritable=False,
    min_hold=True,
    modes=ALL_MODES,
    notifies_changes=True,
)
# Requests that may be repeated.
REPEATABLE = (Acquire, Renew, Inspect, Watch, Convert, Resize)


class SqlStore(Lifecycle):
    """The connections of one client to a database, for threads, asyncio or a simulation."""

    def __init__(
        self,
        target: Target,
        now: Callable[[], float],
        make_connection: Callable[[], Connection],
        make_watcher: Callable[[], Any],
    ) -> None:
        self.pool = Pool(target, make_connection, now)
        self.lease = Lease(self.pool.dialect)
        self.listener = NotificationListener(self.pool, now)
        self.sessions = SessionPool(self.pool, make_watcher, now)
        self.pid = os.getpid()

    def request(
        self, request: Request[Any], until: float, *, expected: bool = False
    ) -> Awaitable[Any]:
        """Carry out a request of protocol "lease", or a maintenance request of any protocol. An
        *expected* one is sent before the other acquires.
        """
        if isinstance(request, MAINTENANCE):

            def work(executor: Executor) -> Awaitable[Any]:
                return maintain(request, self.pool.server, executor, self.sessions.now)

            return self.pool.run(work, until, bare=True)
        requester = self.pool.server.requester(client_of(request))
        return self.pool.run(
            lambda executor: self.lease.answer(request, requester, executor),
            until,
            urgent=not isinstance(request, Acquire),
            expected=expected,
            repeatable=isinstance(request, REPEATABLE),
        )

    def backend(self, protocol: str) -> QueueBackend | SessionBackend:
        """The backend of a protocol."""
        if protocol == "lease":
            return LeaseBackend(self)
        return SessionBackend(protocol, self.sessions, self.request)

    def wake(self) -> None:
        """End every wait without a deadline, until `close`."""
        self.listener.wake()
        self.sessions.end_waits()

    def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        self.listener.close()
        self.sessions.close()
        self.pool.close()

    def after_fork(self) -> None:
        """In a forked child, or when the loop of the connections is closed."""
        if self.pid == os.getpid():
            self.close()
            return
        self.pid = os.getpid()
        self.listener.after_fork()
        self.sessions.after_fork()
        self.pool.after_fork()


class LeaseBackend(QueueBackend):
    """Protocol "lease"."""

    def __init__(self, store: SqlStore) -> None:
        super().__init__(CAPABILITIES)
        self.store = store
        self.listening = Background()
        # Waiters that were notified and have not asked again. Most were granted their lock, for a
        # short time: they must not queue behind those that only look whether that has happened.
        self.notified: set[str] = set()

    def send(self, request: Request[R], until: float) -> Awaitable[R]:
        """Send one request to the database."""
        acquire: Any = request if isinstance(request, Acquire) else None
        expected = acquire is not None and acquire.claim.id in self.notified
        if expected:
            self.notified.discard(acquire.claim.id)
        return self.store.request(request, until, expected=expected)

    def wake(self, claim_ids: Iterable[str]) -> None:
        """Wake the claims, and send their next requests before those of others."""
        claim_ids = tuple(claim_ids)
        self.notified.update(self.signals.keys() & claim_ids)
        super().wake(claim_ids)

    def wake_all(self) -> None:
        """Wake all claims. None was notified."""
        super().wake(list(self.signals))

    def forget(self, claim: Claim) -> None:
        """The claim waits no more."""
        self.notified.discard(claim.id)
        super().forget(claim)

    async def start_listening(self, client: str) -> None:
        """Start the listening process, unless it runs."""
        if not self.listening.running:
            await self.listening.start(lambda: self._listen(client), "listener")

    async def _listen(self, client: str) -> None:
        try:
            while True:
                self.heard(await self.store.listener.listen(client))
        except StoreError:
            # The client was closed, or the listener has failed. Every wait also looks again by
            # itself, and the next one starts another listening process.
            self.wake_all()

    def after_fork(self) -> None:
        """Drop the waiters and the listening process."""
        super().after_fork()
        self.listening = Background()
        self.notified = set()


def module_of(target: Target) -> ModuleType:
    """The module for this kind of database."""
    if target.dialect == "postgres":
        from leaselock._backends.sql import postgres

        return postgres
    from leaselock._backends.sql import mysql

    return mysql


def store_of(target: Target, now: Callable[[], float], *, aio: bool = False) -> SqlStore:
    """The store for threads or for asyncio; nothing is connected yet."""
    module = module_of(target)
    kind = module.TaskConnection if aio else module.ThreadConnection
    watcher = TaskWatcher if aio else ThreadWatcher
    return SqlStore(target, now, lambda: kind(target, now), lambda: watcher(now))


def open_store(named: object, now: Callable[[], float], *, aio: bool = False) -> Opened:
    """The database that a URL or an engine of SQLAlchemy names; nothing is connected yet."""
    target = parsed(named) if isinstance(named, str) else _of_engine(named)
    kind = POSTGRES if target.dialect == "postgres" else MYSQL
    default = kind.check_protocol(target.protocol)
    module_of(target).check(target)
    store = store_of(target, now, aio=aio)

    def backend(protocol: str | None) -> QueueBackend | SessionBackend:
        return store.backend(kind.check_protocol(protocol or default))

    return Opened(backend, default, target.shown, parts=(store,))


def _of_engine(engine: object) -> Target:
    from leaselock._backends.sql.engines import target_of

    return target_of(engine)


PROTOCOLS = {"lease": CAPABILITIES, "row": OF_SESSIONS, "advisory": OF_SESSIONS}
POSTGRES = StoreType("PostgreSQL", PROTOCOLS, open_store)
MYSQL = StoreType(
    "MySQL",
    PROTOCOLS | {"advisory": NAMED_LOCKS},
    open_store,
    title="MySQL or MariaDB",
)
