"""How a lease ends: by one assignment, which says which operation carries the end out.

A hold knows its leases by references (`LeaseReference`), not by the leases themselves: a lease that
its user drops is gone, and its reference still knows whether it had ended. A lease has its hold *in
hand* until it has ended, and while the operation that ends it runs. All references to operations
are weak (`UnderWay`), so an operation that is interrupted or dropped, at any line, is over.

    reference.ended_by    the release or the detachment of this lease
    reference.left_by     `__exit__` of its `with`, which sets it first of all
    group.left_by         the same for leases that end together (`together`)
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock._core.client.callbacks import DangerCallback, LeaseCallback
    from leaselock._core.contract.backend import Mode


class Lease(Protocol):
    """What a hold needs of a lease (`LeaseHandle`)."""

    mode: Mode
    prolongs: bool
    loss_callbacks: Sequence[LeaseCallback]
    danger_callbacks: Sequence[DangerCallback]
    contended_callbacks: Sequence[LeaseCallback]

    @property
    def reference(self) -> LeaseReference:
        """The reference of its hold to it."""
        ...


class UnderWay:
    """Stands for an operation while it runs. Its frame has the only reference, and all others are
    weak: if it is interrupted or dropped, at any line, it is not under way any more.
    """

    __slots__ = ("__weakref__",)


def no_operation() -> None:
    """In place of a reference to one: none is under way."""


class Group:
    """Leases that end together (`together`), or one that ends alone."""

    __slots__ = ("left_by",)

    def __init__(self) -> None:
        # As that of a reference, for all of them.
        self.left_by: Callable[[], UnderWay | None] | None = None


ALONE = Group()


class LeaseReference(weakref.ref["Lease"]):
    """The reference of a hold to one of its leases. It knows how the lease has ended, also when
    that is gone: so no finalizer is needed, in which Python would swallow an interrupt.
    """

    __slots__ = ("ended_by", "group", "in_body", "is_kept", "left_by")

    def __init__(self, lease: Lease) -> None:
        # Its release, its detachment; or `no_operation`: the renewer ends it.
        self.ended_by: Callable[[], UnderWay | None] | None = None
        # The end of the body of its `with`: `__exit__` sets it, first of all.
        self.left_by: Callable[[], UnderWay | None] | None = None
        # The leases with which it ends.
        self.group = ALONE
        # Its caller, or the lock object, has it.
        self.is_kept = False
        # It is that of a body of `with` on the lock object, which alone has it.
        self.in_body = False

    @property
    def end(self) -> Callable[[], UnderWay | None] | None:
        """What ends the lease; None while it has not ended."""
        return self.ended_by or self.left_by or self.group.left_by

    def in_hand(self) -> bool:
        """Whether the lease has its claim in hand: it is alive and has not ended, or what ends it
        still runs.
        """
        end = self.end
        return self() is not None if end is None else end() is not None

    def was_dropped(self) -> bool:
        """Whether its user has dropped the lease, which has not ended. The user never had that of a
        body on the lock object: it was interrupted as it began.
        """
        mine = self.is_kept and not self.in_body
        return mine and self.end is None and self() is None
