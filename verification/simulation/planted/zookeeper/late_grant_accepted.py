"""A grant whose reply comes after the end of its lease is accepted."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from leaselock._backends.zookeeper.contender import Contender
from leaselock._backends.zookeeper.requests import Connect
from leaselock._backends.zookeeper.session_backend import SessionBackend
from leaselock._core.effects import Call
from leaselock.errors import StoreError

if TYPE_CHECKING:
    import pytest


FAULTS = {"freeze": 0.05, "freeze_mean": 1.0}


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in, and let processes freeze just before they receive a grant.

    The simulator freezes a process only where it calls a node, which none does there.
    """
    freeze_at_grants(patch)
    patch.setattr(Contender, "has_ended", lambda self: False)


def freeze_at_grants(patch: pytest.MonkeyPatch) -> None:
    """Add a call after each grant, which does no harm by itself."""
    granted = SessionBackend.granted

    async def calling(self: SessionBackend, contender: Contender) -> None:
        await granted(self, contender)
        with contextlib.suppress(StoreError):
            await Call(self.connection, Connect(), self.now() + 1.0)

    patch.setattr(SessionBackend, "granted", calling)
