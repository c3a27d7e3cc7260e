"""The keys of named locks in the servers: a name as a number or a short text.

    PostgreSQL      the first 64 bits of SHA-256 of "KIND:NAME" in UTF-8, read as a signed number,
                    the most significant byte first, on every machine
    MySQL, MariaDB  "leaselock." and the first 240 bits of the same in base 32, lower case

Two names with the same number exclude each other without need, which is safe: among a million
names the probability is 1 in 37 million. Other programs in the same database use the same space of
numbers; a collision with these is equally unlikely.
"""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache

ADVISORY = "advisory"
CLIENT = "client"
HOLDER = "holder"


def _digest(kind: str, name: str) -> bytes:
    return hashlib.sha256(f"{kind}:{name}".encode()).digest()


def number(kind: str, name: str) -> int:
    """The key for PostgreSQL."""
    return int.from_bytes(_digest(kind, name)[:8], "big", signed=True)


def word(kind: str, name: str) -> str:
    """The key for MySQL: 58 characters, which no dialect truncates or changes in case."""
    return "leaselock." + base64.b32encode(_digest(kind, name)[:30]).decode().lower()


@lru_cache(1024)
def lock_number(name: str) -> int:
    """The key of a lock's name for PostgreSQL, cached."""
    return number(ADVISORY, name)


@lru_cache(1024)
def lock_word(name: str) -> str:
    """The key of a lock's name for MySQL, cached."""
    return word(ADVISORY, name)


def short_word(kind: str, name: str) -> str:
    """The key for MySQL of one hold: 192 bits, and faster to compute."""
    return "leaselock." + hashlib.sha256(f"{kind}:{name}".encode()).hexdigest()[:48]
