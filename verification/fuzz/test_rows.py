"""Arbitrary rows of a database: every request ends with a reply or an error of the library."""

from __future__ import annotations

import asyncio
import contextlib
import math
from time import monotonic
from typing import Any

from hypothesis import strategies as st
from verification.fuzz.properties import holds
from verification.fuzz.test_replies import CLAIM

from leaselock._backends.sql.connection import Connect
from leaselock._backends.sql.statements import Result
from leaselock._backends.sql.store import SqlStore
from leaselock._backends.sql.url import parsed
from leaselock._core.contract.backend import (
    Acquire,
    BreakLock,
    CollectGarbage,
    Doctor,
    Inspect,
    Release,
    Renew,
    SetLifetime,
    Setup,
)
from leaselock._drivers.aio import Aio
from leaselock._drivers.threads import Threads
from leaselock.errors import StoreError

REQUESTS = (
    Acquire(CLAIM, False),
    Acquire(CLAIM, True),
    Renew((CLAIM,)),
    Release(CLAIM, True),
    Release(CLAIM, False),
    SetLifetime(CLAIM, "lease"),
    Inspect(None, "*"),
    Inspect("a", "*"),
    BreakLock("a", 1),
    Doctor(),
    Setup(True),
    CollectGarbage(None),
)
NUMBER = st.sampled_from([0, 1, -1, 2**62, 10**400]) | st.integers()
CELL = st.none() | NUMBER | st.floats() | st.text(max_size=5) | st.binary(max_size=5)
# As the tables have it, but for what stands in it.
ROW = st.tuples(*[CELL] * 9) | st.lists(CELL, max_size=9).map(tuple)
RESULT = st.builds(Result, st.lists(ROW, max_size=2), st.integers(0, 2), st.integers(0, 2))


class AnsweringConnection:
    """A connection to a server that answers with these results."""

    reused = usable = False

    def __init__(self, results: list[Result]) -> None:
        self.results = results
        self.prepared: set[str] | None = set()
        self.number = self.backend = 0
        self.calls = 0

    def call(self, request: object, until: float) -> Any:
        """The next few of them."""
        if isinstance(request, Connect):
            return None
        self.calls += 1
        if self.calls > 20:
            raise ConnectionResetError
        return [self.results[(self.calls + i) % len(self.results)] for i in range(20)]

    def close(self) -> None:
        """Nothing to close."""


class AnsweringTask(AnsweringConnection):
    """The same for tasks."""

    async def call(self, request: object, until: float) -> Any:
        """The next few of them."""
        return super().call(request, until)


def store_on(url: str, connection: Any) -> SqlStore:
    """A store whose every connection is this one, without setting it up."""
    store = SqlStore(parsed(url), monotonic, lambda: connection, lambda: None)

    async def connect(until: float, bare: bool = False) -> Any:
        return connection

    store.pool.connect = connect  # type: ignore[method-assign]
    return store


async def process_of(store: SqlStore, request: Any, until: float) -> Any:
    """The process that carries out a request."""
    return await store.request(request, until)


def asked(url: str, results: list[Result], request: Any) -> None:
    """Send requests in a thread."""
    store = store_on(url, AnsweringConnection(results))
    with contextlib.suppress(StoreError, ConnectionResetError):
        Threads((store,)).run(process_of(store, request, math.inf))


def awaited(url: str, results: list[Result], request: Any) -> None:
    """Send requests in a task."""
    store = store_on(url, AnsweringTask(results))
    with contextlib.suppress(StoreError, ConnectionResetError):
        asyncio.run(answer(store, request))


async def answer(store: SqlStore, request: Any) -> None:
    """Send requests with a distant deadline."""
    driver = Aio((store,))
    await driver.run(process_of(store, request, monotonic() + 60.0))


@holds(
    url=st.sampled_from(["postgresql://h/d", "mysql://h/d"]),
    request=st.sampled_from(REQUESTS),
    results=st.lists(RESULT, min_size=1, max_size=8),
)
def test_any_rows_are_understood_or_are_an_error_of_ours(
    url: str, request: Any, results: list[Result]
) -> None:
    asked(url, results, request)
    awaited(url, results, request)
