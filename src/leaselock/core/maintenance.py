"""Maintenance requests of a backend whose store answers them itself: doctor, setup, gc."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.backend import CollectGarbage, Doctor, Setup
from leaselock.core.effects import Call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaselock.core.backend import Finding


class StoreMaintenance:
    """Sends each maintenance request to the store as it is."""

    async def doctor(self, until: float) -> Sequence[Finding]:
        """Report how the store is set up."""
        return await Call("store", Doctor(), until)

    async def setup(self, dry: bool, until: float) -> Sequence[str]:
        """Create what the store needs, or with *dry* only list it; return the statements."""
        return await Call("store", Setup(dry), until)

    async def collect_garbage(self, until: float) -> int:
        """Remove records that are no longer needed; return how many."""
        return await Call("store", CollectGarbage(), until)
