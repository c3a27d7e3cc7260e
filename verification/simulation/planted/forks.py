"""Planted bugs of forked processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.plant import planted

from leaselock._core.client.claim_registry import ClaimRegistry
from leaselock._core.rows.queue import NodeBackend

if TYPE_CHECKING:
    import pytest


@planted("sqlite")
def child_has_no_listener(patch: pytest.MonkeyPatch) -> None:
    """A forked child uses its parent's listener, which does not exist there."""
    patch.setattr(NodeBackend, "after_fork", lambda self: None)


@planted("sqlite")
def child_has_no_renewer(patch: pytest.MonkeyPatch) -> None:
    """A forked child uses its parent's renewer, which does not exist there, and renews nothing."""
    abandon = ClaimRegistry.abandon

    def forget(self: ClaimRegistry, reason: str, ours: bool) -> None:
        keeping = self.renewing
        abandon(self, reason, ours)
        self.renewing = keeping

    patch.setattr(ClaimRegistry, "abandon", forget)


@planted("sqlite")
def child_has_same_client_id(patch: pytest.MonkeyPatch) -> None:
    """A forked child uses the client identifier and the claim numbers of its parent."""
    begin = ClaimRegistry.begin

    def again(self: ClaimRegistry) -> None:
        named = getattr(self, "client", None), getattr(self, "serial", 0)
        begin(self)
        if named[0] is not None:
            self.client, self.serial = named[0], named[1]

    patch.setattr(ClaimRegistry, "begin", again)


@planted("sqlite")
def child_keeps_holds(patch: pytest.MonkeyPatch) -> None:
    """A forked child considers itself the holder of its parent's locks (hazard F6)."""

    def abandon(self: ClaimRegistry, reason: str, ours: bool) -> None:
        self.begin()
        self.backend.after_fork()

    patch.setattr(ClaimRegistry, "abandon", abandon)


@planted("redis")
def child_releases(patch: pytest.MonkeyPatch) -> None:
    """A forked child releases its parent's locks (hazard F7)."""
    abandon = ClaimRegistry.abandon
    patch.setattr(ClaimRegistry, "abandon", lambda self, reason, ours: abandon(self, reason, True))


@planted("sqlite")
def child_remembers_holds(patch: pytest.MonkeyPatch) -> None:
    """A forked child keeps the record of its parent's holds."""
    patch.setattr(ClaimRegistry, "abandon", lambda self, reason, ours: self.backend.after_fork())
