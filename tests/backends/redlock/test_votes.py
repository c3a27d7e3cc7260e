"""Whose word counts in a Redlock: not that of a master whose vote was given back, for the request
that gives it back may be late, and end the vote after it was counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from verification.models.sides import claim_of

from leaselock._backends.redis.backend import CAPABILITIES
from leaselock._backends.redlock import pending_releases
from leaselock._backends.redlock.master import Master, RaiseToken, ReleaseGrant
from leaselock._backends.redlock.protocol import Redlock
from leaselock._backends.redlock.votes import Votes
from leaselock._core.contract.backend import (
    Acquire,
    Busy,
    Grant,
    LifetimeSet,
    Release,
    Released,
    Renew,
    SetLifetime,
)
from leaselock._core.contract.effects import Effect, Spawn, Wait
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from leaselock._core.contract.effects import Operation

pytestmark = pytest.mark.covers

CLAIM = claim_of("0" * 32, "a", 1, 4.0)
SOON = 10.0
BUSY = Busy(None, 1.0, ())
OLD, NEW = Grant(25, ()), Grant(26, ())
LOST = OutcomeUnknown("no answer")
BACK = Released("held", ())
# The first three granted the lock. The fourth repeats the vote that was released.
WON = (NEW, NEW, OLD, NEW, BUSY)


class Masters:
    """Five masters with predefined answers, driven step by step."""

    def __init__(self) -> None:
        masters: Any = [Master(f"m{i}", Locks(self, i)) for i in range(5)]  # type: ignore[arg-type]
        self.locks = Redlock(masters, CAPABILITIES, lambda: 0.0, lambda: 0.5)
        self.say: dict[type, tuple[Any, ...]] = {}
        self.requests: list[tuple[int, Any]] = []

    def run(self, operation: Operation[Any]) -> Any:
        """Run an operation to its end; the operations that it spawns run first."""
        answer: Any = None
        error: Exception | None = None
        while True:
            try:
                effect = operation.send(answer) if error is None else operation.throw(error)
            except StopIteration as done:
                return done.value
            answer, error = self._answer(effect)

    def _answer(self, effect: Effect[Any]) -> tuple[Any, Exception | None]:
        if isinstance(effect, Spawn):
            self.run(effect.operation)
        return isinstance(effect, Wait) and effect.signal.is_set, None

    def won_after_a_loss(self) -> None:
        """A try with one vote whose release failed, and then a successful one."""
        self.say = {Acquire: (BUSY, BUSY, OLD, BUSY, BUSY), ReleaseGrant: (LOST,) * 5}
        assert isinstance(self.run(self.locks.acquire(CLAIM, wait=True, until=SOON)), Busy)
        self.locks.all.failed.clear()
        self.say = {Acquire: WON, ReleaseGrant: (LOST,) * 5}
        grant = self.run(self.locks.acquire(CLAIM, wait=True, until=SOON))
        assert grant == NEW


class Locks:
    """The locks of one master."""

    def __init__(self, masters: Masters, number: int) -> None:
        self.masters = masters
        self.number = number

    async def request(self, request: Any, until: float) -> Any:
        """Return the predefined answer of the master."""
        self.masters.requests.append((self.number, request))
        said = self.masters.say[type(request)][self.number]
        if isinstance(said, Exception):
            raise said
        return said

    def forget(self, claim: Any) -> None:
        """Do nothing: no claim waits."""


def renewed(masters: Masters, *words: bool | Exception) -> Any:
    """Return the result of a renewal with these answers."""
    answers = [[word] if isinstance(word, bool) else word for word in words]
    masters.say[Renew] = tuple(answers)
    masters.locks.all.failed.clear()
    return masters.run(masters.locks.renew([CLAIM], SOON))


def test_a_released_vote_does_not_count_in_a_renewal() -> None:
    masters = Masters()
    masters.won_after_a_loss()
    assert renewed(masters, True, True, True, LOST, False) == [None]
    assert renewed(masters, True, True, True, True, False) == [True]


def test_a_released_vote_is_no_evidence_of_a_loss() -> None:
    masters = Masters()
    masters.won_after_a_loss()
    assert renewed(masters, True, False, False, LOST, False) == [None]


def test_a_released_vote_does_not_detach_the_hold() -> None:
    masters = Masters()
    masters.won_after_a_loss()
    yes, no = LifetimeSet(True, ()), LifetimeSet(False, ())
    masters.say[SetLifetime] = (yes, yes, yes, no, no)
    assert not masters.run(masters.locks.set_lifetime(CLAIM, "lease", SOON)).held


def test_a_master_that_voted_again_counts_again() -> None:
    masters = Masters()
    masters.won_after_a_loss()
    masters.say = {Acquire: (NEW, NEW, NEW, BUSY, BUSY), ReleaseGrant: (BACK,) * 5}
    grant = masters.run(masters.locks.acquire(CLAIM, wait=True, until=SOON))
    assert isinstance(grant, Grant)
    assert renewed(masters, True, True, True, False, False) == [True]


def test_a_failed_release_of_a_try_is_repeated() -> None:
    masters = Masters()
    masters.say = {
        Acquire: (BUSY, BUSY, OLD, BUSY, BUSY),
        ReleaseGrant: (LOST,) * 5,
        Release: (BACK,) * 5,
    }
    assert isinstance(masters.run(masters.locks.acquire(CLAIM, wait=False, until=SOON)), Busy)
    assert masters.requests[-1] == (2, Release(CLAIM, tombstone=True))
    assert not any(masters.locks.pending_releases.requests.values())


def test_an_undone_vote_is_released_even_if_its_token_was_raised() -> None:
    masters = Masters()
    masters.say = {Acquire: (OLD, NEW, OLD, BUSY, BUSY), RaiseToken: (LOST,) * 5}
    masters.say |= {ReleaseGrant: (BACK,) * 5, Release: (BACK,) * 5}
    assert isinstance(masters.run(masters.locks.acquire(CLAIM, wait=False, until=SOON)), Busy)
    released = {node for node, request in masters.requests if isinstance(request, Release)}
    assert released == {0, 1, 2}


def test_a_late_vote_for_a_released_claim_is_released_with_a_tombstone() -> None:
    masters = Masters()
    masters.say = {Release: (BACK,) * 5}
    masters.locks.pending_releases.add(2, CLAIM)
    masters.locks.pending_releases.add(2, CLAIM, OLD.token)
    assert masters.run(masters.locks.pending_releases.send(2))
    assert masters.requests == [(2, Release(CLAIM, tombstone=True))]


def test_no_state_is_kept_of_a_try() -> None:
    masters = Masters()
    masters.say = {
        Acquire: (BUSY, BUSY, OLD, LOST, BUSY),
        ReleaseGrant: (BACK,) * 5,
        Release: (BACK,) * 5,
    }
    masters.run(masters.locks.acquire(CLAIM, wait=False, until=SOON))
    masters.locks.forget(CLAIM)
    assert not masters.locks.claims


def test_releases_for_a_silent_master_are_not_kept_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pending_releases, "MOST", 1)
    pending = Masters().locks.pending_releases
    for serial in (1, 2):
        pending.add(0, claim_of("0" * 32, "a", serial, 4.0))
    assert list(pending.requests[0]) == [claim_of("0" * 32, "a", 2, 4.0).id]


def test_clients_that_wait_for_a_silent_master_repeat_releases_at_different_times() -> None:
    def pause(chance: float) -> float:
        masters = Masters()
        masters.locks.random = lambda: chance
        masters.locks.after_fork()
        masters.say = {Release: (LOST,) * 5}
        pending = masters.locks.pending_releases
        pending.add(0, CLAIM)
        effect = pending._repeat().send(None)
        assert isinstance(effect, Wait)
        return effect.until

    assert pause(0.9) > 5 * pause(0.0) > 0.0


@pytest.mark.parametrize(
    ("failed", "reason"),
    [
        ([], "unreachable"),
        (["denied"], "denied"),
        (["misconfigured", "unreachable", "misconfigured"], "misconfigured"),
        (["misconfigured", "unreachable"], "unreachable"),
        (["misconfigured", "unreachable", "denied"], "unreachable"),
    ],
)
def test_the_reason_is_that_of_so_many_masters_that_the_others_are_no_majority(
    failed: list[Any], reason: str
) -> None:
    votes = Votes(3)
    votes.requests = 3
    for master, why in enumerate(failed):
        votes.fail(master, NotApplied("no", why))
    assert votes.error("acquire", ["m0", "m1", "m2"]).reason == reason
