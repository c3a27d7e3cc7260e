"""The lock of a transaction in PostgreSQL: `pg_advisory_xact_lock`.

A name has the same key as in protocol "advisory" (`leaselock._backends.sql.keys`), so holders of
both kinds exclude each other.

Invariant: a failed wait is undone by a savepoint. This releases a lock that was granted as the time
ran out (hazard J2), restores the settings, and leaves the caller a usable transaction.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leaselock._backends.sql.keys import ADVISORY, number
from leaselock._core.contract.effects import FOREVER
from leaselock._drivers.system_env import now
from leaselock.errors import NotApplied
from leaselock.sql.steps import Autocommit, Execute, autocommits, code_of, timed_out

if TYPE_CHECKING:
    from collections.abc import Generator

    from leaselock.sql.steps import Steps

NO_TRANSACTION = "25P01"
LOCK_NOT_AVAILABLE = "55P03"
LONGEST_TIMEOUT = 2**31 - 1

TRY = "SELECT pg_try_advisory_xact_lock(CAST(:key AS bigint)), pg_is_in_recovery()"
WAIT = "SELECT pg_advisory_xact_lock(CAST(:key AS bigint))"
READ_LIMIT = "SELECT current_setting('lock_timeout')"
LIMIT = "SELECT set_config('lock_timeout', :limit, true)"
HOLDER = """SELECT a.pid, a.application_name,
    round(extract(epoch FROM clock_timestamp() - a.xact_start))
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    JOIN pg_database d ON d.oid = l.database
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
    AND d.datname = current_database()
    AND (CAST(l.classid AS bigint) << 32 | CAST(l.objid AS bigint)) = CAST(:key AS bigint)"""


def key(name: str) -> int:
    """The number of the advisory lock."""
    return number(ADVISORY, name)


def take(name: str, until: float) -> Steps:
    """The steps that take the lock: at once if it is free, otherwise by *until*."""
    bits = key(name)
    yield from _check_transaction()
    got, standby = yield Execute(TRY, {"key": bits})
    if standby:
        raise NotApplied("this server is a standby: an advisory lock here excludes no writer")
    if got:
        return
    if until <= now():
        raise timed_out(name, (yield from _holder(bits)))
    yield from _wait(name, bits, until)


def _check_transaction() -> Steps:
    every = yield Autocommit()
    if every is False:
        return
    try:
        yield Execute("SAVEPOINT leaselock")
    except Exception as error:
        if code_of(error) != NO_TRANSACTION:
            raise
        raise autocommits() from error
    yield Execute("RELEASE SAVEPOINT leaselock")


def _wait(name: str, bits: int, until: float) -> Steps:
    yield Execute("SAVEPOINT leaselock")
    try:
        (limit,) = yield Execute(READ_LIMIT)
        yield Execute(LIMIT, {"limit": _limit(until)})
        yield Execute(WAIT, {"key": bits})
        yield Execute(LIMIT, {"limit": limit})
    except Exception as error:
        if getattr(error, "connection_invalidated", False):
            raise  # the connection is gone, and with it everything that would be undone
        yield Execute("ROLLBACK TO SAVEPOINT leaselock")
        yield Execute("RELEASE SAVEPOINT leaselock")
        if code_of(error) != LOCK_NOT_AVAILABLE:
            raise
        raise timed_out(name, (yield from _holder(bits))) from error
    yield Execute("RELEASE SAVEPOINT leaselock")


def _limit(until: float) -> str:
    """The timeout in milliseconds; 0 means no limit."""
    if until == FOREVER:
        return "0"
    return str(min(max(1, math.ceil((until - now()) * 1000)), LONGEST_TIMEOUT))


def _holder(bits: int) -> Generator[Execute, tuple[int, str, float] | None, str]:
    row = yield Execute(HOLDER, {"key": bits})
    if row is None:
        return "it has just become free"
    pid, application, seconds = row
    called = f" ({application})" if application else ""
    return f"held by backend {pid}{called}, in a transaction of {float(seconds or 0):.0f} s"
