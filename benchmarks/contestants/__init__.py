"""The contestants: one short file for each library, with the settings of its documentation."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class Contestant(Protocol):
    """One lock of one library, used by one thread of one process."""

    version: ClassVar[str]
    reentrant: ClassVar[bool]
    waits: ClassVar[bool]
    """Whether acquire can wait for another process."""

    def __init__(self, folder: Path) -> None:
        """Open the lock that all contestants with the same *folder* share."""

    def acquire(self) -> None:
        """Acquire the lock, waiting without limit."""

    def release(self) -> None:
        """Release the lock."""

    def close(self) -> None:
        """Close everything."""


# The denominator of the ratios.
REFERENCE = "filelock"

CLASSES = {
    "leaselock": "ours:Embedded",
    "filelock": "file_lock:FileLock",
    "portalocker": "port_locker:PortaLocker",
    "tooz-file": "tooz_lock:ToozFile",
    "flock": "flock:Flock",
    "sqlite": "bare_sqlite:BareSqlite",
    "memory": "ours:Memory",
}

# On a Redis; the file "url" in the folder contains its URL.
ON_REDIS = {
    "redis": "ours:Redis",
    "redis-py": "redis_py:RedisPy",
    "python-redis-lock": "py_redis_lock:PyRedisLock",
    "pottery": "pottery_redlock:Pottery",
    "redlock-py": "redlock_py:RedlockPy",
    "portalocker-redis": "portalocker_redis:PortaLockerRedis",
    "tooz-redis": "tooz_lock:Tooz",
    "fencekit": "fencekit_lock:Fencekit",
    "mithril": "mithril_lock:Mithril",
    "redisson": "redisson:Redisson",
    "redisson-fair": "redisson:Fair",
    "redsync": "redsync:Redsync",
    "node-redlock": "node_redlock:NodeRedlock",
    "bare-redis": "bare_redis:Bare",
    "bare-handoff": "bare_redis:BareHandoff",
}

# With asyncio, also on a Redis.
ON_LOOP = {
    "aio": "aio_ours:Ours",
    "aio-redis-py": "aio_redis_py:RedisPy",
    "coredis": "aio_coredis:Coredis",
    "aio-pottery": "aio_pottery:Pottery",
    "bare-aio": "bare_aio:Bare",
}

# On several Redis masters; the file "url" contains their URLs, separated by commas.
ON_MASTERS = {
    "redlock": "ours:Redlock",
    "pottery-masters": "pottery_redlock:Pottery",
    "redlock-py-masters": "redlock_py:RedlockPy",
    "redsync-masters": "redsync:Redsync",
    "node-redlock-masters": "node_redlock:NodeRedlock",
}

# On a ZooKeeper; the file "hosts" in the folder contains its address.
ON_ZOOKEEPER = {
    "zookeeper": "ours:ZooKeeper",
    "kazoo": "kazoo_lock:KazooLock",
    "tooz-zookeeper": "tooz_lock:ToozZooKeeper",
    "curator": "curator:Curator",
    "bare-zookeeper": "bare_zookeeper:Bare",
}

# On a database; the file "url" in the folder contains its URL.
ON_SQL = {
    "sql-lease": "ours:SqlLease",
    "sql-row": "ours:SqlRow",
    "sql-advisory": "ours:SqlAdvisory",
    "bare-sql-lease": "bare_sql:BareLease",
    "bare-sql-row": "bare_sql:BareRow",
    "bare-sql-advisory": "bare_sql:BareAdvisory",
    "sqlalchemy-dlock": "sql_dlock:Dlock",
    "tooz-sql": "tooz_lock:Tooz",
}

# On etcd, and on DynamoDBLocal; the file "url" in the folder contains the URL of leaselock.
ON_ETCD = {
    "etcd": "documents:Documents",
    "bare-etcd": "documents:Bare",
    "etcd-mutex": "documents:EtcdMutex",
    "leaselock-run": "documents:Command",
    "etcdctl": "documents:Etcdctl",
}
ON_DYNAMODB = {
    "dynamodb": "documents:Documents",
    "bare-dynamodb": "documents:Bare",
    "python-dynamodb-lock": "dynamodb_lock:DynamoDBLock",
}

# Measured as read/write locks and semaphores only: on a Redis, and on a PostgreSQL.
SHARED_ON_REDIS = {"redisson-expirable": "redisson:Expirable"}
SHARED_ON_POSTGRES = {"psycopg": "psycopg_lock:Advisory"}

SHARED = SHARED_ON_REDIS | SHARED_ON_POSTGRES
ALL = CLASSES | ON_REDIS | ON_LOOP | ON_MASTERS | ON_ZOOKEEPER | ON_SQL | SHARED
ALL |= ON_ETCD | ON_DYNAMODB

TITLES = {
    "leaselock": "**leaselock**, SQLite",
    "filelock": "filelock",
    "portalocker": "portalocker",
    "tooz-file": "tooz, file",
    "flock": "bare flock(2)",
    "sqlite": "bare SQLite, two UPDATEs",
    "memory": "**leaselock**, in the memory of its process",
    "redis": "**leaselock**, Redis",
    "redis-py": "redis-py's Lock",
    "python-redis-lock": "python-redis-lock",
    "pottery": "pottery's Redlock",
    "redlock-py": "redlock-py",
    "portalocker-redis": "portalocker's RedisLock",
    "tooz-redis": "tooz, Redis",
    "fencekit": "fencekit's DistributedLock",
    "mithril": "mithril's Lock",
    "redisson": "Redisson's RLock (Java)",
    "redisson-fair": "Redisson's RFairLock (Java)",
    "redsync": "redsync (Go)",
    "node-redlock": "redlock (Node)",
    "bare-redis": "two bare round trips, same scripts",
    "bare-handoff": "bare hand-off, same scripts and messages",
    "aio": "**leaselock**, asyncio",
    "aio-redis-py": "redis-py's asyncio Lock",
    "coredis": "coredis's Lock",
    "aio-pottery": "pottery's AIORedlock",
    "bare-aio": "bare asyncio client, same scripts",
    "redlock": "**leaselock**, Redlock",
    "pottery-masters": "pottery's Redlock",
    "redlock-py-masters": "redlock-py",
    "redsync-masters": "redsync (Go)",
    "node-redlock-masters": "redlock (Node)",
    "zookeeper": "**leaselock**, ZooKeeper",
    "kazoo": "kazoo's Lock",
    "tooz-zookeeper": "tooz, ZooKeeper",
    "curator": "Curator's InterProcessMutex (Java)",
    "bare-zookeeper": "bare requests of the recipe",
    "sql-lease": "**leaselock**, lease",
    "sql-row": "**leaselock**, row",
    "sql-advisory": "**leaselock**, advisory",
    "bare-sql-lease": "two bare updates of a row",
    "bare-sql-row": "by hand: SELECT … FOR UPDATE, counter, record",
    "bare-sql-advisory": "by hand: named lock, counter, record",
    "sqlalchemy-dlock": "sqlalchemy-dlock (no token)",
    "tooz-sql": "tooz (no token)",
    "etcd": "**leaselock**, etcd",
    "bare-etcd": "two bare compare-and-sets",
    "etcd-mutex": "etcd's concurrency.Mutex (Go)",
    "leaselock-run": "**leaselock**, `leaselock run x -- true`",
    "etcdctl": "`etcdctl lock x true`",
    "dynamodb": "**leaselock**, DynamoDBLocal",
    "bare-dynamodb": "two bare conditional writes",
    "python-dynamodb-lock": "python-dynamodb-lock",
    "redisson-expirable": "Redisson's RPermitExpirableSemaphore (Java)",
    "psycopg": "PostgreSQL's advisory locks, by psycopg",
}

# The contestants that have a read/write lock, and its title.
READ_WRITE = {
    "leaselock": "**leaselock**, SQLite",
    "filelock": "filelock's ReadWriteLock",
    "redis": "**leaselock**, Redis",
    "redisson": "Redisson's RReadWriteLock (Java)",
    "zookeeper": "**leaselock**, ZooKeeper",
    "kazoo": "kazoo's ReadLock, WriteLock",
    "curator": "Curator's InterProcessReadWriteLock (Java)",
    "sql-lease": "**leaselock**, PostgreSQL, lease",
    "sql-row": "**leaselock**, PostgreSQL, row",
    "sql-advisory": "**leaselock**, PostgreSQL, advisory",
    "psycopg": TITLES["psycopg"],
}

# The contestants that have a semaphore, and its title.
SEMAPHORES = {
    "leaselock": "**leaselock**, SQLite",
    "redis": "**leaselock**, Redis",
    "redisson": "Redisson's RSemaphore (Java)",
    "redisson-expirable": TITLES["redisson-expirable"],
    "zookeeper": "**leaselock**, ZooKeeper",
    "kazoo": "kazoo's Semaphore",
    "curator": "Curator's InterProcessSemaphoreV2 (Java)",
    "sql-lease": "**leaselock**, PostgreSQL, lease",
}


def contestant(name: str) -> type[Contestant]:
    """Return the contestant of that name; import its library."""
    module, _, attribute = ALL[name].partition(":")
    found: type[Contestant] = getattr(import_module(f"{__name__}.{module}"), attribute)
    return found


def absent(name: str) -> str:
    """Return why a contestant cannot be measured here; empty if it can."""
    try:
        contestant(name)
    except ImportError as error:
        return str(error)
    return ""


def present(names: Iterable[str]) -> list[str]:
    """Return the names that can be measured here."""
    return [name for name in names if not absent(name)]
