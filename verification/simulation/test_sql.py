"""Seeds of scenarios on PostgreSQL pass; terminated sessions show which guarantees remain."""

from __future__ import annotations

import pytest
from verification.models.sql_tables import Tables
from verification.simulation.quarters import QUARTERS, seeds_of
from verification.simulation.scenarios import play, report
from verification.simulation.seeds import must_pass

from leaselock._backends.sql.statements import dialect_of

pytestmark = pytest.mark.first_tier

SHOWN = 60


def test_every_statement_of_the_model_exists() -> None:
    # The model ignores a statement that it does not know, so a wrong name would be hidden.
    modelled = {name.removeprefix("do_") for name in vars(Tables) if name.startswith("do_")}
    statements = {title.replace(" ", "_") for title in dialect_of("postgres").statements}
    assert modelled <= statements


@pytest.mark.parametrize("quarter", QUARTERS)
@pytest.mark.parametrize(
    ("kind", "seeds"),
    [
        *(("sql", 18), ("sql sessions", 13), ("sql modes", 5), ("sql sessions modes", 8)),
        ("numbered sql", 5),
    ],
)
def test_seeds_pass(kind: str, seeds: int, quarter: tuple[float, float]) -> None:
    must_pass(kind, *seeds_of(quarter, seeds))


def test_after_a_terminated_session_two_leases_overlap_until_the_loss_is_reported() -> None:
    kind = "sql sessions terminated"
    outcomes = [play(kind, seed) for seed in range(SHOWN)]
    failed = [outcome.seed for outcome in outcomes if outcome.violation]
    assert failed == [], report(kind, failed[0])
    assert any(outcome.overlaps for outcome in outcomes)
