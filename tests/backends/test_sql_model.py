"""Whatever happens, PostgreSQL and MariaDB answer as the model of their tables does."""

from __future__ import annotations

import os
import random
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from tests.backends.sql import mariadb, postgres, server
from tests.backends.sql_twins import SqlTwins, Unlucky
from tests.models.histories import KINDS, History, Step, steps

from holdfast.backends.sql import shelf
from holdfast.core import rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.mariadb import MariaDB
    from tests.servers.postgres import Postgres

__all__ = ["mariadb", "postgres", "server"]
QUICK = settings(
    max_examples=8,
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
# A hand-over, and the row of a waiter, end soon, too.
CLAIM_TIME, WAITER_LASTS = 0.12, 0.25
LEAST, MOST = 2, 40


@contextmanager
def history_on(server: Postgres | MariaDB) -> Iterator[History]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules, "CLAIM_TIME", CLAIM_TIME)
        patch.setattr(shelf, "WAITER_LASTS", WAITER_LASTS)
        twins = SqlTwins(server)
        try:
            # What a machine with much else to do leaves undecided is no history.
            with suppress(Unlucky):
                yield History(twins)
        finally:
            twins.close()


def test_a_database_answers_as_its_model(server: Postgres | MariaDB) -> None:
    @given(history=steps())
    @QUICK
    def played(history: list[Step]) -> None:
        with history_on(server) as played:
            for step in history:
                played.play(step)

    played()


def test_a_long_history_shows_everything(server: Postgres | MariaDB) -> None:
    lots = random.Random(1)
    seen: Counter[str] = Counter()
    wanted = {"Ask Grant", "Ask Busy", "held", "waiting", "absent", "message"}
    wanted |= {"Renew tuple", "Look tuple", "Retied True", "Broken True", "Broken False"}
    # On a machine with much else to do, a history may end early.
    for number in range(MOST):
        if number >= LEAST and wanted <= set(seen):
            break
        with history_on(server) as history:
            for _ in range(50):
                history.play(Step(lots.choice(KINDS), *map(lots.randrange, (3, 2, 3, 12))))
        seen += history.seen
    assert wanted <= set(seen), seen
