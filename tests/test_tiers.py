"""Nothing is lost between the tiers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests import tiers

ROOT = Path(__file__).parents[1]


@pytest.fixture
def collected(request: pytest.FixtureRequest) -> list[pytest.Item]:
    """All tests of this run, whatever its tier."""
    return request.config.stash[tiers.COLLECTED]


def test_each_test_is_in_exactly_one_tier(collected: list[pytest.Item]) -> None:
    first = {item.nodeid for item in tiers.selected(collected, "test")}
    second = {item.nodeid for item in tiers.selected(collected, "verify")}
    assert not first & second
    assert first | second == {item.nodeid for item in collected}
    assert {item.nodeid for item in tiers.selected(collected, "check")} <= first


def test_the_folder_or_a_mark_decides(collected: list[pytest.Item]) -> None:
    for item in collected:
        why = any(item.get_closest_marker(marker) for marker in tiers.MARKERS)
        first = item.nodeid.startswith("tests/") or item.get_closest_marker(tiers.FIRST_TIER)
        assert tiers.tier_of(item) == ("test" if first and not why else "verify"), item.nodeid


def test_only_verification_has_marks_of_the_first_tier(collected: list[pytest.Item]) -> None:
    marked = [item.nodeid for item in collected if item.get_closest_marker(tiers.FIRST_TIER)]
    assert [name for name in marked if not name.startswith("verification/")] == []


def test_every_entry_concerns_a_test(
    collected: list[pytest.Item], request: pytest.FixtureRequest
) -> None:
    config = request.config
    whole = [str(ROOT / path) for path in config.getini("testpaths")]
    if [str(Path(config.invocation_params.dir, word)) for word in config.args] == whole:
        assert tiers.unused(collected) == []


def test_check_starts_no_server(collected: list[pytest.Item]) -> None:
    files = {item.path for item in tiers.selected(collected, "check")}
    # `process` starts programs of this machine, such as the shell.
    server = re.compile(r"^from testkit\.servers\.(?!process )", re.M)
    assert {file.name for file in files if server.search(file.read_text("utf-8"))} == set()


def test_make_runs_both_tiers_as_a_whole_and_ci_runs_make() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    used = re.findall(r"--tier (\w+)", makefile)
    assert sorted(used) == ["check", "test"]
    assert "-m tests.verify" in makefile
    run = (ROOT / ".ci" / "run").read_text("utf-8")
    assert re.findall(r"\bmake (\w+)", run) == ["test", "verify"]
    assert "scripts/audit" in run


def test_the_tests_are_collected_without_the_plugin_for_coverage() -> None:
    # The group `dev` does not have it.
    command = [sys.executable, "-m", "pytest", "-p", "no:pytest_cov", "--collect-only", "-q"]
    ran = subprocess.run(
        [*command, "tests/cli/test_usage.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
