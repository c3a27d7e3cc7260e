"""The negative controls: known defects of other libraries, and how they are played.

Most are hazards of the hazard table, played on another library's lock; the others are in `plays`.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

from tests.controls import plays

from leaselock.testing.hazards.catalogue import HAZARDS, Hazard
from leaselock.testing.hazards.ways import Way

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.testing.hazards.outcome import Outcome
    from leaselock.testing.hazards.play import Cell
    from leaselock.testing.hazards.scene import Scene

PEERS = "tests.controls.peers"


class Control(NamedTuple):
    """One defect."""

    key: str
    way: Way
    hazard: Hazard
    package: str
    """The distribution with the defect, whose version is shown; or a server."""
    defect: str
    """The expected observation."""

    @property
    def who(self) -> str:
        """The package and its version."""
        servers = {"PostgreSQL": "15", "pgbouncer": "transaction pooling"}
        return f"{self.package} {servers.get(self.package) or version(self.package)}"

    @property
    def cell(self) -> tuple[str, str]:
        """Its key in the outcomes of a run."""
        return self.way.name, self.hazard.key


def peer(name: str, store: str, kind: str) -> Way:
    """Return another library's lock as a locking method."""
    return Way(name, store, f"{PEERS}:{kind}")


def play(key: str, function: Callable[[Scene], Outcome], row: str) -> Hazard:
    """A play that the hazard table does not have."""
    return Hazard(key, key, function, row)


REDIS_PY = peer("redis-py Lock", "redis", "RedisPy")
PYTHON_REDIS_LOCK = peer("python-redis-lock", "redis", "PythonRedisLock")
POTTERY = peer("pottery Redlock", "redlock", "Pottery")
REDLOCK_PY = peer("redlock-py", "redlock", "RedlockPy")
KAZOO = peer("kazoo Lock", "zookeeper", "Kazoo")
AT_THE_END = peer("kazoo Lock, counter at its end", "zookeeper", "KazooAtTheEnd")
BEYOND = peer("kazoo Lock, counter beyond its end", "zookeeper", "KazooBeyond")
# These are played without worker processes.
ADVISORY = Way("pg_advisory_lock", "postgresql", "")
DLOCK = Way("sqlalchemy-dlock", "postgresql", "")
DLOCK_MARIADB = Way("sqlalchemy-dlock, MariaDB", "mysql", "")
TOOZ = Way("tooz", "postgresql", "")
FILELOCK = Way("filelock", "sqlite", "")


def _controls() -> list[Control]:
    def known(way: Way, hazard: str, package: str, defect: str) -> Control:
        return Control(f"{package}-{hazard}", way, HAZARDS[hazard], package, defect)

    def own(way: Way, key: str, function: Callable[[Scene], Outcome], row: str, package: str,
            defect: str) -> Control:  # fmt: skip
        return Control(f"{package}-{key}", way, play(key, function, row), package, defect)

    return [
        known(REDIS_PY, "lost-reply", "redis",
              "a lost reply to SET leaves a lock without an owner"),
        known(REDIS_PY, "late-request", "redis", "a late SET leaves a lock without an owner"),
        known(REDIS_PY, "fork", "redis", "a forked child releases its parent's lock"),
        known(REDIS_PY, "outlived", "redis", "the body does not learn that the lease has ended"),
        known(REDIS_PY, "failover", "redis",
              "after a failover there are two holders, and no token"),
        known(REDIS_PY, "barging", "redis",
              "the first request after a release gets the lock, before the waiters"),
        own(REDIS_PY, "cancelled", plays.cancelled, "F1", "redis",
            "a cancelled acquire leaves a lock without expiry"),
        own(REDIS_PY, "recorded", plays.recorded, "B1, C7", "redis",
            "work that outlasts its lease overlaps with the next holder's"),
        own(PYTHON_REDIS_LOCK, "unwoken", plays.unwoken, "E3", "python-redis-lock",
            "a waiter is not woken when the holder dies"),
        known(PYTHON_REDIS_LOCK, "lost-reply", "python-redis-lock",
              "a lost reply to SET leaves a lock without an owner"),
        own(POTTERY, "second-try", plays.second_try, "A7", "pottery",
            "a second acquire discards the first one's token"),
        known(POTTERY, "late-request", "pottery", "a late vote remains"),
        own(REDLOCK_PY, "dead-master", plays.one_master_dead, "H5", "redlock-py",
            "with one master of three dead it fails, and keeps the votes of the others"),
        own(AT_THE_END, "overflow", plays.overflow, "I4", "kazoo",
            "sequence numbers are compared as text, so after 2147483647 there are two holders"),
        known(KAZOO, "frozen", "kazoo", "is_acquired stays true in a new session"),
        own(KAZOO, "patience", plays.wait_begins_again, "B13", "kazoo",
            "each wake-up restarts the timeout"),
        own(ADVISORY, "pooled", plays.pooled, "J1", "pgbouncer",
            "two clients hold one session lock, which remains after both disconnect"),
        own(ADVISORY, "late-grant", plays.late_grant, "J2", "PostgreSQL",
            "lock_timeout reports a failure although the session was granted the lock"),
        own(DLOCK, "failing-body", plays.failing_body, "J3", "sqlalchemy-dlock",
            "a failing statement in the body leaves the lock with the pooled connection"),
        own(DLOCK_MARIADB, "never-granted", plays.never_granted, "J7", "sqlalchemy-dlock",
            "acquire() without a timeout always fails on MariaDB"),
        own(TOOZ, "two-names", plays.one_of_many_names, "J4", "tooz",
            "names are hashed to 16 bits on PostgreSQL"),
        own(FILELOCK, "replaced-file", plays.replaced_file, "K3", "filelock",
            "a removed file is locked twice"),
    ]  # fmt: skip


CONTROLS = {control.key: control for control in _controls()}


def cells() -> list[Cell]:
    """Return the cells to play."""
    from leaselock.testing.hazards.play import Cell

    return [Cell(control.way, control.hazard) for control in CONTROLS.values()]
