"""What only Windows has is tested there: natively, or under Wine by `test_wine.py`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from verification.windows.processes import Shell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

collect_ignore_glob = (
    ["test_wine.py"] if sys.platform == "win32" else ["test_[!w]*.py", "test_windows*.py"]
)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A folder with a lock file, and the processes that use it."""
    shell = Shell(tmp_path)
    yield shell
    shell.end()
