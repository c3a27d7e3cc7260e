"""The subscriptions of a client, from the first claim of a group until some time after the last.

When the last claim of a group has left, the subscription is kept for `KEEP` seconds: the next claim
for the lock takes it over, so a lock that is always contended costs no subscriptions. A background
operation ends it later. The connection of a thread goes back to the pool meanwhile.

Invariant 1: a kept subscription loses no hand-off. The store grants only to claims in the queue,
and a client removes each of its claims from there, or releases what it was granted
(`core.acquisition`, invariant 1).
Invariant 2: a channel is in `by_channel` until it is unsubscribed, or the server has ended it. It
is in `Connection.refused` as long as it has to be subscribed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.redis.codec import packed
from leaselock._backends.redis.messages import NOT_SUBSCRIBED
from leaselock._backends.redis.pool import UNUSED_FOR
from leaselock._backends.redis.waiters import Group
from leaselock._core.contract.background import Background
from leaselock._core.contract.effects import FOREVER, Signal, Wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._backends.redis.codec import Subscription
    from leaselock._backends.redis.connection_sharing import ConnectionSharing
    from leaselock._backends.redis.messages import Connection, Waiting
    from leaselock._backends.redis.pool import Pool

# Seconds for which a subscription is kept without a waiting claim.
KEEP = 1.0


class Subscriptions:
    """The subscriptions of all groups of a client."""

    def __init__(self, pool: Pool, sharing: ConnectionSharing, now: Callable[[], float]) -> None:
        self.pool = pool
        self.sharing = sharing
        self.now = now
        pool.on_many = self._close_unused_later
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.by_channel: dict[tuple[Connection, str], Group] = {}
        # The groups without a claim, and until when each is kept; the one that ends first is first.
        self.kept: dict[Group, float] = {}
        # Ends what was kept long enough. It sleeps until `planned`.
        self.expiring = Background()
        self.planned = 0.0
        self.plan_changed = Signal()
        self.closing = False

    # --- a subscription -------------------------------------------------------------------------

    def open(self, address: str, connection: Connection, waiting: Waiting) -> Group:
        """A group for the claim that waits; its next request subscribes."""
        group = Group(address, connection, waiting)
        self.sharing.opened(group)
        for channel in group.channels:
            self.by_channel[connection, channel] = group
            connection.refused[channel] = NOT_SUBSCRIBED
        return group

    def missing(self, group: Group) -> list[Subscription]:
        """The subscriptions to send: all of a new group, and those that were refused before."""
        refused = group.connection.refused
        if not refused:
            return []
        verb = "SSUBSCRIBE" if group.sharded else "SUBSCRIBE"
        return [(verb, channel) for channel in group.channels if channel in refused]

    def refusal(self, group: Group) -> Exception | None:
        """The server's answer to the first subscription that it has refused."""
        refused = group.connection.refused
        if not refused:
            return None
        return next(filter(None, map(refused.get, group.channels)), None)

    def keep(self, group: Group) -> None:
        """No claim waits here any more: keep the subscription for the next one, for a while."""
        group.stop_timer()
        self.sharing.put_back(group.connection)
        if not self.sharing.is_current(group):
            self.end(group)  # another connection serves the lock now
            return
        until = self.now() + KEEP
        self.kept[group] = until
        self.sharing.vacated(group)
        if not group.channels or not group.connection.open:
            self.end(group)
        elif until < self.planned:
            self.planned = until
            self.plan_changed.set()

    def use(self, group: Group) -> None:
        """A claim waits here: the subscription may have been kept for it."""
        if not group.waiters:
            self.kept.pop(group, None)

    def end(self, group: Group) -> None:
        """End a subscription that no claim uses; its connection is in no use."""
        connection = group.connection
        self.kept.pop(group, None)
        self.sharing.ended(group)
        for channel in group.channels:
            if self.by_channel.get((connection, channel)) is group:
                del self.by_channel[connection, channel]
                connection.refused.pop(channel, None)
        if connection.open and group.channels:
            verb = "SUNSUBSCRIBE" if group.sharded else "UNSUBSCRIBE"
            over = [(verb, channel) for channel in group.channels]
            if not connection.tell(packed(over), over):
                connection.close()

    def ended_by_server(self, connection: Connection, channel: str) -> Group | None:
        """The server has ended the subscription to a channel: its group, which has none now."""
        group = self.by_channel.get((connection, channel))
        if group is None:
            return None
        # The other channels are in the same slot and have ended, too: nothing is left to
        # unsubscribe.
        for each in group.channels:
            self.by_channel.pop((connection, each), None)
            connection.refused.pop(each, None)
        group.channels = ()
        if group in self.kept:
            self.end(group)
        return group

    # --- expiry ---------------------------------------------------------------------------------

    async def start_expiring(self) -> None:
        """Have `_expire` run until the client is closed."""
        await self.expiring.start(self._expire, "listener")

    async def _close_unused_later(self) -> None:
        """Have the pool close connections of threads when nothing uses them any more."""
        at = self.now() + UNUSED_FOR
        if not self.expiring.running:
            await self.start_expiring()
        elif at < self.planned:
            self.planned = at
            self.plan_changed.set()

    async def _expire(self) -> None:
        """End the subscriptions that no claim has used for a while, and close the connections that
        nothing has, until the client is closed.
        """
        plan_changed = self.plan_changed
        while self.plan_changed is plan_changed and not self.closing:
            now = self.now()
            for group, until in list(self.kept.items()):
                if until > now:
                    break
                if self.pool.is_idle(group.connection):
                    self.end(group)
                else:
                    # A thread uses the connection for something else.
                    del self.kept[group]
                    self.kept[group] = now + KEEP
            # What is in use now is not kept before that for longer than this.
            latest = now + KEEP if self.by_channel else FOREVER
            if self.pool.close_unused():
                latest = min(latest, now + UNUSED_FOR)
            self.planned = next(iter(self.kept.values()), latest)
            await Wait(plan_changed, self.planned)
            plan_changed.clear()

    def stop_expiring(self) -> None:
        """End `_expire`: the client is closing."""
        self.closing = True
        self.plan_changed.set()
