"""The fewest rights that a user of Redis needs, as the page of the store lists them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "redis.md"


def listed() -> list[str]:
    """The words of the page's example of a user, one after the other."""
    _, _, rest = PAGE.read_text().partition("\n    user leaselock on ")
    block = re.split(r"\n\n", rest, maxsplit=1)[0]
    words = block.split()
    assert words[0] == ">PASSWORD"
    return words[1:]


def keys() -> list[str]:
    """Which keys it may touch, of locks whose names begin with "orders:"."""
    return [word for word in listed() if word.startswith("~")]


def commands() -> list[str]:
    """What the user may ask."""
    return [word for word in listed() if word.startswith("+")]


def channels() -> list[str]:
    """Where it may listen and speak."""
    return [word for word in listed() if word.startswith("&")]


def beside(topic: str) -> list[str]:
    """What the page lists besides, for those who use what *topic* says."""
    found = re.search(rf"^\* {re.escape(topic)}: `([^`]*)`", PAGE.read_text(), re.MULTILINE)
    assert found is not None, topic
    return found[1].split()


def user(name: str, password: str, *keys: str, more: Sequence[str] = ()) -> str:
    """The line of an ACL file, for one who locks what has these names, and may do *more*."""
    words = ("resetchannels", *keys, *channels(), "-@all", *commands(), *more)
    return f"user {name} on >{password} {' '.join(words)}"


def asker(name: str, password: str) -> str:
    """One who may ask sentinels where the master is, and nothing else."""
    words = ("resetchannels", "-@all", *beside("each sentinel's user"))
    return f"user {name} on >{password} {' '.join(words)}"
