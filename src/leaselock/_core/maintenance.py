"""What the findings of several stores have in common."""

from __future__ import annotations

from leaselock._core.backend import Finding

# Seconds: more than a reply takes, and less than the shortest sensible lease.
MAX_CLOCK_OFFSET = 1.0


def clock_finding(where: str, theirs: float, ours: float) -> Finding:
    """Compare two readings of the wall clock at about the same moment, in Unix time.

    Leases do not need the clocks to agree. But where another server takes over, its own clock
    counts the leases on (hazard B12).
    """
    offset = theirs - ours
    if abs(offset) <= MAX_CLOCK_OFFSET:
        return Finding("ok", f"{where}: its clock agrees with this machine's")
    side = "ahead of" if offset > 0 else "behind"
    what = f"{where}: its clock is {abs(offset):.1f} s {side} this machine's"
    return Finding("warn", what, "synchronise them: a server that takes over uses its own clock")
