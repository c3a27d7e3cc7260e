"""What a server's clock tells against ours. Leases need no agreement between the two; but where
another server takes over, its clock goes on counting (hazard B12).
"""

from __future__ import annotations

from leaselock.core.backend import Finding

# Seconds: more than an answer takes, and less than the shortest sensible lease.
MOST_OFF = 1.0


def compared(where: str, theirs: float, ours: float) -> Finding:
    """Two readings of the wall clock at about the same moment, in seconds since 1970."""
    off = theirs - ours
    if abs(off) <= MOST_OFF:
        return Finding("ok", f"{where}: its clock agrees with this machine's")
    side = "ahead of" if off > 0 else "behind"
    what = f"{where}: its clock is {abs(off):.1f} s {side} this machine's"
    return Finding("warn", what, "synchronise them: a server that takes over counts by its own")
