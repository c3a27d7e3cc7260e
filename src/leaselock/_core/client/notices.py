"""What the functions of the user are still to be told: losses, leases in danger, waiters, and the
events of renewals. The renewer starts them; none of them delays a renewal.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NoReturn, Protocol

from leaselock._core.client import timing, validity
from leaselock._core.client.events import LATE, hold_event
from leaselock._core.client.hold import State
from leaselock._core.contract.background import Background
from leaselock._core.contract.effects import FOREVER, CallUser, Spawn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaselock._core.client.callbacks import Callback
    from leaselock._core.client.events import EventKind, Listeners
    from leaselock._core.client.hold import Hold, QueueObserver
    from leaselock._core.contract.backend import Backend
    from leaselock._core.contract.effects import Env, Signal

# How many events of renewals wait for their listeners.
MOST_EVENTS = 10_000


class Registry(Protocol):
    """What notices need of the claims of a client (`ClaimRegistry`)."""

    env: Env
    backend: Backend
    listeners: Listeners
    changed: Signal

    def pending(self) -> list[Hold]:
        """The claims that the renewer has yet to release."""
        ...

    def wake_renewer(self, when: float) -> None:
        """Wake the renewer, which has work to do at *when*."""
        ...


class Notices:
    """What one client has yet to tell its user."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        # Callbacks that have yet to be started, and those that were and have not returned.
        self.callbacks: list[Callback] = []
        self.running: set[int] = set()
        # Events, each with a listener: the oldest are dropped if a listener takes too long.
        self.events: deque[Callback] = deque(maxlen=MOST_EVENTS)
        self.reporting = Background()
        # What is to follow the queues of holds, and was not started yet.
        self.observers: list[QueueObserver] = []
        # How often in a row a start has failed, and when to try again.
        self.failures = 0
        self.start_at = FOREVER

    def add_loss(self, hold: Hold) -> bool:
        """Add the callbacks of a lost hold, and the report of its loss, each of them once; return
        whether there are any.
        """
        callbacks, registry = hold.take_loss_callbacks(), self.registry
        if hold.state is State.LOST and not hold.reported:
            hold.reported = True
            now = registry.env.now()
            event = hold_event("lost", hold, now, now - hold.began, hold.reason)
            callbacks += [(listener, event) for listener in registry.listeners.of_rare()]
        self.callbacks += callbacks
        return bool(callbacks)

    def add_events(self, kind: EventKind, holds: Sequence[Hold], reason: str = "") -> None:
        """Have an event of each hold reported: with what is left of each lease until now."""
        registry, now = self.registry, self.registry.env.now()
        listeners = registry.listeners
        if not listeners.of_rare():
            return
        for hold in holds:
            # Where holds end with a session, a renewal makes one valid for less than its lease.
            end = validity.valid_until(registry.backend.capabilities, now, hold.claim.lease)
            left, lease = hold.valid_until - now, end - now
            if hold.provisional and left > 0.0:
                lease = min(lease, left)  # its first renewal confirms a hand-off, and is not late
            rare = kind != "renewed" or left < lease * LATE
            due = listeners.of_rare() if rare else listeners.all
            if due:
                event = hold_event(kind, hold, now, left, reason)._replace(lease=lease)
                self.events += [(listener, event) for listener in due]
        if self.events:
            registry.changed.set()

    async def start(self) -> None:
        """Start the callbacks, each as an operation of its own, and one that reports events. If
        that fails, try again later: the holds are renewed meanwhile.
        """
        env, callbacks, observers = self.registry.env, self.callbacks, self.observers
        try:
            while callbacks:
                callback = callbacks.pop(0)
                # One that cannot be started has not returned, either.
                self.running.add(id(callback))
                try:
                    await Spawn(self._call(callback, self.running), "lost")
                except BaseException:
                    callbacks.insert(0, callback)
                    raise
            if self.events:
                await self.reporting.start(self._report_events, "events")
            while observers:
                await observers[0].start()
                del observers[0]
        except Exception as error:
            self.failures += 1
            self.start_at = env.now() + timing.pause(self.failures, env.random())
            if self.failures == 1:
                await CallUser(_raise, error)
        else:
            self.failures, self.start_at = 0, FOREVER

    async def _call(self, callback: Callback, running: set[int]) -> None:
        """Call one callback, as an operation of its own: one that is slow, or ends its thread or
        task, does not keep the others from being called.
        """
        try:
            await CallUser(*callback)
        finally:
            running.discard(id(callback))
            if not running and self.registry.pending():
                self.registry.wake_renewer(0.0)

    async def _report_events(self) -> None:
        """Report the events of renewals in their order. A listener may end this operation: then the
        renewer starts another one.
        """
        try:
            while self.events:
                await CallUser(*self.events.popleft())
        finally:
            if self.events:
                self.registry.wake_renewer(0.0)

    async def call_here(self) -> None:
        """Call all callbacks by the closing thread or task: at the end of the interpreter no other
        one can be started.
        """
        while self.callbacks:
            await CallUser(*self.callbacks.pop(0))


def _raise(error: Exception) -> NoReturn:
    """Have the driver report an error as it reports one of the user's functions."""
    raise error
