"""Every planted bug is found by a judge, and is counted on the page."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest
from verification.simulation import bugs
from verification.simulation.bugs import (
    BUGS,
    NEAR,
    Found,
    PlantError,
    known,
    modules,
    renew_seed,
    search,
    summary,
)
from verification.simulation.judge import Invariant
from verification.simulation.plant import NAMED, Bug

from leaselock._core.client.lease_handle import LeaseHandle
from leaselock._core.client.mutex import Mutex

pytestmark = pytest.mark.first_tier

PAGE = Path(__file__).parent / "planted.md"


def tiers() -> list[Any]:
    """Return the bugs. Of each module and invariant, the one that is found most often is in the
    first tier.
    """
    found = known()
    often = sorted(BUGS, key=lambda bug: found[bug.name].seeds_per_find or math.inf, reverse=True)
    first = {(bug.plant.__module__, found[bug.name].invariant): bug for bug in often}
    return [
        pytest.param(bug, marks=() if bug in first.values() else pytest.mark.variant)
        for bug in BUGS
    ]


@pytest.mark.parametrize("bug", tiers(), ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    first = known()[bug.name].seed
    assert search(bug, first) is not None, (
        f"no seed from {first} to {first + NEAR - 1} finds {bug.name}. After a change of the code "
        f"under test others do, and this writes one into found.tsv: "
        f"python -m verification.simulation.bugs --seeds {bug.name}"
    )


def test_a_plant_that_crashes_has_found_nothing() -> None:
    def plant(patch: pytest.MonkeyPatch) -> None:
        async def release(self: LeaseHandle) -> None:
            raise KeyError("the plant is wrong")

        patch.setattr(LeaseHandle, "release", release)

    bug = NAMED["release_unchecked"]._replace(plant=plant)
    with pytest.raises(PlantError, match="release_unchecked, sqlite, seed 0: KeyError"):
        search(bug, 0)


def test_a_plant_that_has_permits_refused_has_found_nothing() -> None:
    """The errors of the library for wrong numbers of permits are ValueErrors, too."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        acquire = Mutex.try_acquire

        async def refusing(self: Mutex, *args: Any) -> LeaseHandle | None:
            if self.options.mode == "permits":
                raise ValueError("the plant is wrong")
            return await acquire(self, *args)

        patch.setattr(Mutex, "try_acquire", refusing)

    bug = NAMED["modes/permits_off_by_one"]._replace(plant=plant)
    with pytest.raises(PlantError, match="modes/permits_off_by_one, modes, seed 20000: ValueError"):
        search(bug, 20_000)


def test_seeds_are_written_and_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = known()
    monkeypatch.setattr(bugs, "FOUND", tmp_path / "found.tsv")
    bugs.write(before)
    assert known() == before


def test_a_renewed_seed_keeps_the_invariant_of_most_finds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bugs, "FOUND", tmp_path / "found.tsv")
    bug = NAMED["token_repeated"]
    for seeds_per_find, invariant in ((2.5, "order"), (0.0, "token"), (math.inf, "token")):
        bugs.write({bug.name: Found(20_000, "order", seeds_per_find)})
        renewed = renew_seed(bug)
        assert renewed is not None
        assert renewed.invariant == invariant


def test_every_planted_bug_has_its_seed_and_no_other_has() -> None:
    assert known().keys() == NAMED.keys()


def test_every_invariant_is_violated_by_a_planted_bug() -> None:
    """A judge that no bug needs has not shown that it can see anything."""
    violated = Counter(found.invariant for found in known().values())
    assert violated.keys() == set(get_args(Invariant)), violated


def test_there_are_enough_planted_bugs() -> None:
    kinds = {bug.kind for bug in BUGS}
    assert len(BUGS) >= 30
    assert kinds >= {"sqlite", "redis", "redlock", "zookeeper", "sql"}


def test_the_page_counts_them() -> None:
    page = PAGE.read_text("utf-8")
    missing = [part for part in (summary(), modules()) if part not in page]
    assert not missing, "python -m verification.simulation.bugs prints what the page must have"
