"""The keys of the servers' own named locks: what a name becomes where a lock has a number.

    PostgreSQL      the first 64 bits of SHA-256 of "KIND:NAME" in UTF-8, read as a signed number,
                    the most significant byte first, on every machine
    MySQL, MariaDB  "leaselock." and the first 240 bits of the same in base 32, lower case

Two names with the same number exclude each other for no reason, which is no danger: among a
million names that happens with a chance of one in 37 million. The numbers share one space with
those of other programs in the same database; these are as unlikely to meet them.
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
    """The key for MySQL, of 57 characters: no dialect cuts it, or takes its case for another."""
    return "leaselock." + base64.b32encode(_digest(kind, name)[:30]).decode().lower()


@lru_cache(1024)
def lock_number(name: str) -> int:
    """The key of a lock's name for PostgreSQL; names come again and again."""
    return number(ADVISORY, name)


@lru_cache(1024)
def lock_word(name: str) -> str:
    """The key of a lock's name for MySQL."""
    return word(ADVISORY, name)


def short_word(kind: str, name: str) -> str:
    """The key for MySQL of what lives for one hold only: 192 bits, and made faster."""
    return "leaselock." + hashlib.sha256(f"{kind}:{name}".encode()).hexdigest()[:48]
