"""Who is measured: each contestant a few lines in a file of its own, with documented settings."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable
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
    "leaselock": "ours:Embedded",
    "filelock": "file_lock:FileLock",
    "portalocker": "port_locker:PortaLocker",
    "tooz-file": "tooz_lock:ToozFile",
    "flock": "flock:Flock",
    "sqlite": "floor:Floor",
}

# Those who need a Redis; the file "url" in their folder says where it is.
ON_REDIS = {
    "redis": "ours:Redis",
    "redis-py": "redis_py:RedisPy",
    "python-redis-lock": "py_redis_lock:PyRedisLock",
    "pottery": "pottery_redlock:Pottery",
    "redlock-py": "redlock_py:RedlockPy",
    "portalocker-redis": "portalocker_redis:PortaLockerRedis",
    "tooz-redis": "tooz_lock:Tooz",
    "redisson": "redisson:Redisson",
    "redisson-fair": "redisson:Fair",
    "redsync": "redsync:Redsync",
    "node-redlock": "node_redlock:NodeRedlock",
    "raw-redis": "raw_redis:Raw",
}

# Those of asyncio, who need a Redis, too.
ON_LOOP = {
    "aio": "aio_ours:Ours",
    "aio-redis-py": "aio_redis_py:RedisPy",
    "coredis": "aio_coredis:Coredis",
    "aio-pottery": "aio_pottery:Pottery",
}

# Those who need several; the file "url" has them with commas between.
ON_MASTERS = {
    "redlock": "ours:Redlock",
    "pottery-masters": "pottery_redlock:Pottery",
    "redlock-py-masters": "redlock_py:RedlockPy",
    "redsync-masters": "redsync:Redsync",
    "node-redlock-masters": "node_redlock:NodeRedlock",
}

# Those who need a ZooKeeper; the file "hosts" in their folder says where it is.
ON_ZOOKEEPER = {
    "zookeeper": "ours:ZooKeeper",
    "kazoo": "kazoo_lock:KazooLock",
    "tooz-zookeeper": "tooz_lock:ToozZooKeeper",
    "curator": "curator:Curator",
    "raw-zookeeper": "raw_zookeeper:Raw",
}

# Those who need a database; the file "url" in their folder says where it is.
ON_SQL = {
    "sql-lease": "ours:SqlLease",
    "sql-row": "ours:SqlRow",
    "sql-advisory": "ours:SqlAdvisory",
    "raw-sql-lease": "raw_sql:RawLease",
    "raw-sql-row": "raw_sql:RawRow",
    "raw-sql-advisory": "raw_sql:RawAdvisory",
    "sqlalchemy-dlock": "sql_dlock:Dlock",
    "tooz-sql": "tooz_lock:Tooz",
}

ALL = CLASSES | ON_REDIS | ON_LOOP | ON_MASTERS | ON_ZOOKEEPER | ON_SQL
TITLES = {
    "leaselock": "**leaselock**, SQLite",
    "filelock": "filelock",
    "portalocker": "portalocker",
    "tooz-file": "tooz, file",
    "flock": "bare flock(2)",
    "sqlite": "bare SQLite, two UPDATEs",
    "redis": "**leaselock**, Redis",
    "redis-py": "redis-py's Lock",
    "python-redis-lock": "python-redis-lock",
    "pottery": "pottery's Redlock",
    "redlock-py": "redlock-py",
    "portalocker-redis": "portalocker's RedisLock",
    "tooz-redis": "tooz, Redis",
    "redisson": "Redisson's RLock (Java)",
    "redisson-fair": "Redisson's RFairLock (Java)",
    "redsync": "redsync (Go)",
    "node-redlock": "redlock (Node)",
    "raw-redis": "two bare round trips, same scripts",
    "aio": "**leaselock**, asyncio",
    "aio-redis-py": "redis-py's asyncio Lock",
    "coredis": "coredis's Lock",
    "aio-pottery": "pottery's AIORedlock",
    "redlock": "**leaselock**, Redlock",
    "pottery-masters": "pottery's Redlock",
    "redlock-py-masters": "redlock-py",
    "redsync-masters": "redsync (Go)",
    "node-redlock-masters": "redlock (Node)",
    "zookeeper": "**leaselock**, ZooKeeper",
    "kazoo": "kazoo's Lock",
    "tooz-zookeeper": "tooz, ZooKeeper",
    "curator": "Curator's InterProcessMutex (Java)",
    "raw-zookeeper": "bare requests of the recipe",
    "sql-lease": "**leaselock**, lease",
    "sql-row": "**leaselock**, row",
    "sql-advisory": "**leaselock**, advisory",
    "raw-sql-lease": "two bare updates of a row",
    "raw-sql-row": "bare SELECT … FOR UPDATE, counter, note",
    "raw-sql-advisory": "bare named lock, counter, note",
    "sqlalchemy-dlock": "sqlalchemy-dlock (no token)",
    "tooz-sql": "tooz (no token)",
}


def contestant(name: str) -> type[Contestant]:
    """The contestant of that name; its library is imported only now."""
    module, _, attribute = ALL[name].partition(":")
    found: type[Contestant] = getattr(import_module(f"{__name__}.{module}"), attribute)
    return found


def absent(name: str) -> str:
    """Why it cannot be measured here; empty if it can."""
    try:
        contestant(name)
    except ImportError as error:
        return str(error)
    return ""


def present(names: Iterable[str]) -> list[str]:
    """Those who can be measured here."""
    return [name for name in names if not absent(name)]
