"""Changing the mode of a hold: one conversion, and what its reply says.

Each conversion of a hold has a number (`Hold.conversions`), so that a late copy of a request does
nothing. One to a weaker mode that is not confirmed is repeated by the renewer
(`Hold.pending_conversion`). Until then the store may have the hold in a stronger mode than its
client counts on, which excludes others without need but is safe.

`upgrade` waits until a hold is exclusive. The way back is `weaken`: when the strongest lease of an
owner ends, or an upgrade is given up.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING

from leaselock._core.client import timing
from leaselock._core.client.conversion_state import PendingConversion
from leaselock._core.client.hold import TAKEN
from leaselock._core.client.lease_reference import UnderWay, no_operation
from leaselock._core.client.timing import Retry
from leaselock._core.contract.backend import STRENGTH, Convert
from leaselock.errors import LeaseLost, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leaselock._core.client.claim_registry import ClaimRegistry
    from leaselock._core.client.hold import Hold
    from leaselock._core.contract.backend import Converted, Mode


def strongest(modes: Iterable[Mode]) -> Mode:
    """The strongest of some modes of one lock."""
    return max(modes, key=STRENGTH.__getitem__)


async def request(
    registry: ClaimRegistry, hold: Hold, mode: Mode, deadline: float
) -> tuple[Retry, Converted]:
    """Ask the store for the last conversion, until it answers."""
    convert, now = Convert(hold.claim, hold.conversions, mode), registry.env.now()
    give_up = min(timing.answer_by(now, deadline, registry.op_timeout), hold.valid_until)
    retry = Retry(registry.env, registry.op_timeout, give_up)
    send = partial(registry.backend.request, convert)
    reply = await registry.about_hold(partial(retry.until_answered, send))
    return retry, reply


def apply(registry: ClaimRegistry, hold: Hold, reply: Converted) -> None:
    """Take over what the store has; LeaseLost if it has no such hold."""
    held = reply.held
    if held is None:
        hold.lose(TAKEN)
        registry.wake_renewer(0.0)
        raise hold.lost(registry.store)
    hold.check(registry.env.now(), registry.store)
    hold.token = max(hold.token, held.token)
    if held.mode != "upgrading":
        hold.claim = hold.claim._replace(mode=held.mode)


async def weaken(registry: ClaimRegistry, hold: Hold, mode: Mode) -> None:
    """Convert to a weaker mode. If the store does not answer, the renewer goes on asking."""
    under_way = UnderWay()
    pending = _begin_weakening(hold, mode, weakref.ref(under_way))
    try:
        _, reply = await request(registry, hold, mode, registry.env.now() + registry.op_timeout)
        if hold.pending_conversion is pending:
            hold.pending_conversion = None
            apply(registry, hold, reply)
    except StoreError:
        return
    finally:
        del under_way  # from here on the renewer may repeat it: `pending.sender()` is None
        if hold.pending_conversion is not None:
            registry.wake_renewer(hold.pending_conversion.repeat_at)


def weaken_later(registry: ClaimRegistry, hold: Hold, mode: Mode) -> None:
    """Have the renewer convert the hold to a weaker mode."""
    _begin_weakening(hold, mode, no_operation)
    registry.wake_renewer(0.0)


def _begin_weakening(
    hold: Hold, mode: Mode, sender: Callable[[], UnderWay | None]
) -> PendingConversion:
    """From now on the owner counts on no more than this mode, whether it is applied or not."""
    pending = PendingConversion()
    pending.sender = sender
    hold.conversions += 1
    hold.claim = hold.claim._replace(mode=mode)
    hold.pending_conversion = pending
    return pending


async def repeat(
    registry: ClaimRegistry, hold: Hold, pending: PendingConversion, free_until: float
) -> bool:
    """Repeat a conversion once whose outcome is unknown, as long as the renewer is free; return
    whether the store answered.
    """
    until = timing.late_until(registry.env.now(), free_until, registry.op_timeout)
    convert = Convert(hold.claim, hold.conversions, hold.claim.mode)
    try:
        reply = await registry.backend.request(convert, until)
    except StoreError:
        return False
    if hold.pending_conversion is pending:
        hold.pending_conversion = None
        hold.token = max(hold.token, reply.held.token if reply.held else 0)
    return True


def with_cause(registry: ClaimRegistry, hold: Hold, now: float, error: StoreError) -> None:
    """LeaseLost instead of *error*, if the hold has ended while the store did not answer."""
    try:
        hold.check(now, registry.store)
    except LeaseLost as lost:
        raise lost from error
