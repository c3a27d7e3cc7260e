"""The public names, nothing else; each is loaded when it is first used."""

from __future__ import annotations

from holdfast.version import __version__

TYPE_CHECKING = False  # as type checkers know it, without the milliseconds that typing takes
if TYPE_CHECKING:
    from holdfast.api.aio import AsyncClient, AsyncLease, AsyncLock
    from holdfast.api.threads import Client, Lease, Lock
    from holdfast.core.backend import Finding
    from holdfast.core.sight import Holder, Report
    from holdfast.errors import (
        AcquireTimeout,
        Closed,
        FenceRejected,
        HoldfastError,
        InvalidName,
        LeaseLost,
        NotHeld,
        Refused,
        RowMissing,
        StaleVersion,
        StoreError,
        Unknown,
        UnsafeProtocolWarning,
    )

_WHERE = {
    "holdfast.api.aio": ("AsyncClient", "AsyncLease", "AsyncLock"),
    "holdfast.api.threads": ("Client", "Lease", "Lock"),
    "holdfast.core.backend": ("Finding",),
    "holdfast.core.sight": ("Holder", "Report"),
    "holdfast.errors": (
        "AcquireTimeout",
        "Closed",
        "FenceRejected",
        "HoldfastError",
        "InvalidName",
        "LeaseLost",
        "NotHeld",
        "Refused",
        "RowMissing",
        "StaleVersion",
        "StoreError",
        "Unknown",
        "UnsafeProtocolWarning",
    ),
}

__all__ = [
    "AcquireTimeout",
    "AsyncClient",
    "AsyncLease",
    "AsyncLock",
    "Client",
    "Closed",
    "FenceRejected",
    "Finding",
    "Holder",
    "HoldfastError",
    "InvalidName",
    "Lease",
    "LeaseLost",
    "Lock",
    "NotHeld",
    "Refused",
    "Report",
    "RowMissing",
    "StaleVersion",
    "StoreError",
    "Unknown",
    "UnsafeProtocolWarning",
    "__version__",
]


def __getattr__(name: str) -> object:
    for module, names in _WHERE.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(module), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
