"""The controls: known defects of other libraries and configurations, and the trials that find them.

Most trials are hazards of the hazard table, run with another library's lock; the others are in
`trials`.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

from verification.controls import trials
from verification.controls.trials import peer
from verification.hazards.catalogue import HAZARDS, Hazard
from verification.hazards.methods import Method
from verification.hazards.table import Cell

if TYPE_CHECKING:
    from collections.abc import Callable

    from verification.hazards.outcome import Outcome
    from verification.hazards.trial import Trial


class Control(NamedTuple):
    """One defect."""

    key: str
    method: Method
    hazard: Hazard
    package: str
    """The distribution or server with the defect; its version is shown."""
    defect: str
    """The expected observation."""

    @property
    def package_version(self) -> str:
        """The package and its version."""
        servers = {"PostgreSQL": "15", "pgbouncer": "transaction pooling"}
        return f"{self.package} {servers.get(self.package) or version(self.package)}"

    @property
    def cell(self) -> tuple[str, str]:
        """The key of its outcome in the table of a run."""
        return self.method.name, self.hazard.key


def own_hazard(key: str, function: Callable[[Trial], Outcome], row: str) -> Hazard:
    """Return a hazard that is not in the hazard table."""
    return Hazard(key, key, function, row)


REDIS_PY = peer("redis-py Lock", "redis", "RedisPy")
PYTHON_REDIS_LOCK = peer("python-redis-lock", "redis", "PythonRedisLock")
POTTERY = peer("pottery Redlock", "redlock", "Pottery")
REDLOCK_PY = peer("redlock-py", "redlock", "RedlockPy")
KAZOO = peer("kazoo Lock", "zookeeper", "Kazoo")
AT_THE_END = peer("kazoo Lock, counter at its end", "zookeeper", "KazooAtTheEnd")
# Trials with these use no worker processes.
ADVISORY = Method("pg_advisory_lock", "postgresql", "")
DLOCK = Method("sqlalchemy-dlock", "postgresql", "")
DLOCK_MARIADB = Method("sqlalchemy-dlock, MariaDB", "mysql", "")
TOOZ = Method("tooz", "postgresql", "")
FILELOCK = Method("filelock", "sqlite", "")


def _controls() -> list[Control]:
    def known(method: Method, hazard: str, package: str, defect: str) -> Control:
        return Control(f"{package}-{hazard}", method, HAZARDS[hazard], package, defect)

    def own(method: Method, key: str, function: Callable[[Trial], Outcome], row: str, package: str,
            defect: str) -> Control:  # fmt: skip
        return Control(f"{package}-{key}", method, own_hazard(key, function, row), package, defect)

    return [
        known(REDIS_PY, "lost-reply", "redis", "a lost reply to SET leaves an ownerless lock"),
        known(REDIS_PY, "late-request", "redis", "a late SET leaves an ownerless lock"),
        known(REDIS_PY, "fork", "redis", "a forked child frees its parent's lock"),
        known(REDIS_PY, "outlived", "redis", "the body does not learn that the lease is over"),
        known(REDIS_PY, "failover", "redis", "after a failover two hold, and there is no token"),
        known(REDIS_PY, "barging", "redis", "the first request after a release gets it"),
        own(REDIS_PY, "cancelled", trials.cancelled, "F1", "redis",
            "a cancelled acquire leaves a lock without an end"),
        own(REDIS_PY, "recorded", trials.recorded, "B1, C7", "redis",
            "work that outlives its lease overlaps with the next holder's"),
        own(PYTHON_REDIS_LOCK, "unwoken", trials.unwoken, "E3", "python-redis-lock",
            "a waiter is not woken when the holder died"),
        known(PYTHON_REDIS_LOCK, "lost-reply", "python-redis-lock",
              "a lost reply to SET leaves an ownerless lock"),
        own(POTTERY, "second-try", trials.second_try, "A7", "pottery",
            "a second acquire discards the first one's token"),
        known(POTTERY, "late-request", "pottery", "a late vote stays"),
        own(REDLOCK_PY, "dead-master", trials.one_master_dead, "H5", "redlock-py",
            "with one master of three dead it fails, and keeps the votes of the others"),
        own(AT_THE_END, "overflow", trials.overflow, "I4", "kazoo",
            "numbers of nodes are compared as text, so after 2147483647 two hold"),
        known(KAZOO, "frozen", "kazoo", "is_acquired stays true in a new session"),
        own(KAZOO, "waiting-time", trials.wait_begins_again, "B13", "kazoo",
            "each wake-up restarts the timeout"),
        own(ADVISORY, "pooled", trials.pooled, "J1", "pgbouncer",
            "two clients have one session lock, which stays when both are gone"),
        own(ADVISORY, "late-grant", trials.late_grant, "J2", "PostgreSQL",
            "lock_timeout fails in a session that has been granted the lock"),
        own(DLOCK, "failing-body", trials.failing_body, "J3", "sqlalchemy-dlock",
            "a failing statement in the body leaves the lock held by the pool"),
        own(DLOCK_MARIADB, "never-granted", trials.never_granted, "J7", "sqlalchemy-dlock",
            "acquire() without a timeout always fails on MariaDB"),
        own(TOOZ, "two-names", trials.one_of_many_names, "J4", "tooz",
            "names are hashed to 16 bits on PostgreSQL"),
        own(FILELOCK, "replaced-file", trials.replaced_file, "K3", "filelock",
            "a file that is removed is locked twice"),
    ]  # fmt: skip


CONTROLS = {control.key: control for control in _controls()}


def cells() -> list[Cell]:
    """Return the cells to run."""
    return [Cell(control.method, control.hazard) for control in CONTROLS.values()]
