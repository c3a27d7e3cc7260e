"""The planted bugs: each is a file that describes and plants one bug.

`python -m tests.simulation.bugs` prints the table of the page. With --seeds it writes into the
files which seeds find the bugs, or only into those that are named:

    python -m tests.simulation.bugs --seeds modes/two_updates redis/no_expiry
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.simulation import story
from tests.simulation.stories import KINDS, play
from tests.simulation.story import Story

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

FOLDER = Path(__file__).parent / "planted"
# How many seeds the test tries, beginning with the one that is written in the file of the bug. Rare
# bugs need thousands of other seeds, so the test would take minutes if it went on.
NEAR = 50
# How many seeds are tried to find a new one.
FAR = 8000
# One of so many stories is calm.
NEVER = 10**9


class Bug(NamedTuple):
    """One planted bug."""

    name: str
    what: str
    kind: str
    """The story that must find it."""
    first: int
    """The first seed to try: one that finds the bug, or a few others before it. After a change of
    the code under test it may be another: `make seeds`."""
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


def search(bug: Bug, seeds: int = NEAR) -> int | None:
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


def written(text: str, bug: Bug, seed: int) -> str:
    """The text of the file of a bug, with another first seed."""
    line, start = f"FIRST = {bug.first}\n", "def plant("
    if line in text:
        return text.replace(line, f"FIRST = {seed}\n")
    return text.replace(start, f"FIRST = {seed}\n\n\n{start}")


def renew_seeds(bugs: Sequence[Bug]) -> int:
    """Write into the files which seeds find the bugs; return how many bugs none finds."""
    lost = 0
    for bug in bugs:
        path = FOLDER / f"{bug.name}.py"
        found = search(bug, FAR)
        if found is None:
            lost += 1
            print(f"{bug.name}: none of {FAR} seeds finds it")
        elif found != bug.first:
            path.write_text(written(path.read_text("utf-8"), bug, found), "utf-8")
            print(f"{bug.name}: {found} instead of {bug.first}", flush=True)
    return lost


def main() -> int:
    """Print the table, or renew the seeds."""
    parser = argparse.ArgumentParser(description="The planted bugs.")
    parser.add_argument("--seeds", action="store_true", help="find the seeds again")
    parser.add_argument("names", nargs="*", help="only of these bugs, by their names in the table")
    args = parser.parse_args()
    if unknown := set(args.names) - {bug.name for bug in BUGS}:
        parser.error(f"no such bug: {', '.join(sorted(unknown))}")
    if not args.seeds:
        print(table())
        return 0
    return renew_seeds([bug for bug in BUGS if bug.name in args.names or not args.names])


if __name__ == "__main__":
    raise SystemExit(main())
