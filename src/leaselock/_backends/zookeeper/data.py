"""The data of a node: JSON about its contender, for people to read. What decides is
`NodeData.token`, `waits_for` and `permits`, the owner where the name of the node does not have it,
and in the metadata the numbers of numbered permits.

Other programs store other data: kazoo's lock an identifier, Curator's the address of its host in
four or sixteen bytes. It is shown as far as it can be interpreted.
"""

from __future__ import annotations

import ipaddress
import json
import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from leaselock._backends.zookeeper.requests import Node
    from leaselock._core.contract.backend import Claim

ANOTHER = "another program"
NUMBERS = (("token", 0), ("waits_for", 0), ("permits", 1))


class NodeData(NamedTuple):
    """The content of a node's data."""

    metadata: str
    since: float
    owner: str
    """The owner of the node if it is one of ours."""
    token: int = 0
    """The token of its hold, if that is not the transaction that wrote the node."""
    waits_for: int = 0
    """The transaction that created the upgrade which it waits for."""
    permits: int = 1
    """How many permits of a semaphore it is for."""


def written(claim: Claim, owner: str, **numbers: int) -> bytes:
    """The data of the node of *owner*, for the claim, with *numbers* as in `NodeData`."""
    more = "".join(f', "{name}": {number}' for name, number in numbers.items())
    # The metadata is a JSON object. Parsing it would cost more than all the rest.
    text = f'{claim.metadata[:-1]}, "since": {claim.since:.3f}, "id": "{owner}"{more}}}'
    return text.encode()


def token_of(node: Node) -> int:
    """The token of the hold that the node is: the transaction that wrote it last, unless its data
    says another. Only what precedes the grant is written.
    """
    return read(node.data, node.created).token or max(node.token, node.written)


def read(data: bytes, created: float) -> NodeData:
    """The content of *data*. A node of another program counts as waiting since *created*, by the
    clock of ZooKeeper.
    """
    try:
        fields = json.loads(data)
        since, owner = float(fields["since"]), str(fields["id"])
        if not math.isfinite(since):
            raise ValueError(since)
        numbers = [int(fields.get(name, default)) for name, default in NUMBERS]
        # json.loads() also accepts UTF-16, which this library never writes.
        return NodeData(data.decode(), since, owner, *numbers)
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
        return NodeData(_metadata_of(data), created, "")


def _metadata_of(data: bytes) -> str:
    host, label = ANOTHER, data.decode(errors="replace")
    if len(data) in (4, 16) and not label.isprintable():
        host, label = f"{ANOTHER} ({ipaddress.ip_address(data)})", ""
    fields = {"host": host, "pid": 0, "thread": "", "label": label or None}
    return json.dumps(fields)
