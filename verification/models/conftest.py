"""A file, and clients of it that are closed when the test is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from verification.models.process import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path.resolve() / "locks.db"


@pytest.fixture
def clients(path: Path) -> Iterator[Callable[[str], Client]]:
    made: list[Client] = []

    def make(name: str) -> Client:
        made.append(Client(path, name))
        return made[-1]

    yield make
    for client in made:
        client.close()
