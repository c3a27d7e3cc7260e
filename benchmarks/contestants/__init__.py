"""Who is measured: each contestant a few lines in a file of its own, with documented settings."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from pathlib import Path


class Contestant(Protocol):
    """One lock of one library, as one thread of one process sees it."""

    version: ClassVar[str]
    reentrant: ClassVar[bool]
    waits: ClassVar[bool]
    """Whether it can wait for another process."""

    def __init__(self, folder: Path) -> None:
        """Open the lock that all who are given *folder* share."""

    def acquire(self) -> None:
        """Take the lock, however long that takes."""

    def release(self) -> None:
        """Give it back."""

    def close(self) -> None:
        """Let go of everything."""


# What the ratios are ratios to.
REFERENCE = "filelock"

CLASSES = {
    "holdfast": "embedded:Embedded",
    "filelock": "file_lock:FileLock",
    "portalocker": "port_locker:PortaLocker",
    "flock": "flock:Flock",
    "sqlite": "floor:Floor",
}

# Those who need a Redis; the file "url" in their folder says where it is.
ON_REDIS = {
    "redis": "redis_hash:Hash",
    "redis-py": "redis_py:RedisPy",
    "python-redis-lock": "py_redis_lock:PyRedisLock",
    "raw-redis": "raw_redis:Raw",
}

# Those who need a ZooKeeper; the file "hosts" in their folder says where it is.
ON_ZOOKEEPER = {
    "zookeeper": "zoo_queue:Queue",
    "kazoo": "kazoo_lock:KazooLock",
    "raw-zookeeper": "raw_zookeeper:Raw",
}

# Those who need a database; the file "url" in their folder says where it is.
ON_SQL = {
    "sql-lease": "sql_ours:Lease",
    "sql-row": "sql_ours:Row",
    "sql-advisory": "sql_ours:Advisory",
    "raw-sql-lease": "raw_sql:RawLease",
    "raw-sql-row": "raw_sql:RawRow",
    "raw-sql-advisory": "raw_sql:RawAdvisory",
    "sqlalchemy-dlock": "sql_peers:Dlock",
    "tooz": "sql_peers:Tooz",
}

ALL = CLASSES | ON_REDIS | ON_ZOOKEEPER | ON_SQL
TITLES = {
    "holdfast": "**holdfast**, SQLite",
    "filelock": "filelock",
    "portalocker": "portalocker",
    "flock": "bare flock(2)",
    "sqlite": "bare SQLite, two UPDATEs",
    "redis": "**holdfast**, Redis",
    "redis-py": "redis-py's Lock",
    "python-redis-lock": "python-redis-lock",
    "raw-redis": "two bare round trips, same scripts",
    "zookeeper": "**holdfast**, ZooKeeper",
    "kazoo": "kazoo's Lock",
    "raw-zookeeper": "bare requests of the recipe",
    "sql-lease": "**holdfast**, lease",
    "sql-row": "**holdfast**, row",
    "sql-advisory": "**holdfast**, advisory",
    "raw-sql-lease": "two bare updates of a row",
    "raw-sql-row": "bare SELECT … FOR UPDATE, counter, note",
    "raw-sql-advisory": "bare named lock, counter, note",
    "sqlalchemy-dlock": "sqlalchemy-dlock (no token)",
    "tooz": "tooz (no token)",
}


def contestant(name: str) -> type[Contestant]:
    """The contestant of that name; its library is imported only now."""
    module, _, attribute = ALL[name].partition(":")
    found: type[Contestant] = getattr(import_module(f"{__name__}.{module}"), attribute)
    return found
