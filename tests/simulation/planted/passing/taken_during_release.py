"""A lease can be taken while it is being released to the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.local import Local

if TYPE_CHECKING:
    import pytest

    from leaselock.core.turns import Anchor, Line


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    async def give_back(self: Local, line: Line, anchor: Anchor, until: float) -> bool:
        anchor.owner, anchor.turn = None, until
        held = await self.backend.release(anchor.claim, tombstone=anchor.unsure(), until=until)
        line.anchor = None
        line.wake_first()
        return held

    patch.setattr(Local, "give_back", give_back)
