"""Limits how many operations of one client run at once."""

from __future__ import annotations

import weakref
from collections import deque

from leaselock._core.contract.effects import Signal, Wait


class Slot:
    """The right of one operation to run. It ends with its last reference at the latest: an
    interrupt such as Ctrl-C may strike before the operation can give it back.
    """

    __slots__ = ("__weakref__",)


class QueuedOperation(Signal):
    """An operation that waits for a slot."""

    __slots__ = ("slot",)

    def __init__(self) -> None:
        super().__init__()
        self.slot: Slot | None = None


class ConcurrencyLimit:
    """Limits how many operations run at once. Waiters enter first in, first out.

    *spare* more may run for urgent operations, which also enter before all others. Of the ordinary
    ones those that are *expected* enter first.
    """

    def __init__(self, limit: int, spare: int = 0) -> None:
        self.limit = limit
        self.spare = spare
        self.slots: weakref.WeakSet[Slot] = weakref.WeakSet()
        self.urgent: deque[QueuedOperation] = deque()
        self.expected: deque[QueuedOperation] = deque()
        self.ordinary: deque[QueuedOperation] = deque()

    def enter_now(self, urgent: bool = False) -> Slot | None:
        """Enter without waiting, if a slot is free and none waits for it."""
        if urgent:
            if self.urgent or len(self.slots) >= self.limit + self.spare:
                return None
        elif self.expected or self.ordinary or len(self.slots) >= self.limit:
            return None
        return self._occupy()

    def _occupy(self) -> Slot:
        slot = Slot()
        self.slots.add(slot)
        return slot

    async def enter(
        self, until: float, urgent: bool = False, expected: bool = False
    ) -> Slot | None:
        """Enter as soon as a slot is free; None if there is none in time."""
        queue = self.urgent if urgent else self.expected if expected else self.ordinary
        queued = QueuedOperation()
        queue.append(queued)
        self._admit()
        try:
            await Wait(queued, until)
        except BaseException:
            if queued.slot is not None:
                self.leave(queued.slot)
            else:
                queue.remove(queued)
            raise
        if queued.slot is None:
            queue.remove(queued)
        return queued.slot

    def leave(self, slot: Slot) -> None:
        """An operation has ended."""
        self.slots.discard(slot)
        self._admit()

    def _admit(self) -> None:
        self._admit_from(self.urgent, self.limit + self.spare)
        self._admit_from(self.expected, self.limit)
        self._admit_from(self.ordinary, self.limit)

    def _admit_from(self, queue: deque[QueuedOperation], limit: int) -> None:
        while queue and len(self.slots) < limit:
            queued = queue.popleft()
            queued.slot = self._occupy()
            queued.set()
