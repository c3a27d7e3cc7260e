"""The server grants a lock that another session holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.sql_server import Server

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(Server, "_is_free", lambda self, session, key, shared: True)
