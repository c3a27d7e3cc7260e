"""Repeating a request until it is answered, and how long to wait for each answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from leaselock.core.effects import Env, Sleep
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

# Seconds.
TRY_TIMEOUT = 1.0
"""How long a request that must not wait may take: a try, a late release."""
RELEASE_GRACE = 5.0
"""For how long after the end of its lease a claim is still worth a release."""
FIRST_PAUSE = 0.005
LONGEST_PAUSE = 1.0
SHORTEST_TRY = 0.05


def pause(attempt: int, chance: float) -> float:
    """Exponential backoff with full jitter: clients that failed together do not return together
    (hazard D10). *chance* is a random number from 0 up to 1.
    """
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(attempt, 10)) * (0.1 + 0.9 * chance)


def answer_by(now: float, deadline: float, op_timeout: float) -> float:
    """The time until which to wait for an answer of the store.

    The deadline of the caller counts, so that a wait ends on time when the store is silent (hazard
    B13). But a try, whose deadline is now, gets a short time: its request must be answered.
    """
    latest = now + op_timeout
    if deadline >= latest:
        return latest
    return max(deadline, now + min(op_timeout, TRY_TIMEOUT))


def outcome_unknown(error: StoreError) -> OutcomeUnknown:
    """The error to raise for *error* when an earlier request was not answered. A refusal of the
    last request says nothing about that one.
    """
    if isinstance(error, OutcomeUnknown):
        return error
    return OutcomeUnknown(f"{error} (and an earlier request was not answered)")


class Retry:
    """An idempotent request that is repeated until it is answered, or until `give_up`."""

    __slots__ = ("asked", "env", "give_up", "op_timeout", "tries")

    def __init__(self, env: Env, op_timeout: float, give_up: float, *, tries: int = 0) -> None:
        self.env = env
        self.op_timeout = op_timeout
        self.give_up = give_up
        # How many requests were sent whose outcome is unknown.
        self.tries = tries
        # When the last request was sent.
        self.asked = 0.0

    async def until_answered(self, send: Callable[..., Awaitable[T]]) -> T:
        """Call `send(until=...)` until it returns, with a growing pause between the tries.

        One try gets half of the time that is left, so that a request whose reply was lost can be
        repeated.
        """
        env = self.env
        while True:
            self.asked = now = env.now()
            limit = min(self.give_up, now + self.op_timeout)
            until = min(limit, now + max(SHORTEST_TRY, (limit - now) / 2))
            try:
                return await send(until=until)
            except StoreError as error:
                self.failed(error)
            await Sleep(min(self.give_up, env.now() + pause(self.tries, env.random())))

    def failed(self, error: StoreError) -> None:
        """Count a failed try; raise when it was the last one. A refusal is final if no earlier
        request is in doubt.
        """
        if not self.tries and isinstance(error, NotApplied):
            raise error
        self.count(error)

    def count(self, error: StoreError) -> None:
        """Count a try whose outcome is unknown."""
        self.tries += 1
        if self.env.now() >= self.give_up:
            raise outcome_unknown(error) from error.__cause__
