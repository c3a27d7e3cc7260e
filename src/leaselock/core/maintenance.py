"""Maintenance requests of a backend whose store answers them itself: doctor, setup, gc."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.core.backend import CollectGarbage, Doctor, Finding, Setup
from leaselock.core.effects import Call

if TYPE_CHECKING:
    from collections.abc import Sequence

# Seconds: more than a reply takes, and less than the shortest sensible lease.
MAX_CLOCK_OFFSET = 1.0


class StoreMaintenance:
    """Sends each maintenance request to the store as it is."""

    node: Any = "store"
    """The connection to the store."""

    async def doctor(self, until: float) -> Sequence[Finding]:
        """Examine the configuration of the store."""
        return await Call(self.node, Doctor(), until)

    async def setup(self, dry: bool, until: float) -> Sequence[str]:
        """Create what the store needs, or with *dry* only list it; return the statements."""
        return await Call(self.node, Setup(dry), until)

    async def collect_garbage(self, until: float) -> int:
        """Remove records that are no longer needed; return how many."""
        return await Call(self.node, CollectGarbage(), until)


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
