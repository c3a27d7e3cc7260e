"""The types of clients, locks and leases in scenarios: those of asyncio."""

from collections.abc import Callable
from typing import Any

from leaselock import AsyncClient as Client
from leaselock import AsyncElection as Election
from leaselock import AsyncLease as Lease
from leaselock import AsyncLeases as Leases
from leaselock import AsyncLock as Lock
from leaselock import AsyncLockAll as LockAll
from leaselock import AsyncRWLock as RWLock
from leaselock import AsyncSemaphore as Semaphore

LossCallback = Callable[[Any], object]
__all__ = [
    "Client",
    "Election",
    "Lease",
    "Leases",
    "Lock",
    "LockAll",
    "LossCallback",
    "RWLock",
    "Semaphore",
]
