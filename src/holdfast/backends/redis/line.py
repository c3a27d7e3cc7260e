"""A connection of our own to one server: made by redis-py, driven by us.

redis-py does what it is best at: TLS, ACL, the handshake. Then its socket and hiredis's parser are
all we need, with a deadline for each question and no retries. A line on which anything went wrong
is closed, for a reply that nobody read would be taken for the next one's (hazard D4).
"""

from __future__ import annotations

import socket
import struct
import sys
from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Any

from holdfast.backends import library
from holdfast.backends.redis.connecting import kind_for, refusal, terms_for
from holdfast.backends.redis.steps import NONSENSE, absurd, senseless
from holdfast.errors import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.backends.redis.settings import Settings
    from holdfast.backends.redis.steps import Address, Command, Guarded

READ_SIZE = 4096
# A plain socket can have the kernel keep the time in `recv` itself. Python's own time-outs ask
# `poll` before every call, which doubles the calls to the system; TLS knows nothing else.
KERNEL_KEEPS_TIME = sys.platform != "win32"
AT_ONCE = getattr(socket, "MSG_DONTWAIT", 0)
LONGEST_WAIT = 3600.0
IDLE_TOO_LONG = 1.0
MESSAGES = (b"message", b"smessage")
# Said by a server of a cluster, unasked, when the channel's slot moves to another.
ENDED = b"sunsubscribe"
# The verb and the channel of a subscription, or of its end.
Confirmation = tuple[str, str]


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
        return sock

    def _left(self, until: float) -> float:
        return max(0.001, min(until - self.now(), LONGEST_WAIT))

    def _bear(self, seconds: float) -> None:
        self.patience = seconds
        if not self.blocking:
            self.sock.settimeout(seconds)
            return
        whole = int(seconds)
        interval = struct.pack("@ll", whole, int((seconds - whole) * 1e6))
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, interval)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, interval)

    def _be_done_by(self, until: float) -> float:
        """Let nothing on the socket last beyond *until*; it may well end a little sooner. The time.

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
            raise Unknown(f"{self.address} did not answer in time") from error
        except OSError as error:
            raise Unknown(f"{self.address} did not answer: {error}") from error
        except (codec().HiredisError, *NONSENSE) as error:
            raise senseless(error) from error

    def guarded(self, step: Guarded, until: float) -> list[Any]:
        """Look, and carry the transaction out if what was seen is as it should be."""
        replies = self.ask(packed(step.look), len(step.look), until)
        if not step.met(replies):
            self.ask(packed([("UNWATCH",)]), 1, until)
            return [*replies, None]
        transaction = step.transaction()
        return [*replies, self.ask(packed(transaction), len(transaction), until)[-1]]

    def _replies(self, count: int, until: float) -> list[Any]:
        replies: list[Any] = []
        reader = self.reader
        closed = self._more()
        while len(replies) < count:
            reply = reader.gets()
            if reply is False:
                if closed:
                    raise ConnectionError("it closed the connection")
                self._be_done_by(until)
                closed = self._more()
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
            return not self._more()
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


def _unread(error: OSError) -> bool:
    """Whether that is how TLS says that nothing has come yet."""
    from ssl import SSLWantReadError  # what only TLS raises is loaded then

    return isinstance(error, SSLWantReadError)


def confirms(push: Sequence[Any], owed: Confirmation) -> bool:
    """Whether a message confirms a subscription or its end, which was asked for."""
    verb, channel = owed
    return len(push) == 3 and push[0] == verb.lower().encode() and push[1] == channel.encode()


def spoils(reply: Any) -> bool:
    """False. But an error right after the end of a subscription may be the answer to our own
    SUNSUBSCRIBE, where the server had ended it before: then all that follows has another's place,
    and ValueError says that the line is of no use any more.
    """
    if isinstance(reply, Exception):
        raise ValueError(f"the answer to a question, or to the end of a subscription: {reply}")
    return False


@cache
def codec() -> Any:
    """hiredis, which packs commands and reads replies."""
    return library("hiredis", "redis")


def packed(commands: Sequence[Command] | bytes) -> bytes:
    """Commands as they travel."""
    if isinstance(commands, bytes):
        return commands
    pack = codec().pack_command
    if len(commands) == 1:
        alone: bytes = pack(commands[0])
        return alone
    return b"".join([pack(command) for command in commands])


def counted(commands: Sequence[Command] | bytes) -> int:
    """How many they are."""
    return 1 if isinstance(commands, bytes) else len(commands)
