"""A grant that no replica confirmed, and that was released, is accepted when the request is
repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.backends.redis.scripted_lock import ScriptedLock

if TYPE_CHECKING:
    import pytest


# Not long before the first seed that finds it, which takes its time.
FIRST = 2040


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    class Forgetting(dict[str, Any]):
        def setdefault(self, key: str, default: Any = None) -> Any:
            return default

    make = ScriptedLock.__init__

    def careless(self: ScriptedLock, *arguments: Any) -> None:
        make(self, *arguments)
        self.undone = Forgetting()

    patch.setattr(ScriptedLock, "__init__", careless)
