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
from testkit.servers.zookeeper import Ensemble
from verification.models.histories import KINDS, NAMES, History, Step, steps
from verification.models.zookeeper_comparison import ZooComparison

from leaselock._core.contract.backend import Convert, Resize

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaselock._core.contract.backend import Claim, Mode

pytestmark = pytest.mark.first_tier

EXAMPLES = int(os.environ.get("LEASELOCK_MODEL_EXAMPLES", "8"))
QUICK = settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow],
)
PROTOCOLS = [
    "queue",
    "single",
    pytest.param("queue single", marks=pytest.mark.variant),
    pytest.param("queue modes", marks=pytest.mark.variant),
]
MODES: tuple[Mode, ...] = ("shared", "update", "exclusive")
LIMIT = 2
MORE = (*KINDS, "cut", "cut_reply", "cut_reply", "expire")
IN_MODES = (*MORE, "convert", "convert", "convert", "resize")
# How many histories at least; more in the second tier.
LEAST = [1, pytest.param(6, marks=pytest.mark.statistical)]
MOST = 20
ROOTS = count()


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Ensemble, Any]]:
    with Ensemble(1) as ensemble:
        witness = KazooClient(ensemble.hosts)
        witness.start()
        yield ensemble, witness
        witness.stop()
        witness.close()


def kinds_of(protocols: str) -> tuple[str, ...]:
    """The kinds of steps in a history."""
    return IN_MODES if "modes" in protocols else MORE


class ZooHistory(History):
    """Connections and sessions end, too. The test moves the clock."""

    comparison: ZooComparison

    def claim(self, step: Step) -> Claim:
        # The protocol "single" parses it, so it is an object, as the core writes it.
        return super().claim(step)._replace(metadata=f'{{"label": {step.slot}}}')

    def play(self, step: Step) -> None:
        client = self.client(step.client)
        if step.kind == "time":
            self.comparison.pass_time(0.6)
        elif step.kind == "expire":
            self.comparison.end_session(client)
        elif step.kind.startswith("cut"):
            self.comparison.lose(client, step.kind)
        else:
            super().play(step)


class ModesHistory(ZooHistory):
    """Readers, writers and updates of the first name, and permits of the second one."""

    conversions = 0

    def claim(self, step: Step) -> Claim:
        claim = super().claim(step)
        if step.name:
            return claim._replace(mode="permits", permits=1 + step.slot % 2, limit=LIMIT)
        return claim._replace(mode=MODES[step.slot])

    def other(self, step: Step, claim: Claim, token: int) -> object:
        if step.kind == "convert" and claim.mode != "permits":
            self.conversions += step.choice % 4 > 0
            return Convert(claim, self.conversions, MODES[step.choice % 3])
        if step.kind == "resize":
            return Resize(NAMES[step.name], LIMIT + step.choice % 2)
        return super().other(step, claim, token)


@contextmanager
def history_on(server: tuple[Ensemble, Any], protocols: str) -> Iterator[ZooHistory]:
    comparison = ZooComparison(*server, f"/comparison{next(ROOTS)}", protocols.split())
    try:
        yield ModesHistory(comparison) if "modes" in protocols else ZooHistory(comparison)
    finally:
        comparison.close()


@pytest.mark.parametrize("protocols", PROTOCOLS)
def test_a_server_answers_as_its_model(server: tuple[Ensemble, Any], protocols: str) -> None:
    @given(history=steps(kinds_of(protocols)))
    @QUICK
    def played(history: list[Step]) -> None:
        with history_on(server, protocols) as played:
            for step in history:
                played.play(step)

    played()


@pytest.mark.parametrize("least", LEAST)
@pytest.mark.parametrize("protocols", PROTOCOLS)
def test_a_long_history_covers_everything(
    server: tuple[Ensemble, Any], protocols: str, least: int
) -> None:
    rng = random.Random(protocols)
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
    if "modes" in protocols:
        wanted |= {"Convert Converted", "Resize Resized", "Acquire LimitMismatch"}
    for number in range(MOST):
        if number >= least and wanted <= set(seen):
            break
        with history_on(server, protocols) as history:
            for _ in range(60):
                history.play(
                    Step(rng.choice(kinds_of(protocols)), *map(rng.randrange, (3, 2, 3, 12)))
                )
        seen += history.seen
    assert wanted <= set(seen), seen
