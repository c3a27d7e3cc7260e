"""Fixtures for tests of programs that lock. pytest loads this module by its entry point.

    def test_a_busy_order_is_refused(lock_client, lock_url):
        with lock_client.lock("order:5"):
            assert charge(5, Client(lock_url)) == "busy"

    @pytest.fixture(scope="session")
    def database(leaselock_once):
        return leaselock_once("database", create_database)    # called by one worker of xdist

This module imports nothing of the library before a test uses a fixture, so that coverage can be
measured from the first import on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from leaselock import AsyncLease, Client, Lease

T = TypeVar("T")


@pytest.fixture
def lock_url() -> str:
    """The URL of a store of this test alone, in the memory of this process."""
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def lock_client(lock_url: str) -> Iterator[Client]:
    """A client of a store of this test alone."""
    from leaselock import Client

    with Client(lock_url, label="test") as client:
        yield client


@pytest.fixture
def lose_lease(lock_url: str) -> Callable[[Lease | AsyncLease | str], Any]:
    """A function that ends a hold in the store `lock_url` by force, given its lease. The holder
    learns of it at once; for an AsyncLease, when the result is awaited, and the body is cancelled.
    Given the name of a lock, its hold is ended, too, and the holder learns of it at its next
    renewal.
    """

    def lose(lease: Any) -> Any:
        from leaselock import AsyncLease, Client

        name = lease if isinstance(lease, str) else lease.name
        with Client(lock_url, label="lose_lease") as other:
            if other.break_lock(name) is None:
                raise LookupError(f"{name!r} is not held in {lock_url}")
        if isinstance(lease, AsyncLease):
            import asyncio

            # In another task: a body is not cancelled for what it has found out itself.
            return asyncio.ensure_future(_noticed(lease))
        if lease is not name:
            with _loss():
                lease.extend(60.0)
        return None

    return lose


async def _noticed(lease: AsyncLease) -> None:
    """Let the client of a broken lease ask the store for it."""
    with _loss():
        await lease.extend(60.0)


def _loss() -> AbstractContextManager[None]:
    """Expect that the lease is reported as lost, and continue."""
    from leaselock import LeaseLost

    return contextlib.suppress(LeaseLost)


@pytest.fixture(scope="session")
def leaselock_once(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Callable[[str, Callable[[], T]], T]:
    """A function `leaselock_once(name, make)`: call *make* in one process of this test run, and
    return its result, which must be JSON, in all. An error of *make* is raised in the first
    process; the next one tries again.
    """

    def run(name: str, make: Callable[[], T]) -> T:
        from leaselock import Client

        folder = _shared(tmp_path_factory, pytestconfig)
        done = folder / f"once-{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"
        with Client(folder / "once.db") as client, client.lock(f"once:{name}"):
            if not done.exists():
                result = make()
                written = done.with_suffix(f".{os.getpid()}")
                written.write_text(json.dumps(result), "utf-8")
                written.replace(done)
            stored: Any = json.loads(done.read_text("utf-8"))
            return stored  # type: ignore[no-any-return]

    return run


def _shared(factory: pytest.TempPathFactory, config: pytest.Config) -> Path:
    """A folder that all workers of this test run share, and no other run.

    The environment does not tell: a test run that is started by a worker inherits it.
    """
    base = factory.getbasetemp()
    return base.parent if hasattr(config, "workerinput") else base
