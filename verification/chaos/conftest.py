"""A private Redis for the tests of one module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testkit.servers.redis import Redis


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    """An empty server. Windows has none, and runs a module of this folder."""
    from testkit.servers.redis import Redis

    with Redis() as server:
        yield server
