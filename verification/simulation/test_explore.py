"""All interleavings of two processes are explored, and a planted bug is found."""

from __future__ import annotations

import pytest
from verification.simulation.bugs import BUGS
from verification.simulation.explore import HEAD, ROW, STORES, Bounds, explore, row

pytestmark = pytest.mark.first_tier

NAMED = {bug.name: bug for bug in BUGS}
MEETING = Bounds(2, 1)


@pytest.mark.parametrize("store", STORES)
def test_two_processes_meet_in_every_way(store: str) -> None:
    found = explore(store, MEETING)
    assert found.violation is None, found.path
    assert found.whole
    assert found.grants > found.runs > 50
    assert row(store, MEETING, found).split()[-1] == "all"


def test_one_message_is_lost_wherever_it_may_be() -> None:
    found = explore("redis tasks", Bounds(2, 1, losses=1), most=300)
    assert found.violation is None, found.path


@pytest.mark.parametrize(
    ("store", "bug"),
    [
        ("sqlite", "token_repeated"),
        ("redis threads", "redis/held_by_any_is_held"),
        ("redis tasks", "redis/no_expiry"),
    ],
)
def test_a_bug_is_found(store: str, bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    NAMED[bug].plant(monkeypatch)
    assert explore(store, Bounds(2, 1), most=3000).violation is not None


def test_the_table_has_a_head() -> None:
    assert "processes" in ROW.format(*HEAD)
