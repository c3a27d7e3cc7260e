"""A release frees the lock at once, although its period has not ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.memory.store import Table
from leaselock._core.backend import Release

if TYPE_CHECKING:
    from typing import Any

    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Table.answer

    def answer(self: Table, client: str, request: Any) -> object:
        if isinstance(request, Release):
            request = request._replace(claim=request.claim.unused())
        return real(self, client, request)

    patch.setattr(Table, "answer", answer)
