"""Decorated functions under a lock that is named after their arguments: `Client.guard`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, get_args

from leaselock.core.validation import checked_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from inspect import Signature


P = ParamSpec("P")
R = TypeVar("R")

# What a call does while another owner holds the lock: wait for it (AcquireTimeout after *timeout*),
# raise AcquireTimeout, or return None without running the function.
IfBusy = Literal["wait", "raise", "skip"]


class Guard:
    """How a call of one function finds its lock, and how long it waits for it."""

    def __init__(self, name: str, busy: IfBusy, options: dict[str, Any]) -> None:
        if busy not in get_args(IfBusy):
            raise ValueError(f"busy is one of {get_args(IfBusy)}, not {busy!r:.80}")
        self.template = name
        self.options = options
        if busy != "wait":
            options.setdefault("timeout", 0.0)
        # Given to `acquire`, which then returns None when the time has passed.
        self.skip_after: float | None = options["timeout"] if busy == "skip" else None
        if busy != "wait" and options["timeout"] is None:
            raise ValueError(
                f"busy={busy!r} needs a timeout in seconds, and None waits without limit"
            )

    def signature(self, function: Callable[..., object]) -> Signature:
        """The signature of *function*; ValueError if the name needs what it does not take."""
        # Loaded here, because it takes longer to load than the rest of the package.
        import inspect
        import string

        signature = inspect.signature(function)
        for _, field, _, _ in string.Formatter().parse(self.template):
            if (
                field is not None
                and field.replace("[", ".").split(".")[0] not in signature.parameters
            ):
                raise ValueError(
                    f"the lock's name {self.template!r} needs {field!r}, which is no parameter of "
                    f"{function!r:.80}: it takes {', '.join(signature.parameters) or 'none'}"
                )
        return signature

    def name(self, signature: Signature, args: Any, kwargs: Any) -> str:
        """The name of the lock for a call with these arguments."""
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return self.template.format(**bound.arguments)


def guard(
    lock: Callable[..., Any], name: str, busy: IfBusy, options: dict[str, Any]
) -> Callable[[Callable[P, R]], Callable[P, R | None]]:
    """Return the decorator of `Client.guard`."""
    how = Guard(name, busy, options)
    lock("guard", **options)  # an option that is wrong is an error here, not at the first call

    def decorate(function: Callable[P, R]) -> Callable[P, R | None]:
        checked_body(function, awaited=False)
        signature = how.signature(function)

        @functools.wraps(function)
        def under_lock(*args: P.args, **kwargs: P.kwargs) -> R | None:
            found = lock(how.name(signature, args, kwargs), **options)
            lease = found.acquire(how.skip_after)
            if lease is None:
                return None
            with lease:
                return function(*args, **kwargs)

        return under_lock

    return decorate


def async_guard(
    lock: Callable[..., Any], name: str, busy: IfBusy, options: dict[str, Any]
) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R | None]]]:
    """Return the decorator of `AsyncClient.guard`."""
    how = Guard(name, busy, options)
    lock("guard", **options)

    def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R | None]]:
        checked_body(function, awaited=True)
        signature = how.signature(function)

        @functools.wraps(function)
        async def under_lock(*args: P.args, **kwargs: P.kwargs) -> R | None:
            found = lock(how.name(signature, args, kwargs), **options)
            lease = await found.acquire(how.skip_after)
            if lease is None:
                return None
            async with lease:
                return await function(*args, **kwargs)

        return under_lock

    return decorate
