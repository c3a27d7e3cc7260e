"""The functions that a user has registered for a lease: for its loss, and for a lease in danger.

They are kept by the lease, and by nothing else: a function may refer to its lease, which must not
be kept in hand by that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import weakref

# A function of the user and its argument.
Callback = tuple[Callable[[Any], object], object]
# The function, the user's lease, and a function that makes a new lease of the handle if the user
# has dropped that one.
LeaseCallback = tuple[Callable[[Any], object], "weakref.ref[Any]", Callable[[Any], object]]
# Such a callback, and how many seconds of the lease are left when it is called.
DangerCallback = tuple[float, LeaseCallback]
# A grant that must be confirmed lasts for two seconds: this many seconds before its end the
# callbacks for a lease in danger are called, if it was not confirmed by then.
UNCONFIRMED_DANGER = 0.5


def calls(handle: object, callbacks: Sequence[LeaseCallback]) -> list[Callback]:
    """The functions to call, each with its lease."""
    return [(function, lease() or wrap(handle)) for function, lease, wrap in callbacks]


class Ends(Protocol):
    """What a lease says of its end."""

    @property
    def reference(self) -> Any:
        """The reference of its hold to it, whose `end` is None while it has not ended."""
        ...


def calls_while_held(lease: Ends, callbacks: Sequence[LeaseCallback]) -> list[Callback]:
    """The same; a function is not called once the lease has ended."""
    return [
        (partial(_while_held, lease, function), argument)
        for function, argument in calls(lease, callbacks)
    ]


def _while_held(lease: Ends, function: Callable[[Any], object], argument: object) -> object:
    return function(argument) if lease.reference.end is None else None
