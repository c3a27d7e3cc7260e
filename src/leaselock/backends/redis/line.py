"""A connection of our own to one server: made by redis-py, driven by us.

redis-py does what it is best at: TLS, ACL, the handshake. Then its socket and hiredis's parser are
all we need, with a deadline for each question and no retries. A line on which anything went wrong
is closed, for a reply that nobody read would be taken for the next one's (hazard D4).
"""

from __future__ import annotations

import math
import select
import socket
import struct
import sys
from collections import deque
from typing import TYPE_CHECKING, Any

from leaselock.backends import library
from leaselock.backends.redis.codec import ENDED, MESSAGES, codec, confirms, packed, spoils
from leaselock.backends.redis.connecting import kind_for, refusal, terms_for
from leaselock.backends.redis.steps import NONSENSE, absurd, senseless
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock.backends.redis.codec import Confirmation
    from leaselock.backends.redis.settings import Settings
    from leaselock.backends.redis.steps import Address, Guarded

READ_SIZE = 4096
# A plain socket can have the kernel keep the time in `recv` itself. Python's own time-outs ask
# `poll` before every call, which doubles the calls to the system; TLS knows nothing else. But each
# signal that has a handler lets the kernel begin its time anew, so it is asked for a moment only,
# one tick of it: an answer that takes longer is waited for by `poll`, of which Python keeps the
# time. Signals that come with every tick or two still prolong it.
KERNEL_KEEPS_TIME = sys.platform != "win32"
A_MOMENT = 0.001
AT_ONCE = getattr(socket, "MSG_DONTWAIT", 0)
LONGEST_WAIT = 3600.0
IDLE_TOO_LONG = 1.0


class Line:
    """One blocking connection, used by one call at a time."""

    __slots__ = (
        *("address", "blocking", "ended", "heard", "now", "over", "owed", "patience", "pool"),
        *("__weakref__", "pushed", "reader", "refusal", "sock", "spoiled", "used", "word"),
    )

    def __init__(
        self, settings: Settings, address: Address, now: Callable[[], float], until: float
    ) -> None:
        self.address = address
        self.now = now
        self.heard = False
        # What the last message said that was read.
        self.word = ""
        self.ended = False
        # A subscription was said to be over that we, too, had ended (`spoils`).
        self.over = False
        # The confirmations that come before the next reply. An error in place of one is a
        # subscription refused, or one that did not end: then the line is of no use to others.
        self.owed: deque[Confirmation] = deque()
        self.refusal: Exception | None = None
        self.spoiled = False
        self.used = now()
        self.patience = -1.0
        # Where it is laid down when it is done with; whoever has closed that closes it, too.
        self.pool: object = None
        self.sock = self._connect(settings, until)
        self.reader = codec().Reader()
        self.pushed = codec().PushNotification

    def _connect(self, settings: Settings, until: float) -> Any:
        module = library("redis.connection", "redis")
        terms = terms_for(settings, self.address, self._left(until))
        connection = kind_for(module, settings, self.address)(**terms)
        try:
            connection.connect()
        except BaseException as error:
            connection.disconnect()
            if isinstance(error, (module.RedisError, OSError)):
                raise refusal(self.address, error) from error
            raise
        # From here on the socket is ours, and redis-py must not close it.
        sock, connection._sock = connection._sock, None
        self.blocking = KERNEL_KEEPS_TIME and type(sock) is socket.socket
        if self.blocking:
            sock.settimeout(None)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, interval(A_MOMENT))
        return sock

    def _left(self, until: float) -> float:
        return max(0.001, min(until - self.now(), LONGEST_WAIT))

    def _bear(self, seconds: float) -> None:
        self.patience = seconds
        if self.blocking:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, interval(seconds))
        else:
            self.sock.settimeout(seconds)

    def _be_done_by(self, until: float) -> float:
        """Let no sending last beyond *until*, nor reading by TLS; a little less is well. The time.

        To say so is a call to the system, so what was said for the last question stands if it does.
        """
        now = self.now()
        left = until - now
        if not left / 2 < self.patience <= left:
            self._bear(max(0.001, min(left, LONGEST_WAIT)) * 0.95)
        return now

    def fresh(self) -> bool:
        """Whether the line is likely to be open still: it was used just now, or is silent."""
        if self.reader.has_data():
            return False  # somebody has said more than was asked for
        if self.now() - self.used < IDLE_TOO_LONG:
            return True
        try:
            return not self._more(self._at_once())
        except OSError as error:
            return isinstance(error, BlockingIOError) or _unread(error)

    def _at_once(self) -> int:
        """Let the next call not wait; with the flag that says so to the kernel."""
        if self.blocking:
            return AT_ONCE
        self._bear(0.0)
        return 0

    def _read(self, until: float) -> bool:
        """Read what comes by then; True at the end of the line."""
        while True:
            try:
                return self._more()
            except BlockingIOError:
                if not self._comes(until):
                    raise

    def _comes(self, until: float) -> bool:
        """Whether there is something to read by then."""
        if self.sock.fileno() < 0:
            raise ConnectionError("it was closed")
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return bool(poll.poll(math.ceil(self._left(until) * 1000)))

    def _more(self, flag: int = 0) -> bool:
        """Read what has come; True at the end of the line."""
        data = self.sock.recv(READ_SIZE, flag)
        if data[7:8].isdigit() and absurd(data, self.reader):
            raise ConnectionError("it announces millions of parts")
        self.reader.feed(data)
        return not data

    def ask(
        self, packed: bytes, count: int, until: float, owed: Sequence[Confirmation] = ()
    ) -> list[Any]:
        """Send commands and read *count* replies; Unknown where they do not come by *until*.

        *owed* are the subscriptions among what is sent, which come first; if one was refused,
        `refusal` says so afterwards.
        """
        if owed:
            self.owed.extend(owed)
        try:
            self.used = self._be_done_by(until)
            self.sock.sendall(packed)
            return self._replies(count, until)
        except (TimeoutError, BlockingIOError) as error:
            raise OutcomeUnknown(f"{self.address} did not answer in time") from error
        except OSError as error:
            raise OutcomeUnknown(f"{self.address} did not answer: {error}") from error
        except (codec().HiredisError, *NONSENSE) as error:
            raise senseless(error) from error

    def guarded(self, step: Guarded, until: float) -> list[Any]:
        """Look, and carry the transaction out if what was seen is as it should be."""
        replies = self.ask(packed(step.inspect), len(step.inspect), until)
        if not step.met(replies):
            self.ask(packed([("UNWATCH",)]), 1, until)
            return [*replies, None]
        transaction = step.transaction()
        return [*replies, self.ask(packed(transaction), len(transaction), until)[-1]]

    def _replies(self, count: int, until: float) -> list[Any]:
        replies: list[Any] = []
        reader = self.reader
        closed = self._read(until)
        while len(replies) < count:
            reply = reader.gets()
            if reply is False:
                if closed:
                    raise ConnectionError("it closed the connection")
                if self._be_done_by(until) >= until:
                    # It may say a little each time.
                    raise TimeoutError
                closed = self._read(until)
            elif type(reply) is self.pushed:
                self._note(reply)
            elif self.owed:
                self._refused(self.owed.popleft()[0], reply)
            else:
                if self.over:
                    self.over = spoils(reply)
                replies.append(reply)
        return replies

    def _refused(self, verb: str, error: Exception) -> None:
        if "UN" in verb:
            self.spoiled = True
        else:
            self.refusal = error

    def _note(self, push: Sequence[Any]) -> None:
        if push and push[0] in MESSAGES:
            self.heard, self.word = True, push[2].decode("utf-8", "replace")
        elif self.owed and confirms(push, self.owed[0]):
            self.owed.popleft()
            self.over = push[0] == ENDED
        elif push and push[0] == ENDED:
            self.ended = True

    def wait(self, until: float) -> bool:
        """Wait for a message; False when none can come any more."""
        try:
            while not self.heard and not self.ended and self.now() < until:
                push = self.reader.gets()
                if push is not False:
                    self._note(push)
                elif not self._rest(until):
                    return False
        except (OSError, codec().HiredisError, *NONSENSE):
            return False
        return not self.ended

    def _rest(self, until: float) -> bool:
        """Read what comes in a while, if anything does; False at the end of the line."""
        try:
            self._be_done_by(until)
            return not self._read(until)
        except (TimeoutError, BlockingIOError):
            return True

    def tell(self, packed: bytes, owed: Sequence[Confirmation]) -> bool:
        """Send commands that are only confirmed; False when they cannot go out at once."""
        self.owed.extend(owed)
        try:
            return bool(self.sock.send(packed, self._at_once()) == len(packed))
        except OSError:
            return False

    def cut(self) -> None:
        """End the line under whoever waits on it, from another thread."""
        try:
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)
        except OSError:
            # It is gone already, which is what was wanted.
            return

    def close(self) -> None:
        """Give the descriptor back. In a forked child this leaves the parent's line alone."""
        self.sock.close()


def interval(seconds: float) -> bytes:
    """A time as the kernel's sockets know it."""
    whole = int(seconds)
    return struct.pack("@ll", whole, int((seconds - whole) * 1e6))


def _unread(error: OSError) -> bool:
    """Whether that is how TLS says that nothing has come yet."""
    from ssl import SSLWantReadError  # what only TLS raises is loaded then

    return isinstance(error, SSLWantReadError)
