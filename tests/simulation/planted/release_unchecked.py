"""A release frees the lock whoever holds it (hazard A2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core import rules

if TYPE_CHECKING:
    import pytest

    from leaselock.core.backend import Release, Released


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules.release

    def release(shelf: rules.LockRow, request: Release) -> Released:
        held = shelf.held()
        if held is not None and not shelf.quit(request.claim.id):
            shelf.keep(held._replace(id=request.claim.id))
        return real(shelf, request)

    patch.setattr(rules, "release", release)
