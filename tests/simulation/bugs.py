"""The planted bugs: each a file, which says what it is and puts it in."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

FOLDER = Path(__file__).parent / "planted"


class Bug(NamedTuple):
    """One file."""

    name: str
    what: str
    kind: str
    """The story that must find it."""
    first: int
    """The seed to begin with: not long before the first that finds it."""
    plant: Callable[[pytest.MonkeyPatch], None]


def bug_of(path: Path) -> Bug:
    """What is in a file. Those of the rules themselves are in no folder; SQLite has them."""
    folder = path.parent.relative_to(FOLDER)
    words = ".".join(("tests.simulation.planted", *folder.parts, path.stem))
    module = importlib.import_module(words)
    kind = getattr(module, "STORY", folder.name or "sqlite")
    name = str(path.relative_to(FOLDER).with_suffix(""))
    what = " ".join((module.__doc__ or "").split())
    return Bug(name, what, kind, getattr(module, "FIRST", 0), module.plant)


BUGS = [bug_of(path) for path in sorted(FOLDER.rglob("*.py"))]


def table() -> str:
    """All of them, as the page has them."""
    rows = [f"| `{bug.name}` | {bug.kind} | {bug.what} |" for bug in BUGS]
    return "\n".join(["| bug | story | what is wrong |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    print(table())
