"""Whoever asks a free lock gets it, though others wait (hazard E5)."""

from __future__ import annotations

import pytest

from typing import cast

from holdfast.core import rules
from holdfast.core.backend import Held
from holdfast.core.table import Place


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules._hand_over

    def hand_over(shelf: rules.Shelf) -> Held | None:
        for claim in list(cast("Place", shelf).entry.queue.values()):
            shelf.wake(claim)
        return None

    patch.setattr(rules, "_hand_over", hand_over)
