"""Whatever happens, a real Redis answers as its model does: generated histories, script by script.

What the simulation plays on the model is played here on both; their keys are compared, too.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.redis_twins import Twins, Unlucky
from tests.models.worlds import claim_of
from tests.servers.redis import Redis

from holdfast.backends.redis import hash as conversations
from holdfast.core.backend import (
    Ask,
    Break,
    Broken,
    Claim,
    Fence,
    Grant,
    Leave,
    Left,
    Look,
    Renew,
    Retie,
    Retied,
    Undo,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

QUICK = settings(max_examples=20, deadline=None, derandomize=bool(os.environ.get("CI")))
FORMS = ("hash", "string", "vote", "setnx-expire", "getset", "setnx", "incr")
QUEUED = ("hash", "string", "vote")
NAMES = ("a", "{ü}")
# Some end soon, of themselves; so does a grant that was handed over.
LEASES = (0.03, 0.06, 30.0)
CLAIM_MS = 40
KINDS = (
    *("ask", "ask", "wait", "wait", "wait", "again", "again", "leave", "leave", "bury", "renew"),
    *("retie", "break", "break token", "look", "look all", "time", "time", "die", "undo", "fence"),
    *("renew", "stranger"),
)


class Step(NamedTuple):
    """One thing that happens; the numbers choose among what there is."""

    kind: str
    client: int
    name: int
    slot: int
    choice: int


def steps() -> st.SearchStrategy[list[Step]]:
    step = st.builds(
        Step,
        st.sampled_from(KINDS),
        st.integers(0, 2),
        st.integers(0, 1),
        st.integers(0, 2),
        st.integers(0, 11),
    )
    return st.lists(step, min_size=1, max_size=30)


class History:
    """What has been asked so far."""

    def __init__(self, twins: Twins) -> None:
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
            time.sleep(0.05)
        elif step.kind == "die":
            self.twins.die(self.client(step.client))
            self.lives[step.client] += 1
            self.last[step.client] = None
        elif step.kind == "stranger":
            # Such as a waiter of Redisson's: it listens, and does not stand in the queue.
            channel = f"redisson_lock__channel:{{{NAMES[step.name].strip('{}')}}}"
            self.twins.ear("stranger").subscribe([channel])
        else:
            self.ask(step)
        if self.twins.compare_what_is_heard():
            self.seen["message"] += 1

    def ask(self, step: Step) -> None:
        request = self.request(step)
        if isinstance(request, (Undo, Fence)) and self.twins.form not in QUEUED:
            return
        waits = isinstance(request, Ask) and request.claim.holder in self.twins.channels
        answer = self.twins.ask(request, waits)
        if isinstance(request, Leave):
            self.twins.forget(request.claim)
        self.count(request, answer)

    def count(self, request: object, answer: object) -> None:
        self.seen[f"{type(request).__name__} {type(answer).__name__}"] += 1
        if isinstance(answer, Grant):
            self.tokens.append(answer.token)
        if isinstance(answer, Left):
            self.seen[answer.was] += 1
        if isinstance(answer, (Retied, Broken)):
            self.seen[f"{type(answer).__name__} {answer[0] is True or answer[1] is True}"] += 1

    def claim(self, step: Step) -> Claim:
        serial = 1 + 3 * step.name + step.slot
        return claim_of(self.client(step.client), NAMES[step.name], serial, LEASES[step.slot])

    def request(self, step: Step) -> object:
        claim = self.claim(step)
        if step.kind == "again":
            claim = self.last[step.client] or claim
        if step.kind in ("ask", "wait", "again"):
            self.last[step.client] = claim
            return Ask(claim, step.kind != "ask" and self.twins.form in QUEUED)
        claim = (self.last[step.client] or claim) if step.choice % 2 else claim
        token = self.tokens[-1 - step.choice % min(3, len(self.tokens))]
        return self.other(step, claim, token)

    def other(self, step: Step, claim: Claim, token: int) -> object:
        if step.kind in ("leave", "bury"):
            return Leave(claim, step.kind == "bury")
        if step.kind == "renew":
            return Renew([claim, self.claim(step)][: 1 + step.choice % 2])
        if step.kind == "retie":
            return Retie(claim, "lease" if step.choice % 3 else "both")
        if step.kind == "undo":
            return Undo(claim, token)
        if step.kind == "fence":
            return Fence(claim, token + step.choice)
        if step.kind.startswith("break"):
            return Break(claim.name, token if step.kind == "break token" else None)
        return Look(claim.name if step.kind == "look" else None, "*")


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with Redis() as redis:
        yield redis


@contextmanager
def history_on(server: Redis, form: str) -> Iterator[History]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversations, "CLAIM_MS", CLAIM_MS)
        twins = Twins(server, form)
        try:
            # What a machine with much else to do leaves undecided is no history.
            with suppress(Unlucky):
                yield History(twins)
        finally:
            twins.close()


@pytest.mark.parametrize("form", FORMS)
def test_a_server_answers_as_its_model(server: Redis, form: str) -> None:
    @given(history=steps())
    @QUICK
    def played(history: list[Step]) -> None:
        with history_on(server, form) as played:
            for step in history:
                played.play(step)

    played()


@pytest.mark.parametrize("form", QUEUED)
def test_a_long_history_shows_everything(server: Redis, form: str) -> None:
    lots = random.Random(form)
    seen: Counter[str] = Counter()
    for _ in range(6):
        with history_on(server, form) as history:
            for _ in range(70):
                history.play(Step(lots.choice(KINDS), *map(lots.randrange, (3, 2, 3, 12))))
        seen += history.seen
        seen["left"] += history.twins.left
    wanted = {"Ask Grant", "Ask Busy", "held", "waiting", "absent", "message", "left", "Undo Left"}
    wanted |= {"Renew tuple", "Look tuple", "Retied True", "Broken True", "Broken False"}
    assert wanted <= set(seen), seen
    assert seen["Ask Busy"] > 20
