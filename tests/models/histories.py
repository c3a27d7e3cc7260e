"""Generated histories of requests, for a store and its model side by side.

Law: a history is a list of steps that say little by themselves; what a step asks depends on what
has been answered, so that any list is a history, and a shorter one as well.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import NamedTuple, Protocol

from hypothesis import strategies as st
from tests.models.worlds import claim_of

from leaselock.core.backend import (
    Acquire,
    BreakLock,
    Broken,
    Claim,
    Grant,
    Inspect,
    LifetimeSet,
    RaiseToken,
    Release,
    Released,
    ReleaseGrant,
    Renew,
    SetLifetime,
)

NAMES = ("a", "{ü}")
KINDS = (
    *("ask", "ask", "wait", "wait", "wait", "again", "again", "leave", "leave", "bury", "renew"),
    *("retie", "break", "break token", "look", "look all", "time", "time", "die", "undo", "fence"),
    *("renew", "stranger"),
)


class Pair(Protocol):
    """A store and its model."""

    queues: bool
    """Whoever asks may wait in line."""
    votes: bool
    """A grant may be undone, and its token lifted."""
    leases: tuple[float, ...]
    """Some end soon, of themselves."""
    pause: float
    """How long time passes in one step of it."""

    def ask(self, request: object) -> object:
        """The answer of both."""
        ...

    def forget(self, claim: Claim) -> None:
        """The claim waits no more."""
        ...

    def die(self, client: str) -> None:
        """A client is gone."""
        ...

    def stranger(self, name: str) -> None:
        """Another program waits for a lock in its own way."""
        ...

    def heard(self) -> int:
        """How much was heard so far, by all on both sides alike."""
        ...


class Step(NamedTuple):
    """One thing that happens; the numbers choose among what there is."""

    kind: str
    client: int
    name: int
    slot: int
    choice: int


def steps(kinds: tuple[str, ...] = KINDS, choices: int = 12) -> st.SearchStrategy[list[Step]]:
    """Lists of them, with so many choices."""
    step = st.builds(
        Step,
        st.sampled_from(kinds),
        st.integers(0, 2),
        st.integers(0, 1),
        st.integers(0, 2),
        st.integers(0, choices - 1),
    )
    return st.lists(step, min_size=1, max_size=30)


class History:
    """What has been asked so far."""

    def __init__(self, twins: Pair) -> None:
        self.twins = twins
        self.lives = [0, 0, 0]
        self.last: list[Claim | None] = [None, None, None]
        self.tokens = [1]
        self.seen: Counter[str] = Counter()

    def client(self, number: int) -> str:
        # As the library's own are: 32 hexadecimal digits.
        return f"{number + 1:016x}{self.lives[number]:016x}"

    def play(self, step: Step) -> None:
        if step.kind == "time":
            time.sleep(self.twins.pause)
        elif step.kind == "die":
            self.twins.die(self.client(step.client))
            self.lives[step.client] += 1
            self.last[step.client] = None
        elif step.kind == "stranger":
            self.twins.stranger(NAMES[step.name])
        else:
            self.ask(step)
        if self.twins.heard():
            self.seen["message"] += 1

    def ask(self, step: Step) -> None:
        request = self.request(step)
        if isinstance(request, (ReleaseGrant, RaiseToken)) and not self.twins.votes:
            return
        answer = self.twins.ask(request)
        if isinstance(request, Release):
            self.twins.forget(request.claim)
        self.count(request, answer)

    def count(self, request: object, answer: object) -> None:
        self.seen[f"{type(request).__name__} {type(answer).__name__}"] += 1
        if isinstance(answer, Grant):
            self.tokens.append(answer.token)
        if isinstance(answer, Released):
            self.seen[answer.was] += 1
        if isinstance(answer, (LifetimeSet, Broken)):
            self.seen[f"{type(answer).__name__} {answer[0] is True or answer[1] is True}"] += 1

    def claim(self, step: Step) -> Claim:
        serial = 1 + 3 * step.name + step.slot
        return claim_of(
            self.client(step.client), NAMES[step.name], serial, self.twins.leases[step.slot]
        )

    def request(self, step: Step) -> object:
        claim = self.claim(step)
        if step.kind == "again":
            claim = self.last[step.client] or claim
        if step.kind in ("ask", "wait", "again"):
            self.last[step.client] = claim
            return Acquire(claim, step.kind != "ask" and self.twins.queues)
        claim = (self.last[step.client] or claim) if step.choice % 2 else claim
        token = self.tokens[-1 - step.choice % min(3, len(self.tokens))]
        return self.other(step, claim, token)

    def other(self, step: Step, claim: Claim, token: int) -> object:
        if step.kind in ("leave", "bury"):
            return Release(claim, step.kind == "bury")
        if step.kind == "renew":
            return Renew([claim, self.claim(step)][: 1 + step.choice % 2])
        if step.kind == "retie":
            return SetLifetime(claim, "lease" if step.choice % 3 else "either")
        if step.kind == "undo":
            return ReleaseGrant(claim, token)
        if step.kind == "fence":
            return RaiseToken(claim, token + step.choice)
        if step.kind.startswith("break"):
            return BreakLock(claim.name, token if step.kind == "break token" else None)
        return Inspect(claim.name if step.kind == "look" else None, "*")
