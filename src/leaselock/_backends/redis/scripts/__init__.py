"""The scripts that run in the server. Each file says what it takes and what it replies.

A line ``-- include NAME.lua`` stands for the text of that file. ``python -m
leaselock._backends.redis.scripts DIRECTORY`` writes the assembled scripts there, which run under
``redis-cli --eval`` as they are.
"""

from __future__ import annotations

import os
import re
from hashlib import sha1
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

INCLUDE = re.compile(r"^ *-- include (\w+)\.lua$", re.MULTILINE)


class Script(NamedTuple):
    """One script, and the name by which a server that has loaded it knows it."""

    text: str
    sha: str

    def command(
        self, keys: Sequence[str], arguments: Sequence[str | bytes | int | float]
    ) -> tuple[str | bytes | int | float, ...]:
        """The command that runs the script in a server that has loaded it."""
        return ("EVALSHA", self.sha, len(keys), *keys, *arguments)


def text_of(name: str) -> str:
    """The script of that name, with the files that it includes."""
    path = os.path.join(os.path.dirname(__file__), f"{name}.lua")
    with open(path, encoding="utf-8") as file:
        return INCLUDE.sub(lambda match: text_of(match[1]).rstrip("\n"), file.read())


# All scripts by their names.
SCRIPTS: dict[str, Script] = {}


def script(name: str) -> Script:
    """The script of that name, to be run."""
    text = text_of(name)
    SCRIPTS[name] = Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())
    return SCRIPTS[name]


ACQUIRE = script("acquire")
RELEASE = script("release")
RENEW = script("renew")
SET_LIFETIME = script("set_lifetime")
BREAK_LOCK = script("break_lock")
INSPECT = script("inspect")
RAISE_TOKEN = script("raise_token")
COLLECT = script("collect")
COOL_DOWN = script("cool_down")
PROBE = script("probe")
FORGET_IDLE = script("forget_idle")
# Of the modes beside exclusive.
CONVERT = script("convert")
RESIZE = script("resize")
# Of a format that came before scripts.
IF_OWNER = script("if_owner")
