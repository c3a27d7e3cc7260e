"""Forks of a simulated process: the child has a copy of the client's state, and nothing else.

The copy is made by `copy.deepcopy`, with the parent's machine replaced by the child's. Processes of
the core are not copied: of the parent's threads only the forking one continues in the child, and
the scenario starts it there.
"""

from __future__ import annotations

import copy
import weakref
from typing import TYPE_CHECKING

from leaselock._core.effects import Owner, Signal
from leaselock._core.lifecycle import Lifecycle

if TYPE_CHECKING:
    from verification.simulation.simulator import Machine

    from leaselock._core.client_core import ClientCore
    from leaselock._core.hold import Hold
    from leaselock._core.lease_handle import LeaseHandle
    from leaselock._core.mutex import Mutex

REASON = "it stayed with the process that forked this one"


class Child:
    """The objects of the forking thread in the child."""

    def __init__(
        self, machine: Machine, service: ClientCore, mutex: Mutex, handle: LeaseHandle
    ) -> None:
        self.machine = machine
        self.service = service
        self.mutex = mutex
        self.handle = handle


def forked(
    child: Machine,
    instead: dict[int, object],
    service: ClientCore,
    mutex: Mutex,
    handle: LeaseHandle,
) -> Child:
    """Copy the objects for the child; *instead* has replacements for some, by their `id`."""
    memo: dict[int, object] = {**instead, id(child.simulator): child.simulator, id(child): child}
    for context in service.contexts.values():
        for reference in context.registry.holds.values():
            if (hold := reference()) is not None:
                _copy_weakly_known(hold, reference, memo)
    copies = Child(child, *copy.deepcopy((service, mutex, handle), memo))
    for one in memo.values():
        if isinstance(one, Signal):
            one.wakers.clear()  # the waiting threads do not exist in the child
    for one in [*memo.values()]:
        if isinstance(one, Lifecycle):
            one.after_fork()  # as drivers do in a child
    copies.service.abandon(REASON, False)
    return copies


def _copy_weakly_known(hold: Hold, reference: weakref.ref[Hold], memo: dict[int, object]) -> None:
    """Copy a weak reference as a reference to the copy of its object."""
    owner = hold.owner()
    if owner is not None:
        # As the owner of a thread that does not exist in the child: it matches no other.
        stranger = Owner(owner.title)
        memo[id(owner)] = stranger
        memo[id(owner.reference)] = stranger.reference
    memo[id(reference)] = weakref.ref(copy.deepcopy(hold, memo))
