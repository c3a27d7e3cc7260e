"""The first permits of an idle semaphore are taken without writing their number again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.zookeeper import semaphores

if TYPE_CHECKING:
    import pytest

    from leaselock._backends.zookeeper.semaphores import View


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def writes_limit(view: View, limit: int) -> bool:
        return view.stored != limit

    patch.setattr(semaphores, "writes_limit", writes_limit)
