"""Seeds of stories on ZooKeeper pass, and planted bugs are found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.zoo import play, report

from holdfast.backends.zookeeper.holds import Holds
from holdfast.backends.zookeeper.queue import Queue
from holdfast.backends.zookeeper.stay import Stay
from holdfast.core import pace

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS, ENOUGH = 200, 1500

Patch = pytest.MonkeyPatch


def test_seeds_pass() -> None:
    outcomes = [play(seed) for seed in range(SEEDS)]
    failed = [outcome.seed for outcome in outcomes if outcome.violation]
    assert failed == [], report(failed[0])
    assert sum(outcome.grants for outcome in outcomes) > 5 * SEEDS, "the stories are empty"


def whole_session_believed(patch: Patch) -> None:
    """A proof is taken to be good for a whole session, and a bit."""
    patch.setattr(pace, "PROVEN", 1.2)


def whoever_is_before_us_holds(patch: Patch) -> None:
    """The end of the one before is taken for a release, wherever that one stood."""
    watch = Holds.watch

    def careless(self: Holds, stay: Stay, path: str, second: bool = False) -> None:
        watch(self, stay, path, second=True)

    patch.setattr(Holds, "watch", careless)


def an_ended_stay_goes_on(patch: Patch) -> None:
    """A grant that is answered after its lease was over is taken as if its node stood."""
    patch.setattr(Stay, "has_ended", lambda self: False)


def what_is_not_known_is_not_given_back(patch: Patch) -> None:
    """A node whose creation was not answered is not looked for."""
    leave = Queue.leave

    async def forgetful(self: Queue, claim: Any, *, bury: bool, until: float) -> bool:
        stay = self.stays.get(claim.holder)
        if stay is None or stay.node is None:
            return False
        return await leave(self, claim, bury=False, until=until)

    patch.setattr(Queue, "leave", forgetful)


PLANTED = (
    whole_session_believed,
    whoever_is_before_us_holds,
    an_ended_stay_goes_on,
    what_is_not_known_is_not_given_back,
)


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    assert next((seed for seed in range(ENOUGH) if play(seed).violation), None) is not None
