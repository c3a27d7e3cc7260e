"""The waiting claims of a client, the channels they listen to, and which of them asks again.

Claims that wait for one lock on one connection are a group and share its two channels. On the
shared connection of tasks that is all claims of the client for the lock. A thread has a connection
of its own while it waits, so its group has one member, and it reads the messages itself.

Invariant 1: only the first claim of a group asks again by itself, for all of them; the others ask
when a message names them. The next one in the group takes over within `RECHECK_MS`, so a living
client keeps the queue moving, however many of its tasks wait.
Invariant 2: a claim that may have missed a message asks at once: all claims on a connection that
is lost, all of a subscription that the server has ended, and the next one after a first that gave
up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.backends.redis.codec import packed
from leaselock.backends.redis.keys import message_of
from leaselock.backends.redis.messages import Listen, Send, SubscribeFailed
from leaselock.core.effects import Call, Signal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Sequence

    from leaselock.backends.redis.messages import (
        Address,
        Command,
        Connection,
        Subscription,
        Waiting,
    )
    from leaselock.backends.redis.pool import Pool
    from leaselock.backends.redis.queue_state import QueueState
    from leaselock.core.backend import Busy, Claim

# No claim waits longer than this before it asks again; so each has asked before a grant whose
# message it missed can have ended.
RECHECK_MS = 3000
NEVER = 1e9


class Group:
    """The claims that wait for one lock on one connection, in the order of arrival."""

    __slots__ = ("channels", "connection", "key", "sharded", "timer", "waiters")

    def __init__(self, key: str, connection: Connection, waiting: Waiting) -> None:
        self.key = key
        self.connection = connection
        self.channels = waiting.channels
        self.sharded = waiting.sharded
        self.waiters: dict[str, Waiter] = {}
        self.timer: Any = None

    def wake_first(self) -> None:
        """Let the first claim ask again."""
        self.timer = None
        for waiter in self.waiters.values():
            waiter.signal.set()
            return

    def wake_first_later(self) -> None:
        """Let the claim that is the first then ask, after the longest time without a request."""
        if self.timer is None:
            self.timer = self.connection.later(RECHECK_MS / 1000, self.wake_first)


class Waiter:
    """A waiting claim; its signal says that a message came for it, or may have been missed."""

    __slots__ = ("group", "signal")

    def __init__(self, group: Group) -> None:
        self.group = group
        self.signal = Signal()


class Listener:
    """All waiting claims of a client."""

    def __init__(self, pool: Pool, queue: QueueState) -> None:
        self.pool = pool
        self.queue = queue
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.waiting: dict[str, Waiter] = {}
        self.groups: dict[str, Group] = {}
        self.channels: dict[tuple[Connection, str], Group] = {}

    def listens_first(self, claim: Claim, wait: bool) -> bool:
        """Whether to queue at once: the claim waits already, or the lock is contended."""
        if claim.id in self.waiting:
            return True
        return wait and (claim.name in self.groups or self.queue.is_contended(claim.name))

    def channel_of(self, claim: Claim) -> str:
        """The end of the channel for messages to the claim."""
        return claim.client if self.pool.shared else claim.id

    # --- asking ---------------------------------------------------------------------------------

    async def ask(
        self, waiting: Waiting, address: Address, commands: Sequence[Command], until: float
    ) -> list[Any]:
        """Subscribe, then send the commands; the replies to these."""
        claim = waiting.claim
        waiter = self.waiting.get(claim.id)
        if waiter is not None and not self._is_at(waiter, address):
            self._part(claim.id, waiter)
            waiter = None
        if waiter is None or self.pool.shared:
            first = waiter is None
            connection, until = await self.pool.get(address, until, limited=first)
            waiter = self._join(waiting, connection)
        group, connection = waiter.group, waiter.group.connection
        waiter.signal.clear()
        subscriptions = self._missing(group)
        data = packed([*subscriptions, *commands])
        try:
            message = Send(data, len(commands), subscriptions)
            replies = await Call(connection, message, until)
        except BaseException:
            self._done(claim.id, waiter, failed=True)
            raise
        # What was read before the reply counts for less than the reply.
        self.drain(connection)
        refusal = next(filter(None, map(connection.refused.get, group.channels)), None)
        self._done(claim.id, waiter, failed=refusal is not None)
        if refusal is not None:
            if str(refusal).startswith("NOPERM"):
                raise SubscribeFailed(f"{address}: permission denied: {refusal}")
            # Another server has the slot: its error stands for each reply.
            return [refusal] * len(replies)
        return replies

    def _is_at(self, waiter: Waiter, address: Address) -> bool:
        connection = waiter.group.connection
        return connection.open and connection.address == address

    def _done(self, holder: str, waiter: Waiter, *, failed: bool) -> None:
        """The request is over; a shared connection has a place free again."""
        connection = waiter.group.connection
        if self.pool.shared:
            if failed:
                connection.leave()
            self.pool.put(connection)
        elif failed:
            connection.close()
            if self.waiting.get(holder) is waiter:
                self._part(holder, waiter)

    def _join(self, waiting: Waiting, connection: Connection) -> Waiter:
        claim = waiting.claim
        key = claim.name if self.pool.shared else claim.id
        group, waiter = self.groups.get(key), self.waiting.get(claim.id)
        if waiter is not None:
            if waiter.group is group and group.connection is connection:
                return waiter
            self._part(claim.id, waiter)
            group = self.groups.get(key)
        if group is None or group.connection is not connection:
            for other in group.waiters.values() if group is not None else ():
                other.signal.set()  # the lock is on another server now
            group = self.groups[key] = Group(key, connection, waiting)
            for channel in group.channels:
                self.channels[connection, channel] = group
                connection.refused[channel] = NOT_SUBSCRIBED
        waiter = self.waiting[claim.id] = group.waiters[claim.id] = Waiter(group)
        return waiter

    def _missing(self, group: Group) -> list[Subscription]:
        """The subscriptions to send: all of a new group, and those that were refused before."""
        refused = group.connection.refused
        if not refused:
            return []
        verb = "SSUBSCRIBE" if group.sharded else "SUBSCRIBE"
        return [(verb, channel) for channel in group.channels if channel in refused]

    def watched(self, claim: Claim, busy: Busy) -> Busy:
        """The reply to a waiting claim: only the first of a group asks again by itself."""
        waiter = self.waiting.get(claim.id)
        if waiter is None or next(iter(waiter.group.waiters)) == claim.id:
            return busy
        return busy._replace(retry_after=NEVER)

    # --- waiting --------------------------------------------------------------------------------

    def await_wakeup(self, claim: Claim, until: float) -> Awaitable[object]:
        """Wait for a message. Not a coroutine, which would cost memory for each waiting task."""
        waiter = self.waiting.get(claim.id)
        if waiter is None or not waiter.group.connection.open:
            return AT_ONCE
        self.queue.note_contention(claim.name)
        return Call(waiter.group.connection, Listen(waiter.signal), until)

    def drain(self, connection: Connection) -> None:
        """Handle what was read on a connection, and its loss."""
        while connection.pushes:
            channel, word = connection.pushes.popleft()
            if word is None:
                self._ended(connection, channel)
            else:
                self._notified(connection, channel, word)
        if not connection.open:
            for waiter in self.waiting.values():
                if waiter.group.connection is connection:
                    waiter.signal.set()

    def drain_for(self, claim: Claim) -> None:
        """Handle the messages that a thread has read while it waited."""
        waiter = self.waiting.get(claim.id)
        if waiter is not None and waiter.group.connection.pushes:
            self.drain(waiter.group.connection)

    def _notified(self, connection: Connection, channel: str, word: str) -> None:
        """A message: for the claim it names, otherwise for the first that listens."""
        holder, token, seconds = message_of(word)
        waiter = self.waiting.get(holder)
        if waiter is not None:
            # On another connection than that of the last request it may be older than the reply.
            if token and waiter.group.connection is connection:
                self.queue.notified(holder, token, seconds)
            waiter.signal.set()
        elif (group := self.channels.get((connection, channel))) is not None:
            for first in group.waiters.values():
                first.signal.set()
                return

    def _ended(self, connection: Connection, channel: str) -> None:
        """The server has ended a subscription: its claims must ask, and subscribe anew."""
        group = self.channels.get((connection, channel))
        if group is None:
            return
        # The other channel is in the same slot and has ended, too: nothing is left to unsubscribe.
        for each in group.channels:
            self.channels.pop((connection, each), None)
        group.channels = ()
        for holder, waiter in list(group.waiters.items()):
            self._part(holder, waiter)
            waiter.signal.set()

    # --- leaving --------------------------------------------------------------------------------

    def forget(self, holder: str, *, gave_up: bool) -> None:
        """The claim waits no more: it gave up, or has the lock."""
        waiter = self.waiting.get(holder) if self.waiting else None
        if waiter is not None:
            # Before the connection is given away: a thread that is about to listen must not.
            waiter.signal.set()
            self._part(holder, waiter, gave_up=gave_up)

    def _part(self, holder: str, waiter: Waiter, *, gave_up: bool = False) -> None:
        group = waiter.group
        first = next(iter(group.waiters)) == holder
        del self.waiting[holder], group.waiters[holder]
        if not group.waiters:
            self._dissolve(group)
        elif first and gave_up:
            group.wake_first()
        elif first:
            group.wake_first_later()

    def _dissolve(self, group: Group) -> None:
        connection = group.connection
        if group.timer is not None:
            group.timer.cancel()
        if self.groups.get(group.key) is group:
            del self.groups[group.key]
        for channel in group.channels:
            if self.channels.get((connection, channel)) is group:
                del self.channels[connection, channel]
                connection.refused.pop(channel, None)
        if connection.open:
            verb = "SUNSUBSCRIBE" if group.sharded else "UNSUBSCRIBE"
            over = [(verb, channel) for channel in group.channels]
            if not over or not connection.tell(packed(over), over):
                self._unusable(connection)
        if not self.pool.shared:
            self.pool.put(connection)

    def _unusable(self, connection: Connection) -> None:
        """It may still listen to something, which only matters where a claim has it for itself."""
        if not self.pool.shared:
            connection.close()

    def wake_all(self) -> None:
        """Wake all waiting claims: the client is closing."""
        for waiter in list(self.waiting.values()):
            waiter.signal.set()

    def close(self) -> None:
        """Close the connections of waiting threads, which the pool does not have."""
        waiters = list(self.waiting.values())
        self.clear()
        for waiter in waiters:
            if not self.pool.shared:
                waiter.group.connection.close()


class _AtOnce:
    """Awaited, it returns at once."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


AT_ONCE = _AtOnce()
NOT_SUBSCRIBED = Exception("not subscribed")
