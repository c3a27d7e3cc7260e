"""Whatever happens, a real Redis answers as its model does: generated histories, script by script.

What the simulation plays on the model is played here on both; their keys are compared, too.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from tests.models.histories import KINDS, History, Step, steps
from tests.models.redis_twins import Twins, Unlucky
from tests.servers.redis import Redis

from leaselock.backends.redis import scripted_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

QUICK = settings(max_examples=20)
FORMS = ("hash", "string", "vote", "setnx-expire", "getset", "setnx", "incr")
QUEUED = ("hash", "string", "vote")
CONFIRM_WITHIN_MS = 40
LEAST, MOST = 4, 40


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with Redis() as redis:
        yield redis


@contextmanager
def history_on(server: Redis, form: str) -> Iterator[History]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scripted_lock, "CONFIRM_WITHIN_MS", CONFIRM_WITHIN_MS)
        twins = Twins(server, form, queues=form in QUEUED)
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


def twins_of(history: History) -> Twins:
    assert isinstance(history.twins, Twins)
    return history.twins


@pytest.mark.parametrize("form", QUEUED)
def test_a_long_history_shows_everything(server: Redis, form: str) -> None:
    lots = random.Random(form)
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
    # On a machine with much else to do, a history may end early.
    for number in range(MOST):
        if number >= LEAST and wanted <= set(seen):
            break
        with history_on(server, form) as history:
            for _ in range(70):
                history.play(Step(lots.choice(KINDS), *map(lots.randrange, (3, 2, 3, 12))))
        seen += history.seen
        seen["left"] += twins_of(history).left
    assert wanted <= set(seen), seen
