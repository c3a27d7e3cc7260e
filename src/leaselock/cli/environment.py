"""What a command is told about the lock that it runs under, and what it is not told."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from leaselock.cli.store import EMBEDDED, OUTER, URL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leaselock import Lease

STACK = "LEASELOCK_STACK"
# Names have no control characters, but they have spaces.
BETWEEN_NAMES = "\n"
SECRETS = ("pass", "pwd", "secret", "token", "auth", "%")


def names_around() -> list[str]:
    """The locks under which we run ourselves, from the outermost."""
    return [name for name in os.environ.get(STACK, "").split(BETWEEN_NAMES) if name]


def environment(lease: Lease, ttl: float, backend: str) -> Mapping[str, str]:
    """Our own, with the innermost lock in place of those around it."""
    env = dict(os.environ)
    if has_password(env.get(URL, "")):
        del env[URL]
    token = str(lease.token)
    return env | {
        "LEASELOCK_NAME": lease.name,
        "LEASELOCK_TOKEN": token,
        "LEASELOCK_FENCE": token,
        "LEASELOCK_TTL": f"{ttl:g}",
        "LEASELOCK_HELD_SINCE": f"{time.time():.6f}",
        OUTER: backend,
        STACK: BETWEEN_NAMES.join([*names_around(), lease.name]),
    }


def has_password(url: str) -> bool:
    """Whether the URL of a store may hold a secret: before the host, or among the options."""
    if url.lower().startswith(EMBEDDED):
        return False
    # A password in which somebody forgot to quote a slash is one, too, and so is one of the second
    # of several URLs. A key that is quoted itself may say anything.
    login, at, _ = url.partition("://")[2].rpartition("@")
    words = url.replace("?", "&").replace(",", "&").split("&")
    keys = [word.partition("=")[0].lower() for word in words if "://" not in word]
    return bool(at and ":" in login) or any(word in key for key in keys for word in SECRETS)
