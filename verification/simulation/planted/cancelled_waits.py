"""Planted bugs of waits that are cancelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.cancelled_waits import waits_of
from verification.simulation.plant import planted

from leaselock._backends.sql.session_pool import SessionPool
from leaselock._core.client.mutex import Mutex

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest


@planted("cancelled waits")
def cancel_wakes_nobody(patch: pytest.MonkeyPatch) -> None:
    """A cancelled wait is not woken: it ends when its claim asks again by itself."""

    def cancel(mutex: Mutex) -> int:
        waiting = [wait for wait in waits_of(mutex) if not wait.cancelled]
        for wait in waiting:
            wait.cancelled = True
        return len(waiting)

    patch.setattr(Mutex, "cancel", cancel)


@planted("cancelled waits sql sessions")
def grant_of_a_cut_connection(patch: pytest.MonkeyPatch) -> None:
    """The connection of a cancelled wait is closed while its token is counted on another one, and
    the grant counts.
    """

    def wake(pool: SessionPool, claim_ids: Iterable[str]) -> None:
        for claim_id in claim_ids:
            found = pool.by_claim.get(claim_id)
            if found is not None and not found.session.has_lease():
                found.connection.cut()

    patch.setattr(SessionPool, "wake", wake)
