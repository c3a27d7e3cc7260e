"""The waiting claims of a client, the channels they listen to, and which of them asks again.

Claims that wait for one lock on one connection are a group and share its subscription. On the
shared connection of tasks that is all claims of the client for the lock. A thread has a connection
of its own while it waits, so its group has one member, and it reads the messages itself.

When the last claim of a group has left, the subscription is kept for a while: the next claim for
the lock takes it over, so a lock that is always contended costs no subscriptions. A connection of a
thread goes back to the pool meanwhile. A kept subscription cannot lose a hand-off: the store grants
only to claims in the queue, and a client removes each of its claims from there, or releases what
it was granted (`core.acquisition`, invariant 1).

Invariant 1: only the first claim of a group asks again by itself, for all of them; the others ask
when a message names them. The next one in the group takes over within `RECHECK_MS`, so a living
client keeps the queue moving, however many of its tasks wait.
Invariant 2: a claim that may have missed a message asks at once: all claims on a connection that
is lost, all of a subscription that the server has ended, and the next one after a first that gave
up.
Invariant 3: a claim has the same address until the store does not have it any more: the address is
part of its entry in the queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from leaselock._backends.redis.codec import CHANGED, packed
from leaselock._backends.redis.key_tracking import KeyTracking
from leaselock._backends.redis.keys import message_of
from leaselock._backends.redis.messages import NOT_SUBSCRIBED, Listen, Send, SubscribeFailed
from leaselock._backends.redis.pool import UNUSED_FOR
from leaselock._core.contract.background import Background
from leaselock._core.contract.effects import FOREVER, Call, Signal, Wait

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence

    from leaselock._backends.redis.codec import Command, Subscription
    from leaselock._backends.redis.messages import Address, Connection, SharedConnection, Waiting
    from leaselock._backends.redis.pool import Pool
    from leaselock._backends.redis.queue_state import QueueState
    from leaselock._core.contract.backend import Busy, Claim

# No claim waits longer than this before it asks again; so each has asked before a grant whose
# message it missed can have ended.
RECHECK_MS = 3000
NEVER = 1e9
# Seconds for which a subscription is kept without a waiting claim.
KEEP = 1.0
# Claims that gave up and whose release was never answered: their addresses are not kept for ever.
MOST_ADDRESSES = 10_000


class Group:
    """The claims that wait for one lock on one connection, in the order of arrival."""

    __slots__ = ("address", "channels", "connection", "name", "sharded", "timer", "waiters")

    def __init__(self, address: str, connection: Connection, waiting: Waiting) -> None:
        self.name = waiting.claim.name
        self.address = address
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
        """Let the claim that is the first then ask, after the longest time without a request. On a
        connection of its own, the claim keeps the time itself.
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
    """A waiting claim; its signal says that a message came for it, or may have been missed."""

    __slots__ = ("group", "in_use", "listens", "signal")

    def __init__(self, group: Group) -> None:
        self.group = group
        self.signal = Signal()
        # Its thread reads on the exclusive connection of its group, or is about to.
        self.in_use = False
        # It reads messages there, and has no request under way.
        self.listens = False


class WaitersRequest(Call[list[Any]]):
    """A request of a waiting claim, on the connection where it listens, to be sent at once. After
    it either `end` or `fail` is called.
    """

    __slots__ = ("holder", "listener", "sent_at", "waiter")

    def __init__(
        self,
        listener: Listener,
        holder: str,
        waiter: Waiter,
        message: Send | bytes,
        until: float,
    ) -> None:
        self.listener = listener
        self.holder = holder
        self.waiter = waiter
        self.node = waiter.group.connection
        self.request: Any = message
        self.until = until
        self.then = None
        self.sent_at = listener.now()
        waiter.signal.clear()
        waiter.in_use = True

    def end(self, replies: list[Any]) -> list[Any]:
        """The replies have arrived."""
        self.waiter.in_use = False
        return self.listener.answered(self.holder, self.waiter, replies)

    def fail(self) -> None:
        """There will be no replies."""
        self.waiter.in_use = False
        self.listener.done(self.holder, self.waiter, failed=True)


class ThreadListens(Call[None]):
    """A thread reads messages on the connection of its claim; to be awaited at once."""

    __slots__ = ("waiter",)

    def __init__(self, waiter: Waiter, until: float) -> None:
        self.waiter = waiter
        self.node = waiter.group.connection
        self.request: Any = Listen(waiter.signal)
        self.until = until

    def __await__(self) -> Generator[ThreadListens, Any, None]:
        self.waiter.in_use = self.waiter.listens = True
        try:
            yield self
        finally:
            self.waiter.in_use = self.waiter.listens = False


class Listener:
    """All waiting claims of a client, and the subscriptions that it keeps."""

    def __init__(self, pool: Pool, queue: QueueState, now: Callable[[], float]) -> None:
        self.pool = pool
        self.queue = queue
        self.now = now
        self.tracking = KeyTracking(pool)
        pool.on_many = self._close_unused_later
        if not pool.shared:
            pool.end_wait = self._end_wait
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.tracking.clear()
        self.waiting: dict[str, Waiter] = {}
        # By the name of the lock, on a shared connection.
        self.groups: dict[str, Group] = {}
        self.channels: dict[tuple[Connection, str], Group] = {}
        # Of claims on exclusive connections: their own id, or the address of an earlier claim
        # whose subscription they have taken over.
        self.addresses: dict[str, str] = {}
        # The groups without a claim, and until when each is kept; the one that ends first is first.
        self.kept: dict[Group, float] = {}
        # Those on exclusive connections, by the name of the lock.
        self.vacant: dict[str, list[Group]] = {}
        # Ends subscriptions and connections that were kept long enough. It sleeps until `planned`.
        self.expiring = Background()
        self.planned = 0.0
        self.plan_changed = Signal()
        self.closing = False

    def listens_first(self, claim: Claim, wait: bool) -> bool:
        """Whether to queue at once: the claim waits already, or the lock is contended."""
        if not (self.waiting or self.queue.contended):
            return False
        if claim.id in self.waiting:
            return True
        if not wait:
            return False
        group = self.groups.get(claim.name)
        return bool(group is not None and group.waiters) or self.queue.is_contended(claim.name)

    # --- addresses ------------------------------------------------------------------------------

    def address_of(self, claim: Claim) -> str:
        """The end of the channel for messages to the claim."""
        return claim.client if self.pool.shared else self.addresses.get(claim.id, claim.id)

    def take_address(self, claim: Claim) -> str:
        """The same for a claim that is about to wait: it may take over a kept subscription."""
        if self.pool.shared:
            return self.address_of(claim)
        address = self.addresses.get(claim.id)
        if address is None:
            waiter = self.waiting.get(claim.id)
            if waiter is not None:
                # A vote was granted and given back; the claim has listened all the time.
                group: Group | None = waiter.group
            elif group := self._vacant_group(claim.name):
                self._add(claim, group)
            address = self.addresses[claim.id] = claim.id if group is None else group.address
            if len(self.addresses) > MOST_ADDRESSES:
                del self.addresses[next(iter(self.addresses))]
        return address

    def forget_address(self, claim: Claim) -> None:
        """The store does not have the claim in the queue any more."""
        if self.addresses:
            self.addresses.pop(claim.id, None)

    def _vacant_group(self, name: str) -> Group | None:
        """A kept subscription whose connection is in no use; the connection is taken."""
        vacant = self.vacant.get(name, ())
        for group in reversed(vacant):
            if self.pool.take_idle(group.connection):
                return group
        return None

    def _end_wait(self, address: Address) -> bool:
        """Let a thread that waits close its connection, and ask again."""
        for waiter in self.waiting.values():
            if waiter.listens and self._is_at(waiter, address):
                waiter.group.connection.close()
                return True
        return False

    # --- asking ---------------------------------------------------------------------------------

    async def ask(
        self, waiting: Waiting, address: Address, commands: Sequence[Command], until: float
    ) -> list[Any]:
        """Subscribe, then send the commands; the replies to these."""
        claim = waiting.claim
        if not self.expiring.running:
            await self.expiring.start(self._expire, "listener")
        waiter = self.waiting.get(claim.id)
        if waiter is not None and not self._is_at(waiter, address):
            self._part(claim.id, waiter)
            waiter = None
        if waiter is None or self.pool.shared:
            connection, until = await self.pool.get_to_wait(address, until)
            waiter = self._join(waiting, connection)
        subscriptions = self._missing(waiter.group)
        data = packed([*subscriptions, *commands] if subscriptions else commands)
        message = Send(data, len(commands), subscriptions)
        request = WaitersRequest(self, claim.id, waiter, message, until)
        try:
            replies = await request
        except BaseException:
            request.fail()
            raise
        return request.end(replies)

    def ready(self, claim: Claim, address: Address) -> Waiter | None:
        """The claim as a waiter whose channels are listened to already, for a request that is sent
        now. None: it takes more than that, and `ask` does it.
        """
        if not self.expiring.running:
            return None
        waiter = self.waiting.get(claim.id)
        if self.pool.shared:
            return self._ready_on_shared(claim, waiter, address)
        if waiter is None:
            self.take_address(claim)
            waiter = self.waiting.get(claim.id)
        if waiter is None or waiter.group.connection.refused or not self._is_at(waiter, address):
            return None
        return waiter

    def _ready_on_shared(
        self, claim: Claim, waiter: Waiter | None, address: Address
    ) -> Waiter | None:
        group = self.groups.get(claim.name)
        if group is None or (waiter is not None and waiter.group is not group):
            return None
        connection = self.pool.take(address)
        if connection is None:
            return None
        if connection is not group.connection or self._missing(group):
            self.pool.put(connection)
            return None
        return waiter or self._add(claim, group)

    def answered(self, holder: str, waiter: Waiter, replies: list[Any]) -> list[Any]:
        """The replies to a waiter's request, unless its subscription was refused."""
        connection = waiter.group.connection
        # What was read before the reply counts for less than the reply.
        self._drop_read(connection)
        refused = connection.refused
        refusal = None
        if refused:
            refusal = next(filter(None, map(refused.get, waiter.group.channels)), None)
        self.done(holder, waiter, failed=refusal is not None)
        if refusal is None:
            return replies
        if str(refusal).startswith("NOPERM"):
            raise SubscribeFailed(f"{connection.address}: permission denied: {refusal}", "denied")
        # Another server has the slot: its error stands for each reply.
        return [refusal] * len(replies)

    def _is_at(self, waiter: Waiter, address: Address) -> bool:
        connection = waiter.group.connection
        return connection.open and connection.address == address

    def done(self, holder: str, waiter: Waiter, *, failed: bool) -> None:
        """The request is over."""
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
        group = self.groups.get(claim.name) if self.pool.shared else None
        waiter = self.waiting.get(claim.id)
        if waiter is not None:
            if waiter.group is group and group.connection is connection:
                return waiter
            self._part(claim.id, waiter)
        if group is not None and group.connection is not connection:
            for other in group.waiters.values():
                other.signal.set()  # the lock is on another server now
            if group in self.kept:
                self._end(group)
            group = None
        if group is None:
            group = Group(self.address_of(claim), connection, waiting)
            if self.pool.shared:
                self.groups[claim.name] = group
            for channel in group.channels:
                self.channels[connection, channel] = group
                connection.refused[channel] = NOT_SUBSCRIBED
        return self._add(claim, group)

    def _add(self, claim: Claim, group: Group) -> Waiter:
        """One more claim waits in the group, whose subscription may have been kept for it."""
        if not group.waiters and self.kept.pop(group, None) is not None:
            self._remove_vacant(group)
        waiter = self.waiting[claim.id] = group.waiters[claim.id] = Waiter(group)
        return waiter

    def _remove_vacant(self, group: Group) -> None:
        vacant = self.vacant.get(group.name)
        if vacant is not None:
            vacant.remove(group)
            if not vacant:
                del self.vacant[group.name]

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
        if not self.pool.shared:
            return ThreadListens(waiter, until)
        return Call(waiter.group.connection, Listen(waiter.signal), until)

    def drain(self, connection: Connection) -> None:
        """Handle what was read on a connection, and its loss."""
        while connection.pushes:
            channel, word = connection.pushes.popleft()
            if word is None:
                self._ended(connection, channel)
            elif channel == CHANGED:
                self.tracking.changed(connection, word)
            else:
                self._notified(connection, channel, word)
        if not connection.open:
            self.tracking.changed(connection, "")
            for waiter in self.waiting.values():
                if waiter.group.connection is connection:
                    waiter.signal.set()

    def drain_for(self, claim: Claim) -> None:
        """Handle the messages that a thread has read while it waited."""
        waiter = self.waiting.get(claim.id)
        if waiter is not None and waiter.group.connection.pushes:
            self.drain(waiter.group.connection)

    def _drop_read(self, connection: Connection) -> None:
        """Drop the messages that were read before a reply, but not the end of a subscription."""
        if self.pool.shared:
            self.drain(connection)  # they may concern other claims
        else:
            while connection.pushes:
                channel, word = connection.pushes.popleft()
                if word is None:
                    self._ended(connection, channel)

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
        # The other channels are in the same slot and have ended, too: nothing is left to
        # unsubscribe.
        for each in group.channels:
            self.channels.pop((connection, each), None)
            connection.refused.pop(each, None)
        group.channels = ()
        if group in self.kept:
            self._end(group)
        for holder, waiter in list(group.waiters.items()):
            self._part(holder, waiter)
            waiter.signal.set()

    # --- leaving --------------------------------------------------------------------------------

    def forget(self, holder: str, *, gave_up: bool) -> None:
        """The claim waits no more: it gave up, or has the lock."""
        waiter = self.waiting.get(holder)
        if waiter is not None:
            # Before the connection is given away: a thread that is about to listen must not.
            waiter.signal.set()
            self._part(holder, waiter, gave_up=gave_up)

    def _part(self, holder: str, waiter: Waiter, *, gave_up: bool = False) -> None:
        group = waiter.group
        first = next(iter(group.waiters)) == holder
        del self.waiting[holder], group.waiters[holder]
        if waiter.in_use and not self.pool.shared:
            # Another thread released the hold that this one upgrades. The next user of the
            # connection would read its reply.
            group.connection.close()
        if not group.waiters:
            self._keep(group)
        elif first and gave_up:
            group.wake_first()
        elif first:
            group.wake_first_later()

    def _keep(self, group: Group) -> None:
        """No claim waits here any more: keep the subscription for the next one, for a while."""
        group.stop_timer()
        connection = group.connection
        if not self.pool.shared:
            self.pool.put(connection)
        elif self.groups.get(group.name) is not group:
            self._end(group)  # another connection serves the lock now
            return
        until = self.now() + KEEP
        self.kept[group] = until
        if not self.pool.shared:
            self.vacant.setdefault(group.name, []).append(group)
        if not group.channels or not connection.open:
            self._end(group)
        elif until < self.planned:
            self.planned = until
            self.plan_changed.set()

    async def _close_unused_later(self) -> None:
        """Have the pool close connections of threads when nothing uses them any more."""
        at = self.now() + UNUSED_FOR
        if not self.expiring.running:
            await self.expiring.start(self._expire, "listener")
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
                    self._end(group)
                else:
                    # A thread uses the connection for something else.
                    del self.kept[group]
                    self.kept[group] = now + KEEP
            # What is in use now is not kept before that for longer than this.
            latest = now + KEEP if self.channels else FOREVER
            if self.pool.close_unused():
                latest = min(latest, now + UNUSED_FOR)
            self.planned = next(iter(self.kept.values()), latest)
            await Wait(plan_changed, self.planned)
            plan_changed.clear()

    def _end(self, group: Group) -> None:
        """End a subscription that no claim uses; its connection is in no use."""
        connection = group.connection
        if self.kept.pop(group, None) is not None:
            self._remove_vacant(group)
        if self.groups.get(group.name) is group:
            del self.groups[group.name]
        for channel in group.channels:
            if self.channels.get((connection, channel)) is group:
                del self.channels[connection, channel]
                connection.refused.pop(channel, None)
        if connection.open and group.channels:
            verb = "SUNSUBSCRIBE" if group.sharded else "UNSUBSCRIBE"
            over = [(verb, channel) for channel in group.channels]
            if not connection.tell(packed(over), over):
                connection.close()

    def wake(self, claim_ids: Iterable[str]) -> None:
        """Let these claims ask again."""
        for claim_id in claim_ids:
            waiter = self.waiting.get(claim_id)
            if waiter is not None:
                waiter.signal.set()

    def end_waits(self) -> None:
        """End all waits: the client is closing."""
        self.closing = True
        self.plan_changed.set()
        self.tracking.end_waits()
        for waiter in list(self.waiting.values()):
            waiter.signal.set()

    def close(self) -> None:
        """Close the connections of waiting threads, which the pool does not have."""
        waiters = list(self.waiting.values())
        self.tracking.close()
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
