"""Seeds of stories on PostgreSQL pass."""

from __future__ import annotations

from tests.simulation.seeds import must_pass


def test_seeds_pass() -> None:
    must_pass("sql", 0, 70)
