"""Planted bugs of waits on Redis that are cancelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.plant import planted

from leaselock._backends.redis.listener import AT_ONCE
from leaselock._backends.redis.scripted_lock import ScriptedLock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    import pytest

    from leaselock._core.backend import Claim


@planted("cancelled waits redis")
def cancel_taken_for_the_end(patch: pytest.MonkeyPatch) -> None:
    """The end of one wait is taken for the end of the client: no later wait of it lasts."""
    ended: list[ScriptedLock] = []
    await_wakeup = ScriptedLock.await_wakeup

    def wake(locks: ScriptedLock, claim_ids: Iterable[str]) -> None:
        ended.append(locks)
        locks.listener.wake(list(locks.listener.waiting))

    def at_once(locks: ScriptedLock, claim: Claim, until: float) -> Awaitable[object]:
        return AT_ONCE if locks in ended else await_wakeup(locks, claim, until)

    patch.setattr(ScriptedLock, "wake", wake)
    patch.setattr(ScriptedLock, "await_wakeup", at_once)
