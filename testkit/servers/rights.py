"""The minimal permissions of a Redis user, read from the page of the store."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from testkit.servers.versions import is_older

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = Path(__file__).parents[2] / "docs" / "stores" / "redis.md"


def listed() -> list[str]:
    """Return the words of the page's example of a user."""
    _, _, rest = PAGE.read_text().partition("\n    user leaselock on ")
    block = re.split(r"\n\n", rest, maxsplit=1)[0]
    words = block.split()
    assert words[0] == ">PASSWORD"
    return words[1:]


def keys() -> list[str]:
    """Return the key patterns, for locks whose names begin with "orders:"."""
    return [word for word in listed() if word.startswith("~")]


def commands() -> list[str]:
    """Return the permitted commands."""
    return [word for word in listed() if word.startswith("+")]


def channels() -> list[str]:
    """Return the permitted channels."""
    return [word for word in listed() if word.startswith("&")]


def additional(topic: str) -> list[str]:
    """Return the additional permissions that the page lists under *topic*."""
    found = re.search(rf"^\* {re.escape(topic)}:\s+`([^`]*)`", PAGE.read_text(), re.MULTILINE)
    assert found is not None, topic
    return found[1].split()


def of_cluster() -> list[str]:
    """Return the additional permissions for a cluster of the version that tests start."""
    newer = additional("a cluster of Valkey, or of Redis 7 or later")
    return additional("a cluster") + ([] if is_older("redis", 7) else newer)


def user(name: str, password: str, *keys: str, more: Sequence[str] = ()) -> str:
    """Return the ACL line of a user who may lock these keys, with the permissions *more*."""
    words = ("resetchannels", *keys, *channels(), "-@all", *commands(), *more)
    return f"user {name} on >{password} {' '.join(words)}"


def asker(name: str, password: str) -> str:
    """Return the ACL line of a user who may only ask sentinels for the master."""
    words = ("resetchannels", "-@all", *additional("each sentinel's user"))
    return f"user {name} on >{password} {' '.join(words)}"
