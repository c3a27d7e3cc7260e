"""Repeating a request until it is answered, and how long to wait for each answer."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeVar

from leaselock._core.contract.effects import Env, Sleep
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

T = TypeVar("T")
# What an acquire does while the store is out of reach: it raises the error, or first waits for the
# store, for a limited time.
OnOutage = Literal["fail", "wait"]

# Seconds.
TRY_TIMEOUT = 1.0
"""How long a request that must not wait may take: a try, a late release."""
RELEASE_GRACE = 5.0
"""For how long after the end of its lease a claim is still worth a release."""
FIRST_PAUSE = 0.005
LONGEST_PAUSE = 1.0
RENEWAL_PAUSE = 0.01
"""The shortest time from a failed renewal to the next try."""
SHORTEST_TRY = 0.05
FROZEN = 0.25
"""A try that ends this long after its limit shows that this process was frozen meanwhile."""


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


def try_until(now: float, give_up: float, op_timeout: float) -> float:
    """The time until which one try may take: half of the time that is left, so that a request whose
    reply was lost can be repeated.
    """
    remaining = give_up - now
    if remaining > op_timeout:
        remaining = op_timeout
    half = remaining / 2
    return now + (half if half > SHORTEST_TRY else min(remaining, SHORTEST_TRY))


def late_until(now: float, free_until: float, op_timeout: float) -> float:
    """The time until which a request of the renewer may take that no operation waits for any more.
    The renewer has other work at *free_until*.
    """
    until = now + min(op_timeout, TRY_TIMEOUT)
    return min(until, max(free_until, now + SHORTEST_TRY))


def outcome_unknown(error: StoreError) -> OutcomeUnknown:
    """The error to raise for *error* when an earlier request was not answered. A refusal of the
    last request says nothing about that one.
    """
    if isinstance(error, OutcomeUnknown):
        return error
    return OutcomeUnknown(f"{error} (and an earlier request was not answered)", error.reason)


@contextmanager
def concerning(name: str | None) -> Iterator[None]:
    """Have an error of the store name the lock that a request is about."""
    try:
        yield
    except StoreError as error:
        raise error.concerning(name or "") from error.__cause__


class Retry:
    """An idempotent request that is repeated until it is answered, or until `give_up`."""

    tries = 0
    """How many requests were sent whose outcome is unknown."""
    refusals = 0
    """How many certainly were not applied, and are repeated all the same."""
    answer: StoreError | None = None
    """What the store said, where it answered with an error."""
    sent_at = 0.0
    """When the last request was sent."""
    refusals_are_final = True
    """Whether a refusal is raised at once if no earlier request is in doubt."""
    extended = False
    """The request was given its time once more."""

    def __init__(self, env: Env, op_timeout: float, give_up: float) -> None:
        self.env = env
        self.op_timeout = op_timeout
        self.give_up = give_up

    async def until_answered(self, send: Callable[..., Awaitable[T]]) -> T:
        """Call `send(until=...)` until it returns, with a growing pause between the tries."""
        until = self.try_until()
        while True:
            try:
                return await send(until=until)
            except StoreError as error:
                self.failed(error)
            await self.pause()
            until = self.try_until()

    def try_until(self) -> float:
        """Begin a try; return until when it may take."""
        self.sent_at = now = self.env.now()
        return try_until(now, self.give_up, self.op_timeout)

    async def pause(self) -> None:
        """Wait until the next try."""
        await Sleep(self._again_at())

    def _again_at(self) -> float:
        """When to send the request again."""
        env, failures = self.env, self.tries + self.refusals
        return min(self.give_up, env.now() + pause(failures, env.random()))

    def was_frozen(self) -> bool:
        """Whether this process could not ask again in time because it was frozen: then the request
        gets its time once more.
        """
        if self.extended or self.env.now() <= self.give_up + FROZEN:
            return False
        self.extended = True
        return True

    def failed(self, error: StoreError) -> None:
        """Count a failed try; raise when it was the last one, or a refusal that is final."""
        refused = isinstance(error, NotApplied) and not self.tries
        if self.was_frozen():
            self.give_up = self.env.now() + self.op_timeout
        elif refused and self.refusals_are_final:
            raise error
        if refused and self.extended:
            self.refusals += 1  # nothing was sent: ask again
        else:
            self.count(error)

    def count(self, error: StoreError) -> None:
        """Count a try after which another one may help; OutcomeUnknown if it was the last."""
        self.tries += 1
        if error.reason != "unreachable":
            self.answer = error
        if self.env.now() >= self.give_up:
            # The last try has hardly any time: that it was not answered says little.
            error = self.answer or error
            raise outcome_unknown(error) from error.__cause__
