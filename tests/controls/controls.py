"""The controls: each a defect that others have reported or that we have seen, and how it is played.

Law: a control is found by the same means as the hazards of our own table. Most are its very
hazards, played on another library's lock; the others are in `plays`.
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
    """What has it: a distribution, whose version is shown; or a server."""
    defect: str
    """What is expected to be seen."""

    @property
    def who(self) -> str:
        """The package and its version."""
        servers = {"PostgreSQL": "15", "pgbouncer": "transaction pooling"}
        return f"{self.package} {servers.get(self.package) or version(self.package)}"

    @property
    def cell(self) -> tuple[str, str]:
        """Where its outcome is in the table of a run."""
        return self.way.name, self.hazard.key


def peer(name: str, store: str, kind: str) -> Way:
    """Another library's lock as a way of locking."""
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
# What these do is played without processes of the crew.
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
        known(REDIS_PY, "lost-reply", "redis", "a lost reply to SET leaves a lock of nobody"),
        known(REDIS_PY, "late-question", "redis", "a SET that comes late takes it for nobody"),
        known(REDIS_PY, "fork", "redis", "a forked child frees its parent's lock"),
        known(REDIS_PY, "outlived", "redis", "the body is not told that the lease is over"),
        known(REDIS_PY, "failover", "redis", "after a failover two hold, and there is no token"),
        known(REDIS_PY, "barging", "redis", "whoever asks first after a release has it"),
        own(REDIS_PY, "cancelled", plays.cancelled, "F1", "redis",
            "a cancelled acquire leaves a lock without an end"),
        own(REDIS_PY, "recorded", plays.recorded, "B1, C7", "redis",
            "work that outlives its lease overlaps with the next holder's"),
        own(PYTHON_REDIS_LOCK, "unwoken", plays.unwoken, "E3", "python-redis-lock",
            "nobody wakes a waiter when its holder died"),
        known(PYTHON_REDIS_LOCK, "lost-reply", "python-redis-lock",
              "a lost reply to SET leaves a lock of nobody"),
        own(POTTERY, "second-try", plays.second_try, "A7", "pottery",
            "a second acquire throws the first one's token away"),
        known(POTTERY, "late-question", "pottery", "a vote that comes late stays"),
        own(REDLOCK_PY, "dead-master", plays.one_master_dead, "H5", "redlock-py",
            "with one master of three dead it fails, and keeps the votes of the others"),
        own(AT_THE_END, "overflow", plays.overflow, "I4", "kazoo",
            "numbers of nodes are compared as text, so after 2147483647 two hold"),
        known(KAZOO, "frozen", "kazoo", "is_acquired stays true in a new session"),
        own(KAZOO, "patience", plays.wait_begins_again, "B13", "kazoo",
            "each wake-up begins the timeout again"),
        own(ADVISORY, "pooled", plays.pooled, "J1", "pgbouncer",
            "two clients have one session lock, which stays when both are gone"),
        own(ADVISORY, "late-grant", plays.late_grant, "J2", "PostgreSQL",
            "lock_timeout says no to a session that has been granted the lock"),
        own(DLOCK, "failing-body", plays.failing_body, "J3", "sqlalchemy-dlock",
            "a failing statement in the body leaves the lock held by the pool"),
        own(DLOCK_MARIADB, "never-granted", plays.never_granted, "J7", "sqlalchemy-dlock",
            "acquire() without a timeout always fails on MariaDB"),
        own(TOOZ, "two-names", plays.one_of_many_names, "J4", "tooz",
            "names are hashed to 16 bits on PostgreSQL"),
        own(FILELOCK, "replaced-file", plays.replaced_file, "K3", "filelock",
            "a file that is removed is locked twice"),
    ]  # fmt: skip


CONTROLS = {control.key: control for control in _controls()}


def cells() -> list[Cell]:
    """What is to be played."""
    from leaselock.testing.hazards.play import Cell

    return [Cell(control.way, control.hazard) for control in CONTROLS.values()]
