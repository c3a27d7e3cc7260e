"""The rows of a database: whatever they are, a question ends in an answer or an error of ours."""

from __future__ import annotations

import asyncio
import contextlib
import math
from time import monotonic
from typing import Any

from hypothesis import strategies as st
from tests.fuzz.properties import holds
from tests.fuzz.test_replies import CLAIM

from leaselock.backends.sql.aio import AioStore
from leaselock.backends.sql.nodes import Store
from leaselock.backends.sql.script import Result
from leaselock.backends.sql.url import parsed
from leaselock.core.backend import (
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
    CollectGarbage(),
)
NUMBER = st.sampled_from([0, 1, -1, 2**62, 10**400]) | st.integers()
CELL = st.none() | NUMBER | st.floats() | st.text(max_size=5) | st.binary(max_size=5)
# As the tables have it, but for what stands in it.
ROW = st.tuples(*[CELL] * 9) | st.lists(CELL, max_size=9).map(tuple)
RESULT = st.builds(Result, st.lists(ROW, max_size=2), st.integers(0, 2), st.integers(0, 2))


class Line:
    """A connection to a server that answers so."""

    worn = False

    def __init__(self, results: list[Result]) -> None:
        self.results = results
        self.kept: set[str] | None = set()
        self.turn = 0

    def run(self, text: object, until: float) -> list[Result]:
        """The next few of them."""
        self.turn += 1
        if self.turn > 20:
            raise ConnectionResetError
        return [self.results[(self.turn + i) % len(self.results)] for i in range(20)]

    def fresh(self) -> bool:
        """It is never used again."""
        return False

    def close(self) -> None:
        """There is none."""


class AioLine(Line):
    """The same for tasks."""

    async def run(self, text: object, until: float) -> list[Result]:  # type: ignore[override]
        return super().run(text, until)


def asked(url: str, line: Line, request: Any) -> None:
    """Ask by a thread."""

    class Senseless(Store):
        def _taken(self, until: float, bare: bool) -> Any:
            return line

    with contextlib.suppress(StoreError, ConnectionResetError):
        Senseless(parsed(url), monotonic).call(request, math.inf)


def awaited(url: str, line: Line, request: Any) -> None:
    """Ask by a task."""

    class Senseless(AioStore):
        async def _taken(self, until: float, bare: bool) -> Any:
            return line

    with contextlib.suppress(StoreError, ConnectionResetError):
        asyncio.run(answer(Senseless(parsed(url), monotonic), request))


async def answer(store: AioStore, request: Any) -> None:
    """What it answers, soon: nobody is waited for."""
    await store.call(request, monotonic() + 60.0)


@holds(
    url=st.sampled_from(["postgresql://h/d", "mysql://h/d"]),
    request=st.sampled_from(REQUESTS),
    results=st.lists(RESULT, min_size=1, max_size=8),
)
def test_any_rows_are_understood_or_are_an_error_of_ours(
    url: str, request: Any, results: list[Result]
) -> None:
    asked(url, Line(results), request)
    awaited(url, AioLine(results), request)
