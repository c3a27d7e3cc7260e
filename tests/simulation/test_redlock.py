"""Seeds of stories on Redlock pass, planted bugs are found, and lost data shows what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.redlock import ForgetfulStory, play, report

from holdfast.backends.redlock import protocol
from holdfast.backends.redlock.ballot import Ballot
from holdfast.backends.redlock.protocol import Redlock

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.backend import Claim

SEEDS, ENOUGH = 150, 1500

Patch = pytest.MonkeyPatch


def test_seeds_pass() -> None:
    outcomes = [play(seed) for seed in range(SEEDS)]
    failed = [outcome.seed for outcome in outcomes if outcome.violation]
    assert failed == [], report(failed[0])
    assert sum(outcome.grants for outcome in outcomes) > 5 * SEEDS, "the stories are empty"


def test_masters_that_forget_let_two_in() -> None:
    """What no client can mend is shown, not hidden: a restart without data breaks a Redlock."""
    told = (play(seed, kind=ForgetfulStory).violation or "" for seed in range(SEEDS))
    assert any("is believed held by" in violation for violation in told)


def half_is_a_majority(patch: Patch) -> None:
    """One vote fewer than a majority is enough."""
    patch.setattr(Ballot, "quorum", property(lambda ballot: ballot.masters // 2))


def what_was_given_back_counts(patch: Patch) -> None:
    """A vote whose undoing is under way is counted again."""
    patch.setattr(Redlock, "_votes", lambda self, ballot, claim: ballot.votes())


def tokens_are_not_written_back(patch: Patch) -> None:
    """The greatest token of the voters is taken, and the others are left behind."""
    patch.setattr(protocol, "agreed", lambda tokens, quorum: True)


def silence_is_forgotten(patch: Patch) -> None:
    """A claim is not buried where a question of it may still arrive."""
    leave = Redlock.leave

    async def careless(self: Redlock, claim: Claim, *, bury: bool, until: float) -> bool:
        self.unsure.discard(claim.holder)
        return await leave(self, claim, bury=False, until=until)

    patch.setattr(Redlock, "leave", careless)


def debts_are_paid_too_early(patch: Patch) -> None:
    """Who did not answer is told at once to forget the claim, which may yet be granted."""
    ballot_of = Redlock._ballot

    async def hasty(self: Redlock, claim: Claim, *words: Any) -> Ballot:
        ballot = await ballot_of(self, claim, *words)
        for master in ballot.errors:
            self.debts.owe(master, claim)
        await self.debts.start()
        return ballot

    patch.setattr(Redlock, "_ballot", hasty)


# Each with a seed not long before the first that finds it: what is rare takes thousands.
PLANTED = (
    (what_was_given_back_counts, 1760),
    (half_is_a_majority, 100),
    (tokens_are_not_written_back, 0),
    (silence_is_forgotten, 830),
    (debts_are_paid_too_early, 0),
)


@pytest.mark.parametrize(("plant", "first"), PLANTED)
def test_a_planted_bug_is_found(
    plant: Callable[[Patch], None], first: int, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    seeds = range(first, first + ENOUGH)
    assert next((seed for seed in seeds if play(seed).violation), None) is not None
