"""Runs the text of the Redis backend without connections: a function answers what is sent."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

import hiredis

from leaselock.backends.redis.messages import Connect, Send
from leaselock.backends.redis.settings import settings_of
from leaselock.backends.redis.store import RedisStore
from leaselock.core.effects import Call, Sleep, Spawn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from leaselock.backends.redis.messages import Address, Command


class NoConnection:
    """A connection that is open as soon as it is asked for, and sends nothing."""

    SHARED = False

    def __init__(self, settings: Any, address: Address, now: Any, changed: Any) -> None:
        self.address = address
        self.users = 0
        self.open = False
        self.last_used = 0.0
        self.generation: object = None
        self.transactions: Any = None
        self.refused: dict[str, Exception] = {}
        self.pushes: deque[tuple[str, str | None]] = deque()

    def is_usable(self) -> bool:
        """Whether it is open."""
        return self.open

    def leave(self) -> None:
        """A caller has given up."""
        self.open = self.SHARED and self.open

    def tell(self, data: bytes, subscriptions: Sequence[Any]) -> bool:
        """Nothing is sent."""
        return True

    def later(self, seconds: float, step: Callable[[], None]) -> None:
        """Time does not pass by itself."""

    def close(self) -> None:
        """It is open no more."""
        self.open = False

    abandon = close


class NoSharedConnection(NoConnection):
    """The same for tasks."""

    SHARED = True


class Runner:
    """A store whose requests *answer* answers: it is given the server and the message."""

    def __init__(
        self, url: str, answer: Callable[[Address, Send], list[Any]], *, shared: bool = False
    ) -> None:
        self.time = 0.0
        self.answer = answer
        kind = NoSharedConnection if shared else NoConnection
        self.store = RedisStore(settings_of(url), lambda: self.time, kind)

    def run(self, process: Awaitable[Any]) -> Any:
        """What comes of a process; time passes only while it sleeps."""
        steps = process.__await__()
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                effect = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as done:
                return done.value
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
            self.run(effect.process)
        elif isinstance(effect, Call) and isinstance(effect.request, Connect):
            effect.node.open = True
        elif isinstance(effect, Call) and isinstance(effect.request, Send):
            message = effect.request
            for _, channel in message.subscriptions:
                effect.node.refused.pop(channel, None)
            return self.answer(effect.node.address, message)
        return None


def unpacked(data: bytes) -> list[Command]:
    """The commands in packed data."""
    reader, commands = hiredis.Reader(), []
    reader.feed(data)
    while (command := reader.gets()) is not False:
        commands.append(tuple(command))
    return commands


def commands_of(message: Send) -> list[Command]:
    """The commands that have a reply."""
    return unpacked(message.data)[len(message.subscriptions) :]
