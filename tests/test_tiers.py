"""Nothing is lost between the tiers."""

from __future__ import annotations

import re
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


def test_the_second_tier_is_named_by_markers_that_say_why(collected: list[pytest.Item]) -> None:
    for item in collected:
        why = [marker for marker in tiers.MARKERS if item.get_closest_marker(marker)]
        assert (tiers.tier_of(item) == "verify") is bool(why)


def test_every_entry_concerns_a_test(
    collected: list[pytest.Item], request: pytest.FixtureRequest
) -> None:
    config = request.config
    whole = [str(ROOT / path) for path in config.getini("testpaths")]
    if [str(Path(config.invocation_params.dir, word)) for word in config.args] == whole:
        assert tiers.unused(collected) == []


def test_make_runs_both_tiers_as_a_whole_and_ci_runs_make() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    used = re.findall(r"--tier (\w+)", makefile)
    assert sorted(used) == ["check", "test"]
    assert "-m tests.verify" in makefile
    ran = re.findall(r"\bmake (\w+)", (ROOT / ".ci" / "run").read_text("utf-8"))
    assert ran == ["audit", "test", "verify"]
