"""Seeds without a violation, and a readable trace."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from verification.simulation.planted.sqlite import no_local_expiry
from verification.simulation.quarters import QUARTERS, seeds_of
from verification.simulation.scenarios import CLAIMS, KINDS, history, play, report
from verification.simulation.seeds import chunks, line, must_pass, play_all, total

pytestmark = pytest.mark.first_tier

# How many of each quarter.
SEEDS, MODES = 200, 13
ENOUGH = 3000
HERE = Path(__file__).parent
# The scenario and the seed.
ONCE_FAILED = re.findall(r"^(\w[\w ]*) (\d+)$", (HERE / "seeds.txt").read_text(), re.MULTILINE)


@pytest.mark.parametrize("quarter", QUARTERS)
def test_seeds_pass(quarter: tuple[float, float]) -> None:
    must_pass("sqlite", *seeds_of(quarter, SEEDS))


@pytest.mark.parametrize("quarter", QUARTERS)
def test_seeds_with_readers_writers_and_permits_pass(quarter: tuple[float, float]) -> None:
    must_pass("modes", *seeds_of(quarter, MODES))
    must_pass("modes ending", *seeds_of(quarter, MODES))
    must_pass("modes deaths", *seeds_of(quarter, MODES), grants=2)
    must_pass("modes persistent", *seeds_of(quarter, MODES))
    must_pass("numbered", *seeds_of(quarter, MODES))


@pytest.mark.parametrize(("kind", "seed"), ONCE_FAILED)
def test_seeds_that_once_failed_pass(kind: str, seed: str) -> None:
    assert play(kind, int(seed)).violation is None, report(kind, int(seed))


@pytest.mark.parametrize(
    "kind",
    [
        # They are deterministic for the same reason, so a few show it in the first tier.
        pytest.param(kind, marks=() if n % 4 == 0 else pytest.mark.statistical)
        for n, kind in enumerate(sorted(KINDS))
    ],
)
def test_a_seed_is_played_the_same_way_twice(kind: str) -> None:
    first, second = play(kind, 7, traced=True), play(kind, 7, traced=True)
    assert first == second
    assert first.trace


def test_a_failing_seed_prints_the_history_of_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    no_local_expiry(monkeypatch)
    seed = next(seed for seed in range(ENOUGH) if play("sqlite", seed).violation)
    first, *told = report("sqlite", seed).splitlines()
    assert first.startswith(f"sqlite, seed {seed}: ")
    claims = CLAIMS.findall(first)
    assert claims
    title, *lines = told[: told.index("the last steps:")]
    assert title == f"the history of {', '.join(sorted(claims))}:"
    for claim in claims:
        assert any("asks store: Acquire(" in line and f"'{claim}'" in line for line in lines)
    assert any(" is answered Grant(" in line for line in lines)
    asked = re.compile(r"^ +\d+\.\d{4}  m\d +user\d asks store: Acquire")
    assert any(map(asked.search, lines))


def test_a_violation_without_a_claim_is_shown_with_the_history_of_its_lock() -> None:
    lines = ["1.0  m1  user0 asks store: Acquire(name='a')", "1.1  m1  user0 is answered Busy()"]
    lines += ["1.2  m2  user0 asks store: Acquire(name='b')", "1.3  m2  user0 is answered Busy()"]
    outcome = play("sqlite", 0)._replace(violation="'a' was idle", trace=lines)
    assert history(outcome) == ["the history of 'a':", *lines[:2]]
    assert history(outcome._replace(violation="nothing is named")) == []


def test_seeds_are_shared_out_among_the_stores_and_none_is_played_twice() -> None:
    work = chunks(["a", "b", "c"], 10, 200)
    seeds = [(kind, first + i) for kind, first, count in work for i in range(count)]
    assert len(seeds) == len(set(seeds)) == 200
    assert {kind for kind, _, _ in work[:3]} == {"a", "b", "c"}


def test_many_seeds_are_played_in_other_processes() -> None:
    found = play_all(chunks(["sqlite", "redis"], 0, 12), 1)
    assert line(total("all", list(found.values()))).split()[:2] == ["all", "12"]
