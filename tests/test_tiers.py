"""Each test is in one tier, and a test that starts a server is known to do so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from testkit.servers.costs import starting
from testkit.servers.redis import Redis
from tests.reach import reaches

ROOT = Path(__file__).parents[1]


def in_a_function() -> object:
    def inside() -> object:
        return Redis

    return inside()


def by_an_import() -> object:
    from testkit.servers.postgres import Postgres

    return Postgres


def without() -> object:
    return ROOT


@pytest.mark.parametrize("value", [Redis, starting, in_a_function, by_an_import, [in_a_function]])
def test_a_start_of_a_server_is_seen(value: object) -> None:
    assert reaches(value, {})


def test_a_function_without_a_server_starts_none() -> None:
    assert not reaches(without, {})


def test_the_tests_are_collected_without_the_plugin_for_coverage() -> None:
    # The group `dev` does not have it.
    command = [sys.executable, "-m", "pytest", "-p", "no:pytest_cov", "--collect-only", "-q"]
    ran = subprocess.run(
        [*command, "tests/cli/test_usage.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
