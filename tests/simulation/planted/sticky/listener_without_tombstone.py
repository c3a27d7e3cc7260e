"""A listener's request that a release overtakes acquires the lock again (hazard D2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core import cached_lease
from leaselock.core.backend import Grant

if TYPE_CHECKING:
    import pytest

    from leaselock.core.local import Local
    from leaselock.core.turns import Anchor


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    async def alone(local: Local, anchor: Anchor) -> bool:
        until = local.env.now() + 1.0
        reply = await local.backend.acquire(anchor.claim, wait=True, until=until)
        (sight,) = await local.backend.inspect(anchor.claim.name, "*", until)
        return isinstance(reply, Grant) and not sight.waiting

    patch.setattr(cached_lease, "_alone", alone)
