"""Recipes for Redis from books and blogs, older than scripts.

They use redis-py with its defaults, retries included, except for the reply timeout. Each class is
one recipe; its docstring names the commands.
"""

from __future__ import annotations

import os
import time
from importlib import import_module
from typing import Any

from verification.hazards.lock_program import REPLY_TIMEOUT, NotOwner, PollingProgram


class OnRedis(PollingProgram):
    """Common to the recipes: a connection, and a random id of the owner."""

    def __init__(self, url: str) -> None:
        self.redis: Any = import_module("redis").Redis.from_url(url, socket_timeout=REPLY_TIMEOUT)
        self.owner_id = os.urandom(8).hex()

    def try_acquire(self, name: str, lease: float) -> bool:
        """SETNX."""
        return bool(self.redis.setnx(name, self.owner_id))

    def release(self, name: str) -> None:
        """DEL, without checking the owner."""
        self.held = False
        self.redis.delete(name)

    def close(self) -> None:
        """Close the connections."""
        self.redis.close()


class Setnx(OnRedis):
    """SETNX; DEL."""


class SetnxExpire(OnRedis):
    """SETNX, then EXPIRE; DEL."""

    def try_acquire(self, name: str, lease: float) -> bool:
        """Two commands."""
        if not self.redis.setnx(name, self.owner_id):
            return False
        self.redis.pexpire(name, int(lease * 1000))
        return True


class SetPx(OnRedis):
    """SET NX PX; DEL."""

    def try_acquire(self, name: str, lease: float) -> bool:
        """One command."""
        return bool(self.redis.set(name, self.owner_id, nx=True, px=int(lease * 1000)))


class SetPxGetDel(SetPx):
    """SET NX PX; GET, and DEL if the value is the own id."""

    def release(self, name: str) -> None:
        """Two commands."""
        self.held = False
        if self.redis.get(name) != self.owner_id.encode():
            raise NotOwner
        self.redis.delete(name)


class GetSet(OnRedis):
    """SETNX with an expiry time by the client's clock; GET, GETSET after that time; GET, DEL if the
    value is the own one.
    """

    def try_acquire(self, name: str, lease: float) -> bool:
        """Up to three commands."""
        self.owner_id = repr(time.time() + lease)
        if self.redis.setnx(name, self.owner_id):
            return True
        ends = self.redis.get(name)
        if ends is not None and float(ends) > time.time():
            return False
        return bool(self.redis.getset(name, self.owner_id) == ends)

    def release(self, name: str) -> None:
        """Two commands."""
        self.held = False
        if self.redis.get(name) != self.owner_id.encode():
            raise NotOwner
        self.redis.delete(name)


class Incr(OnRedis):
    """INCR, and the client that gets 1 holds the lock; DEL."""

    def try_acquire(self, name: str, lease: float) -> bool:
        """One command."""
        return bool(self.redis.incr(name) == 1)
