"""Distributed locks for threads and asyncio, on the store you already run.

    import leaselock

    with leaselock.Client("redis://localhost:6379/0") as client:
        with client.lock("order:5", timeout=10) as lease:
            charge(order, fence=lease.token)

    async with leaselock.AsyncClient("postgresql://localhost/app") as client:
        async with client.lock("order:5", timeout=10) as lease:
            await charge(order, fence=lease.token)

Without an argument a client uses $LEASELOCK_URL, or the URL in the file $LEASELOCK_URL_FILE, else
an embedded SQLite file. The schemes of URLs are memory, sqlite, redis, rediss, unix, zookeeper,
etcd, kubernetes, postgresql, mysql, dynamodb and s3 (and their variants).

A lock is held by a lease, which ends by itself when its holder dies. A lease carries a fencing
token, a number greater than that of every earlier grant of the name: a resource that refuses
smaller tokens is safe even from a holder that was frozen. `lease.lost` and `lease.ensure()` tell
whether the lease is still valid. In asyncio the body of an `async with` is cancelled when the lease
is lost.

    Client, AsyncClient     a connection to a store: lock, locks, break_lock, adopt, doctor, setup,
                            gc, close
    exit_on_sigterm         a context manager: SIGTERM ends the program in order, and its locks
    Lock, AsyncLock         one lock: acquire, try_acquire, release, locked, owned, holder, waiters,
                            watch; a context manager and a decorator
    RWLock, Semaphore,      read/write locks, semaphores, several locks at once; with Async before
    LockAll                 their names for asyncio
    Lease, AsyncLease       one grant: token, remaining, lost, ensure, extend, release, detach,
                            make_inheritable, on_lost, upgrade; Leases and AsyncLeases of LockAll
    Election, AsyncElection one leader among many clients: lead, run, leader, resign, watch
    Campaign, AsyncCampaign what lead makes: a context manager
    Changes, AsyncChanges   the changes of a lock, as an iterator; each is a LockChange
    Holder, Waiter          who holds a lock, who waits for it
    LockInfo, Finding       an entry of Client.locks, of Client.doctor
    WaitEdge, Deadlock      what Client.deadlocks returns
    Event, EventKind        what Client.on_event reports, and of which kind
    ErrorReason             the type of StoreError.reason
    Store, IfBusy, OnOutage the types of arguments: of Client, of Client.guard, of Client.lock; a
                            Store may be a RedisClient, ZooKeeperClient, SqlEngine or AwsClient
    LockArguments           the options of Client.lock, as Client.guard passes them on
    LeaselockError          the base class of all errors:
      AcquireTimeout        the time passed first; name, timeout, holder, waiting
      LeaseLost, NotHeld    the lease is not valid any more; it is not held
      NotApplied            certainly nothing was applied: refused, or not reached (a StoreError)
      StoreUnreachable      it was not reached: a NotApplied and a ConnectionError
      OutcomeUnknown        no answer arrived: perhaps applied (a StoreError, ConnectionError)
      WouldDeadlock         a wait that could not end: for write by a holder of read, or for a
                            holder that runs in the thread that would wait
      AlreadyHeld           acquired again, with reentrant=False
      LimitMismatch         the name is in use as another kind, or with another number of permits
      AcquireCancelled, DeadlockDetected, InvalidName, ClientClosed; and of optimistic writes
      StaleVersion, FenceRejected, RowNotFound
    UnsafeProtocolWarning   the chosen protocol can let two holders in

Each name is loaded when it is first used. The command line is `leaselock --help`.
"""

from __future__ import annotations

from leaselock.version import __version__

TYPE_CHECKING = False  # as type checkers know it, without the milliseconds that typing takes
if TYPE_CHECKING:
    from leaselock._api.aio import (
        AsyncCampaign,
        AsyncChanges,
        AsyncClient,
        AsyncElection,
        AsyncLease,
        AsyncLeases,
        AsyncLock,
        AsyncLockAll,
        AsyncRWLock,
        AsyncSemaphore,
    )
    from leaselock._api.connect import AwsClient, RedisClient, SqlEngine, Store, ZooKeeperClient
    from leaselock._api.guard import IfBusy, LockArguments
    from leaselock._api.termination import exit_on_sigterm
    from leaselock._api.threads import (
        Campaign,
        Changes,
        Client,
        Election,
        Lease,
        Leases,
        Lock,
        LockAll,
        RWLock,
        Semaphore,
    )
    from leaselock._core.client.deadlocks import Deadlock, WaitEdge
    from leaselock._core.client.events import Event, EventKind
    from leaselock._core.client.inspection import Holder, LockChange, LockInfo, Waiter
    from leaselock._core.client.timing import OnOutage
    from leaselock._core.contract.backend import ErrorReason, Finding
    from leaselock.errors import (
        AcquireCancelled,
        AcquireTimeout,
        AlreadyHeld,
        ClientClosed,
        DeadlockDetected,
        FenceRejected,
        InvalidName,
        LeaselockError,
        LeaseLost,
        LimitMismatch,
        NotApplied,
        NotHeld,
        OutcomeUnknown,
        RowNotFound,
        StaleVersion,
        StoreError,
        StoreUnreachable,
        UnsafeProtocolWarning,
        WouldDeadlock,
    )

_WHERE = {
    "leaselock._api.aio": (
        *("AsyncCampaign", "AsyncChanges", "AsyncClient", "AsyncElection", "AsyncLease"),
        *("AsyncLeases", "AsyncLock", "AsyncLockAll", "AsyncRWLock", "AsyncSemaphore"),
    ),
    "leaselock._api.connect": ("AwsClient", "RedisClient", "SqlEngine", "Store", "ZooKeeperClient"),
    "leaselock._api.guard": ("IfBusy", "LockArguments"),
    "leaselock._api.termination": ("exit_on_sigterm",),
    "leaselock._core.client.timing": ("OnOutage",),
    "leaselock._api.threads": (
        *("Campaign", "Changes", "Client", "Election", "Lease", "Leases", "Lock", "LockAll"),
        *("RWLock", "Semaphore"),
    ),
    "leaselock._core.contract.backend": ("ErrorReason", "Finding"),
    "leaselock._core.client.deadlocks": ("Deadlock", "WaitEdge"),
    "leaselock._core.client.events": ("Event", "EventKind"),
    "leaselock._core.client.inspection": ("Holder", "LockChange", "LockInfo", "Waiter"),
    "leaselock.errors": (
        "AcquireCancelled",
        "AcquireTimeout",
        "AlreadyHeld",
        "ClientClosed",
        "DeadlockDetected",
        "FenceRejected",
        "LeaselockError",
        "InvalidName",
        "LeaseLost",
        "LimitMismatch",
        "NotHeld",
        "NotApplied",
        "RowNotFound",
        "StaleVersion",
        "StoreError",
        "StoreUnreachable",
        "OutcomeUnknown",
        "UnsafeProtocolWarning",
        "WouldDeadlock",
    ),
}

__all__ = [
    "AcquireCancelled",
    "AcquireTimeout",
    "AlreadyHeld",
    "AsyncCampaign",
    "AsyncChanges",
    "AsyncClient",
    "AsyncElection",
    "AsyncLease",
    "AsyncLeases",
    "AsyncLock",
    "AsyncLockAll",
    "AsyncRWLock",
    "AsyncSemaphore",
    "AwsClient",
    "Campaign",
    "Changes",
    "Client",
    "ClientClosed",
    "Deadlock",
    "DeadlockDetected",
    "Election",
    "ErrorReason",
    "Event",
    "EventKind",
    "FenceRejected",
    "Finding",
    "Holder",
    "IfBusy",
    "InvalidName",
    "Lease",
    "LeaseLost",
    "LeaselockError",
    "Leases",
    "LimitMismatch",
    "Lock",
    "LockAll",
    "LockArguments",
    "LockChange",
    "LockInfo",
    "NotApplied",
    "NotHeld",
    "OnOutage",
    "OutcomeUnknown",
    "RWLock",
    "RedisClient",
    "RowNotFound",
    "Semaphore",
    "SqlEngine",
    "StaleVersion",
    "Store",
    "StoreError",
    "StoreUnreachable",
    "UnsafeProtocolWarning",
    "WaitEdge",
    "Waiter",
    "WouldDeadlock",
    "ZooKeeperClient",
    "__version__",
    "exit_on_sigterm",
]


def __getattr__(name: str) -> object:
    for module, names in _WHERE.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(module), name)
    raise AttributeError(f"module 'leaselock' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
