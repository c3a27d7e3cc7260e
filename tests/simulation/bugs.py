"""The planted bugs: each is a file that describes and plants one bug.

`python -m tests.simulation.bugs` prints the table of the page. With --seeds it writes into the
files which seeds find the bugs. Tests that begin with older seeds take longer.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.simulation import story
from tests.simulation.stories import KINDS, play
from tests.simulation.story import Story

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FOLDER = Path(__file__).parent / "planted"
# How many seeds may be needed to find a bug.
SEEDS = 4000
# One of so many stories is calm.
NEVER = 10**9


class Bug(NamedTuple):
    """One planted bug."""

    name: str
    what: str
    kind: str
    """The story that must find it."""
    first: int
    """The first seed to try: one that finds the bug, as long as the code under test is the same."""
    plant: Callable[[pytest.MonkeyPatch], None]
    faults: Mapping[str, float]
    """Faults that every story has then, so that few seeds are needed to find the bug."""


def bug_of(path: Path) -> Bug:
    """Load a file. Its folder names the story; the bugs outside of folders use that of SQLite."""
    folder = path.parent.relative_to(FOLDER)
    words = ".".join(("tests.simulation.planted", *folder.parts, path.stem))
    module = importlib.import_module(words)
    kind = getattr(module, "STORY", folder.name.replace("_", " ") or "sqlite")
    name = str(path.relative_to(FOLDER).with_suffix(""))
    what = " ".join((module.__doc__ or "").split())
    first, faults = getattr(module, "FIRST", 0), getattr(module, "FAULTS", {})
    return Bug(name, what, kind, first, module.plant, faults)


def strengthen(faults: Mapping[str, float], patch: pytest.MonkeyPatch) -> None:
    """Have these faults in all stories."""
    if faults:
        drawn = Story._faults
        patch.setattr(story, "CALM", NEVER)
        patch.setattr(Story, "_faults", lambda self: drawn(self)._replace(**faults))


def search(bug: Bug, seeds: int = SEEDS) -> int | None:
    """The first of so many seeds that finds the bug. Without the bug the seed must pass."""
    with pytest.MonkeyPatch.context() as patch:
        strengthen(bug.faults, patch)
        with patch.context() as planting:
            bug.plant(planting)
            played = range(bug.first, bug.first + seeds)
            found = next((seed for seed in played if play(bug.kind, seed).violation), None)
        if found is not None and bug.kind in KINDS:
            violation = play(bug.kind, found).violation
            assert violation is None, f"{bug.name}, seed {found}: {violation} without the bug"
        return found


BUGS = [bug_of(path) for path in sorted(FOLDER.rglob("*.py"))]


def table() -> str:
    """Return the table of the page."""
    rows = [f"| `{bug.name}` | {bug.kind} | {bug.what} |" for bug in BUGS]
    return "\n".join(["| bug | story | what is wrong |", "|---|---|---|", *rows, ""])


def renew_seeds() -> None:
    """Write into the files which seeds find the bugs: others, when the code under test changes."""
    for bug in BUGS:
        path = FOLDER / f"{bug.name}.py"
        text = path.read_text("utf-8")
        found = search(bug)
        if found not in (None, bug.first) and f"FIRST = {bug.first}\n" in text:
            path.write_text(text.replace(f"FIRST = {bug.first}\n", f"FIRST = {found}\n"), "utf-8")
            print(f"{bug.name}: {found} instead of {bug.first}")


if __name__ == "__main__":
    if "--seeds" in sys.argv:
        renew_seeds()
    else:
        print(table())
