"""Traces are the same in two runs, and differ when the code does."""

from __future__ import annotations

import pytest
from verification.simulation.planted.sqlite import token_repeated
from verification.simulation.traces import differences, digest

pytestmark = pytest.mark.first_tier


def test_the_same_code_takes_the_same_steps() -> None:
    before, after = ([digest("sqlite", seed) for seed in range(3)] for _ in range(2))
    assert differences(before, after) == []


def test_another_behaviour_is_another_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [digest("sqlite", seed) for seed in range(3)]
    token_repeated(monkeypatch)
    after = [digest("sqlite", seed) for seed in range(3)]
    assert differences(before, after) == after


def test_a_seed_that_is_missing_before_differs() -> None:
    one, two = digest("sqlite", 1), digest("sqlite", 2)
    assert differences([one], [one, two]) == [two]
