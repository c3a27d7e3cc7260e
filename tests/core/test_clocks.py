"""What is said of a server's clock."""

from __future__ import annotations

from leaselock.core.clock_check import MOST_OFF, compared


def test_two_clocks_are_compared() -> None:
    assert compared("r:1", 1000.0 + MOST_OFF, 1000.0).level == "ok"
    ahead, behind = compared("r:1", 1004.5, 1000.0), compared("r:1", 990.0, 1000.0)
    assert (ahead.level, ahead.what) == ("warn", "r:1: its clock is 4.5 s ahead of this machine's")
    assert (behind.level, behind.what) == ("warn", "r:1: its clock is 10.0 s behind this machine's")
