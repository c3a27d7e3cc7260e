"""A private Redis for the tests of one module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from testkit.servers.redis import Redis

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    """An empty server."""
    with Redis() as server:
        yield server
