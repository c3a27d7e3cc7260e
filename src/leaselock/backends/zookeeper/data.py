"""The data of a node: JSON about its contender, for people to read. No decision depends on it.

Other programs store other data: kazoo's lock an identifier, Curator's the address of its host in
four or sixteen bytes. It is shown as far as it can be interpreted.
"""

from __future__ import annotations

import ipaddress
import json
import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from leaselock.core.backend import Claim

UNKNOWN_HOST = "unknown host"


class NodeData(NamedTuple):
    """The content of a node's data."""

    metadata: str
    since: float
    owner: str
    """The owner of the node if it is one of ours. Only the protocol "single" needs it."""


def written(claim: Claim, owner: str) -> bytes:
    """The data of the node of *owner*, for the claim."""
    # The metadata is a JSON object. Parsing it would cost more than all the rest.
    return f'{claim.metadata[:-1]}, "since": {claim.since:.3f}, "id": "{owner}"}}'.encode()


def read(data: bytes, created: float) -> NodeData:
    """The content of *data*. A node of another program counts as waiting since *created*, by the
    clock of ZooKeeper.
    """
    try:
        fields = json.loads(data)
        since, owner = float(fields["since"]), str(fields["id"])
        if not math.isfinite(since):
            raise ValueError(since)
        # json.loads() also accepts UTF-16, which this library never writes.
        return NodeData(data.decode(), since, owner)
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
        return NodeData(_metadata_of(data), created, "")


def _metadata_of(data: bytes) -> str:
    host, label = UNKNOWN_HOST, data.decode(errors="replace")
    if len(data) in (4, 16) and not label.isprintable():
        host, label = str(ipaddress.ip_address(data)), ""
    fields = {"host": host, "pid": 0, "thread": "another library", "label": label or None}
    return json.dumps(fields)
