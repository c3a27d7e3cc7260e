"""A shell for the tests that start the command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cli.processes import Shell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """It is on a database file of its own."""
    shell = Shell(tmp_path)
    yield shell
    shell.end()
