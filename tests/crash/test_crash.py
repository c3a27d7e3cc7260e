"""Processes that are killed and frozen at any moment, on a real store; the proof is the history.

Law: wherever a signal strikes, no two believe at once, tokens rise, and who waits gets the lock.
How often holders are struck is not left to chance: the victim is stopped, looked at, then killed.
A failing seed can be run again, though not exactly.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.servers.redis import Redis

from leaselock.testing.chaos.crew import BILLION, COLOURS, FREEZE, LEASE, Crew, awaited
from leaselock.testing.checker import Rules, check
from leaselock.testing.fold import History
from leaselock.testing.history import Event, read_records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FREEZES, KILLS, KILLED_HOLDERS = 3, 3, 4
GRANTS_BETWEEN = 20
LONG_LEASE = 60.0
# A frozen process may be the one to whom the lock is handed, or in the middle of a transaction,
# and a loaded machine is slow: what is proved is that the lock is not idle for good.
BOUND = round((FREEZE + LEASE + 3.0) * BILLION)
RULES = Rules(
    min_grants=GRANTS_BETWEEN * (FREEZES + KILLS + KILLED_HOLDERS),
    min_contention=0.3,
    min_died_holding=KILLED_HOLDERS,
    ghost_bound=BOUND,
    hand_over_bound=BOUND,
)


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    with Crew(tmp_path, f"sqlite:///{tmp_path}/locks.db") as found:
        yield found


def torment(crew: Crew, lots: random.Random) -> None:
    """Kill one or freeze one, again and again; the killed are replaced."""
    deeds = ["freeze"] * FREEZES + ["kill"] * KILLS + ["kill holder"] * KILLED_HOLDERS
    lots.shuffle(deeds)
    for deed in deeds:
        before = time.monotonic_ns()
        threading.Event().wait(lots.uniform(0.0, 0.05))
        if deed == "freeze":
            crew.freeze(lots.choice(crew.running), FREEZE)
        else:
            holder = deed == "kill holder"
            crew.kill(crew.a_holder(lots) if holder else lots.choice(crew.running))
            crew.start(lots.choice(COLOURS))
        awaited(lambda before=before: len(crew.granted(None, before)) >= GRANTS_BETWEEN)  # type: ignore[misc]


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_and_frozen_processes(seed: int, crew: Crew) -> None:
    tell(seed, crew)


def test_killed_and_frozen_processes_on_redis(tmp_path: Path) -> None:
    with Redis() as server, Crew(tmp_path, server.url) as crew:
        tell(3, crew)


def tell(seed: int, crew: Crew) -> None:
    """The whole story, and its proof."""
    for colour in COLOURS * 2:
        crew.start(colour)
    crew.everybody_granted()
    torment(crew, random.Random(seed))
    crew.everybody_granted(time.monotonic_ns())
    crew.kill_all()
    verdict = check(History.read(crew.history), RULES)
    assert verdict.ok, f"{verdict}\n{crew.complaints()}"
    assert crew.complaints() == ""


@pytest.mark.parametrize("waiter", COLOURS)
@pytest.mark.parametrize("holder", COLOURS)
def test_the_lock_of_a_killed_holder_passes_on_within_a_second(
    holder: str, waiter: str, crew: Crew
) -> None:
    victim = crew.start(holder, "hold", LONG_LEASE)
    assert victim.stdout is not None
    assert victim.stdout.readline() == b"holding\n"
    heir = crew.start(waiter, lease=LONG_LEASE)
    awaited(lambda: any(r.event is Event.ASKED for r in crew.recent({heir.pid})))
    killed = time.monotonic_ns()
    os.kill(victim.pid, signal.SIGKILL)
    awaited(lambda: crew.granted({heir.pid}))
    grants = [r.ts for r in read_records(crew.history) if r.event is Event.GRANTED]
    assert min(instant for instant in grants if instant > killed) - killed < BILLION
    crew.bury(victim)
