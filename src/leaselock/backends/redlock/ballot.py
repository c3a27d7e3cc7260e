"""One request put to several masters, and what their answers come to. Pure counting.

A master that does not answer has said neither yes nor no. What a majority has said stands, for
any two majorities have a master in common.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from leaselock.core.backend import Busy, Claim, Grant, LifetimeSet, LockState, Released
from leaselock.core.effects import Signal
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


class Ballot:
    """The answers so far."""

    __slots__ = ("answers", "asked", "changed", "errors", "failed", "final", "masters")

    def __init__(self, masters: int) -> None:
        self.masters = masters
        self.asked = 0
        self.answers: dict[int, Any] = {}
        self.errors: dict[int, StoreError] = {}
        self.changed = Signal()
        self.failed = False
        self.final = False

    @property
    def quorum(self) -> int:
        """How many are a majority."""
        return self.masters // 2 + 1

    @property
    def complete(self) -> bool:
        """Nobody is left to answer."""
        return len(self.answers) + len(self.errors) >= self.asked

    def answer(self, master: int, answer: object) -> None:
        """A master has answered."""
        self.answers[master] = answer
        self.changed.set()

    def fail(self, master: int, error: StoreError) -> None:
        """A master has not."""
        self.errors[master] = error
        self.changed.set()

    def heard(self) -> bool:
        """Whether a majority has answered."""
        return len(self.answers) >= self.quorum

    def votes(self) -> dict[int, int]:
        """Who granted, with which token."""
        return {i: a.token for i, a in self.answers.items() if isinstance(a, Grant)}

    def settled(self, yes: int) -> bool:
        """Whether so many in favour, or the rest against, decide it already."""
        no = len(self.answers) + len(self.errors) - yes
        return yes >= self.quorum or no > self.masters - self.quorum

    def verdict(self, yes: int, no: int) -> bool | None:
        """What a majority says; None where neither side has it."""
        if yes >= self.quorum:
            return True
        return False if no > self.masters - self.quorum else None

    def error(self, what: str, shown: Sequence[str]) -> StoreError:
        """Why there is no majority. It is certain that nothing was applied only if all refused."""
        told = "; ".join(f"{shown[i]}: {error}" for i, error in sorted(self.errors.items()))
        silent = self.masters - len(self.answers)
        message = f"{what}: {silent} of {self.masters} masters did not answer ({told or 'no time'})"
        refused = all(isinstance(error, NotApplied) for error in self.errors.values())
        nothing = refused and self.complete and not self.votes()
        return NotApplied(message) if nothing else OutcomeUnknown(message)


def agreed(tokens: Collection[int], quorum: int) -> bool:
    """Whether a majority has the greatest of the tokens, so that all later ones are greater."""
    return Counter(tokens)[max(tokens)] >= quorum


def busiest(ballot: Ballot) -> Busy:
    """Of those who are busy, the answer that most gave."""
    replies = [reply for reply in ballot.answers.values() if isinstance(reply, Busy)]
    holders = Counter(reply.held.id for reply in replies if reply.held is not None)
    if not holders:
        return replies[0] if replies else Busy(None, 0.0, ())
    most = holders.most_common(1)[0][0]
    return next(r for r in replies if r.held is not None and r.held.id == most)


def merged(name: str, sights: Mapping[int, LockState], quorum: int) -> LockState:
    """What several masters see of one lock: its holder is who has a majority of them."""
    waiting: dict[str, Claim] = {}
    for _, sight in sorted(sights.items()):
        waiting |= {claim.id: claim for claim in sight.waiting if claim.id not in waiting}
    votes = Counter(sight.held.id for sight in sights.values() if sight.held is not None)
    holder, count = votes.most_common(1)[0] if votes else ("", 0)
    if count < quorum:
        return LockState.exclusive(name, None, None, tuple(waiting.values()))
    return _held(name, holder, sights, quorum, tuple(c for h, c in waiting.items() if h != holder))


def _held(
    name: str,
    holder: str,
    sights: Mapping[int, LockState],
    quorum: int,
    waiting: tuple[Claim, ...],
) -> LockState:
    helds = [s.held for _, s in sorted(sights.items()) if s.held and s.held.id == holder]
    token = max(Counter(h.token for h in helds).items(), key=lambda item: (item[1], item[0]))[0]
    # It holds until the majority falls apart.
    left = sorted(
        (s.remaining for s in sights.values() if s.held and s.held.id == holder),
        key=lambda seconds: float("inf") if seconds is None else seconds,
        reverse=True,
    )
    held = next(h for h in helds if h.token == token)
    return LockState.exclusive(name, held, left[quorum - 1], waiting)


def asked_enough(line: int, ballot: Ballot) -> bool:
    """A majority that includes who keeps the line, or none any more."""
    votes = ballot.votes()
    if len(votes) >= ballot.quorum:
        return line in votes or line in ballot.errors
    return ballot.settled(len(votes))


def consents(ballot: Ballot) -> int:
    """How many said yes."""
    return sum(answer is True for answer in ballot.answers.values())


def had_it(ballot: Ballot) -> int:
    """On how many of them the claim held."""
    return sum(isinstance(a, Released) and a.was == "held" for a in ballot.answers.values())


def sound(ballot: Ballot, undone: Collection[tuple[int, int]], voted: Collection[int]) -> list[Any]:
    """What those masters say whose vote was not given back, or who *voted* anew since then.

    The request that gives a vote back may be late, and end it after it was counted.
    """
    given_back = {master for master, _ in undone}.difference(voted)
    return [answer for master, answer in ballot.answers.items() if master not in given_back]


def tied_it(answers: Sequence[Any]) -> int:
    """On how many of them the hold was tied anew."""
    return sum(isinstance(answer, LifetimeSet) and answer.held for answer in answers)
