"""What a hold knows of its conversions while they last: of one that is not confirmed yet
(`conversion`), and of one to exclusive that is waited for (`upgrade`).
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from leaselock._core.client.lease_reference import UnderWay, no_operation
from leaselock._core.contract.effects import FOREVER, Signal

if TYPE_CHECKING:
    from collections.abc import Callable


class PendingConversion:
    """A conversion to a weaker mode that the store has not confirmed."""

    __slots__ = ("repeat_at", "sender")

    def __init__(self) -> None:
        # The operation that sends it. When that has ended, the renewer sends it again.
        self.sender: Callable[[], UnderWay | None] = no_operation
        # When it does.
        self.repeat_at = 0.0


class SharedUpgrade:
    """The conversion of one hold to exclusive, and the waits that share it."""

    __slots__ = ("answered_at", "asked_at", "asker", "changed", "conversion", "waits")

    def __init__(self) -> None:
        # Each wait is in here while it runs.
        self.waits: weakref.WeakSet[Any] = weakref.WeakSet()
        # The one that asks the store, or listens to it.
        self.asker: Callable[[], UnderWay | None] = no_operation
        # The number of the conversion; before its first request, that of no conversion.
        self.conversion = -1
        # When the last request that was answered was sent, and when it was answered.
        self.asked_at = self.answered_at = -FOREVER
        self.changed = Signal()

    def notify(self) -> None:
        """The one that asks has a reply, or has left: the others look again."""
        changed, self.changed = self.changed, Signal()
        changed.set()
