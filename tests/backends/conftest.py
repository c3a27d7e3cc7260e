"""Databases in each protocol, and a directory that other users can reach, unlike tmp_path."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.backends.sql.stage import DATABASES, PROTOCOLS, Stage
from tests.surroundings import reachable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testkit.servers.mariadb import MariaDB
    from testkit.servers.postgres import Postgres


@pytest.fixture
def public() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir=reachable())).resolve()
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(params=DATABASES)
def server(request: pytest.FixtureRequest) -> Postgres | MariaDB:
    """Each server in turn."""
    found: Postgres | MariaDB = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=PROTOCOLS)
def stage(server: Postgres | MariaDB, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Each protocol on each server."""
    made = Stage(server, request.param)
    yield made
    made.close()
