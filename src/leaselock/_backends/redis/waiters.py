"""The claims that wait for one lock on one connection: a group, which has one subscription.

Invariant 1: only the first claim of a group asks again by itself, for all of them; the others ask
when a message names them. When the first one leaves, the next one asks within `RECHECK_MS`, so a
living client keeps the queue moving, however many of its tasks wait.
Invariant 2: the signal of a waiter is set when a message came for it, or may have been missed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from leaselock._core.contract.effects import Signal

if TYPE_CHECKING:
    from leaselock._backends.redis.messages import Connection, SharedConnection, Waiting

# No claim waits longer than this before it asks again; so each has asked before a grant whose
# message it missed can have ended.
RECHECK_MS = 3000
# Seconds, for a claim that does not ask again by itself.
NEVER = 1e9


class Group:
    """The claims that wait for one lock on one connection, in the order of arrival."""

    __slots__ = ("address", "channels", "connection", "name", "sharded", "timer", "waiters")

    def __init__(self, address: str, connection: Connection, waiting: Waiting) -> None:
        self.name = waiting.claim.name
        self.address = address
        self.connection = connection
        # None after the server has ended the subscription.
        self.channels = waiting.channels
        self.sharded = waiting.sharded
        # By the id of the claim.
        self.waiters: dict[str, Waiter] = {}
        self.timer: Any = None

    @property
    def first(self) -> Waiter | None:
        """The claim that asks for all."""
        return next(iter(self.waiters.values()), None)

    def wake_first(self) -> None:
        """Let the first claim ask again."""
        self.timer = None
        if (first := self.first) is not None:
            first.signal.set()

    def wake_first_later(self) -> None:
        """Let the claim that is the first then ask, after the longest time without a request. On an
        exclusive connection there is no other claim than the one that has left.
        """
        if self.timer is None:
            connection = cast("SharedConnection", self.connection)
            self.timer = connection.later(RECHECK_MS / 1000, self.wake_first)

    def stop_timer(self) -> None:
        """No claim is left to wake."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Waiter:
    """A waiting claim."""

    __slots__ = ("group", "in_use", "listens", "signal")

    def __init__(self, group: Group) -> None:
        self.group = group
        self.signal = Signal()
        # It has a request under way, or its thread reads messages.
        self.in_use = False
        # Its thread reads messages, and has no request under way.
        self.listens = False
