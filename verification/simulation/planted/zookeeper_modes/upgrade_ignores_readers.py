"""An update becomes exclusive beside its readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.zookeeper.conversions import Conversions

if TYPE_CHECKING:
    from typing import Any

    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    async def blocked(*_: Any) -> bool:
        return False

    patch.setattr(Conversions, "_blocked", blocked)
