"""Seeds of stories on Redlock pass, and lost data shows what it costs."""

from __future__ import annotations

from tests.simulation.seeds import must_pass
from tests.simulation.stories import play

# About one in forty shows it; these do.
FORGETFUL = (47, 146, 152, 163)
IN_PART = (20621, 20633, 20684)


def test_seeds_pass() -> None:
    must_pass("redlock", 0, 25)


def test_a_minority_may_forget_what_a_majority_of_the_others_has() -> None:
    must_pass("redlock in part", 20000, 25)


def test_masters_that_forget_let_two_in() -> None:
    """What no client can mend is shown, not hidden: a restart without data breaks a Redlock."""
    told = (play("redlock that forgets", seed).violation or "" for seed in FORGETFUL)
    assert any("is believed held by" in violation for violation in told)


def test_a_minority_that_forgets_may_let_two_in_where_no_others_have_a_majority() -> None:
    told = (play("redlock that forgets in part", seed).violation or "" for seed in IN_PART)
    assert any("is believed held by" in violation for violation in told)
