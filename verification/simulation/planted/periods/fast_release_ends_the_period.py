"""The one statement that releases a lock without waiters is used for a lock that must cool down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock._backends.sql.lease import Lease
from leaselock._core.backend import Release

if TYPE_CHECKING:
    from collections.abc import Awaitable

    import pytest

STORY = "sql periods"


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Lease.answer

    def answer(self: Lease, request: Any, *words: Any) -> Awaitable[object]:
        if isinstance(request, Release):
            request = request._replace(claim=request.claim.unused())
        return real(self, request, *words)

    patch.setattr(Lease, "answer", answer)
