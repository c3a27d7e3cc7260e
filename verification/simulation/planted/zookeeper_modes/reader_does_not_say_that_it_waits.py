"""A reader behind an upgrade does not say so, and the upgrade waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.zookeeper import conversions

if TYPE_CHECKING:
    import pytest

    from leaselock._backends.zookeeper.requests import Node


FAULTS = {"slow": 0.02, "delay": 0.02}


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def is_before(reader: Node, upgrade: Node) -> bool:
        return reader.token < upgrade.token

    patch.setattr(conversions, "is_before", is_before)
