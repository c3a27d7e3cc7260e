"""The deletion of any predecessor counts as a release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.zookeeper.session_backend import SessionBackend

if TYPE_CHECKING:
    import pytest

    from leaselock._backends.zookeeper.contender import Contender


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    watch = SessionBackend.watch

    def careless(
        self: SessionBackend, contender: Contender, *paths: str, holder: bool = False
    ) -> None:
        watch(self, contender, *paths, holder=True)

    patch.setattr(SessionBackend, "watch", careless)
