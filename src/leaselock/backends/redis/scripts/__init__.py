"""The scripts that run in the server. Each file says what it takes and what it replies."""

from __future__ import annotations

import os
from hashlib import sha1
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Script(NamedTuple):
    """One script, and the name under which a server that has seen it keeps it."""

    text: str
    sha: str

    def command(
        self, keys: Sequence[str], words: Sequence[str | bytes | int | float]
    ) -> tuple[str | bytes | int | float, ...]:
        """What runs the script in a server that has seen it."""
        return ("EVALSHA", self.sha, len(keys), *keys, *words)


def script(name: str) -> Script:
    """The script of that name."""
    path = os.path.join(os.path.dirname(__file__), f"{name}.lua")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


ACQUIRE = script("acquire")
RELEASE = script("release")
RENEW = script("renew")
RETIE = script("retie")
EVICT = script("evict")
LOOK = script("look")
FENCE = script("fence")
