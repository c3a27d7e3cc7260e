"""The server grants a lock that another session holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.sql_server import Server

if TYPE_CHECKING:
    import pytest

STORY = "sql sessions"


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(Server, "take", lambda self, session, key, of: of.add(key) is None)
