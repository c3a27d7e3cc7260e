"""Runs the protocol text of the Redis backend; a function answers instead of a server."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import hiredis

from leaselock._backends.redis.clients import settings_of
from leaselock._backends.redis.messages import Connect, Send, SharedConnection
from leaselock._backends.redis.store import RedisStore
from leaselock._core.contract.effects import Call, Sleep, Spawn, Wait

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from leaselock._backends.redis.codec import Command
    from leaselock._backends.redis.messages import Address


class NoConnection(SharedConnection):
    """A connection that is always open and sends nothing."""

    SHARED = False

    def __init__(self, settings: Any, address: Address, now: Any, changed: Any) -> None:
        super().__init__(address, 0.0)

    def is_usable(self) -> bool:
        """Return whether the connection is open."""
        return self.open

    def leave(self) -> None:
        """Do nothing when a caller gives up."""
        self.open = self.SHARED and self.open

    def tell(self, data: bytes, subscriptions: Sequence[Any]) -> bool:
        """Send nothing."""
        return True

    def later(self, seconds: float, step: Callable[[], None]) -> None:
        """Do nothing: time does not pass by itself."""

    def close(self) -> None:
        """Close the connection."""
        self.open = False

    after_fork = close


class NoSharedConnection(NoConnection):
    """The same with the connection for tasks."""

    SHARED = True


class Runner:
    """A store whose requests are answered by *answer*, which gets the address and the message."""

    def __init__(
        self, url: str, answer: Callable[[Address, Send], list[Any]], *, shared: bool = False
    ) -> None:
        self.time = 0.0
        self.answer = answer
        self.stopped: list[Any] = []
        kind = NoSharedConnection if shared else NoConnection
        self.chance = 0.5
        self.store = RedisStore(settings_of(url), lambda: self.time, kind, lambda: self.chance)

    def run(self, process: Awaitable[Any], *, background: bool = False) -> Any:
        """Run a process and return its result; time passes only while it sleeps. A background
        process stops for good when it waits.
        """
        steps = process.__await__()
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                effect = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as done:
                return done.value
            if background and isinstance(effect, Wait):
                self.stopped.append(steps)
                return None
            answer = error = None
            try:
                answer = self._answer(effect)
            except Exception as raised:
                error = raised

    def _answer(self, effect: Any) -> Any:
        if isinstance(effect, Sleep):
            assert effect.until < math.inf
            self.time = effect.until
        elif isinstance(effect, Spawn):
            self.run(effect.operation, background=True)
        elif isinstance(effect, Call) and isinstance(effect.request, Connect):
            effect.node.open = True
        elif isinstance(effect, Call) and isinstance(effect.request, Send | bytes):
            message = effect.request
            if isinstance(message, bytes):
                message = Send(message, 1, ())
            for _, channel in message.subscriptions:
                effect.node.refused.pop(channel, None)
            return self.answer(effect.node.address, message)
        return None


def unpacked(data: bytes) -> list[Command]:
    """Return the commands in packed data."""
    reader, commands = hiredis.Reader(), []
    reader.feed(data)
    while (command := reader.gets()) is not False:
        commands.append(tuple(command))
    return commands


def commands_of(message: Send) -> list[Command]:
    """Return the commands that have a reply."""
    return unpacked(message.data)[len(message.subscriptions) :]
