"""The answers of several masters to one request, and how they are counted.

A master that does not answer has voted neither for nor against. The answer of a majority is final,
because any two majorities have a master in common.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from leaselock._core.contract.backend import Busy, Claim, Grant, LifetimeSet, LockState, Released
from leaselock._core.contract.effects import Signal
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from leaselock._core.contract.backend import ErrorReason


class Votes:
    """The answers of the masters to one request, as far as they have arrived."""

    __slots__ = ("answers", "changed", "errors", "final", "lost", "masters", "placed", "requests")

    def __init__(self, masters: int) -> None:
        self.masters = masters
        self.requests = 0
        self.answers: dict[int, Any] = {}
        self.errors: dict[int, StoreError] = {}
        self.changed = Signal()
        # The try has no majority: a grant that comes later is given back.
        self.lost = False
        # The claim does not try again: a master that has not answered is released, too.
        self.final = False
        # Whether a master that has answered may have the claim, though there is no majority.
        self.placed = False

    @property
    def quorum(self) -> int:
        """How many are a majority."""
        return self.masters // 2 + 1

    @property
    def complete(self) -> bool:
        """No answer is outstanding."""
        return len(self.answers) + len(self.errors) >= self.requests

    def answer(self, master: int, answer: object) -> None:
        """Count an answer."""
        self.answers[master] = answer
        self.changed.set()

    def fail(self, master: int, error: StoreError) -> None:
        """Count a master that did not answer."""
        self.errors[master] = error
        self.changed.set()

    def is_answered(self) -> bool:
        """Whether a majority has answered."""
        return len(self.answers) >= self.quorum

    def granted(self) -> dict[int, int]:
        """The masters that granted, each with its token."""
        return {i: a.token for i, a in self.answers.items() if isinstance(a, Grant)}

    def is_refused(self) -> bool:
        """Whether too many masters for a majority have failed, and each of them did nothing."""
        nothing = all(isinstance(error, NotApplied) for error in self.errors.values())
        return nothing and len(self.errors) > self.masters - self.quorum

    def is_decided(self, yes: int) -> bool:
        """Whether the answers so far, *yes* of them in favour, decide it."""
        no = len(self.answers) + len(self.errors) - yes
        return yes >= self.quorum or no > self.masters - self.quorum

    def verdict(self, yes: int, no: int) -> bool | None:
        """The answer of a majority; None if neither side has one."""
        if yes >= self.quorum:
            return True
        return False if no > self.masters - self.quorum else None

    def error(self, what: str, shown: Sequence[str]) -> StoreError:
        """Why there is no majority. Nothing was applied for sure only if the others refused, and
        those that answered have taken back what they did.
        """
        reasons = "; ".join(f"{shown[i]}: {error}" for i, error in sorted(self.errors.items()))
        refusals = [error for error in self.errors.values() if isinstance(error, NotApplied)]
        refused = sum(error.reason != "unreachable" for error in refusals)
        silent = self.masters - len(self.answers) - refused
        kinds = ((silent, "did not answer"), (refused, "refused"))
        counts = (f"{count} of {self.masters} masters {did}" for count, did in kinds if count)
        message = f"{what}: {', '.join(counts)} ({reasons or 'no time'})"
        nothing = len(refusals) == len(self.errors) and self.complete and not self.placed
        reason = self._reason()
        made = NotApplied(message, reason) if nothing else OutcomeUnknown(message, reason)
        made.__cause__ = next(iter(self.errors.values()), None)
        return made

    def _reason(self) -> ErrorReason:
        """Why all of them failed, if that is one reason, or why too many of them failed for a
        majority.
        """
        counts = Counter(error.reason for error in self.errors.values())
        for reason, count in counts.most_common(1):
            if len(counts) == 1 or count > self.masters - self.quorum:
                return reason
        return "unreachable"


def agreed(tokens: Collection[int], quorum: int) -> bool:
    """Whether a majority has the greatest of the tokens, so all later tokens are greater."""
    return Counter(tokens)[max(tokens)] >= quorum


def busiest(votes: Votes) -> Busy:
    """Of the Busy answers, the one that names the most frequent holder."""
    replies = [reply for reply in votes.answers.values() if isinstance(reply, Busy)]
    holders = Counter(reply.held.id for reply in replies if reply.held is not None)
    if not holders:
        return replies[0] if replies else Busy(None, 0.0, ())
    most = holders.most_common(1)[0][0]
    return next(r for r in replies if r.held is not None and r.held.id == most)


def merged(name: str, states: Mapping[int, LockState], quorum: int) -> LockState:
    """One lock as several masters have it; the holder is the claim that a majority has."""
    waiting: dict[str, Claim] = {}
    for _, state in sorted(states.items()):
        waiting |= {claim.id: claim for claim in state.waiting if claim.id not in waiting}
    votes = Counter(state.held.id for state in states.values() if state.held is not None)
    holder, count = votes.most_common(1)[0] if votes else ("", 0)
    if count < quorum:
        return LockState.exclusive(name, None, None, tuple(waiting.values()))
    return _held(name, holder, states, quorum, tuple(c for h, c in waiting.items() if h != holder))


def _held(
    name: str,
    holder: str,
    states: Mapping[int, LockState],
    quorum: int,
    waiting: tuple[Claim, ...],
) -> LockState:
    helds = [s.held for _, s in sorted(states.items()) if s.held and s.held.id == holder]
    token = max(Counter(h.token for h in helds).items(), key=lambda item: (item[1], item[0]))[0]
    # It holds as long as a majority does.
    remaining = sorted(
        (s.remaining for s in states.values() if s.held and s.held.id == holder),
        key=lambda seconds: float("inf") if seconds is None else seconds,
        reverse=True,
    )
    held = next(h for h in helds if h.token == token)
    return LockState.exclusive(name, held, remaining[quorum - 1], waiting)


def has_enough(queue_master: int, votes: Votes) -> bool:
    """Whether there is a majority that includes the master with the queue, or cannot be one."""
    granted = votes.granted()
    if len(granted) >= votes.quorum:
        return queue_master in granted or queue_master in votes.errors
    return votes.is_decided(len(granted))


def yes_votes(votes: Votes) -> int:
    """The number of masters that said yes."""
    return sum(answer is True for answer in votes.answers.values())


def held_on(votes: Votes) -> int:
    """The number of masters on which the claim held."""
    return sum(isinstance(a, Released) and a.was == "held" for a in votes.answers.values())


def changed_on(answers: Sequence[Any]) -> int:
    """The number of masters on which the lifetime of the hold was changed."""
    return sum(isinstance(answer, LifetimeSet) and answer.held for answer in answers)
