"""No tombstone is written on a master at which a request may still arrive (hazard D2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.redlock.protocol import Redlock

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import Claim

# Not long before the first short story that finds it.


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    release = Redlock.release

    async def careless(self: Redlock, claim: Claim, *, tombstone: bool, until: float) -> bool:
        self.uncertain.discard(claim.id)
        return await release(self, claim, tombstone=False, until=until)

    patch.setattr(Redlock, "release", careless)
