"""A blocking connection for threads: one request at a time.

redis-py opens the connection: TLS, ACL, the handshake. After that only its socket and hiredis's
parser are used, with a deadline for each request and no retries. A connection on which anything
went wrong is closed, because a reply that was not read would be taken for the next one (hazard D4).
"""

from __future__ import annotations

import math
import socket
import struct
import sys
from typing import TYPE_CHECKING, Any

from leaselock._backends import library
from leaselock._backends.addresses import time_per_address
from leaselock._backends.readiness import POLLIN, new_poller
from leaselock._backends.redis.codec import (
    codec,
    is_too_large,
    shifts_replies,
)
from leaselock._backends.redis.connecting import new_connection, refusal
from leaselock._backends.redis.layout_marker import reading
from leaselock._backends.redis.messages import (
    NONSENSE,
    NOT_SUBSCRIBED,
    Connection,
    Listen,
    Send,
    Unreachable,
    protocol_error,
)
from leaselock._backends.redis.settings import MODULES
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock._backends.redis.codec import Subscription
    from leaselock._backends.redis.messages import Address, Connect
    from leaselock._backends.redis.settings import Settings

READ_SIZE = 4096
# A plain socket can let the kernel keep the time in `recv`. Python's own time-outs call `poll`
# before every `recv`, which doubles the system calls; TLS sockets have nothing else. A signal with
# a handler makes the kernel start its time anew, so the kernel's limit is one tick: a reply that
# takes longer is waited for by `poll`, for which Python keeps the time.
KERNEL_KEEPS_TIME = sys.platform != "win32"
KERNEL_LIMIT = 0.001
NO_WAIT = getattr(socket, "MSG_DONTWAIT", 0)
LONGEST_WAIT = 3600.0
# The replies of the scripts of an uncontended lock: neither an error nor a push message.
SIMPLE = (int, list)
# A connection that was idle for longer is checked before it is used again.
CHECK_AFTER = 1.0


class BlockingConnection(Connection):
    """A connection that one thread uses at a time."""

    SHARED = False
    __slots__ = (
        *("__weakref__", "busy", "connecting", "kernel_keeps_time", "now", "poll"),
        *("push_type", "reader", "settings", "sock", "spoiled", "timeout"),
    )

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
        self.busy = False
        # An UNSUBSCRIBE was refused: messages of others would keep coming.
        self.spoiled = False
        self.kernel_keeps_time = False
        # What the socket is limited to now, in seconds: sending alone where the kernel keeps the
        # time, for receiving has KERNEL_LIMIT and `poll` there; else both.
        self.timeout = -1.0
        self.poll: Any = None
        self.sock: Any = None
        # redis-py's connection while it says who we are, which a thread may do when another forks.
        self.connecting: Any = None
        self.reader = codec().Reader()
        self.push_type = codec().PushNotification

    def call(self, message: Connect | Send | Listen | bytes, until: float) -> Any:
        """Carry out a message in this thread. After any error the connection is closed."""
        # `close` reads both in the opposite order: one of the two closes the socket.
        self.busy = True
        try:
            if type(message) is bytes:
                return self._send(message, 1, (), until)
            if isinstance(message, Send):
                return self._send(*message, until)
            if type(message) is Listen:
                return self._listen(message, until)
            return self._connect(until)
        except BaseException:
            self.open = False
            raise
        finally:
            self.busy = False
            if not self.open and self.sock is not None:
                self.sock.close()

    def _connect(self, until: float) -> None:
        module = library(MODULES[0], "redis")
        address, remaining = self.address, self._remaining(until)
        connection = new_connection(module, self.settings, address, remaining)
        if not address.path:
            connection.socket_connect_timeout = time_per_address(
                address.host, address.port, remaining
            )
        self.connecting = connection
        try:
            connection.connect()
        except BaseException as error:
            connection.disconnect()
            if isinstance(error, (module.RedisError, OSError)):
                raise refusal(self.settings, self.address, error) from error
            raise
        # From here on the socket is ours, and redis-py must not close it.
        self.sock, connection._sock = connection._sock, None
        self.connecting = None
        self.kernel_keeps_time = KERNEL_KEEPS_TIME and type(self.sock) is socket.socket
        if self.kernel_keeps_time:
            self.sock.settimeout(None)
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval(KERNEL_LIMIT))
            self.poll = new_poller()
            self.poll.register(self.sock, POLLIN)
        self.open = True
        self._check_layout(until)

    def _check_layout(self, until: float) -> None:
        steps = reading(self.settings, self.address)
        try:
            message = next(steps)
            while True:
                message = steps.send(self._send(*message, until))
        except StopIteration:
            return
        except OutcomeUnknown as error:
            raise Unreachable(str(error)) from error

    # --- requests -------------------------------------------------------------------------------

    def _send(
        self, data: bytes, count: int, subscriptions: Sequence[Subscription], until: float
    ) -> list[Any]:
        if not self.open:
            raise NotApplied(f"the connection to {self.address} is closed", "unreachable")
        for verb, channel in subscriptions:
            self.refused.pop(channel, None)
            self.pending.append((verb, channel))
        self.last_used = now = self.now()
        try:
            if not (until - now) / 2 < self.timeout <= until - now:
                self._limit_to(until)
            self.sock.sendall(data)
            closed = self._read(until)
            reply = self.reader.gets()
            if count == 1 and type(reply) in SIMPLE and not self.pending:
                return [reply]
            replies = self._replies(reply, count, closed, until)
        except (TimeoutError, BlockingIOError) as error:
            raise OutcomeUnknown(f"{self.address} did not answer in time") from error
        except OSError as error:
            raise OutcomeUnknown(f"{self.address} did not answer: {error}") from error
        except (codec().HiredisError, *NONSENSE) as error:
            raise protocol_error(error) from error
        if self.spoiled:
            self.open = False
        return replies

    def _replies(self, reply: Any, count: int, closed: bool, until: float) -> list[Any]:
        replies: list[Any] = []
        while True:
            if reply is False:
                if closed:
                    raise ConnectionError("it closed the connection")
                if self._limit_to(until) >= until:
                    # Each piece of a reply may arrive in time, and the whole too late.
                    raise TimeoutError
                closed = self._read(until)
            elif type(reply) is self.push_type:
                self.pushed(reply)
            elif self.pending:
                self._note_refusal(reply)
            else:
                if self.unsubscribed:
                    self.unsubscribed = shifts_replies(reply)
                replies.append(reply)
                if len(replies) == count:
                    return replies
            reply = self.reader.gets()

    def _note_refusal(self, reply: Any) -> None:
        verb, channel = self.pending.popleft()
        if "UN" in verb:
            self.spoiled = True
        else:
            self.refused[channel] = reply

    def ended_by_server(self, channel: str) -> None:
        """Subscribe again with the next use: the pool drops what was pushed in between."""
        self.refused[channel] = NOT_SUBSCRIBED
        super().ended_by_server(channel)

    def _listen(self, message: Listen, until: float) -> None:
        signal = message.signal
        wake = signal.add(self._cut)
        try:
            # Checked after the callback is in place, so no `set` is missed.
            while self.open and not (self.pushes or signal.is_set) and self.now() < until:
                push = self.reader.gets()
                if push is not False:
                    self.pushed(push)
                elif self._read_push(until):
                    self.open = False
        except (OSError, codec().HiredisError, *NONSENSE):
            self.open = False
        finally:
            signal.remove(wake)

    def _read_push(self, until: float) -> bool:
        """Read what arrives by then, if anything does; True at the end of the connection."""
        try:
            if not self.kernel_keeps_time:
                self._limit_to(until)
            # A wait is usually longer than the kernel's limit: not even try without `poll`.
            elif not self._is_readable_by(until):
                return False
            return self._read(until)
        except (TimeoutError, BlockingIOError):
            return False

    # --- the socket -----------------------------------------------------------------------------

    def _remaining(self, until: float) -> float:
        return max(0.001, min(until - self.now(), LONGEST_WAIT))

    def _limit_to(self, until: float) -> float:
        """Set the socket's time-out so that no call ends after *until*; returns the time.

        That is a system call, so a time-out that was set for an earlier request is kept if it is
        less, but not by much.
        """
        now = self.now()
        remaining = until - now
        if not remaining / 2 < self.timeout <= remaining:
            self._set_timeout(max(0.001, min(remaining, LONGEST_WAIT)) * 0.95)
        return now

    def _set_timeout(self, seconds: float) -> None:
        self.timeout = seconds
        if self.kernel_keeps_time:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval(seconds))
        else:
            self.sock.settimeout(seconds)

    def _do_not_wait(self) -> int:
        """Let the next call on the socket return at once; with the flag to call it with."""
        if self.kernel_keeps_time:
            return NO_WAIT
        self._set_timeout(0.0)
        return 0

    def _read(self, until: float) -> bool:
        """Read what arrives by then; True at the end of the connection."""
        while True:
            try:
                return self._feed(self.sock.recv(READ_SIZE))
            except BlockingIOError:
                if not self._is_readable_by(until):
                    raise

    def _is_readable_by(self, until: float) -> bool:
        if self.sock.fileno() < 0:
            raise ConnectionError("it was closed")
        return bool(self.poll.poll(math.ceil(self._remaining(until) * 1000)))

    def _feed(self, data: bytes) -> bool:
        """Parse what has arrived; True at the end of the connection."""
        if data[7:8].isdigit() and is_too_large(data, self.reader):
            raise ConnectionError("it announces millions of elements")
        self.reader.feed(data)
        return not data

    def is_usable(self) -> bool:
        """Whether it is open and silent; assumed of one that was used a moment ago."""
        if not self.open:
            return False
        if self.now() - self.last_used >= CHECK_AFTER:
            try:
                if self._feed(self.sock.recv(READ_SIZE, self._do_not_wait())):
                    return False
            except OSError as error:
                if not (isinstance(error, BlockingIOError) or _is_tls_would_block(error)):
                    return False
        return not self.reader.has_data() or self._has_pushes_only()

    def _has_pushes_only(self) -> bool:
        """Whether what was read belongs to subscriptions; otherwise the server sent more than was
        asked for.
        """
        try:
            while (reply := self.reader.gets()) is not False:
                if type(reply) is self.push_type:
                    self.pushed(reply)
                elif self.pending:
                    self._note_refusal(reply)
                else:
                    return False
        except (codec().HiredisError, *NONSENSE):
            return False
        return not (self.spoiled or self.reader.has_data())

    def tell(self, data: bytes, subscriptions: Sequence[Subscription]) -> bool:
        """Send subscriptions without waiting; their confirmations are read with the next reply."""
        self.pending.extend(subscriptions)
        try:
            return bool(self.sock.send(data, self._do_not_wait()) == len(data))
        except OSError:
            return False

    def leave(self) -> None:
        """Close: the next caller would read this one's reply."""
        self.close()

    def _cut(self) -> None:
        """Wake the thread that reads; it closes the socket, so no descriptor is used after that."""
        self.open = False
        try:
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)
        except OSError:
            return  # the connection is lost already, and the reader awake

    def close(self) -> None:
        """Close the socket, or let the thread that uses it do so."""
        self.open = False
        if self.sock is None:
            return
        if self.busy:
            self._cut()
        else:
            self.sock.close()

    def after_fork(self) -> None:
        """Close the child's descriptor; the parent's connection stays open."""
        self.open = False
        for sock in (self.sock, self.connecting and self.connecting._sock):
            if sock is not None:
                sock.close()


def timeval(seconds: float) -> bytes:
    """A duration as the kernel's socket options have it."""
    whole = int(seconds)
    return struct.pack("@ll", whole, int((seconds - whole) * 1e6))


def _is_tls_would_block(error: OSError) -> bool:
    """Whether a TLS socket says that nothing has arrived yet."""
    from ssl import SSLWantReadError  # not imported for what a healthy plain socket does

    return isinstance(error, SSLWantReadError)
