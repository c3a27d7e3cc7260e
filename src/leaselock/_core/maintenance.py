"""Maintenance requests of a backend whose store answers them itself: doctor, setup, gc."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, TypeVar

from leaselock._core.backend import CollectGarbage, Doctor, Finding, Setup

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from leaselock._core.effects import Request

R = TypeVar("R")

# Seconds: more than a reply takes, and less than the shortest sensible lease.
MAX_CLOCK_OFFSET = 1.0


class StoreMaintenance(abc.ABC):
    """Sends each maintenance request to the store as it is."""

    @abc.abstractmethod
    def request(self, request: Request[R], until: float) -> Awaitable[R]:
        """Send one request to the store."""

    async def doctor(self, until: float) -> Sequence[Finding]:
        """Report how the store is set up."""
        return await self.request(Doctor(), until)

    async def setup(self, dry: bool, until: float) -> Sequence[str]:
        """Create what the store needs, or with *dry* only list it; return the statements."""
        return await self.request(Setup(dry), until)

    async def collect_garbage(self, until: float) -> int:
        """Remove records that are no longer needed; return how many."""
        return await self.request(CollectGarbage(), until)


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
