"""Programs for the hazard table that use other libraries' locks.

Each library is used as its documentation shows, with its defaults except for the reply timeout. A
hold counts as valid if the library's lock object says so.
"""

from __future__ import annotations

import re
import time
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from verification.hazards.lock_program import FOREVER, REPLY_TIMEOUT, Grant, NotOwner


def redis_of(url: str) -> Any:
    """Return a redis-py client."""
    return import_module("redis").Redis.from_url(
        url.partition("?")[0], socket_timeout=REPLY_TIMEOUT
    )


class RedisPy:
    """redis-py's own Lock."""

    def __init__(self, url: str) -> None:
        self.redis = redis_of(url)
        self.locks: dict[str, Any] = {}

    def of(self, name: str, lease: float | None = None) -> Any:
        """Return the lock object of a name; the lease is one of its attributes."""
        if lease is not None or name not in self.locks:
            self.locks[name] = self.redis.lock(name, timeout=lease, thread_local=False)
        return self.locks[name]

    def acquire(self, name: str, lease: float, *, renew: bool, timeout: float) -> Grant | None:
        """Acquire, with a lease."""
        lock = self.of(name, lease)
        got = lock.acquire(blocking=bool(timeout), blocking_timeout=timeout or None)
        return Grant() if got else None

    def release(self, name: str) -> None:
        """Release."""
        self.of(name).release()

    def valid_until(self) -> float:
        """Return FOREVER until released: the lock object keeps its token."""
        held = any(lock.local.token is not None for lock in self.locks.values())
        return FOREVER if held else 0.0

    def close(self) -> None:
        """Close the connections."""
        self.redis.close()


class PythonRedisLock:
    """python-redis-lock, which does not poll."""

    def __init__(self, url: str) -> None:
        self.redis = import_module("redis").Redis.from_url(url, socket_timeout=20.0)
        self.locks: dict[str, Any] = {}

    def acquire(self, name: str, lease: float, *, renew: bool, timeout: float) -> Grant | None:
        """Acquire, with a lease of whole seconds."""
        expire = max(1, round(lease))
        lock = import_module("redis_lock").Lock(self.redis, name, expire=expire)
        # The library rejects a timeout longer than the lease.
        waits = {"timeout": min(expire, max(1, round(timeout)))} if timeout else {}
        if not lock.acquire(blocking=bool(timeout), **waits):
            return None
        self.locks[name] = lock
        return Grant()

    def release(self, name: str) -> None:
        """Release."""
        if name not in self.locks:
            raise NotOwner
        self.locks.pop(name).release()

    def valid_until(self) -> float:
        """Return FOREVER while held: this method reports no loss."""
        return FOREVER if self.locks else 0.0

    def close(self) -> None:
        """Close the connections."""
        self.redis.close()


class Pottery:
    """pottery's Redlock; one object for each name, as its documentation shows."""

    def __init__(self, url: str) -> None:
        self.masters = {redis_of(one) for one in re.split(r",(?=redis://)", url)}
        self.locks: dict[str, Any] = {}

    def acquire(self, name: str, lease: float, *, renew: bool, timeout: float) -> Grant | None:
        """Acquire."""
        if name not in self.locks:
            self.locks[name] = import_module("pottery").Redlock(
                key=name, masters=self.masters, auto_release_time=lease
            )
        got = self.locks[name].acquire(blocking=bool(timeout), timeout=timeout or -1)
        return Grant() if got else None

    def release(self, name: str) -> None:
        """Release."""
        self.locks[name].release()

    def valid_until(self) -> float:
        """Return FOREVER while held: this method reports no loss."""
        return FOREVER if self.locks else 0.0

    def close(self) -> None:
        """Close the connections."""
        for master in self.masters:
            master.close()


class RedlockPy:
    """redlock-py, whose locks are values."""

    def __init__(self, url: str) -> None:
        masters = [redis_of(one) for one in re.split(r",(?=redis://)", url)]
        self.manager = import_module("redlock").Redlock(masters, retry_count=1)
        self.locks: dict[str, Any] = {}

    def acquire(self, name: str, lease: float, *, renew: bool, timeout: float) -> Grant | None:
        """Lock; poll until the timeout."""
        deadline = time.monotonic() + timeout
        while not (lock := self.manager.lock(name, int(lease * 1000))):
            if time.monotonic() >= deadline:
                return None
        self.locks[name] = lock
        return Grant()

    def release(self, name: str) -> None:
        """Unlock."""
        self.manager.unlock(self.locks.pop(name))

    def valid_until(self) -> float:
        """Return FOREVER while held: this method reports no loss."""
        return FOREVER if self.locks else 0.0

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class Kazoo:
    """kazoo's Lock recipe; *suffix* replaces the sequence number that the server appends."""

    suffix = ""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.client: Any = import_module("kazoo.client").KazooClient(parts.netloc, timeout=1.5)
        self.client.start()
        self.root = parts.path
        self.locks: dict[str, Any] = {}
        if self.suffix:
            create = self.client.create
            self.client.create = lambda path, *words, sequence=False, **terms: create(
                path + self.suffix if sequence else path, *words, **terms
            )

    def acquire(self, name: str, lease: float, *, renew: bool, timeout: float) -> Grant | None:
        """Acquire."""
        lock = self.locks[name] = self.client.Lock(f"{self.root}/{name}", "contender")
        got = lock.acquire(blocking=bool(timeout), timeout=timeout or None)
        return Grant() if got else None

    def release(self, name: str) -> None:
        """Release."""
        self.locks[name].release()

    def valid_until(self) -> float:
        """Return FOREVER while the lock object says that it is acquired."""
        return FOREVER if any(lock.is_acquired for lock in self.locks.values()) else 0.0

    def close(self) -> None:
        """End the session."""
        self.client.stop()
        self.client.close()


class KazooAtTheEnd(Kazoo):
    """With the last sequence number before the counter overflows."""

    suffix = "2147483647"


class KazooBeyond(Kazoo):
    """With the first sequence number after the overflow."""

    suffix = "-2147483648"
