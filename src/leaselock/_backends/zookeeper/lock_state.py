"""What is shown of a lock: its holds and its waiters, from the nodes of its queue. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leaselock._backends.zookeeper.data import read, token_of
from leaselock._backends.zookeeper.requests import Node
from leaselock._core.contract.backend import (
    COMPATIBLE_MODES,
    Claim,
    HoldRecord,
    HoldState,
    LockState,
    Mode,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaselock._backends.zookeeper.queue_order import Entry

Contending = tuple["Entry", Node]


class Upgrade(NamedTuple):
    """An update lock that is to become exclusive."""

    update: Node
    """The node by which it holds."""
    node: Node
    """The node that waits for the readers before it."""


def hold_record(
    node: object, mode: Mode = "exclusive", permits: int = 1, step: int = 0
) -> HoldRecord | None:
    """The hold that a node is. Its end is unknown: it is the end of its session."""
    if not isinstance(node, Node):
        return None
    text, client = read(node.data, node.created), f"{node.session:x}"
    fields = (token_of(node), 0.0, text.metadata, text.since, mode, permits, 0.0, step)
    return HoldRecord(node.path, client, "client", *fields)


def waiting_claim(name: str, node: Node, mode: Mode = "exclusive", permits: int = 1) -> Claim:
    """The claim that a node is."""
    text, client = read(node.data, node.created), f"{node.session:x}"
    fields = (0.0, text.metadata, text.since, mode, permits)
    return Claim(name, node.path, client, *fields)


def is_before(reader: Node, upgrade: Node) -> bool:
    """Whether a reader may hold although there is this upgrade: it entered before, and has not
    said that it waits.
    """
    waits_for = read(reader.data, reader.created).waits_for
    return reader.token < upgrade.token and waits_for != upgrade.token


def lock_state(name: str, queue: Sequence[Contending]) -> LockState:
    """The state of a lock with this queue, in its order."""
    updates = {entry.owner: node for entry, node in queue if entry.mode == "update"}
    upgrades = [
        Upgrade(updates[entry.owner], node)
        for entry, node in queue
        if entry.mode == "exclusive" and entry.owner in updates
    ]
    theirs = [upgrade.node.path for upgrade in upgrades]
    holds: list[Contending] = []
    waiting: list[Claim] = []
    before: list[Mode] = []
    for entry, node in queue:
        if node.path in theirs:
            continue
        in_the_way = [
            upgrade.node
            for upgrade in upgrades
            if entry.mode == "shared" and _holds(upgrade.update, holds)
        ]
        free = all(mode in COMPATIBLE_MODES[entry.mode] for mode in before)
        if free and all(is_before(node, upgrade) for upgrade in in_the_way):
            holds.append((entry, node))
        else:
            waiting.append(waiting_claim(name, node, entry.mode))
        before.append(entry.mode)
    records = [_upgraded(one, upgrades, len(holds)) for one in holds]
    by_token = sorted((record for record in records if record), key=lambda record: record.token)
    return LockState(name, tuple(HoldState(one, None) for one in by_token), tuple(waiting))


def _holds(node: Node, holds: Sequence[Contending]) -> bool:
    return any(node is held for _, held in holds)


def _upgraded(held: Contending, upgrades: Sequence[Upgrade], holds: int) -> HoldRecord | None:
    """The hold as it is with its upgrade, which is complete when it is the only hold."""
    entry, node = held
    record = hold_record(node, entry.mode)
    upgrade = next((each.node for each in upgrades if each.update is node), None)
    if record is None or upgrade is None:
        return record
    if holds > 1:
        return record._replace(mode="upgrading")
    return record._replace(mode="exclusive", token=token_of(upgrade))
