"""What the protocol text asks of a connection, and the errors that the two share.

A connection exists twice, blocking and for asyncio, and so does what depends on whether waiting
claims share it (`connection_sharing`). All text above it (pool, redirects, retries, listening, the
protocols) is written once, awaits `Call(connection, message, until)` and is driven by threads, by
asyncio and by the simulator.
"""

from __future__ import annotations

import abc
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock._backends.redis.codec import CHANGED, ENDED, MESSAGES, changed_keys, confirms
from leaselock._core.contract.effects import Request, Signal
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock._backends.redis.codec import Subscription
    from leaselock._core.contract.backend import Claim, ErrorReason


class Address(NamedTuple):
    """A server: host and port, or the path of a socket. Sentinels have their own credentials."""

    host: str
    port: int
    path: str = ""
    sentinel: bool = False

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


class Connect(NamedTuple("Connect", []), Request[None]):
    """Connect, log in and switch to RESP3."""

    __slots__ = ()


class Send(
    NamedTuple(
        "Send", [("data", bytes), ("count", int), ("subscriptions", "Sequence[Subscription]")]
    ),
    Request[list[Any]],
):
    """Send packed commands and read *count* replies. An error reply is returned, not raised. One
    packed command may also be sent as it is, as a message of plain bytes.

    *subscriptions* are among the commands and come first; `Connection.refused` has those that were
    refused.
    """

    __slots__ = ()


class SendInTime(Send):
    """Send commands whose reply is of no use if it is very late, such as a renewal."""

    __slots__ = ()


class Listen(NamedTuple("Listen", [("signal", Signal)]), Request[None]):
    """Wait until a push message arrives, *signal* is set or the connection is lost."""

    __slots__ = ()


class Connection(abc.ABC):
    """One connection to one server. Its methods are steps that never wait. The connections of the
    drivers also have `call(message, until)`, which carries out a `Connect`, `Send` or `Listen`, or
    sends one packed command; NotApplied or OutcomeUnknown after *until*.
    """

    __slots__ = (
        *("address", "began", "generation", "last_used", "open", "pending", "pushes", "refused"),
        *("unsubscribed", "users"),
    )

    def __init__(self, address: Address, now: float) -> None:
        self.address = address
        # How many requests are under way.
        self.users = 0
        self.open = False
        self.began = now
        # When the server answered last; on one that no tasks share, when a request was sent last.
        self.last_used = now
        # The pool that it belongs to; a new one after each `Pool.close`.
        self.generation: object = None
        # The channels whose subscription was refused.
        self.refused: dict[str, Exception] = {}
        # Channel and text of each message that was read; None: the server ended the subscription.
        self.pushes: deque[tuple[str, str | None]] = deque()
        # The subscriptions that the server has yet to confirm, in order. On a connection that tasks
        # share, the requests that it has yet to answer are among them.
        self.pending: deque[Any] = deque()
        # The last push message confirmed the end of a subscription (`shifts_replies`).
        self.unsubscribed = False

    def is_at(self, address: Address) -> bool:
        """Whether it is open, to the server at *address*."""
        return self.open and self.address == address

    def pushed(self, push: Sequence[Any]) -> None:
        """Take a push message: the text of a channel, a changed key, or what became of a
        subscription.
        """
        if len(push) != 3:
            if push and push[0] == CHANGED.encode():
                self.pushes.extend(changed_keys(push))
            return
        kind, channel, text = push
        if kind in MESSAGES:
            word = text.decode("utf-8", "replace")
            self.pushes.append((channel.decode("utf-8", "replace"), word))
            return
        first = self.pending[0] if self.pending else None
        if isinstance(first, tuple) and confirms(push, first):
            self.pending.popleft()
            self.unsubscribed = kind == ENDED
        elif kind == ENDED:
            self.ended_by_server(channel.decode("utf-8", "replace"))

    def ended_by_server(self, channel: str) -> None:
        """The server has ended a subscription by itself."""
        self.pushes.append((channel, None))

    @abc.abstractmethod
    def is_usable(self) -> bool:
        """Whether the connection is open, as far as that can be known without waiting."""

    @abc.abstractmethod
    def leave(self) -> None:
        """A caller gave up before its reply: close, unless the reply cannot be mistaken."""

    @abc.abstractmethod
    def tell(self, data: bytes, subscriptions: Sequence[Subscription]) -> bool:
        """Send (un)subscriptions without waiting; False if they could not be sent."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close; a call that is under way fails soon."""

    @abc.abstractmethod
    def after_fork(self) -> None:
        """Close the descriptor only: after a fork, or when the event loop is closed."""


class SharedConnection(Connection):
    """A connection that tasks share. It has a timer, because no caller waits on it alone."""

    __slots__ = ()

    @abc.abstractmethod
    def later(self, seconds: float, callback: Callable[[], None]) -> Any:
        """Call *callback* after *seconds*; the returned handle can cancel it."""


class Waiting(NamedTuple):
    """The channels that a waiter must listen to before its request is carried out."""

    claim: Claim
    channels: tuple[str, ...]
    sharded: bool


NOT_SUBSCRIBED = Exception("not subscribed")


class Unreachable(Exception):
    """There is no connection to the server, so nothing was sent."""


class DeadlineExceeded(NotApplied):
    """Until the deadline, the server was not reached, or refused with a temporary error."""


class NotALock(NotApplied):
    """The key holds something else: a value of the application, or a lock of another protocol."""

    reason: ErrorReason = "misconfigured"


class OtherLayout(NotApplied):
    """The store has a layout that this program must not use."""

    reason: ErrorReason = "misconfigured"


class ScriptFailed(OutcomeUnknown):
    """A command of a script failed, perhaps after others of the same script."""


class SubscribeFailed(NotApplied):
    """The commands were carried out, but the subscription that they need was refused."""


# What parsing a malformed reply raises: a word instead of a number, or too few elements.
NONSENSE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def protocol_error(error: Exception) -> OutcomeUnknown:
    """The error for a reply that is not one of Redis: the request may have been carried out."""
    text = f"the reply of the store is malformed: {type(error).__name__}: {error}"
    return OutcomeUnknown(text, "refused")


PRIVATE = (Unreachable, DeadlineExceeded, NotALock, OtherLayout, SubscribeFailed, *NONSENSE)


def public_error(error: Exception) -> NotApplied | OutcomeUnknown:
    """The error of `leaselock.errors` for one of `PRIVATE`."""
    if isinstance(error, NONSENSE):
        return protocol_error(error)
    return NotApplied(str(error), getattr(error, "reason", "unreachable"))
