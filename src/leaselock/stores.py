"""What the author of a store imports: docs/how-to/write-a-store.md is a complete one.

These names follow the version of the package as the rest of its interface does, but they change
more often: a store names the versions of leaselock that it was tested with.
"""

from leaselock._backends import Opened, StoreType
from leaselock._backends.document.adapter import (
    Changed,
    Changes,
    Conflict,
    DocumentStore,
    Found,
    Page,
    Stored,
    Traits,
)
from leaselock._backends.document.store import COMMON_OPTIONS, document_store
from leaselock._backends.document.store import opened as open_documents
from leaselock._backends.url import StoreURL, decoded, parse
from leaselock._core.backend import (
    ALL_MODES,
    Acquire,
    Backend,
    BreakLock,
    Broken,
    Busy,
    Capabilities,
    Claim,
    Collected,
    CollectGarbage,
    Convert,
    Converted,
    Doctor,
    Finding,
    Grant,
    HoldRecord,
    Inspect,
    LockState,
    Release,
    Renew,
    Resize,
    SetLifetime,
    Setup,
    Watch,
)
from leaselock._core.effects import Call, Request, Signal, Wait
from leaselock._core.entry_row import Entry, EntryRow
from leaselock._core.lifecycle import BlockingNode, Lifecycle
from leaselock._core.queue import NodeBackend, QueueBackend
from leaselock._core.rules import LockRow, answer

__all__ = [
    "ALL_MODES",
    "COMMON_OPTIONS",
    "Acquire",
    "Backend",
    "BlockingNode",
    "BreakLock",
    "Broken",
    "Busy",
    "Call",
    "Capabilities",
    "Changed",
    "Changes",
    "Claim",
    "CollectGarbage",
    "Collected",
    "Conflict",
    "Convert",
    "Converted",
    "Doctor",
    "DocumentStore",
    "Entry",
    "EntryRow",
    "Finding",
    "Found",
    "Grant",
    "HoldRecord",
    "Inspect",
    "Lifecycle",
    "LockRow",
    "LockState",
    "NodeBackend",
    "Opened",
    "Page",
    "QueueBackend",
    "Release",
    "Renew",
    "Request",
    "Resize",
    "SetLifetime",
    "Setup",
    "Signal",
    "StoreType",
    "StoreURL",
    "Stored",
    "Traits",
    "Wait",
    "Watch",
    "answer",
    "decoded",
    "document_store",
    "open_documents",
    "parse",
]
