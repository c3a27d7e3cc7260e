"""PostgreSQL and MariaDB answer as the models of their tables and sessions do."""

from __future__ import annotations

import os
import random
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from tests.backends.sql.comparison import SqlComparison, Unlucky
from tests.backends.sql.session_comparison import BRIEF, LONG, SessionComparison
from verification.models.histories import KINDS, History, Step, steps

from leaselock._backends.sql import records
from leaselock._core.rows import rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testkit.servers.mariadb import MariaDB
    from testkit.servers.postgres import Postgres

# More of them: LEASELOCK_MODEL_EXAMPLES=200.
EXAMPLES = int(os.environ.get("LEASELOCK_MODEL_EXAMPLES", "8"))
QUICK = settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow],
)
# A hand-off and the row of a waiter expire soon, too.
CONFIRM_WITHIN, WAITER_LASTS = 0.12, 0.25
LEAST, MOST = 2, 400
MOST_STEPS, SEED = 500, 8


@contextmanager
def history_on(server: Postgres | MariaDB) -> Iterator[History]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules, "CONFIRM_WITHIN", CONFIRM_WITHIN)
        patch.setattr(records, "WAITER_LASTS", WAITER_LASTS)
        comparison = SqlComparison(server)
        try:
            # A machine under load may be too slow to decide an outcome.
            with suppress(Unlucky):
                yield History(comparison)
        finally:
            comparison.close()


def test_a_database_answers_as_its_model(server: Postgres | MariaDB) -> None:
    @given(history=steps())
    @QUICK
    def played(history: list[Step]) -> None:
        with history_on(server) as played:
            for step in history:
                played.play(step)

    played()


def test_a_long_history_covers_everything(server: Postgres | MariaDB) -> None:
    rng = random.Random(1)
    seen: Counter[str] = Counter()
    wanted = {"Acquire Grant", "Acquire Busy", "held", "waiting", "absent", "message"}
    wanted |= {"Renew tuple", "Inspect tuple", "LifetimeSet True", "Broken True", "Broken False"}
    # On a busy machine a history may end early.
    for number in range(MOST):
        if number >= LEAST and wanted <= set(seen):
            break
        with history_on(server) as history:
            for _ in range(50):
                history.play(Step(rng.choice(KINDS), *map(rng.randrange, (3, 2, 3, 12))))
        seen += history.seen
    assert wanted <= set(seen), seen


# --- protocols "row" and "advisory" ---------------------------------------------------------------

# These protocols have no tombstones, no ReleaseGrant and no SetLifetime; the server itself waits.
SESSION_STEPS = (
    *("acquire", "acquire", "wait", "wait", "wait", "again", "release", "release", "renew", "die"),
    *("break", "break token", "inspect", "inspect all", "await", "await", "await", "brief"),
)


class SessionHistory(History):
    """The requests to sessions so far."""

    def __init__(self, comparison: SessionComparison) -> None:
        super().__init__(comparison)
        self.sessions = comparison

    def play(self, step: Step) -> None:
        claim = self.last[step.client]
        if step.kind not in ("await", "brief"):
            super().play(step)
        elif claim is not None:
            self.seen[self.sessions.wait(claim, BRIEF if step.kind == "brief" else LONG)] += 1


@contextmanager
def sessions_on(server: Postgres | MariaDB, protocol: str) -> Iterator[SessionHistory]:
    comparison = SessionComparison(server, protocol)
    try:
        yield SessionHistory(comparison)
    finally:
        comparison.close()


@pytest.mark.parametrize("protocol", ["row", "advisory"])
def test_the_sessions_of_a_database_behave_as_their_model(
    server: Postgres | MariaDB, protocol: str
) -> None:
    # Each example costs a second for opening and closing sessions.
    @given(history=steps(SESSION_STEPS))
    @settings(QUICK, max_examples=max(1, EXAMPLES // 4))
    def played(history: list[Step]) -> None:
        with sessions_on(server, protocol) as played:
            for step in history:
                played.play(step)

    played()


@pytest.mark.parametrize("protocol", ["row", "advisory"])
def test_a_long_history_of_sessions_covers_everything(
    server: Postgres | MariaDB, protocol: str
) -> None:
    rng = random.Random(f"{SEED} {protocol}")
    wanted = {
        "Acquire Grant",
        "Acquire Busy",
        "held",
        "waiting",
        "absent",
        "Broken True",
        "Broken False",
    }
    wanted |= {"Renew tuple", "Inspect tuple", "granted", "waits"}
    with sessions_on(server, protocol) as history:
        for _ in range(MOST_STEPS):
            if wanted <= set(history.seen):
                break
            history.play(Step(rng.choice(SESSION_STEPS), *map(rng.randrange, (3, 2, 3, 12))))
        assert wanted <= set(history.seen), history.seen
