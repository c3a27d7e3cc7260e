"""What is said of a server's clock."""

from __future__ import annotations

from leaselock._core.rows.maintenance import MAX_CLOCK_OFFSET, clock_finding


def test_two_clocks_are_compared() -> None:
    assert clock_finding("r:1", 1000.0 + MAX_CLOCK_OFFSET, 1000.0).level == "ok"
    ahead, behind = clock_finding("r:1", 1004.5, 1000.0), clock_finding("r:1", 990.0, 1000.0)
    assert (ahead.level, ahead.what) == ("warn", "r:1: its clock is 4.5 s ahead of this machine's")
    assert (behind.level, behind.what) == ("warn", "r:1: its clock is 10.0 s behind this machine's")
