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
from tests.models.histories import KINDS, MODAL_KINDS, History, ModalHistory, Step, steps
from tests.models.redis_twins import Twins, Unlucky
from tests.servers.redis import Redis

from leaselock.backends.redis import scripted_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

QUICK = settings(max_examples=20)
FORMS = ("hash", "string", "vote", "setnx-expire", "getset", "setnx", "incr")
QUEUED = ("hash", "string", "vote")
# One of the forms of others, which are alike, is in the first tier.
FIRST = (*QUEUED, "setnx-expire")
CONFIRM_WITHIN_MS = 40
LEAST, MOST = 4, 400


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with Redis() as redis:
        yield redis


@contextmanager
def history_on(server: Redis, form: str, kind: type[History] = History) -> Iterator[History]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scripted_lock, "CONFIRM_WITHIN_MS", CONFIRM_WITHIN_MS)
        twins = Twins(server, form, queues=form in QUEUED)
        try:
            # A history that a busy machine cannot decide is discarded.
            with suppress(Unlucky):
                yield kind(twins)
        finally:
            twins.close()


@pytest.mark.parametrize(
    "form",
    [pytest.param(f, marks=() if f in FIRST else pytest.mark.variant) for f in FORMS],
)
def test_a_server_answers_as_its_model(server: Redis, form: str) -> None:
    @given(history=steps())
    @QUICK
    def played(history: list[Step]) -> None:
        with history_on(server, form) as played:
            for step in history:
                played.play(step)

    played()


def twins_of(history: History) -> Twins:
    assert isinstance(history.twins, Twins)
    return history.twins


@pytest.mark.parametrize("form", QUEUED)
def test_a_long_history_covers_everything(server: Redis, form: str) -> None:
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
        if number >= LEAST and wanted <= set(seen):
            break
        with history_on(server, form) as history:
            for _ in range(70):
                history.play(Step(rng.choice(KINDS), *map(rng.randrange, (3, 2, 3, 12))))
        seen += history.seen
        seen["left"] += twins_of(history).left
    assert wanted <= set(seen), seen


def test_a_server_answers_as_its_model_in_all_modes(server: Redis) -> None:
    @given(history=steps(MODAL_KINDS))
    @QUICK
    def played(history: list[Step]) -> None:
        with history_on(server, "hash", ModalHistory) as played:
            for step in history:
                played.play(step)

    played()


def test_a_long_history_covers_all_modes(server: Redis) -> None:
    rng = random.Random("modes")
    seen: Counter[str] = Counter()
    wanted = {f"is {mode}" for mode in ("shared", "update", "upgrading", "exclusive")}
    wanted |= {"Acquire Grant", "Acquire Busy", "Acquire Mismatch", "Resize Resized"}
    wanted |= {"held", "waiting", "absent", "message", "Broken True"}
    # On a busy machine a history may end early.
    for number in range(MOST):
        if number >= LEAST and wanted <= set(seen):
            break
        with history_on(server, "hash", ModalHistory) as history:
            for _ in range(70):
                history.play(Step(rng.choice(MODAL_KINDS), *map(rng.randrange, (3, 2, 3, 12))))
        seen += history.seen
    assert wanted <= set(seen), seen
