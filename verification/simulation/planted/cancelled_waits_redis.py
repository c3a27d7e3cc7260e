"""Planted bugs of waits on Redis that are cancelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.plant import planted

from leaselock._backends.redis.listener import AT_ONCE
from leaselock._backends.redis.scripted_backend import ScriptedBackend

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    import pytest

    from leaselock._core.contract.backend import Claim


@planted("cancelled waits redis")
def cancel_taken_for_the_end(patch: pytest.MonkeyPatch) -> None:
    """The end of one wait is taken for the end of the client: no later wait of it lasts."""
    ended: list[ScriptedBackend] = []
    await_wakeup = ScriptedBackend.await_wakeup

    def wake(locks: ScriptedBackend, claim_ids: Iterable[str]) -> None:
        ended.append(locks)
        locks.listener.wake(list(locks.listener.waiting))

    def at_once(locks: ScriptedBackend, claim: Claim, until: float) -> Awaitable[object]:
        return AT_ONCE if locks in ended else await_wakeup(locks, claim, until)

    patch.setattr(ScriptedBackend, "wake", wake)
    patch.setattr(ScriptedBackend, "await_wakeup", at_once)
