"""Seeds of stories on PostgreSQL pass, and planted bugs are found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.sql import play, report

from holdfast.backends.sql.shelf import LockShelf

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.backend import Claim, Held

SEEDS, ENOUGH = 120, 1000

Patch = pytest.MonkeyPatch


def test_seeds_pass() -> None:
    outcomes = [play(seed) for seed in range(SEEDS)]
    failed = [outcome.seed for outcome in outcomes if outcome.violation]
    assert failed == [], report(failed[0])
    assert sum(outcome.grants for outcome in outcomes) > 5 * SEEDS, "the stories are empty"


def tokens_stand_still(patch: Patch) -> None:
    """A hand-over takes the token that is there."""
    grant = LockShelf.grant

    def careless(self: LockShelf, claim: Claim, expires: float) -> Held:
        before = self.token
        held = grant(self, claim, expires)._replace(token=before)
        self.token = before
        self.keep(held)
        return held

    patch.setattr(LockShelf, "grant", careless)


def the_buried_may_ask(patch: Patch) -> None:
    """A question that comes after its asker gave up is answered."""
    patch.setattr(LockShelf, "buried", lambda self, holder: False)


def the_clock_is_ahead(patch: Patch) -> None:
    """Leases are compared with a clock that is not the one they were written by."""
    make = LockShelf.__init__

    def careless(self: LockShelf, *arguments: Any) -> None:
        make(self, *arguments)
        self.now += 0.7

    patch.setattr(LockShelf, "__init__", careless)


def who_leaves_stays_in_line(patch: Patch) -> None:
    """Its row is not removed, so it is handed the lock when it wants it no more."""
    leave = LockShelf.quit

    def careless(self: LockShelf, holder: str) -> bool:
        was_there = leave(self, holder)
        if was_there:
            self.writes.pop()
        return was_there

    patch.setattr(LockShelf, "quit", careless)


PLANTED = (
    tokens_stand_still,
    the_buried_may_ask,
    the_clock_is_ahead,
    who_leaves_stays_in_line,
)


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    assert next((seed for seed in range(ENOUGH) if play(seed).violation), None) is not None
