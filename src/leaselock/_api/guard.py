"""Decorated functions under a lock that is named after their arguments: `Client.guard`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, get_args

from leaselock._core.client.validation import refuse

if TYPE_CHECKING:
    from collections.abc import Callable
    from inspect import Signature

    from leaselock._core.client.timing import OnOutage

L = TypeVar("L")

# What a call does while another owner holds the lock: wait for it (AcquireTimeout after *timeout*),
# raise AcquireTimeout, or return None without running the function.
IfBusy = Literal["wait", "raise", "skip"]


class LockArguments(TypedDict, total=False):
    """The options of `Client.lock`, where a decorator or a dependency passes them on."""

    lease: float
    renew: bool
    timeout: float | None
    reentrant: bool
    protocol: str | None
    label: str | None
    owner: Literal["lock"] | None
    min_hold: float
    max_hold: float | None
    on_outage: OnOutage
    outage_timeout: float | None


def checked_busy(busy: object, known: tuple[str, ...], renamed: str = "") -> None:
    """ValueError unless *busy* is one of the *known* words; *renamed* was the word for "skip"."""
    if busy not in known:
        now = f": {renamed!r} is 'skip' now" if renamed and busy == renamed else ""
        raise ValueError(f"busy is one of {known}, not {busy!r:.80}{now}")


class Guard(Generic[L]):
    """How a call of one function finds its lock, and how long it waits for it."""

    def __init__(
        self, lock: Callable[..., L], name: str, busy: IfBusy, arguments: LockArguments
    ) -> None:
        if callable(name):
            of = getattr(name, "__name__", "function")
            raise TypeError(
                f"guard needs the name of a lock, in parentheses: write @client.guard({of!r}) "
                f"above {of}(), with its arguments in braces where each has a lock of its own"
            )
        checked_busy(busy, get_args(IfBusy))
        refuse("guard", arguments.keys() - LockArguments.__annotations__)
        options: dict[str, Any] = {**arguments}
        self.lock = lock
        self.template = name
        self.options = options
        if busy != "wait":
            options.setdefault("timeout", 0.0)
        # Given to `try_acquire`, which returns None when the time has passed.
        self.skip_after: float | None = options["timeout"] if busy == "skip" else None
        if busy != "wait" and options["timeout"] is None:
            raise ValueError(
                f"busy={busy!r} needs a timeout in seconds, and None waits without limit"
            )
        lock("guard", **options)  # an option that is wrong is an error here, not at the first call

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


def no_lock(*_: object, **__: object) -> None:
    """The locks of a guard that only checks and names: its user makes them."""
