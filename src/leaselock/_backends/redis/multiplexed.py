"""A connection for asyncio, shared by all tasks of a client.

redis-py opens the connection; after that its transport is ours. What is sent in one iteration of
the event loop leaves in one write. Replies arrive in the order of the commands, so the reply to a
cancelled request is read and dropped, and no other is mistaken for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from leaselock._backends import library
from leaselock._backends.redis.codec import (
    codec,
    is_too_large,
    shifts_replies,
)
from leaselock._backends.redis.connecting import new_connection, refusal
from leaselock._backends.redis.layout_marker import reading
from leaselock._backends.redis.messages import (
    NONSENSE,
    Listen,
    Send,
    SendInTime,
    SharedConnection,
    Unreachable,
)
from leaselock._backends.redis.settings import MODULES
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from leaselock._backends.redis.codec import Subscription
    from leaselock._backends.redis.messages import Address, Connect, Connection
    from leaselock._backends.redis.settings import Settings

# Replies that arrive at least this often, in seconds, come from a server that is working.
FLOWING = 0.25
# How much later than its deadline a reply may come while the server replies to other requests of
# this client: ten thousand tasks that begin together are a queue of our own, not a silent server.
GRACE = 30.0
# The least time that a request gets: a busy event loop is not a silent server.
LEAST = 0.25
# Seconds after which a task that connects is cancelled again, and for which it is waited for.
PATIENCE = 0.01
LONGEST_STOP = 1.0
# A request that waits longer than this for the loop to send it gets that time in addition.
LATE = 0.05
# A wait that is longer than this needs no timer.
LONG = 1e8
LONGEST_TIMER = 3600.0


class Pending:
    """A request that was sent, and the replies that have arrived for it."""

    __slots__ = ("count", "future", "grace", "replies", "sent_at", "until")

    replies: list[Any]
    """Only where more than one is expected."""

    def __init__(
        self, future: asyncio.Future[list[Any]], count: int, sent_at: float, until: float
    ) -> None:
        self.future = future
        self.count = count
        self.sent_at = sent_at
        self.until = until
        # How much later the reply may come while others arrive.
        self.grace = GRACE
        if count > 1:
            self.replies = []


class MultiplexedConnection(SharedConnection, asyncio.Protocol):
    """A connection that many tasks use at the same time."""

    SHARED = True

    def __init__(
        self,
        settings: Settings,
        address: Address,
        now: Callable[[], float],
        changed: Callable[[Connection], None],
    ) -> None:
        super().__init__(address, now())
        self.settings = settings
        self.now = now
        self.changed = changed
        self.reader = codec().Reader()
        self.push_type = codec().PushNotification
        # When the last reply was complete.
        self.answered_at = 0.0
        self.outgoing: list[bytes] = []
        # How many requests are among that, and since when there are any.
        self.unsent = 0
        self.unsent_since = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self.timer_at = float("inf")
        self.connecting: asyncio.Task[None] | None = None
        self.transport: Any = None

    def call(self, message: Connect | Send | Listen | bytes, until: float) -> Awaitable[Any]:
        """Carry out a message in the running loop."""
        if type(message) is bytes:
            return self._send(message, 1, (), until)
        if isinstance(message, Send):
            future = self._send(*message, until)
            if type(message) is SendInTime and not future.done():
                # A renewal has a third of the time that its lease has left. The renewer must be
                # free before that is over, to report the loss.
                sent: Any = self.pending[-1]
                sent.grace = min(GRACE, max(LEAST, until - sent.sent_at))
            return future
        if type(message) is Listen:
            return self._listen(message, until)
        return self._connect(until)

    # --- connecting -----------------------------------------------------------------------------

    async def _connect(self, until: float) -> None:
        """Connect in a task of its own: redis-py could swallow the cancellation of the caller."""
        self.loop = asyncio.get_running_loop()
        task = self.connecting = self.loop.create_task(self._open(until), name="leaselock-connect")
        try:
            done, _ = await asyncio.wait((task,), timeout=max(LEAST, until - self.now()))
            if not done or task.cancelled():
                raise Unreachable(f"{self.address}: no connection within its time")
        except BaseException:
            self.close()
            await self._stop(task)
            raise
        task.result()

    async def _stop(self, task: asyncio.Task[None]) -> None:
        """Wait for the end of a task that stops connecting, which takes a few iterations of the
        loop: a loop that is about to end would leave it behind.
        """
        until = self.now() + LONGEST_STOP
        while not task.done() and self.now() < until:
            await asyncio.wait((task,), timeout=PATIENCE)
            # redis-py may have swallowed the cancellation, and waits for the server.
            task.cancel()

    async def _open(self, until: float) -> None:
        seconds = max(0.001, until - self.now())
        module = library(MODULES[1], "redis")
        connection = new_connection(module, self.settings, self.address, seconds)
        try:
            async with asyncio.timeout(seconds):
                await connection.connect()
            if (task := asyncio.current_task()) is not None and task.cancelling():
                # redis-py sends through `asyncio.wait_for`, which drops a cancellation in 3.11 if
                # all was sent in the same iteration of the loop.
                raise asyncio.CancelledError
        except BaseException as error:
            writer, connection._writer = connection._writer, None
            if writer is not None:
                writer.transport.abort()  # redis-py leaves it open when cancelled
            if isinstance(error, (library("redis.exceptions", "redis").RedisError, OSError)):
                raise refusal(self.settings, self.address, error) from error
            raise
        writer, connection._writer, connection._reader = connection._writer, None, None
        self.transport = writer.transport
        writer._transport = _NoTransport()
        self.transport.set_protocol(self)
        self.open = True
        await self._check_layout(until)

    async def _check_layout(self, until: float) -> None:
        steps = reading(self.settings, self.address)
        try:
            message = next(steps)
            while True:
                message = steps.send(await self._send(*message, until))
        except StopIteration:
            return
        except OutcomeUnknown as error:
            raise Unreachable(str(error)) from error

    # --- requests -------------------------------------------------------------------------------

    def _send(
        self, data: bytes, count: int, subscriptions: Sequence[Subscription], until: float
    ) -> asyncio.Future[list[Any]]:
        future: asyncio.Future[list[Any]] = asyncio.Future(loop=self.loop)
        if not self.open:
            future.set_exception(OutcomeUnknown(f"the connection to {self.address} was lost"))
            return future
        now = self.now()
        if until < now + LEAST:
            until = now + LEAST
        if subscriptions:
            self._expect(subscriptions)
        if self.pending or self.outgoing:
            if not self.unsent:
                self.unsent_since = now
            self.unsent += 1
            self._write(data)
        else:
            # The only request does not wait for others in this iteration of the loop, which would
            # cost a client with one task another iteration: 13 % of the CPU time of a pair.
            self.transport.write(data)
        self.pending.append(Pending(future, count, now, until))
        if until < self.timer_at:
            self._set_timer(until)
        return future

    def _expect(self, subscriptions: Sequence[Subscription]) -> None:
        for _, channel in subscriptions:
            self.refused.pop(channel, None)
        self.pending.extend(subscriptions)

    def tell(self, data: bytes, subscriptions: Sequence[Subscription]) -> bool:
        """Send subscriptions; `refused` has those that were not allowed."""
        self._expect(subscriptions)
        self._write(data)
        return True

    def _write(self, data: bytes) -> None:
        if not self.outgoing:
            self.loop.call_soon(self._flush)
        self.outgoing.append(data)

    def _flush(self) -> None:
        outgoing, self.outgoing = self.outgoing, []
        unsent, self.unsent = self.unsent, 0
        if self.open and outgoing:
            self.transport.write(b"".join(outgoing))
            late = self.now() - self.unsent_since
            if late > LATE and unsent:
                self._postpone(unsent, late)

    def _postpone(self, count: int, late: float) -> None:
        """Do not count the time that the loop took to send against the server."""
        for request in reversed(self.pending):
            if isinstance(request, Pending):
                request.until += late
                count -= 1
                if not count:
                    return

    def _set_timer(self, until: float) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer_at = until
        self.timer = self.loop.call_later(max(0.0, until - self.now()), self._check_deadlines)

    def _check_deadlines(self) -> None:
        """Fail the requests whose time is over; their replies may still come, and are dropped.

        A request is charged only for the time in which the server replies to none: while replies
        arrive, they are those to the requests before it, and it may take `grace` longer. The
        connection ends only if nothing at all has arrived since the request was sent.
        """
        now = self.now()
        self.timer, self.timer_at = None, float("inf")
        soonest = float("inf")
        flowing = now - self.answered_at < FLOWING
        for request in self.pending:
            if isinstance(request, tuple) or request.future.done():
                continue
            if request.until > now:
                soonest = min(soonest, request.until)
                continue
            if flowing and now < request.until + request.grace:
                soonest = min(soonest, now + FLOWING / 4)
                continue
            request.future.set_exception(OutcomeUnknown(f"{self.address} did not answer in time"))
            if self.last_used < request.sent_at:
                # Nothing arrived for the whole time: the connection may be dead without notice.
                self._abort()
                return
        if soonest < float("inf"):
            self._set_timer(soonest)

    def _listen(self, message: Listen, until: float) -> asyncio.Future[None]:
        """Wait for the signal: push messages are read by the loop, and set it. Not a coroutine,
        which would cost memory for each waiting task.
        """
        signal = message.signal
        future: asyncio.Future[None] = self.loop.create_future()
        wake = partial(_finish, future)
        if signal.is_set or not self.open:
            wake()
            return future
        # One task waits for the signal of a claim; a callback of an earlier wait is over.
        signal.wakers = [wake]
        remaining = until - self.now()
        if remaining < LONG:
            timer = self.loop.call_later(max(0.0, min(remaining, LONGEST_TIMER)), wake)
            future.add_done_callback(lambda _: timer.cancel())
        return future

    # --- replies --------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Give replies to the requests, in order, and collect push messages."""
        self.last_used = self.now()
        if data[7:8].isdigit() and is_too_large(data, self.reader):
            self._abort()
            return
        self.reader.feed(data)
        gets, push_type, pending = self.reader.gets, self.push_type, self.pending
        unanswered = len(pending)
        try:
            while (reply := gets()) is not False:
                if type(reply) is push_type:
                    self.pushed(reply)
                    continue
                request = pending[0]
                if isinstance(request, tuple):
                    pending.popleft()
                    if "UN" not in request[0]:
                        self.refused[request[1]] = reply
                    continue
                if self.unsubscribed:
                    self.unsubscribed = shifts_replies(reply)
                if request.count == 1:
                    replies = [reply]
                else:
                    replies = request.replies
                    replies.append(reply)
                    if len(replies) < request.count:
                        continue
                pending.popleft()
                if not request.future.done():
                    request.future.set_result(replies)
        except (codec().HiredisError, *NONSENSE):
            # This is not the protocol of Redis: what follows cannot be matched to a request.
            self._abort()
        if len(pending) < unanswered:
            self.answered_at = self.last_used
        if self.pushes:
            self.changed(self)

    def eof_received(self) -> bool:
        """The server has closed the connection; close our side, too."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Fail what was sent and not answered: it may have been carried out."""
        self.open = False
        pending, self.pending = self.pending, deque()
        lost = f"the connection to {self.address} was lost: {error or 'closed'}"
        for request in pending:
            if not isinstance(request, tuple) and not request.future.done():
                request.future.set_exception(OutcomeUnknown(lost))
        if self.timer is not None:
            self.timer.cancel()
        self.changed(self)

    # --- steps ----------------------------------------------------------------------------------

    def is_usable(self) -> bool:
        """Whether it is open."""
        return self.open

    def leave(self) -> None:
        """Nothing to do: the reply is dropped when it arrives."""

    def later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function after *seconds*."""
        return self.loop.call_later(seconds, callback)

    def _abort(self) -> None:
        self.open = False
        self.transport.abort()

    def close(self) -> None:
        """Close, or stop connecting; what was written is still sent."""
        self.open = False
        if self.connecting is not None and not self.connecting.done():
            self.connecting.cancel()
        if self.transport is None:
            return
        if self.transport.get_write_buffer_size():
            self.transport.close()
        else:
            # At once: closing TLS in order takes the loop longer than its owner lets it run.
            self.transport.abort()

    def after_fork(self) -> None:
        """Close the descriptor only: the loop belongs to the parent process, or is closed."""
        self.open = False
        if self.transport is not None:
            _close_socket(self.transport)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done() and not future.get_loop().is_closed():
        future.set_result(None)


class _NoTransport:
    """What redis-py's stream writer is left with; it would close its transport when collected."""

    def is_closing(self) -> bool:
        return True


def _close_socket(transport: Any) -> None:
    """Close the socket of a transport whose loop cannot do it any more.

    asyncio has no public way. When its transport is collected it would warn, and close the
    descriptor's number again, which may be in use for something else by then.
    """
    below = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    if below is not None:
        transport._closed = True  # a TLS transport wraps another one, which has the socket
        transport = below
    sock = getattr(transport, "_sock", None)
    if sock is not None:
        transport._sock = None
        sock.close()
