"""A claim that an upgrade has overtaken keeps its token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.zookeeper.contender import Contender

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    never = property(lambda self: False, lambda self, outdated: None)
    patch.setattr(Contender, "outdated", never)
