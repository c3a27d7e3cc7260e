"""Distributions that have a store, as far as the entry points of leaselock go."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def install(folder: Path, scheme: str, value: str) -> None:
    """Write the metadata of a distribution that has a store for the scheme."""
    project = f"{scheme.replace('-', '_')}_{value.partition('.')[0].replace(':', '_')}"
    info = folder / f"{project}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[leaselock.stores]\n{scheme} = {value}\n")
