"""Programs of users' size as processes, and a private Redis for the tests of one module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from testkit.servers.redis import Redis
from tests.contrib.conftest import programs

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["programs", "redis"]


@pytest.fixture
def redis() -> Iterator[Redis]:
    """An empty server, which keeps its data when it is restarted."""
    with Redis(appendonly=True) as server:
        yield server
