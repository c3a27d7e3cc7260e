"""A grant that is handed over carries the token of the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from leaselock.core import rules

if TYPE_CHECKING:
    import pytest

    from leaselock.core.backend import Held
    from leaselock.core.table import Place


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules._hand_over

    def hand_over(shelf: rules.Shelf) -> Held | None:
        entry = cast("Place", shelf).entry
        before = entry.token
        held = real(shelf)
        if held is not None:
            held = held._replace(token=before)
            entry.held, entry.token = held, before
        return held

    patch.setattr(rules, "_hand_over", hand_over)
