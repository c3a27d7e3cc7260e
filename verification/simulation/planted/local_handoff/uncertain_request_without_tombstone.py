"""The shared claim is released without a tombstone although a request of it is uncertain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.local_handoff import LocalHandoff

if TYPE_CHECKING:
    import pytest

    from leaselock._core.local_handoff import LocalWaiter, SharedLease


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def failed(
        self: LocalHandoff, waiter: LocalWaiter, lease: SharedLease, error: BaseException, new: bool
    ) -> None:
        """Ignore the error."""

    patch.setattr(LocalHandoff, "_failed", failed)
