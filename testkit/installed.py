"""Distributions that have a store, as far as the entry points of leaselock go."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]


def install(folder: Path, scheme: str, value: str) -> None:
    """Write the metadata of a distribution that has a store for the scheme."""
    project = f"{scheme.replace('-', '_')}_{value.partition('.')[0].replace(':', '_')}"
    info = folder / f"{project}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[leaselock.stores]\n{scheme} = {value}\n")


@contextmanager
def installed(at: Path, /, **stores: str) -> Iterator[Path]:
    """Install stores, by scheme, for this process and those that it starts."""
    for scheme, value in stores.items():
        install(at, scheme.replace("_", "-"), value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(at)])
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(at)]))
        yield at


@contextmanager
def documents(folder: Path) -> Iterator[Path]:
    """Install the two stores of documents for tests."""
    memory, files = "testkit.documents:MEMORY", "testkit.documents:FOLDER"
    with installed(folder, documents=memory, documents_in=files):
        yield folder
