"""One ensemble of three for all tests of a run that want one."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest
from tests.servers.zookeeper import Ensemble

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOTS = count()


@pytest.fixture(scope="session")
def ensemble() -> Iterator[Ensemble]:
    """It is started by the first test that asks for it."""
    with Ensemble() as made:
        yield made


def fresh(ensemble: Ensemble, **words: object) -> str:
    """The URL of a root where nothing is locked yet."""
    query = "&".join(f"{name}={value}" for name, value in words.items())
    return f"zookeeper://{ensemble.hosts}/test{next(ROOTS)}?{query}"
