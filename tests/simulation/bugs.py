"""The planted bugs: each is a file that describes and plants one bug."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

FOLDER = Path(__file__).parent / "planted"


class Bug(NamedTuple):
    """One planted bug."""

    name: str
    what: str
    kind: str
    """The story that must find it."""
    first: int
    """The first seed to try, shortly before the first that finds the bug."""
    plant: Callable[[pytest.MonkeyPatch], None]


def bug_of(path: Path) -> Bug:
    """Load a file. Bugs of the common rules are in no folder and use the SQLite story."""
    folder = path.parent.relative_to(FOLDER)
    words = ".".join(("tests.simulation.planted", *folder.parts, path.stem))
    module = importlib.import_module(words)
    kind = getattr(module, "STORY", folder.name or "sqlite")
    name = str(path.relative_to(FOLDER).with_suffix(""))
    what = " ".join((module.__doc__ or "").split())
    return Bug(name, what, kind, getattr(module, "FIRST", 0), module.plant)


BUGS = [bug_of(path) for path in sorted(FOLDER.rglob("*.py"))]


def table() -> str:
    """Return the table of the page."""
    rows = [f"| `{bug.name}` | {bug.kind} | {bug.what} |" for bug in BUGS]
    return "\n".join(["| bug | story | what is wrong |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    print(table())
