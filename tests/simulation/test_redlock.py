"""Seeds of stories on Redlock pass, and lost data shows what it costs."""

from __future__ import annotations

from tests.simulation.seeds import must_pass
from tests.simulation.stories import play

SEEDS = 30


def test_seeds_pass() -> None:
    must_pass("redlock", 0, 25)


def test_masters_that_forget_let_two_in() -> None:
    """What no client can mend is shown, not hidden: a restart without data breaks a Redlock."""
    told = (play("redlock that forgets", seed).violation or "" for seed in range(SEEDS))
    assert any("is believed held by" in violation for violation in told)
