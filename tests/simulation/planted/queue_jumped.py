"""Whoever asks a free lock gets it, though others wait (hazard E5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from leaselock.core import rules

if TYPE_CHECKING:
    import pytest

    from leaselock.core.backend import Held
    from leaselock.core.table import Place


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def hand_over(shelf: rules.Shelf) -> Held | None:
        for claim in list(cast("Place", shelf).entry.queue.values()):
            shelf.wake(claim)
        return None

    patch.setattr(rules, "_hand_over", hand_over)
