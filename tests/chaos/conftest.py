"""One private Redis for the stories, which empty it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.servers.redis import Redis

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def server() -> Iterator[Redis]:
    with Redis() as server:
        yield server
