"""When the task that asks for all tasks of a client is done, no other one continues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.redis.listener import Group

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(Group, "wake_first_later", lambda self: None)
    patch.setattr(Group, "wake_first", lambda self: None)
