"""Each test has a shell on a database file of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cli.processes import Shell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.end()
