"""The recipes for Redis that are older than its scripts, as they stand in books and blogs.

Law: redis-py as it comes, its own retries included, but for the time that it waits for an answer.
Each class is one recipe, in the commands that it names.
"""

from __future__ import annotations

import os
import time
from importlib import import_module
from typing import Any

from leaselock.testing.hazards.party import ANSWER, Asking, NotMine


class OnRedis(Asking):
    """What the recipes have in common: a connection, and a word that says who wrote a key."""

    def __init__(self, url: str) -> None:
        self.redis: Any = import_module("redis").Redis.from_url(url, socket_timeout=ANSWER)
        self.mine = os.urandom(8).hex()

    def ask(self, name: str, lease: float) -> bool:
        """SETNX."""
        return bool(self.redis.setnx(name, self.mine))

    def release(self, name: str) -> None:
        """DEL, whoever wrote it."""
        self.held = False
        self.redis.delete(name)

    def close(self) -> None:
        """Close the connections."""
        self.redis.close()


class Setnx(OnRedis):
    """SETNX; DEL."""


class SetnxExpire(OnRedis):
    """SETNX, then EXPIRE; DEL."""

    def ask(self, name: str, lease: float) -> bool:
        """Two commands."""
        if not self.redis.setnx(name, self.mine):
            return False
        self.redis.pexpire(name, int(lease * 1000))
        return True


class SetPx(OnRedis):
    """SET NX PX; DEL."""

    def ask(self, name: str, lease: float) -> bool:
        """One command."""
        return bool(self.redis.set(name, self.mine, nx=True, px=int(lease * 1000)))


class SetPxGetDel(SetPx):
    """SET NX PX; GET, and DEL if it is mine."""

    def release(self, name: str) -> None:
        """Two commands."""
        self.held = False
        if self.redis.get(name) != self.mine.encode():
            raise NotMine
        self.redis.delete(name)


class GetSet(OnRedis):
    """SETNX with the time of its end, by the client's clock; GET, GETSET when that has passed; GET,
    DEL if it is mine.
    """

    def ask(self, name: str, lease: float) -> bool:
        """Up to three commands."""
        self.mine = repr(time.time() + lease)
        if self.redis.setnx(name, self.mine):
            return True
        ends = self.redis.get(name)
        if ends is not None and float(ends) > time.time():
            return False
        return bool(self.redis.getset(name, self.mine) == ends)

    def release(self, name: str) -> None:
        """Two commands."""
        self.held = False
        if self.redis.get(name) != self.mine.encode():
            raise NotMine
        self.redis.delete(name)


class Incr(OnRedis):
    """INCR, and whoever makes it 1 holds; DEL."""

    def ask(self, name: str, lease: float) -> bool:
        """One command."""
        return bool(self.redis.incr(name) == 1)
