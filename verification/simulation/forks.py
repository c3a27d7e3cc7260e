"""Forks of a simulated process: the child has a copy of the client's state, and nothing else.

The copy is made by `copy.deepcopy`, with the parent's machine replaced by the child's. Processes of
the core are not copied: of the parent's threads only the forking one continues in the child, and
the scenario starts it there.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from leaselock._core.client.lease_reference import LeaseReference
from leaselock._core.contract.effects import Owner, Signal
from leaselock._core.contract.lifecycle import Lifecycle

if TYPE_CHECKING:
    from verification.simulation.simulator import Machine

    from leaselock._core.client.client_core import ClientCore
    from leaselock._core.client.hold import Hold
    from leaselock._core.client.lease_handle import LeaseHandle
    from leaselock._core.client.mutex import Mutex

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
        for hold in context.registry.table.values():
            _forget_owner(hold, memo)
    copies = Child(child, *copy.deepcopy((service, mutex, handle), memo))
    for one in memo.values():
        if isinstance(one, Signal):
            one.wakers.clear()  # the waiting threads do not exist in the child
    for one in [*memo.values()]:
        if isinstance(one, Lifecycle):
            one.after_fork()  # as drivers do in a child
    copies.service.abandon(REASON, False)
    return copies


def _copied(reference: LeaseReference, memo: dict[int, object]) -> LeaseReference:
    """A copy that refers to the copy of the lease, if there is one."""
    lease = copy.deepcopy(reference(), memo)
    known = memo.get(id(reference))  # the lease refers to it, too
    if isinstance(known, LeaseReference):
        return known
    copied = LeaseReference(lease or _Gone())  # type: ignore[arg-type]
    memo[id(reference)] = copied
    for slot in LeaseReference.__slots__:
        setattr(copied, slot, copy.deepcopy(getattr(reference, slot), memo))
    return copied


class _Gone:
    """In place of a lease that was dropped."""


LeaseReference.__deepcopy__ = _copied  # type: ignore[attr-defined]


def _forget_owner(hold: Hold, memo: dict[int, object]) -> None:
    """Copy the owner of a hold as that of a thread that does not exist in the child: it matches no
    other.
    """
    owner = hold.owner()
    if owner is not None:
        stranger = Owner(owner.title)
        memo[id(owner)] = stranger
        memo[id(owner.reference)] = stranger.reference
