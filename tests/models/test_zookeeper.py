"""A real ZooKeeper replies as its model does: generated histories, for each protocol.

Requests and replies are lost with their connection, and sessions end while their clients live.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from tests.models.histories import KINDS, History, Step, steps
from tests.models.zookeeper_twins import ZooTwins
from tests.servers.zookeeper import Ensemble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaselock.core.backend import Claim

EXAMPLES = int(os.environ.get("LEASELOCK_MODEL_EXAMPLES", "8"))
QUICK = settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow],
)
PROTOCOLS = ("queue", "single", "queue single")
MORE = (*KINDS, "cut", "cut_reply", "cut_reply", "expire")
LEAST, MOST = 3, 20
ROOTS = count()


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Ensemble, Any]]:
    with Ensemble(1) as ensemble:
        witness = KazooClient(ensemble.hosts)
        witness.start()
        yield ensemble, witness
        witness.stop()
        witness.close()


class ZooHistory(History):
    """Connections and sessions end, too. The test moves the clock."""

    twins: ZooTwins

    def claim(self, step: Step) -> Claim:
        # The protocol "single" parses it, so it is an object, as the core writes it.
        return super().claim(step)._replace(metadata=f'{{"label": {step.slot}}}')

    def play(self, step: Step) -> None:
        client = self.client(step.client)
        if step.kind == "time":
            self.twins.pass_time(0.6)
        elif step.kind == "expire":
            self.twins.end_session(client)
        elif step.kind.startswith("cut"):
            self.twins.lose(client, step.kind)
        else:
            super().play(step)


@contextmanager
def history_on(server: tuple[Ensemble, Any], protocols: str) -> Iterator[ZooHistory]:
    twins = ZooTwins(*server, f"/twins{next(ROOTS)}", protocols.split())
    try:
        yield ZooHistory(twins)
    finally:
        twins.close()


@pytest.mark.parametrize("protocols", PROTOCOLS)
def test_a_server_answers_as_its_model(server: tuple[Ensemble, Any], protocols: str) -> None:
    @given(history=steps(MORE))
    @QUICK
    def played(history: list[Step]) -> None:
        with history_on(server, protocols) as played:
            for step in history:
                played.play(step)

    played()


@pytest.mark.parametrize("protocols", PROTOCOLS)
def test_a_long_history_shows_everything(server: tuple[Ensemble, Any], protocols: str) -> None:
    lots = random.Random(protocols)
    seen: Counter[str] = Counter()
    wanted = {
        "Acquire Grant",
        "Acquire Busy",
        "Acquire OutcomeUnknown",
        "held",
        "absent",
        "message",
    }
    wanted |= {
        "Renew tuple",
        "Inspect tuple",
        "SetLifetime NotApplied",
        "Broken True",
        "Broken False",
    }
    for number in range(MOST):
        if number >= LEAST and wanted <= set(seen):
            break
        with history_on(server, protocols) as history:
            for _ in range(60):
                history.play(Step(lots.choice(MORE), *map(lots.randrange, (3, 2, 3, 12))))
        seen += history.seen
    assert wanted <= set(seen), seen
