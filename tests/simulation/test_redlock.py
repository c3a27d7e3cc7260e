"""Seeds of stories on Redlock pass, and lost data shows what it costs."""

from __future__ import annotations

from tests.simulation.seeds import must_pass
from tests.simulation.stories import play

# About one in sixty shows it; these are some that do.
FORGETFUL = range(90, 112)


def test_seeds_pass() -> None:
    must_pass("redlock", 0, 25)


def test_masters_that_forget_let_two_in() -> None:
    """What no client can mend is shown, not hidden: a restart without data breaks a Redlock."""
    told = (play("redlock that forgets", seed).violation or "" for seed in FORGETFUL)
    assert any("is believed held by" in violation for violation in told)
