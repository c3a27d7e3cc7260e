"""The waiting claims of a client: what they send, and which of them a message wakes.

`waiters` has the groups of claims, `subscriptions` what each group listens to, and
`connection_sharing` all that differs between the shared connection of tasks and the exclusive ones
of threads.

Invariant 1: a claim listens to its channels before the request that queues it is carried out. Both
are sent together, so no message is missed.
Invariant 2: a claim that may have missed a message asks at once: all claims on a connection that
is lost, all of a subscription that the server has ended, and the next one after a first that gave
up.
Invariant 3: a message that was read before a reply counts for less than the reply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock._backends.redis.codec import CHANGED, packed
from leaselock._backends.redis.connection_sharing import sharing_of
from leaselock._backends.redis.key_tracking import KeyTracking
from leaselock._backends.redis.keys import message_of
from leaselock._backends.redis.messages import Send, SubscribeFailed
from leaselock._backends.redis.subscriptions import Subscriptions
from leaselock._backends.redis.waiters import NEVER, Waiter
from leaselock._core.contract.effects import Call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence

    from leaselock._backends.redis.codec import Command
    from leaselock._backends.redis.messages import Address, Connection, Waiting
    from leaselock._backends.redis.pool import Pool
    from leaselock._backends.redis.queue_state import QueueState
    from leaselock._backends.redis.waiters import Group
    from leaselock._core.contract.backend import Busy, Claim


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


class Listener:
    """All waiting claims of a client."""

    def __init__(self, pool: Pool, queue: QueueState, now: Callable[[], float]) -> None:
        self.pool = pool
        self.queue = queue
        self.now = now
        self.sharing = sharing_of(pool)
        self.subscriptions = Subscriptions(pool, self.sharing, now)
        self.tracking = KeyTracking(pool, self.sharing)
        pool.end_wait = self._end_wait
        # By the id of the claim, in the order of arrival.
        self.waiting: dict[str, Waiter] = {}

    def clear(self) -> None:
        """Forget everything."""
        self.tracking.clear()
        self.sharing.clear()
        self.subscriptions.clear()
        self.waiting = {}

    def listens_first(self, claim: Claim, wait: bool) -> bool:
        """Whether to queue at once: the claim waits already, or the lock is contended."""
        if not (self.waiting or self.queue.contended):
            return False
        if claim.id in self.waiting:
            return True
        if not wait:
            return False
        group = self.sharing.group_of(claim.name)
        return bool(group is not None and group.waiters) or self.queue.is_contended(claim.name)

    # --- addresses ------------------------------------------------------------------------------

    def address_of(self, claim: Claim) -> str:
        """The end of the channel for messages to the claim."""
        address = self.sharing.address_of(claim)
        return claim.id if address is None else address

    def take_address(self, claim: Claim) -> str:
        """The same for a claim that is about to wait: it may take over a kept subscription."""
        if self.sharing.address_of(claim) is None:
            # A claim that waits has none if its vote was granted and given back.
            waiter = self.waiting.get(claim.id)
            if waiter is None and (group := self.sharing.take_vacant(claim.name)) is not None:
                waiter = self._add(claim, group)
            self.sharing.set_address(claim, claim.id if waiter is None else waiter.group.address)
        return self.address_of(claim)

    def forget_address(self, claim: Claim) -> None:
        """The store does not have the claim in the queue any more."""
        self.sharing.forget_address(claim)

    # --- asking ---------------------------------------------------------------------------------

    async def ask(
        self, waiting: Waiting, address: Address, commands: Sequence[Command], until: float
    ) -> list[Any]:
        """Subscribe, then send the commands; the replies to these."""
        claim = waiting.claim
        if not self.subscriptions.expiring.running:
            await self.subscriptions.start_expiring()
        kept: Connection | None = None
        if (waiter := self.waiting.get(claim.id)) is not None:
            if waiter.group.connection.is_at(address):
                kept = waiter.group.connection
            else:
                self._part(claim.id, waiter)
        get = self.pool.get_to_wait
        connection, until = await self.sharing.connection_for(kept, get, address, until)
        waiter = self._join(waiting, connection)
        missing = self.subscriptions.missing(waiter.group)
        data = packed([*missing, *commands] if missing else commands)
        message = Send(data, len(commands), missing)
        request = WaitersRequest(self, claim.id, waiter, message, until)
        try:
            replies = await request
        except BaseException:
            request.fail()
            raise
        return request.end(replies)

    def ready(self, claim: Claim, address: Address) -> Waiter | None:
        """Make a claim that does not wait yet a waiter whose channels are listened to already, for
        a request that is sent now. None: it takes more than that, and `ask` does it.
        """
        if not self.subscriptions.expiring.running:
            return None
        self.take_address(claim)
        waiter = self.waiting.get(claim.id)
        group = self.sharing.group_of(claim.name) if waiter is None else waiter.group
        if group is None or not self.sharing.take(group.connection, address):
            return None
        if self.subscriptions.missing(group):
            self.sharing.request_ended(group.connection, failed=False)
            return None
        return waiter or self._add(claim, group)

    def answered(self, holder: str, waiter: Waiter, replies: list[Any]) -> list[Any]:
        """The replies to a waiter's request, unless its subscription was refused."""
        connection = waiter.group.connection
        for channel in self.sharing.drop_overtaken(connection):
            self._ended(connection, channel)
        self.drain(connection)
        refusal = self.subscriptions.refusal(waiter.group)
        self.done(holder, waiter, failed=refusal is not None)
        if refusal is None:
            return replies
        if str(refusal).startswith("NOPERM"):
            raise SubscribeFailed(f"{connection.address}: permission denied: {refusal}", "denied")
        # Another server has the slot: its error stands for each reply.
        return [refusal] * len(replies)

    def done(self, holder: str, waiter: Waiter, *, failed: bool) -> None:
        """The request is over."""
        stays = self.sharing.request_ended(waiter.group.connection, failed=failed)
        if not stays and self.waiting.get(holder) is waiter:
            self._part(holder, waiter)

    def _join(self, waiting: Waiting, connection: Connection) -> Waiter:
        """The claim as a waiter on *connection*, in the group that is there already, or in a new
        one.
        """
        claim = waiting.claim
        waiter = self.waiting.get(claim.id)
        if waiter is not None:
            if waiter.group.connection is connection and self.sharing.is_current(waiter.group):
                return waiter
            self._part(claim.id, waiter)
        group = self.sharing.group_of(claim.name)
        if group is not None and group.connection is not connection:
            for other in group.waiters.values():
                other.signal.set()  # the lock is on another server now
            if group in self.subscriptions.kept:
                self.subscriptions.end(group)
            group = None
        if group is None:
            group = self.subscriptions.open(self.address_of(claim), connection, waiting)
        return self._add(claim, group)

    def _add(self, claim: Claim, group: Group) -> Waiter:
        """One more claim waits in the group."""
        self.subscriptions.use(group)
        waiter = self.waiting[claim.id] = group.waiters[claim.id] = Waiter(group)
        return waiter

    def watched(self, claim: Claim, busy: Busy) -> Busy:
        """The reply to a waiting claim: only the first of a group asks again by itself."""
        waiter = self.waiting.get(claim.id)
        if waiter is None or waiter is waiter.group.first:
            return busy
        return busy._replace(retry_after=NEVER)

    # --- waiting --------------------------------------------------------------------------------

    def await_wakeup(self, claim: Claim, until: float) -> Awaitable[object]:
        """Wait for a message."""
        waiter = self.waiting.get(claim.id)
        if waiter is None or not waiter.group.connection.open:
            return AT_ONCE
        self.queue.note_contention(claim.name)
        return self.sharing.listen(waiter, until)

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

    def _notified(self, connection: Connection, channel: str, word: str) -> None:
        """A message: for the claim it names, otherwise for the first that listens."""
        holder, token, seconds = message_of(word)
        waiter = self.waiting.get(holder)
        if waiter is None:
            group = self.subscriptions.by_channel.get((connection, channel))
            waiter = None if group is None else group.first
        # On another connection than that of the last request it may be older than the reply.
        elif token and waiter.group.connection is connection:
            self.queue.notified(holder, token, seconds)
        if waiter is not None:
            waiter.signal.set()

    def _ended(self, connection: Connection, channel: str) -> None:
        """The server has ended a subscription: its claims must ask, and subscribe anew."""
        group = self.subscriptions.ended_by_server(connection, channel)
        if group is not None:
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
        """The claim leaves its group, and its connection."""
        group = waiter.group
        was_first = group.first is waiter
        del self.waiting[holder], group.waiters[holder]
        if waiter.in_use:
            # Another thread released the hold that this one upgrades. The next user of an exclusive
            # connection would read its reply.
            group.connection.leave()
        if not group.waiters:
            self.subscriptions.keep(group)
        elif was_first and gave_up:
            group.wake_first()
        elif was_first:
            group.wake_first_later()

    def _end_wait(self, address: Address) -> bool:
        """Let a claim that waits give its connection to a request that needs one, and ask again."""
        return self.sharing.interrupt_one(self.waiting.values(), address)

    def wake(self, claim_ids: Iterable[str]) -> None:
        """Let these claims ask again."""
        for claim_id in claim_ids:
            waiter = self.waiting.get(claim_id)
            if waiter is not None:
                waiter.signal.set()

    def end_waits(self) -> None:
        """End all waits: the client is closing."""
        self.subscriptions.stop_expiring()
        self.tracking.end_waits()
        for waiter in list(self.waiting.values()):
            waiter.signal.set()

    def close(self) -> None:
        """Close the connections that waiting claims keep."""
        waiters = list(self.waiting.values())
        self.tracking.close()
        self.clear()
        for waiter in waiters:
            self.sharing.close(waiter.group.connection)


class _AtOnce:
    """Awaited, it returns at once."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


AT_ONCE = _AtOnce()
