"""What an operator says when a lock is broken by force, for the holder that loses it.

The text is the note of a detached hold of a name of its own, which is made of the id of the broken
hold, and ends by itself. So every store carries it whose leases can be detached. It is no lock, and
no list shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.client.hold import TAKEN
from leaselock._core.client.inspection import NOTICE, holder_of
from leaselock._core.contract.backend import Grant, Inspect, SetLifetime
from leaselock._core.contract.effects import FOREVER
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leaselock._core.client.claim_registry import ClaimRegistry
    from leaselock._core.client.hold import Hold
    from leaselock._core.contract.backend import HoldState

# For how many seconds the report of a loss waits for the text.
PATIENCE = 0.25
# How much longer the text stays than the hold that it is about, in seconds.
MARGIN = 15.0


def _can_carry(registry: ClaimRegistry) -> bool:
    can = registry.backend.capabilities
    return can.holds_expire and not can.fragile_holds


async def leave(registry: ClaimRegistry, broken: HoldState, text: str) -> None:
    """Leave a text for the holder, before its hold is broken."""
    if not _can_carry(registry):
        return
    until = registry.answer_by()
    owner = registry.env.owner()
    claim = registry.claim(NOTICE + broken.record.id, (broken.remaining or 0.0) + MARGIN)
    claim = claim._replace(metadata=registry.metadata(owner, None, text, owned_by_lock=True))
    try:
        reply = await registry.backend.acquire(claim, wait=False, until=until)
        if isinstance(reply, Grant):
            await registry.backend.request(SetLifetime(claim, "lease"), until)
    except StoreError:
        return  # the request that breaks the lock says what is wrong with the store
    finally:
        registry.backend.forget(claim)


async def lose(
    registry: ClaimRegistry,
    holds: Sequence[Hold],
    reason: str = TAKEN,
    until: float = FOREVER,
) -> None:
    """The store does not have these holds any more: they are lost at once. Their bodies are
    interrupted when it is known whether a text was left for them, at *until* at the latest.
    """
    until = min(until, registry.env.now() + PATIENCE)
    lost = [hold for hold in holds if hold.mark_lost(reason)]
    try:
        for hold in lost:
            hold.reason = await _found(registry, hold, until) or reason
    finally:
        for hold in lost:
            hold.interrupt_bodies()


async def _found(registry: ClaimRegistry, hold: Hold, until: float) -> str:
    """The text that was left for a hold; empty if there is none, or the store is slow to say."""
    if not _can_carry(registry) or registry.env.now() >= until:
        return ""
    try:
        request = Inspect(NOTICE + hold.claim.id, "*")
        (state,) = await registry.backend.request(request, until)
    except StoreError:
        return ""  # the loss is known already, and counts for more
    by = holder_of(state.held, None)
    if by is None or not by.note:
        return ""
    note = by.note if by.note.isprintable() else by.note.encode("unicode_escape").decode()
    return f"the lock was broken by force, from {by.host}: {note}"
