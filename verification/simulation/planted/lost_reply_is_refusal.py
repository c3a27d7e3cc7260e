"""A request without a reply counts as a refusal (hazard D1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.acquisition import Acquisition
from leaselock._core.backend import Busy
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    import pytest

    from leaselock.errors import StoreError


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    async def try_again(self: Acquisition, error: StoreError, send: object) -> Busy:
        if not isinstance(error, OutcomeUnknown):
            raise error
        self.deadline = self.asked
        return Busy(None, 1.0, ())

    patch.setattr(Acquisition, "try_again", try_again)
