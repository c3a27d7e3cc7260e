"""A private server, and one Java process for all tests that need no Java of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from testkit.servers.redis import Redis
from verification.interop.java import Java, build

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

# Short, so that a test sees several renewals.
WATCHDOG = 1.5


@pytest.fixture(scope="session")
def server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture(scope="session")
def built() -> None:
    build()


@pytest.fixture(scope="session")
def java(built: None, server: Redis) -> Iterator[Java]:
    with Java([server.port], WATCHDOG) as java:
        java.wait()
        yield java


@pytest.fixture
def client(server: Redis) -> Iterator[leaselock.Client]:
    with leaselock.Client(server.url) as client:
        yield client
