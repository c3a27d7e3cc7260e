"""The deletion of any predecessor counts as a release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.zookeeper.holds import Holds

if TYPE_CHECKING:
    import pytest

    from leaselock.backends.zookeeper.stay import Stay


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    watch = Holds.watch

    def careless(self: Holds, stay: Stay, path: str, second: bool = False) -> None:
        watch(self, stay, path, second=True)

    patch.setattr(Holds, "watch", careless)
