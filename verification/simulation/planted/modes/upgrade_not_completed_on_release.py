"""The last reader that leaves does not complete an upgrade."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import rules

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import Release, Released


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules.release

    def release(row: rules.LockRow, request: Release) -> Released:
        reply = real(row, request)
        for hold in row.holds():
            if hold.mode == "exclusive" and hold.step % 2 and hold.client != request.claim.client:
                row.put(hold._replace(mode="upgrading"))
        return reply

    patch.setattr(rules, "release", release)
