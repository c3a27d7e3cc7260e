"""The last reader that leaves does not complete an upgrade."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.lua import rewrite

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    rewrite(
        patch,
        "RELEASE_SHARED",
        "if upgrading and used == 1 then ahead.wrong = complete(me) end",
        "",
    )
