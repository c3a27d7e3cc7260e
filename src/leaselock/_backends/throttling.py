"""Requests that a service refuses because they are too many, and their repetition."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

from leaselock._backends import chance
from leaselock._core.client.timing import pause
from leaselock.errors import StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
# The first pause is up to 40 ms.
FIRST_ATTEMPT = 3


class Throttled(StoreUnreachable):
    """The service asks to send the request later: after *pause* seconds at least, if it says so."""

    def __init__(self, text: str, pause: float = 0.0) -> None:
        super().__init__(text)
        self.pause = pause


class Repeater:
    """Sends requests again that were throttled; several threads may use it at the same time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.closing = threading.Event()

    def call(self, send: Callable[[], T], until: float) -> T:
        """Send, and send again after growing pauses, up to *until*: a request that was throttled
        was not applied, and for an acquire to fail at once would be no answer to a service that
        asks for a pause.
        """
        attempt = FIRST_ATTEMPT
        while True:
            try:
                return send()
            except Throttled as error:
                again = max(error.pause, pause(attempt, chance()))
                if self.now() + again >= until or self.closing.wait(again):
                    raise
                attempt += 1

    def wake(self) -> None:
        """End the pauses, until `close`."""
        self.closing.set()

    def close(self) -> None:
        """Be ready to be used again."""
        self.closing.clear()
