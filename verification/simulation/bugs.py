"""The planted bugs: each is a function that describes and plants one bug (`plant.py`).

`found.tsv` says of each which seed finds it, which invariant it violates, and how many seeds that
took on average. `python -m verification.simulation.bugs` lists them, after what the page has. With
--seeds it looks for seeds again where the known ones find nothing, with --measure it counts anew;
both write `found.tsv`, and take names of bugs:

    python -m verification.simulation.bugs --seeds modes/two_updates redis/no_expiry
"""

from __future__ import annotations

import argparse
import importlib
import math
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from verification.simulation.plant import NAMED, Bug
from verification.simulation.scenario import CRASH, LONG_ONES, Scenario
from verification.simulation.scenarios import KINDS, play

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from verification.simulation.scenario import Outcome

FOLDER = Path(__file__).parent / "planted"
FOUND = Path(__file__).parent / "found.tsv"
# How many seeds the test tries, beginning with the one in `found.tsv`. Rare bugs need thousands of
# other seeds, so the test would take minutes if it went on.
NEAR = 50
# How many seeds are tried to find a new one, and how many finds a count ends with.
FAR = 8000
FINDS = 3
# A bug that takes more seeds than this is rare.
RARE = 1000
# One scenario in NEVER is calm.
NEVER = 10**9


class Found(NamedTuple):
    """What is known of the seeds that find a bug."""

    seed: int
    invariant: str
    seeds_per_find: float
    """0 if that was not counted; infinite if none of FAR seeds finds it but the known one does."""


class PlantError(Exception):
    """An operation ended with an error that only the plant can have caused.

    Such a run says nothing about the judges, so it does not count as a find.
    """


def known() -> dict[str, Found]:
    """Read `found.tsv`."""
    rows = [line.split("\t") for line in FOUND.read_text("utf-8").splitlines()[1:]]
    return {
        name: Found(int(seed), invariant, float(seeds)) for name, seed, invariant, seeds in rows
    }


def write(found: Mapping[str, Found]) -> None:
    """Write `found.tsv`."""
    rows = [
        f"{name}\t{one.seed}\t{one.invariant}\t{one.seeds_per_find:.4g}"
        for name, one in sorted(found.items())
    ]
    FOUND.write_text("\n".join(["bug\tseed\tinvariant\tseeds per find", *rows, ""]), "utf-8")


for path in sorted(FOLDER.glob("*.py")):
    importlib.import_module(f"verification.simulation.planted.{path.stem}")
BUGS = [NAMED[name] for name in sorted(NAMED)]


def strengthen(bug: Bug, patch: pytest.MonkeyPatch) -> None:
    """Have the faults and the settings of a bug in all scenarios."""
    for name, value in bug.settings.items():
        patch.setattr(f"verification.simulation.{name}", value)
    if faults := bug.faults:
        drawn = Scenario._faults
        patch.setattr(Scenario, "one_calm_in", NEVER)
        patch.setattr(Scenario, "_faults", lambda self: drawn(self)._replace(**faults))


def play_planted(bug: Bug, seed: int) -> Outcome:
    """Play a seed with the bug. PlantError if an operation ends with an unexpected error."""
    with pytest.MonkeyPatch.context() as patch:
        strengthen(bug, patch)
        bug.plant(patch)
        outcome = play(bug.kind, seed)
    if outcome.invariant == CRASH:
        raise PlantError(f"{bug.name}, {bug.kind}, seed {seed}: {outcome.violation}")
    return outcome


def search(bug: Bug, first: int, seeds: int = NEAR) -> Outcome | None:
    """The first of these seeds that finds the bug. Without the bug the seed must pass."""
    played = (play_planted(bug, seed) for seed in range(first, first + seeds))
    found = next((outcome for outcome in played if outcome.violation), None)
    if found is not None and bug.kind in KINDS:
        with pytest.MonkeyPatch.context() as patch:
            strengthen(bug, patch)
            violation = play(bug.kind, found.seed).violation
        assert violation is None, f"{bug.name}, seed {found.seed}: {violation} without the bug"
    return found


def measure(bug: Bug) -> Found | None:
    """Count how many seeds a find takes; the invariant is that of most finds. None if none of FAR
    seeds finds it, nor the known one.
    """
    finds: list[Outcome] = []
    played = 0
    while len(finds) < FINDS and played < FAR:
        outcome = play_planted(bug, LONG_ONES + played)
        played += 1
        if outcome.violation:
            finds.append(outcome)
    if not finds:
        before = known().get(bug.name)
        found = None if before is None else search(bug, before.seed)
        if found is None:
            return None
        return Found(found.seed, str(found.invariant), math.inf)
    seen = [str(outcome.invariant) for outcome in finds]
    return Found(finds[0].seed, max(seen, key=seen.count), played / len(finds))


def shown(seeds: float) -> str:
    """How the table has a number of seeds."""
    if seeds == math.inf:
        return f"> {FAR}"
    return f"{seeds:.3g}" if seeds < RARE else f"{seeds:.0f}"


def summary() -> str:
    """Return the sentences of the page about all bugs."""
    found = known()
    counts = Counter(one.invariant for one in found.values()).most_common()
    violated = ", ".join(f"{name} {count}" for name, count in counts)
    rare = [f"`{name}`" for name, one in sorted(found.items()) if one.seeds_per_find > RARE]
    return (
        f"How many bugs violate each invariant: {violated}. "
        f"Found by one seed in more than {RARE:,}: {', '.join(rare) or 'none'}."
    )


def modules() -> str:
    """Return the table of the page: the modules, and what their bugs violate."""
    found = known()
    of_module: dict[str, list[Found]] = {}
    for bug in BUGS:
        of_module.setdefault(bug.plant.__module__.rpartition(".")[2], []).append(found[bug.name])
    rows = []
    for module, ones in sorted(of_module.items()):
        violated = ", ".join(dict(Counter(one.invariant for one in ones).most_common()))
        most = max(one.seeds_per_find for one in ones)
        rows.append(f"| `{module}` | {len(ones)} | {violated} | {shown(most)} |")
    head = ["| module | bugs | violate | most seeds per find |", "|---|--:|---|--:|"]
    return "\n".join([*head, *rows, ""])


def table() -> str:
    """Return the table of all bugs."""
    found = known()
    rows = [
        f"| `{bug.name}` | {bug.kind} | {bug.what} | {found[bug.name].invariant} "
        f"| {shown(found[bug.name].seeds_per_find)} |"
        for bug in BUGS
    ]
    head = [
        "| bug | scenario | what is wrong | violates | seeds per find |",
        "|---|---|---|---|--:|",
    ]
    return "\n".join([*head, *rows, ""])


def renew_seed(bug: Bug) -> Found | None:
    """The seed that finds the bug now: the known one, a near one, or the first of many.

    The invariant of most finds stays, although this seed may violate another one.
    """
    before = known().get(bug.name)
    if before is None or (found := search(bug, before.seed)) is None:
        return measure(bug)
    counted = 0 < before.seeds_per_find < math.inf
    invariant = before.invariant if counted else str(found.invariant)
    return before._replace(seed=found.seed, invariant=invariant)


def _renewed(name: str, counted: bool) -> tuple[Found | None, str]:
    try:
        return (measure if counted else renew_seed)(NAMED[name]), f"none of {FAR} seeds finds it"
    except (PlantError, AssertionError) as error:
        return None, str(error)


def renew(bugs: Sequence[Bug], counted: bool, jobs: int) -> int:
    """Write into `found.tsv` which seeds find the bugs; return how many bugs none finds."""
    lost = 0
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        work = {pool.submit(_renewed, bug.name, counted): bug for bug in bugs}
        for job in as_completed(work):
            (found, why), bug = job.result(), work[job]
            if found is None:
                lost += 1
                print(f"{bug.name}: {why}", flush=True)
                continue
            all_found = known()
            if found != all_found.get(bug.name):
                # After each, so that a run that is stopped keeps what it found.
                write({**all_found, bug.name: found})
                print(f"{bug.name}: {found}", flush=True)
    return lost


def main() -> int:
    """Print the table, or renew the seeds."""
    parser = argparse.ArgumentParser(description="The planted bugs.")
    parser.add_argument("--seeds", action="store_true", help="find the seeds again")
    parser.add_argument("--measure", action="store_true", help="count the seeds that a find takes")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("names", nargs="*", help="only of these bugs, by their names in the table")
    args = parser.parse_args()
    if unknown := set(args.names) - NAMED.keys():
        parser.error(f"no such bug: {', '.join(sorted(unknown))}")
    if not (args.seeds or args.measure):
        print(f"{summary()}\n\n{modules()}\n{table()}")
        return 0
    wanted = [bug for bug in BUGS if bug.name in args.names or not args.names]
    return renew(wanted, args.measure, args.jobs)


if __name__ == "__main__":
    raise SystemExit(main())
