"""Planted bugs of cached leases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite
from verification.simulation.plant import planted

from leaselock._core import local_handoff
from leaselock._core.backend import Grant, Inspect
from leaselock._core.local_handoff import SharedLease

if TYPE_CHECKING:
    import pytest

    from leaselock._core.local_handoff import LocalHandoff


@planted("cached")
def cached_too_long(patch: pytest.MonkeyPatch) -> None:
    """A cached lease is reused when it may have ended."""
    real = SharedLease.grant

    def grant(
        self: SharedLease, first_token: int, now: float, asked: float, valid_until: float
    ) -> bool:
        new = real(self, first_token, now, asked, valid_until)
        self.valid_until += 30.0
        self.handoff_until += 30.0
        return new

    patch.setattr(SharedLease, "grant", grant)


@planted("cached")
def earlier_waiter_missed(patch: pytest.MonkeyPatch) -> None:
    """A client that caches a lease does not check for waiters that came before its subscription."""
    real = local_handoff.is_alone

    async def is_alone(local: LocalHandoff, lease: SharedLease) -> bool:
        await real(local, lease)
        return True

    patch.setattr(local_handoff, "is_alone", is_alone)


@planted("cached")
def listener_without_tombstone(patch: pytest.MonkeyPatch) -> None:
    """A listener's request that a release overtakes acquires the lock again (hazard D2)."""

    async def is_alone(local: LocalHandoff, lease: SharedLease) -> bool:
        until = local.env.now() + 1.0
        reply = await local.backend.acquire(lease.claim, wait=True, until=until)
        (state,) = await local.backend.request(Inspect(lease.claim.name, "*"), until)
        return isinstance(reply, Grant) and not state.waiting

    patch.setattr(local_handoff, "is_alone", is_alone)


@planted("cached")
def revocation_ignored(patch: pytest.MonkeyPatch) -> None:
    """A lease in use when another client requests it is cached nevertheless."""
    patch.setattr(SharedLease, "stop_handoff", lambda self: None)


@planted("cached redis")
def revocation_not_published(patch: pytest.MonkeyPatch) -> None:
    """The script does not notify the client that caches the lease of a request."""
    rewrite(
        patch,
        "ACQUIRE",
        "if who then tell(channels .. address, who) end",
        "",
    )
