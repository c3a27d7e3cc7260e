"""A release frees the lock at once, although its period has not ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.redis.scripted_lock import ScriptedLock

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    async def cool_down(self: ScriptedLock, *words: object) -> bool:
        return False

    patch.setattr(ScriptedLock, "_cool_down", cool_down)
