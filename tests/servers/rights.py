"""The fewest rights that a user of Redis needs, as the page of the store lists them."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "redis.md"


def listed() -> list[str]:
    """The words of the page's example of a user, one after the other."""
    _, _, rest = PAGE.read_text().partition("\n    user holdfast on ")
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


def user(name: str, password: str, *keys: str) -> str:
    """The line of an ACL file, for one who locks what has these names."""
    words = ("resetchannels", *keys, *channels(), "-@all", *commands())
    return f"user {name} on >{password} {' '.join(words)}"
