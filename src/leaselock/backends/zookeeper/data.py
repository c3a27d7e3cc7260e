"""What a contender says of itself, in its node: JSON, which people read and nothing is decided by.

Other programs write other things there: kazoo's lock an identifier, Curator's the address of its
host in four or sixteen bytes. They are shown as far as they can be understood.
"""

from __future__ import annotations

import ipaddress
import json
import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from leaselock.core.backend import Claim

UNKNOWN = "unknown host"


class Written(NamedTuple):
    """What a node's data says."""

    about: str
    since: float
    holder: str
    """Whose node it is, if ours. Only protocol "single" needs it."""


def written(claim: Claim, owner: str) -> bytes:
    """The data of a claim's node, which *owner* names."""
    # `about` is an object that the core has written; to read it would cost more than the rest.
    return f'{claim.metadata[:-1]}, "since": {claim.since:.3f}, "id": "{owner}"}}'.encode()


def read(data: bytes, created: float) -> Written:
    """What is said there; *created* is since when the node is there, by ZooKeeper's clock."""
    try:
        words = json.loads(data)
        since, holder = float(words["since"]), str(words["id"])
        if not math.isfinite(since):
            raise ValueError(since)
        # JSON may be written in UTF-16 as well, and then be no text of ours.
        return Written(data.decode(), since, holder)
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
        return Written(_described(data), created, "")


def _described(data: bytes) -> str:
    host, label = UNKNOWN, data.decode(errors="replace")
    if len(data) in (4, 16) and not label.isprintable():
        host, label = str(ipaddress.ip_address(data)), ""
    words = {"host": host, "pid": 0, "thread": "another library", "label": label or None}
    return json.dumps(words)
