"""A hold has the token of the previous hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.sql_server import Server

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(Server, "_count", lambda self, name: self.tokens.setdefault(name, 1))
