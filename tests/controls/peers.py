"""Programs that use other libraries' locks, as parties of the hazard table.

Law: each library is used as its own pages show, with its defaults but for how long an answer is
waited for. What it believes is what its lock object says.
"""

from __future__ import annotations

import re
import time
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from leaselock.testing.hazards.party import ANSWER, FOREVER, Grip, NotMine


def redis_of(url: str) -> Any:
    """A client of redis-py."""
    return import_module("redis").Redis.from_url(url.partition("?")[0], socket_timeout=ANSWER)


class RedisPy:
    """redis-py's own Lock."""

    def __init__(self, url: str) -> None:
        self.redis = redis_of(url)
        self.locks: dict[str, Any] = {}

    def of(self, name: str, lease: float | None = None) -> Any:
        """The lock object of a name; a lease is part of it."""
        if lease is not None or name not in self.locks:
            self.locks[name] = self.redis.lock(name, timeout=lease, thread_local=False)
        return self.locks[name]

    def take(self, name: str, lease: float, *, renew: bool, patience: float) -> Grip | None:
        """Acquire, with a lease."""
        lock = self.of(name, lease)
        got = lock.acquire(blocking=bool(patience), blocking_timeout=patience or None)
        return Grip() if got else None

    def release(self, name: str) -> None:
        """Release."""
        self.of(name).release()

    def until(self) -> float:
        """It has a token for as long as it has not released."""
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

    def take(self, name: str, lease: float, *, renew: bool, patience: float) -> Grip | None:
        """Acquire, with a lease of whole seconds."""
        expire = max(1, round(lease))
        lock = import_module("redis_lock").Lock(self.redis, name, expire=expire)
        # It waits no longer than its lease.
        waits = {"timeout": min(expire, max(1, round(patience)))} if patience else {}
        if not lock.acquire(blocking=bool(patience), **waits):
            return None
        self.locks[name] = lock
        return Grip()

    def release(self, name: str) -> None:
        """Release."""
        if name not in self.locks:
            raise NotMine
        self.locks.pop(name).release()

    def until(self) -> float:
        """Nobody tells it."""
        return FOREVER if self.locks else 0.0

    def close(self) -> None:
        """Close the connections."""
        self.redis.close()


class Pottery:
    """pottery's Redlock; one object for each name, as its page shows."""

    def __init__(self, url: str) -> None:
        self.masters = {redis_of(one) for one in re.split(r",(?=redis://)", url)}
        self.locks: dict[str, Any] = {}

    def take(self, name: str, lease: float, *, renew: bool, patience: float) -> Grip | None:
        """Acquire."""
        if name not in self.locks:
            self.locks[name] = import_module("pottery").Redlock(
                key=name, masters=self.masters, auto_release_time=lease
            )
        got = self.locks[name].acquire(blocking=bool(patience), timeout=patience or -1)
        return Grip() if got else None

    def release(self, name: str) -> None:
        """Release."""
        self.locks[name].release()

    def until(self) -> float:
        """Nobody tells it."""
        return FOREVER if self.locks else 0.0

    def close(self) -> None:
        """Close the connections."""
        for master in self.masters:
            master.close()


class RedlockPy:
    """redlock-py: a lock is a value."""

    def __init__(self, url: str) -> None:
        masters = [redis_of(one) for one in re.split(r",(?=redis://)", url)]
        self.manager = import_module("redlock").Redlock(masters, retry_count=1)
        self.locks: dict[str, Any] = {}

    def take(self, name: str, lease: float, *, renew: bool, patience: float) -> Grip | None:
        """Lock; again and again if it shall wait."""
        deadline = time.monotonic() + patience
        while not (lock := self.manager.lock(name, int(lease * 1000))):
            if time.monotonic() >= deadline:
                return None
        self.locks[name] = lock
        return Grip()

    def release(self, name: str) -> None:
        """Unlock."""
        self.manager.unlock(self.locks.pop(name))

    def until(self) -> float:
        """Nobody tells it."""
        return FOREVER if self.locks else 0.0

    def close(self) -> None:
        """There is nothing to close."""


class Kazoo:
    """kazoo's Lock recipe. *suffix* is what the server's counter gives its node."""

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

    def take(self, name: str, lease: float, *, renew: bool, patience: float) -> Grip | None:
        """Acquire."""
        lock = self.locks[name] = self.client.Lock(f"{self.root}/{name}", "somebody")
        got = lock.acquire(blocking=bool(patience), timeout=patience or None)
        return Grip() if got else None

    def release(self, name: str) -> None:
        """Release."""
        self.locks[name].release()

    def until(self) -> float:
        """What the lock object says."""
        return FOREVER if any(lock.is_acquired for lock in self.locks.values()) else 0.0

    def close(self) -> None:
        """End the session."""
        self.client.stop()
        self.client.close()


class KazooAtTheEnd(Kazoo):
    """The last one before the counter overflows."""

    suffix = "2147483647"


class KazooBeyond(Kazoo):
    """The first one after it."""

    suffix = "-2147483648"
