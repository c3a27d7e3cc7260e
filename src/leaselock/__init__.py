"""The public names, nothing else; each is loaded when it is first used."""

from __future__ import annotations

from leaselock.version import __version__

TYPE_CHECKING = False  # as type checkers know it, without the milliseconds that typing takes
if TYPE_CHECKING:
    from leaselock.api.aio import AsyncClient, AsyncLease, AsyncLock
    from leaselock.api.threads import Client, Lease, Lock
    from leaselock.core.backend import Finding
    from leaselock.core.inspection import Holder, LockInfo, Waiter
    from leaselock.errors import (
        AcquireCancelled,
        AcquireTimeout,
        AlreadyHeld,
        ClientClosed,
        FenceRejected,
        InvalidName,
        LeaselockError,
        LeaseLost,
        NotApplied,
        NotHeld,
        OutcomeUnknown,
        RowNotFound,
        StaleVersion,
        StoreError,
        UnsafeProtocolWarning,
    )

_WHERE = {
    "leaselock.api.aio": ("AsyncClient", "AsyncLease", "AsyncLock"),
    "leaselock.api.threads": ("Client", "Lease", "Lock"),
    "leaselock.core.backend": ("Finding",),
    "leaselock.core.inspection": ("Holder", "LockInfo", "Waiter"),
    "leaselock.errors": (
        "AcquireCancelled",
        "AcquireTimeout",
        "AlreadyHeld",
        "ClientClosed",
        "FenceRejected",
        "LeaselockError",
        "InvalidName",
        "LeaseLost",
        "NotHeld",
        "NotApplied",
        "RowNotFound",
        "StaleVersion",
        "StoreError",
        "OutcomeUnknown",
        "UnsafeProtocolWarning",
    ),
}

__all__ = [
    "AcquireCancelled",
    "AcquireTimeout",
    "AlreadyHeld",
    "AsyncClient",
    "AsyncLease",
    "AsyncLock",
    "Client",
    "ClientClosed",
    "FenceRejected",
    "Finding",
    "Holder",
    "InvalidName",
    "Lease",
    "LeaseLost",
    "LeaselockError",
    "Lock",
    "LockInfo",
    "NotApplied",
    "NotHeld",
    "OutcomeUnknown",
    "RowNotFound",
    "StaleVersion",
    "StoreError",
    "UnsafeProtocolWarning",
    "Waiter",
    "__version__",
]


def __getattr__(name: str) -> object:
    for module, names in _WHERE.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(module), name)
    raise AttributeError(f"module 'leaselock' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
