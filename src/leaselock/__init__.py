"""Distributed locks for threads and asyncio, on the store you already run.

    import leaselock

    with leaselock.Client("redis://localhost:6379/0") as client:
        with client.lock("order:5", timeout=10) as lease:
            charge(order, fence=lease.token)

    async with leaselock.AsyncClient("postgresql://localhost/app") as client:
        async with client.lock("order:5", timeout=10) as lease:
            await charge(order, fence=lease.token)

Without an argument a client uses $LEASELOCK_URL, else an embedded SQLite file. The schemes of URLs
are memory, sqlite, redis, rediss, unix, zookeeper, postgresql and mysql (and their variants).

A lock is held by a lease, which ends by itself when its holder dies. A lease carries a fencing
token, a number greater than that of every earlier grant of the name: a resource that refuses
smaller tokens is safe even from a holder that was frozen. `lease.lost` and `lease.ensure()` tell
whether the lease is still valid. In asyncio the body of an `async with` is cancelled when the lease
is lost.

    Client, AsyncClient     a connection to a store: lock, locks, break_lock, adopt, doctor, setup,
                            gc, close
    Lock, AsyncLock         one lock: acquire, release, locked, owned, holder, waiters; a context
                            manager and a decorator
    Lease, AsyncLease       one grant: token, remaining, lost, ensure, extend, release, detach,
                            make_inheritable, on_lost
    Holder, Waiter          who holds a lock, who waits for it
    LockInfo, Finding       an entry of Client.locks, of Client.doctor
    LeaselockError          the base class of all errors:
      AcquireTimeout        the time passed first; name, timeout, holder, waiting
      LeaseLost, NotHeld    the lease is not valid any more; it is not held
      NotApplied            the store refused: certainly nothing was applied (a StoreError)
      OutcomeUnknown        no answer arrived: perhaps it was applied (a StoreError)
      InvalidName, ClientClosed, StaleVersion, FenceRejected, RowNotFound
    UnsafeProtocolWarning   the chosen protocol can let two holders in

Each name is loaded when it is first used. The command line is `leaselock --help`.
"""

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
