"""Repeat a function after a conflict, with exponential backoff and jitter.

The whole function is repeated. So it must contain its whole transaction, from the first read to the
commit: a second try that decides by values read before would repeat the error.
"""

from __future__ import annotations

import time
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from leaselock._core.client.timing import pause
from leaselock._core.client.validation import checked_timeout
from leaselock._drivers.system_env import SystemEnv, now
from leaselock.optimistic.conflicts import is_conflict

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


class Tries:
    """The attempts of one call."""

    def __init__(
        self,
        attempts: int | None,
        timeout: float | None,
        on_conflict: Callable[[Exception, int], object] | None,
    ) -> None:
        self.attempts = attempts
        self.began = now()
        self.until = None if timeout is None else self.began + timeout
        self.on_conflict = on_conflict
        self.lost = 0
        self.chance = SystemEnv()

    def pause_after(self, error: Exception) -> float | None:
        """Seconds until the next attempt; None if the error goes to the caller."""
        if not is_conflict(error):
            return None
        self.lost += 1
        if self.on_conflict is not None:
            self.on_conflict(error, self.lost)
        length = pause(self.lost - 1, self.chance.random())
        out_of_time = self.until is not None and now() + length >= self.until
        if self.lost == self.attempts or out_of_time:
            error.add_note(
                f"leaselock: given up after {self.lost} attempts in {now() - self.began:.3f} s"
            )
            return None
        return length


@overload
def retry_on_conflict(function: Callable[P, T], /) -> Callable[P, T]: ...
@overload
def retry_on_conflict(
    *,
    attempts: int | None = ...,
    timeout: float | None = ...,
    on_conflict: Callable[[Exception, int], object] | None = ...,
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...
def retry_on_conflict(
    function: Callable[..., Any] | None = None,
    /,
    *,
    attempts: int | None = 10,
    timeout: float | None = None,
    on_conflict: Callable[[Exception, int], object] | None = None,
) -> Any:
    """Repeat the decorated function, plain or `async def`, after a conflict.

    Conflicts are StaleVersion, StaleDataError of SQLAlchemy, and the errors of databases for
    conflicting transactions: deadlock, serialization failure, lock wait timeout, a busy SQLite
    file. All other errors are raised at once.

    The function is called at most *attempts* times (None: without limit), and no attempt begins
    later than *timeout* seconds after the first. Then the last conflict is raised, with a note. The
    pauses are random; they begin at 5 ms and double up to 1 s. *on_conflict* is called with each
    conflict and its number.

    The function must contain its whole transaction, and no side effects outside of it.
    """
    if attempts is not None and (type(attempts) is not int or attempts < 1):
        raise ValueError(f"attempts is 1 or more, or None, not {attempts!r}")
    rules = (attempts, checked_timeout(timeout), on_conflict)

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        if isgeneratorfunction(function) or isasyncgenfunction(function):
            raise TypeError("a generator gives out results before it fails: it is not run again")
        coroutine = iscoroutinefunction(function)
        return _patient_async(function, rules) if coroutine else _patient(function, rules)

    return decorate if function is None else decorate(function)


def _patient(function: Callable[P, T], rules: tuple[Any, ...]) -> Callable[P, T]:
    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        tries = Tries(*rules)
        while True:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                length = tries.pause_after(error)
                if length is None:
                    raise
            # The random pause keeps conflicting callers from meeting again.
            time.sleep(length)

    return call


def _patient_async(function: Callable[P, T], rules: tuple[Any, ...]) -> Callable[P, T]:
    from asyncio import sleep

    @wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        tries = Tries(*rules)
        while True:
            try:
                return await cast("Any", function)(*args, **kwargs)
            except Exception as error:
                length = tries.pause_after(error)
                if length is None:
                    raise
            await sleep(length)

    return cast("Callable[P, T]", call)
