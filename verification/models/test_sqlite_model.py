"""The real stores answer as their models do, in generated histories.

The fast paths of the SQLite store are compared with the rules here, and so is the model that the
simulation uses.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from verification.models.histories import Log, Step, steps
from verification.models.sides import (
    Clock,
    Files,
    FilesModel,
    Memory,
    Side,
    TableAlone,
    claim_of,
)

from leaselock._backends.sqlite import store
from leaselock._core.contract.backend import (
    WAKE_ALL,
    Acquire,
    BreakLock,
    Broken,
    Busy,
    Claim,
    Convert,
    Converted,
    Grant,
    Inspect,
    Lifetime,
    LifetimeSet,
    Mode,
    Release,
    Released,
    Renew,
    Resize,
    SetLifetime,
)

pytestmark = pytest.mark.first_tier

QUICK = settings(max_examples=120)
NAMES = ("a*", "ü")
PATTERNS = ("*", "a[*]", "?", "nothing")
LEASES = (1.0, 5.0, 30.0)
LIFETIMES: tuple[Lifetime, ...] = ("either", "lease", "client")
STEPS = (0.0, 0.25, 1.0, 2.0, 4.75, 25.0, 121.0)
# The wall clock is set back, stands still, or continues.
WALL_STEPS = (0, 1, 1, 700, -5_000_000, 40_000_000)
KINDS = (
    *(
        "acquire",
        "acquire",
        "wait",
        "wait",
        "wait",
        "again",
        "release",
        "release",
        "tombstone",
        "renew",
        "set lifetime",
    ),
    *("break", "break token", "inspect", "inspect all", "time", "time", "close", "kill"),
    *("convert", "convert", "resize"),
)
CHOICES = 42
# How the claims of each name want it: now and then a name is wanted as another kind of lock.
MODES: tuple[tuple[Mode, ...], ...] = (
    ("exclusive", "exclusive", "shared", "shared", "update", "shared", "exclusive"),
    ("permits", "permits", "permits", "permits", "permits", "permits", "exclusive"),
)


class Comparison:
    """A real store and its model."""

    def __init__(self, real: Side, model: Side, clock: Clock) -> None:
        self.real = real
        self.model = model
        self.clock = clock
        self.lives = [0, 0, 0]
        self.last: list[Claim | None] = [None, None, None]
        self.tokens: list[int] = [0]
        self.seen: Counter[str] = Counter()
        self.log = Log()

    def client(self, number: int) -> str:
        return f"c{number}generation{self.lives[number]}"

    def play(self, step: Step) -> None:
        with self.log.shown_on_failure():
            self.carry_out(step)

    def carry_out(self, step: Step) -> None:
        if step.kind == "time":
            self.log.add("", f"{STEPS[step.choice % len(STEPS)]} s pass")
            self.clock.seconds += STEPS[step.choice % len(STEPS)]
            self.clock.micros += WALL_STEPS[step.choice % len(WALL_STEPS)]
        elif step.kind in ("close", "kill"):
            self.log.add("", f"{self.client(step.client)}: {step.kind}")
            self.die(step.client, violently=step.kind == "kill")
        else:
            request = self.request(step)
            self.log.add("" if isinstance(request, Inspect) else NAMES[step.name], str(request))
            self.ask(self.client(step.client), request)
        self.compare_messages()

    def ask(self, client: str, request: Any) -> None:
        real, model = self.real.answer(client, request), self.model.answer(client, request)
        assert real == model
        self.log.answer(real)
        self.count(request, real)

    def count(self, request: Any, reply: object) -> None:
        self.seen[f"{type(request).__name__} {type(reply).__name__}"] += 1
        if isinstance(reply, Grant):
            self.tokens.append(reply.token)
        if isinstance(reply, Released):
            self.seen[reply.was] += 1
        if isinstance(reply, Converted):
            self.seen[f"Converted {reply.held.mode if reply.held else None}"] += 1
        if isinstance(reply, Grant | Busy | Released | Broken) and reply.notified:
            self.seen["notified"] += 1
        if isinstance(reply, LifetimeSet):
            self.seen[f"LifetimeSet {reply.held}"] += 1
        if isinstance(reply, Broken):
            self.seen[f"Broken {reply.done}"] += 1

    def die(self, number: int, *, violently: bool) -> None:
        for side in (self.real, self.model):
            side.die(self.client(number), violently=violently)
        self.lives[number] += 1
        self.last[number] = None

    def compare_messages(self) -> None:
        for client in map(self.client, range(3)):
            real, model = self.real.heard(client), self.model.heard(client)
            if WAKE_ALL in model:
                self.seen["death"] += 1
                assert WAKE_ALL in real
            else:
                self.seen["message"] += len(model)
                assert real == model

    def request(self, step: Step) -> Any:
        name, client = NAMES[step.name], self.client(step.client)
        serial = 1 + 3 * step.name + step.slot
        mode = MODES[step.name][step.choice % 7]
        permits, limit = (
            (1, 0) if mode != "permits" else (1 + step.choice % 3, (0, 3, 3)[step.slot])
        )
        claim = claim_of(client, name, serial, LEASES[step.slot])
        claim = claim._replace(mode=mode, permits=permits, limit=limit)
        if step.kind == "again":
            claim = self.last[step.client] or claim
        if step.kind in ("acquire", "wait", "again"):
            self.last[step.client] = claim
            return Acquire(claim, step.kind != "acquire")
        return self.other_request(step, name, claim)

    def other_request(self, step: Step, name: str, claim: Claim) -> Any:
        claim = (self.last[step.client] or claim) if step.choice % 2 else claim
        if step.kind in ("release", "tombstone"):
            return Release(claim, step.kind == "tombstone")
        if step.kind == "renew":
            if step.choice > 20:  # an extension beyond the usual length
                claim = claim._replace(lease=60.0)
            return Renew([claim, *self.others(claim)][: 1 + step.choice % 3])
        if step.kind == "convert":
            mode: Mode = ("exclusive", "shared", "update")[step.choice % 3]
            return Convert(claim, step.choice // 3, mode)
        if step.kind == "resize":
            return Resize(name, 1 + step.choice % 4)
        if step.kind == "set lifetime":
            return SetLifetime(claim, LIFETIMES[step.choice % 3])
        if step.kind.startswith("break"):
            newest = self.tokens[-1 - step.choice % min(3, len(self.tokens))]
            return BreakLock(name, newest if step.kind == "break token" else None)
        chosen = name if step.kind == "inspect" else None
        return Inspect(chosen, PATTERNS[step.choice % len(PATTERNS)])

    def others(self, claim: Claim) -> Iterator[Claim]:
        for number, name in enumerate(NAMES):
            yield claim_of(claim.client, name, 1 + 3 * number, LEASES[0])


@contextmanager
def on_files() -> Iterator[Comparison]:
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "time", clock)
        real = Files(Path(folder).resolve() / "locks.db", clock)
        try:
            yield Comparison(real, FilesModel(clock), clock)
        finally:
            real.end()


@contextmanager
def in_memory() -> Iterator[Comparison]:
    clock = Clock()
    yield Comparison(Memory(clock), TableAlone(clock), clock)


COMPARISONS = pytest.mark.parametrize("comparisons", [on_files, in_memory])
Comparisons = Callable[[], Any]


@COMPARISONS
@given(history=steps(KINDS, CHOICES))
@QUICK
def test_a_store_answers_as_its_model(comparisons: Comparisons, history: list[Step]) -> None:
    with comparisons() as comparison:
        for step in history:
            comparison.play(step)


@COMPARISONS
@pytest.mark.parametrize("seed", range(3))
def test_long_histories_show_everything(comparisons: Comparisons, seed: int) -> None:
    rng = random.Random(seed)
    with comparisons() as comparison:
        for _ in range(700):
            kind = rng.choice(KINDS)
            comparison.play(Step(kind, *map(rng.randrange, (3, 2, 3, CHOICES))))
    wanted = {
        "Acquire Grant",
        "Acquire Busy",
        "held",
        "waiting",
        "absent",
        "notified",
        "death",
        "message",
    }
    wanted |= {"Converted None", "Converted shared", "Converted exclusive"}
    wanted |= {"Acquire Mismatch", "Resize Resized"}
    wanted |= {"Renew tuple", "Inspect tuple", "LifetimeSet True", "Broken True", "Broken False"}
    assert wanted <= set(comparison.seen), comparison.seen


@COMPARISONS
def test_the_death_of_a_waiter_ahead_is_reported_once(comparisons: Comparisons) -> None:
    """A death reported to each request would make the waiters ask again without end."""
    with comparisons() as comparison:
        for number in range(3):
            comparison.play(Step("wait", number, 0, 2, 0))
        comparison.play(Step("kill", 1, 0, 0, 0))
        assert comparison.seen["death"] >= 1
        before = comparison.seen["death"]
        comparison.play(Step("again", 2, 0, 2, 0))
        assert comparison.seen["death"] == before


@COMPARISONS
def test_a_waiter_for_a_detached_hold_gets_no_event_of_its_dead_client(
    comparisons: Comparisons,
) -> None:
    with comparisons() as comparison:
        comparison.play(Step("acquire", 0, 0, 2, 0))
        comparison.play(Step("set lifetime", 0, 0, 2, 1))
        comparison.play(Step("kill", 0, 0, 0, 0))
        before = comparison.seen["death"]
        comparison.play(Step("wait", 1, 0, 2, 0))
        comparison.play(Step("again", 1, 0, 2, 0))
        assert (comparison.seen["Acquire Busy"], comparison.seen["death"]) == (2, before)


@COMPARISONS
def test_both_expire_tombstones_alike_when_one_is_renewed(comparisons: Comparisons) -> None:
    with comparisons() as comparison:
        history = ((0, 0.0), (1, 1.0), (0, 99.0), (2, 22.0))
        for slot, pause in history:
            comparison.clock.seconds += pause
            comparison.play(Step("tombstone", 0, 0, slot, 0))
        comparison.play(Step("acquire", 0, 0, 1, 0))
        assert comparison.seen["Acquire Grant"] == 1


@COMPARISONS
def test_a_tombstone_ends_although_none_is_written_after_it(comparisons: Comparisons) -> None:
    with comparisons() as comparison:
        comparison.play(Step("tombstone", 0, 0, 0, 0))
        comparison.clock.seconds += 119.0
        comparison.play(Step("acquire", 0, 0, 0, 0))
        assert comparison.seen["Acquire Grant"] == 0
        comparison.clock.seconds += 2.0
        comparison.play(Step("acquire", 0, 0, 0, 0))
        assert comparison.seen["Acquire Grant"] == 1
