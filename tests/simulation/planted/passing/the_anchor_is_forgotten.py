"""The release of a shared lease leaves no tombstone after an unanswered request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.local_handoff import LocalHandoff

if TYPE_CHECKING:
    import pytest

    from leaselock.core.local_handoff import LocalWaiter, SharedLease


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def failed(
        self: LocalHandoff, waiter: LocalWaiter, lease: SharedLease, error: BaseException, new: bool
    ) -> None:
        """Ignore the error."""

    patch.setattr(LocalHandoff, "_failed", failed)
