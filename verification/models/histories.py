"""Generated histories of requests, for the comparison of a store with its model.

A history is a list of abstract steps. The request of a step depends on earlier answers, so that
every list is a valid history, and Hypothesis can shorten it.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from hypothesis import strategies as st
from verification.models.sides import claim_of

from leaselock._backends.redlock.master import RaiseToken, ReleaseGrant
from leaselock._core.contract.backend import (
    Acquire,
    BreakLock,
    Broken,
    Claim,
    Convert,
    Converted,
    Grant,
    Inspect,
    LifetimeSet,
    Mode,
    Release,
    Released,
    Renew,
    Resize,
    SetLifetime,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("a", "{ü}")
# The permits of the second name, where it is a semaphore.
LIMIT = 3
KINDS = (
    *(
        "acquire",
        "acquire",
        "wait",
        "wait",
        "wait",
        "again",
        "again",
        "release",
        "release",
        "tombstone",
        "renew",
    ),
    *(
        "set lifetime",
        "break",
        "break token",
        "inspect",
        "inspect all",
        "time",
        "time",
        "die",
        "release grant",
        "raise token",
    ),
    *("renew", "stranger"),
)


class Pair(Protocol):
    """A store and its model."""

    queues: bool
    """The store has a queue."""
    votes: bool
    """The store knows ReleaseGrant and RaiseToken."""
    leases: tuple[float, ...]
    """Some expire within a history."""
    pause: float
    """The duration of a step that lets time pass, in seconds."""

    def ask(self, request: object) -> object:
        """Execute the request on both sides, compare the answers, and return one."""
        ...

    def forget(self, claim: Claim) -> None:
        """Forget a claim that was released."""
        ...

    def die(self, client: str) -> None:
        """End a client."""
        ...

    def stranger(self, name: str) -> None:
        """Let another program wait for a lock in its own format."""
        ...

    def heard(self) -> int:
        """Compare the messages of both sides, and return their number so far."""
        ...


class Step(NamedTuple):
    """One step; the numbers select a client, a name, a claim and a variant."""

    kind: str
    client: int
    name: int
    slot: int
    choice: int


def steps(kinds: tuple[str, ...] = KINDS, choices: int = 12) -> st.SearchStrategy[list[Step]]:
    """A strategy for lists of steps; *choices* is the number of variants."""
    step = st.builds(
        Step,
        st.sampled_from(kinds),
        st.integers(0, 2),
        st.integers(0, 1),
        st.integers(0, 2),
        st.integers(0, choices - 1),
    )
    return st.lists(step, min_size=1, max_size=30)


# With the modes of `ModalHistory`. A vote and its token are exclusive.
MODAL_KINDS = (
    *(kind for kind in KINDS if kind not in ("release grant", "raise token")),
    *("convert", "convert", "resize"),
)


class Log:
    """What happened in a history, and to which lock; "" is every lock."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def add(self, name: str, text: str) -> None:
        """Add a request or an event."""
        self.lines.append((name, text))

    def answer(self, answer: object) -> None:
        """Add the answer to the last request."""
        name, request = self.lines[-1]
        self.lines[-1] = name, f"{request}: {answer}"

    @contextmanager
    def shown_on_failure(self) -> Iterator[None]:
        """Add the history of the lock of the last request to an error."""
        try:
            yield
        except Exception as error:
            name = self.lines[-1][0] if self.lines else ""
            lines = [text for about, text in self.lines if about in ("", name) or not name]
            text = "\n".join([f"the history of {name!r}:", *lines])
            # A client as its number, and how often it has ended before.
            error.add_note(re.sub(r"0{15}([1-3])0{12}([0-9a-f]{4})", r"client \1.\2", text))
            raise


class History:
    """The state of one history, and counters of what it covered."""

    def __init__(self, comparison: Pair) -> None:
        self.comparison = comparison
        self.lives = [0, 0, 0]
        self.last: list[Claim | None] = [None, None, None]
        self.tokens = [1]
        self.seen: Counter[str] = Counter()
        self.log = Log()

    def client(self, number: int) -> str:
        # 32 hexadecimal digits, as the library's client identifiers.
        return f"{number + 1:016x}{self.lives[number]:016x}"

    def play(self, step: Step) -> None:
        """Carry out a step."""
        with self.log.shown_on_failure():
            self.carry_out(step)

    def carry_out(self, step: Step) -> None:
        if step.kind == "time":
            self.log.add("", f"{self.comparison.pause} s pass")
            time.sleep(self.comparison.pause)
        elif step.kind == "die":
            self.log.add("", f"{self.client(step.client)} ends")
            self.comparison.die(self.client(step.client))
            self.lives[step.client] += 1
            self.last[step.client] = None
        elif step.kind == "stranger":
            self.log.add(NAMES[step.name], "another program waits")
            self.comparison.stranger(NAMES[step.name])
        else:
            self.ask(step)
        if self.comparison.heard():
            self.seen["message"] += 1

    def ask(self, step: Step) -> None:
        request = self.request(step)
        if isinstance(request, (ReleaseGrant, RaiseToken)) and not self.comparison.votes:
            return
        self.log.add("" if isinstance(request, Inspect) else NAMES[step.name], str(request))
        answer = self.comparison.ask(request)
        self.log.answer(answer)
        if isinstance(request, Release):
            self.comparison.forget(request.claim)
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
            self.client(step.client), NAMES[step.name], serial, self.comparison.leases[step.slot]
        )

    def request(self, step: Step) -> object:
        claim = self.claim(step)
        if step.kind == "again":
            claim = self.last[step.client] or claim
        if step.kind in ("acquire", "wait", "again"):
            self.last[step.client] = claim
            return Acquire(claim, step.kind != "acquire" and self.comparison.queues)
        claim = (self.last[step.client] or claim) if step.choice % 2 else claim
        token = self.tokens[-1 - step.choice % min(3, len(self.tokens))]
        return self.other(step, claim, token)

    def other(self, step: Step, claim: Claim, token: int) -> object:
        if step.kind in ("release", "tombstone"):
            return Release(claim, step.kind == "tombstone")
        if step.kind == "renew":
            return Renew([claim, self.claim(step)][: 1 + step.choice % 2])
        if step.kind == "set lifetime":
            return SetLifetime(claim, "lease" if step.choice % 3 else "either")
        if step.kind == "release grant":
            return ReleaseGrant(claim, token)
        if step.kind == "raise token":
            return RaiseToken(claim, token + step.choice)
        if step.kind.startswith("break"):
            return BreakLock(claim.name, token if step.kind == "break token" else None)
        return Inspect(claim.name if step.kind == "inspect" else None, "*")


class ModalHistory(History):
    """One name is a read/write lock, the other a semaphore."""

    modes: tuple[Mode, ...] = ("shared", "update", "exclusive")

    def claim(self, step: Step) -> Claim:
        claim = super().claim(step)
        if step.name:
            return claim._replace(mode="permits", permits=1 + step.slot, limit=LIMIT)
        # The slot says which lease a claim has as well.
        return claim._replace(mode=self.modes[(step.slot + step.client) % 3])

    def other(self, step: Step, claim: Claim, token: int) -> object:
        if step.kind == "convert":
            mode = ("exclusive", "update", "shared")[step.choice % 3]
            return Convert(claim, 1 + step.choice // 3, cast("Mode", mode))
        if step.kind == "resize":
            return Resize(claim.name, LIMIT - step.choice % 2)
        return super().other(step, claim, token)

    def count(self, request: object, answer: object) -> None:
        super().count(request, answer)
        if isinstance(answer, Converted) and answer.held is not None:
            self.seen[f"is {answer.held.mode}"] += 1
