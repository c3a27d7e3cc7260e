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
from leaselock._backends.document.listening import WatchListener
from leaselock._backends.document.loop_thread import LoopThread
from leaselock._backends.document.store import COMMON_OPTIONS, document_store
from leaselock._backends.document.store import opened as open_documents
from leaselock._backends.url import (
    StoreURL,
    decoded,
    duration,
    one_of,
    parse,
    seconds,
    whole_number,
    yes_or_no,
)
from leaselock._core.contract.backend import (
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
from leaselock._core.contract.effects import Call, Request, Signal, Wait
from leaselock._core.contract.lifecycle import BlockingNode, Lifecycle
from leaselock._core.rows.entry_row import Entry, EntryRow
from leaselock._core.rows.queue import NodeBackend, QueueBackend
from leaselock._core.rows.rules import LockRow, answer

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
    "LoopThread",
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
    "WatchListener",
    "answer",
    "decoded",
    "document_store",
    "duration",
    "one_of",
    "open_documents",
    "parse",
    "seconds",
    "whole_number",
    "yes_or_no",
]
