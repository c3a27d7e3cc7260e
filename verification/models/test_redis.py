"""A real Redis server answers as its model does, in generated histories.

The requests that the simulation sends to the model are sent to both here, and their keys compared.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from testkit.servers.redis import Redis
from verification.models.histories import KINDS, MODAL_KINDS, History, ModalHistory, Step, steps
from verification.models.redis_comparison import Comparison, Unlucky

from leaselock._backends.redis import index, scripted_backend

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.first_tier

QUICK = settings(max_examples=20)
FORMS = ("hash", "string", "vote", "setnx-expire", "getset", "setnx", "incr")
QUEUED = ("hash", "string", "vote")
# One of the forms of others, which are alike, is in the first tier.
FIRST = (*QUEUED, "setnx-expire")
CONFIRM_WITHIN_MS = 40
# How many histories at least; more in the second tier, and where a machine is busy.
LEAST = [1, pytest.param(8, marks=pytest.mark.statistical)]
MOST = 400
# How many generated histories must be compared to their end, of the 20 of a run.
DECIDED = 5
# How a history of modes begins: chance alone seldom lets an upgrade wait for a reader.
UPGRADE = (
    Step("acquire", client=0, name=0, slot=1, choice=0),  # an update
    Step("acquire", client=1, name=0, slot=2, choice=0),  # a reader beside it
    Step("convert", client=0, name=0, slot=1, choice=0),  # it waits to become exclusive
    Step("release", client=1, name=0, slot=2, choice=0),
    Step("convert", client=0, name=0, slot=1, choice=0),
    Step("convert", client=0, name=0, slot=1, choice=4),  # an update again
    Step("convert", client=0, name=0, slot=1, choice=8),  # a reader
)


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with Redis() as redis:
        yield redis


@contextmanager
def history_on(server: Redis, form: str, kind: type[History] = History) -> Iterator[History]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scripted_backend, "CONFIRM_WITHIN_MS", CONFIRM_WITHIN_MS)
        # Each release looks at the oldest names in the index, however new they are.
        patch.setattr(index, "TRIM_EVERY", 1)
        patch.setattr(index, "TRIM_AGE", -1e10)
        comparison = Comparison(server, form, queues=form in QUEUED)
        try:
            # A history that a busy machine cannot decide is discarded.
            with suppress(Unlucky):
                yield kind(comparison)
        finally:
            comparison.close()


def compare(server: Redis, form: str, kind: type[History], kinds: tuple[str, ...]) -> None:
    """Play generated histories, until some were played to their end: a busy machine discards."""
    decided = 0

    @given(history=steps(kinds))
    @QUICK
    def play(history: list[Step]) -> None:
        nonlocal decided
        with history_on(server, form, kind) as played:
            for step in history:
                played.play(step)
            decided += len(history) > 1

    for _ in range(MOST):
        play()
        if decided >= DECIDED:
            break
    assert decided >= DECIDED


@pytest.mark.parametrize(
    "form",
    [pytest.param(f, marks=() if f in FIRST else pytest.mark.variant) for f in FORMS],
)
def test_a_server_answers_as_its_model(server: Redis, form: str) -> None:
    compare(server, form, History, KINDS)


def comparison_of(history: History) -> Comparison:
    assert isinstance(history.comparison, Comparison)
    return history.comparison


@pytest.mark.parametrize("least", LEAST)
@pytest.mark.parametrize("form", QUEUED)
def test_a_long_history_covers_everything(server: Redis, form: str, least: int) -> None:
    rng = random.Random(form)
    seen: Counter[str] = Counter()
    wanted = {
        "Acquire Grant",
        "Acquire Busy",
        "held",
        "waiting",
        "absent",
        "message",
        "left",
        "ReleaseGrant Released",
    }
    wanted |= {"Renew tuple", "Inspect tuple", "LifetimeSet True", "Broken True", "Broken False"}
    # On a busy machine a history may end early.
    for number in range(MOST):
        if number >= least and wanted <= set(seen):
            break
        with history_on(server, form) as history:
            for _ in range(70):
                history.play(Step(rng.choice(KINDS), *map(rng.randrange, (3, 2, 3, 12))))
        seen += history.seen
        seen["left"] += comparison_of(history).left
    assert wanted <= set(seen), seen


def test_a_server_answers_as_its_model_in_all_modes(server: Redis) -> None:
    compare(server, "hash", ModalHistory, MODAL_KINDS)


@pytest.mark.parametrize("least", LEAST)
def test_a_long_history_covers_all_modes(server: Redis, least: int) -> None:
    rng = random.Random("modes")
    seen: Counter[str] = Counter()
    wanted = {f"is {mode}" for mode in ("shared", "update", "upgrading", "exclusive")}
    wanted |= {"Acquire Grant", "Acquire Busy", "Acquire Mismatch", "Resize Resized"}
    wanted |= {"held", "waiting", "absent", "message", "Broken True"}
    # On a busy machine a history may end early.
    for number in range(MOST):
        if number >= least and wanted <= set(seen):
            break
        with history_on(server, "hash", ModalHistory) as history:
            for step in UPGRADE:
                history.play(step)
            for _ in range(70):
                history.play(Step(rng.choice(MODAL_KINDS), *map(rng.randrange, (3, 2, 3, 12))))
        seen += history.seen
    assert wanted <= set(seen), seen
