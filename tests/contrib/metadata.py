"""The metadata of an installed leaselock, made from pyproject.toml.

pytest finds the plugin by it, and messages say by it what an extra installs. So their tests do not
depend on when the package was last installed.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def write_metadata(folder: Path) -> Path:
    """Write it to *folder*, which is then a place for PYTHONPATH."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    made = folder / "leaselock-0.dist-info"
    made.mkdir(parents=True)
    needs = [
        f"Requires-Dist: {requirement}; extra == '{extra}'\n"
        for extra, requirements in project["optional-dependencies"].items()
        for requirement in requirements
    ]
    head = "Metadata-Version: 2.1\nName: leaselock\nVersion: 0\n"
    (made / "METADATA").write_text(head + "".join(needs))
    points = project["entry-points"]["pytest11"]
    lines = [f"{name} = {module}\n" for name, module in points.items()]
    (made / "entry_points.txt").write_text("[pytest11]\n" + "".join(lines))
    return folder
