"""Locks and the transactions of Django: a lock that is released before the commit protects nothing.

The next holder would read the rows as they were before. So a client of `contrib.django` refuses to
acquire inside `atomic`, unless the lock lasts until the transaction has ended.
"""

from __future__ import annotations

import sys
import weakref
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from django.db import connections, transaction

from leaselock import LeaseLost
from leaselock._drivers.forgotten import CLOSER

if TYPE_CHECKING:
    from leaselock import Client, Lease

_until_the_end: ContextVar[bool] = ContextVar("leaselock_until_the_end", default=False)


def refuse_inside_atomic() -> None:
    """RuntimeError inside `transaction.atomic`. Blocks that Django's TestCase opens do not count,
    as for `atomic(durable=True)`.
    """
    if _until_the_end.get():
        return
    for connection in connections.all(initialized_only=True):
        if any(not block._from_testcase for block in connection.atomic_blocks):
            raise RuntimeError(
                "this lock would be acquired inside transaction.atomic (or under ATOMIC_REQUESTS, "
                f"database {connection.alias!r}) and released before the commit, so that the next "
                "holder would not see what this one has written. Acquire the lock first and open "
                "atomic in its body; or, inside the transaction, use leaselock.sql.lock("
                "connection, name) of a PostgreSQL or MySQL database, or leaselock.contrib.django."
                "lock_until_commit(name)"
            )


def hold_until_commit(
    client: Client, name: str, using: str | None, options: dict[str, Any]
) -> Lease:
    """Acquire a lock that is released when the transaction has been committed or rolled back."""
    connection = transaction.get_connection(using)
    if not connection.in_atomic_block:
        raise RuntimeError("lock_until_commit needs a transaction: call it inside atomic")
    chosen = _until_the_end.set(True)
    try:
        lease = client.lock(name, **options).acquire()
    finally:
        _until_the_end.reset(chosen)
    try:
        connection.on_commit(_Release(lease))
    except BaseException:
        lease.release()
        raise
    return lease


class _Release:
    """Releases a lease after the commit. Django drops it, uncalled, when the transaction or its
    savepoint is rolled back, or the connection is closed: then, too.
    """

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._dropped = weakref.finalize(self, _release_dropped, lease)
        self._dropped.atexit = False  # the client releases what is held at the exit

    def __call__(self) -> None:
        self._dropped.detach()
        self._lease.release()


def _release_dropped(lease: Lease) -> None:
    """Release a lease whose transaction was rolled back."""
    if lease._driver._is_interrupted(sys._getframe()):
        # The garbage collector runs in the middle of a call of the client.
        CLOSER.close_later(lambda: _release_dropped(lease))
        return
    with suppress(LeaseLost):  # what it has protected was rolled back
        lease.release()
