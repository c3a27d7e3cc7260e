"""Twenty processes whose wall clocks differ by up to two days: one run per period, none twice.

By default few periods are played; LEASELOCK_PERIODS sets how many.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from testkit.servers.databases import emptied
from testkit.servers.redis import Redis
from verification.chaos.clock import FURTHEST, Clocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testkit.servers.postgres import Postgres

pytestmark = pytest.mark.statistical
PERIODS = int(os.environ.get("LEASELOCK_PERIODS", "20"))
EVERY = 1.0
PROCESSES = 20
SEED = 20
# By how much later than a period begins its run may, so that the next one is not skipped.
SLACK = 0.5
# The reading of two clocks, and the granularity of leases in the store.
PRECISION = 0.005
ROOT = Path(__file__).parents[2]


class Run(NamedTuple):
    """One run: its token, and between which times it was granted."""

    token: int
    asked: float
    granted: float


@pytest.fixture
def redis() -> Iterator[str]:
    with Redis() as server:
        yield server.url


def played(url: str, *, align: bool, folder: Path) -> list[Run]:
    """The runs of all processes, in the order of their tokens."""
    env = dict(os.environ)
    try:
        clocks = Clocks(folder)
    except LookupError as error:
        pytest.skip(str(error))
    chance = random.Random(SEED)
    clocks.set(lambda: chance.randint(-FURTHEST, FURTHEST))
    file = folder / "runs"
    words = ("once", url, str(PERIODS), str(EVERY), str(align), str(file))
    command = [sys.executable, "-m", "tests.election.worker", *words]
    workers = [subprocess.Popen(command, env=env | clocks.env, cwd=ROOT) for _ in range(PROCESSES)]
    try:
        codes = {worker.wait(60 + 3 * PERIODS * EVERY) for worker in workers}
    finally:
        for worker in workers:
            worker.kill()
    assert codes == {0}
    lines = (line.split() for line in file.read_text().splitlines())
    return sorted(Run(int(t), float(asked), float(granted)) for t, asked, granted in lines)


def check_intervals(runs: list[Run], every: float) -> None:
    """No two runs are closer than a period; none comes much later."""
    assert len(runs) >= PERIODS
    for before, after in pairwise(runs):
        assert after.granted - before.asked >= every - PRECISION, "twice in one period"
        assert after.asked - before.granted <= every + SLACK, "a period without a run"


@pytest.mark.parametrize("store", ["redis", "postgres"])
def test_each_period_of_the_store_has_one_run(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server: str | Postgres = request.getfixturevalue(store)
    url = server if isinstance(server, str) else emptied(server)
    runs = played(url, align=True, folder=tmp_path)
    # The token of a grant is the time of the store's clock.
    periods = [int(run.token / 1e6 // EVERY) for run in runs]
    assert periods == list(range(periods[0], periods[0] + len(periods)))
    assert len(periods) >= PERIODS
    print(f"{store}: {len(runs)} runs in {len(set(periods))} periods by {PROCESSES} processes")


def test_periods_on_sqlite_are_those_of_the_boot_clock(tmp_path: Path) -> None:
    """The processes share that clock. Their wall clocks, which are part of the tokens, differ."""
    runs = played(f"sqlite:///{tmp_path}/locks.db", align=False, folder=tmp_path)
    check_intervals(sorted(runs, key=lambda run: run.granted), EVERY)
    print(f"sqlite: {len(runs)} runs in {len(runs)} periods by {PROCESSES} processes")
