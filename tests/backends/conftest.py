"""A directory that other users can reach, unlike tmp_path."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def public() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp()).resolve()
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)
