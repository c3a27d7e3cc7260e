"""A client that watches the node of its own hold takes the watcher for a waiter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.zookeeper.session_backend import SessionBackend

if TYPE_CHECKING:
    import pytest

    from leaselock.backends.zookeeper.contender import Contender


FIRST = 4


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = SessionBackend.granted

    async def granted(self: SessionBackend, contender: Contender) -> None:
        for claim in self.watchers.get(contender.node.path if contender.node else "", ()):
            self.contenders[claim].watches_holder = True
        await real(self, contender)

    patch.setattr(SessionBackend, "granted", granted)
