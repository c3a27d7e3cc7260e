"""Seeds without a violation; a trace that can be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.simulation.planted import belief_without_end
from tests.simulation.seeds import play, play_chunk, report

SEEDS = 2000
ENOUGH = 3000
HERE = Path(__file__).parent
ONCE_FAILED = [int(line) for line in (HERE / "seeds.txt").read_text().split() if line.isdigit()]


@pytest.mark.parametrize("first", range(0, SEEDS, 500))
def test_seeds_pass(first: int) -> None:
    count, grants, _, failed = play_chunk(first, 500)
    assert failed == [], report(failed[0])
    assert grants > 5 * count, "the stories are empty"


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_seeds_that_once_failed_pass(seed: int) -> None:
    assert play(seed).violation is None, report(seed)


def test_a_seed_is_played_the_same_way_twice() -> None:
    first, second = play(7, traced=True), play(7, traced=True)
    assert first == second
    assert first.trace


def test_a_failing_seed_prints_a_readable_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    belief_without_end.plant(monkeypatch)
    seed = next(seed for seed in range(ENOUGH) if play(seed).violation)
    text = report(seed)
    assert text.startswith(f"seed {seed}: ")
    assert re.search(r"^ +\d+\.\d{4}  m\d +user\d asks store: Ask", text, re.MULTILINE)
