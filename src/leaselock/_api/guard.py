"""Decorated functions under a lock that is named after their arguments: `Client.guard`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_args

if TYPE_CHECKING:
    from collections.abc import Callable
    from inspect import Signature

L = TypeVar("L")

# What a call does while another owner holds the lock: wait for it (AcquireTimeout after *timeout*),
# raise AcquireTimeout, or return None without running the function.
IfBusy = Literal["wait", "raise", "skip"]


class Guard(Generic[L]):
    """How a call of one function finds its lock, and how long it waits for it."""

    def __init__(
        self, lock: Callable[..., L], name: str, busy: IfBusy, options: dict[str, Any]
    ) -> None:
        if callable(name):
            of = getattr(name, "__name__", "function")
            raise TypeError(
                f"guard needs the name of a lock, in parentheses: write @client.guard({of!r}) "
                f"above {of}(), with its arguments in braces where each has a lock of its own"
            )
        if busy not in get_args(IfBusy):
            raise ValueError(f"busy is one of {get_args(IfBusy)}, not {busy!r:.80}")
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
