"""Seeds without a violation, and a readable trace."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from verification.simulation.planted.sqlite import no_local_expiry
from verification.simulation.quarters import QUARTERS
from verification.simulation.scenarios import KINDS, play, report
from verification.simulation.seeds import chunks, line, must_pass, play_all, total

pytestmark = pytest.mark.first_tier

# How many of each quarter.
SEEDS, MODES = 200, 13
ENOUGH = 3000
HERE = Path(__file__).parent
# The scenario and the seed.
ONCE_FAILED = re.findall(r"^(\w[\w ]*) (\d+)$", (HERE / "seeds.txt").read_text(), re.MULTILINE)


@pytest.mark.parametrize("quarter", QUARTERS)
def test_seeds_pass(quarter: int) -> None:
    must_pass("sqlite", quarter * SEEDS, SEEDS)


@pytest.mark.parametrize("quarter", QUARTERS)
def test_seeds_with_readers_writers_and_permits_pass(quarter: int) -> None:
    must_pass("modes", quarter * MODES, MODES)
    must_pass("modes ending", quarter * MODES, MODES)
    must_pass("modes deaths", quarter * MODES, MODES, grants=2)
    must_pass("modes persistent", quarter * MODES, MODES)
    must_pass("numbered", quarter * MODES, MODES)


@pytest.mark.parametrize(("kind", "seed"), ONCE_FAILED)
def test_seeds_that_once_failed_pass(kind: str, seed: str) -> None:
    assert play(kind, int(seed)).violation is None, report(kind, int(seed))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_seed_is_played_the_same_way_twice(kind: str) -> None:
    first, second = play(kind, 7, traced=True), play(kind, 7, traced=True)
    assert first == second
    assert first.trace


def test_a_failing_seed_prints_a_readable_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    no_local_expiry(monkeypatch)
    seed = next(seed for seed in range(ENOUGH) if play("sqlite", seed).violation)
    text = report("sqlite", seed)
    assert text.startswith(f"sqlite, seed {seed}: ")
    assert re.search(r"^ +\d+\.\d{4}  m\d +user\d asks store: Acquire", text, re.MULTILINE)


def test_seeds_are_shared_out_among_the_stores_and_none_is_played_twice() -> None:
    work = chunks(["a", "b", "c"], 10, 200)
    seeds = [(kind, first + i) for kind, first, count in work for i in range(count)]
    assert len(seeds) == len(set(seeds)) == 200
    assert {kind for kind, _, _ in work[:3]} == {"a", "b", "c"}


def test_many_seeds_are_played_in_other_processes() -> None:
    found = play_all(chunks(["sqlite", "redis"], 0, 12), 1)
    assert line(total("all", list(found.values()))).split()[:2] == ["all", "12"]
