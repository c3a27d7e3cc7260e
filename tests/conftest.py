"""A private Redis server and a private file for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testkit.servers.redis import Redis


@pytest.fixture
def redis() -> Iterator[Redis]:
    # A test without it needs no client library.
    from testkit.servers.redis import Redis

    with Redis() as server:
        yield server


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The URL of a SQLite file."""
    return f"sqlite:///{tmp_path}/locks.db"
