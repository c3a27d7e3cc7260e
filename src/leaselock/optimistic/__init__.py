"""Optimistic locking: a write by a stale reader or holder is refused, in the same statement.

    compare_and_set     write a row if it still has the version that it was read with
    fenced_write        write a row unless a newer holder of a lock has written it
    retry_on_conflict   run a function again after such a conflict

The first two run one UPDATE on the connection, and in the transaction, that the caller has open.
They commit nothing and roll back nothing.
"""

from leaselock.errors import FenceRejected, RowNotFound, StaleVersion
from leaselock.optimistic.retry import retry_on_conflict
from leaselock.optimistic.write import compare_and_set, fenced_write

__all__ = [
    "FenceRejected",
    "RowNotFound",
    "StaleVersion",
    "compare_and_set",
    "fenced_write",
    "retry_on_conflict",
]
