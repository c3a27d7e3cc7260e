"""Maintenance requests of a backend whose store answers them itself: doctor, setup, gc."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from leaselock.core.backend import CollectGarbage, Doctor, Setup
from leaselock.core.effects import Call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from leaselock.core.backend import Finding
    from leaselock.core.effects import Request

R = TypeVar("R")


class StoreMaintenance:
    """Sends each maintenance request to the store as it is."""

    def request(self, request: Request[R], until: float) -> Awaitable[R]:
        """Send one request to the store."""
        return Call("store", request, until)

    async def doctor(self, until: float) -> Sequence[Finding]:
        """Report how the store is set up."""
        return await self.request(Doctor(), until)

    async def setup(self, dry: bool, until: float) -> Sequence[str]:
        """Create what the store needs, or with *dry* only list it; return the statements."""
        return await self.request(Setup(dry), until)

    async def collect_garbage(self, until: float) -> int:
        """Remove records that are no longer needed; return how many."""
        return await self.request(CollectGarbage(), until)
