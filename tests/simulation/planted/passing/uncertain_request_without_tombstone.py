"""The shared claim is released without a tombstone although a request of it is uncertain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.local import Local

if TYPE_CHECKING:
    import pytest

    from leaselock.core.turns import Anchor, Member


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def failed(
        self: Local, member: Member, anchor: Anchor, error: BaseException, fresh: bool
    ) -> None:
        """It does not matter."""

    patch.setattr(Local, "_failed", failed)
