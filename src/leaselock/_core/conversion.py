"""Changing the mode of a hold: the upgrade from update to exclusive, and the way back to a weaker
mode when the strongest lease of an owner ends.

Each conversion of a hold has a number (`Hold.conversions`), so that a late copy of a request does
nothing. One whose outcome is unknown is repeated by the renewer (`Hold.conversion_pending`). Until
then the store may have the hold in a stronger mode than its client counts on, which excludes others
without need but is safe.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from leaselock._core import shared_thread, timing
from leaselock._core.backend import STRENGTH, Convert
from leaselock._core.hold import TAKEN, State
from leaselock._core.timing import Retry
from leaselock.errors import (
    AcquireCancelled,
    ClientClosed,
    LeaseLost,
    StoreError,
    WouldDeadlock,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leaselock._core.backend import Claim, Converted, Mode
    from leaselock._core.hold import Hold
    from leaselock._core.hold_registry import HoldRegistry


def strongest(modes: Iterable[Mode]) -> Mode:
    """The strongest of some modes of one lock."""
    return max(modes, key=STRENGTH.__getitem__)


class Upgrade:
    """One wait for a hold to become exclusive. Its owner sets `cancelled` and wakes the claim."""

    __slots__ = ("cancelled", "hold")

    def __init__(self, hold: Hold) -> None:
        self.hold = hold
        self.cancelled = False

    @property
    def claim(self) -> Claim:
        """The claim of the hold."""
        return self.hold.claim


async def upgrade(
    registry: HoldRegistry, hold: Hold, deadline: float, waiting: set[Any] | None = None
) -> bool:
    """Make an update hold exclusive, when the present readers have released; return whether that
    was so before the deadline. AcquireCancelled if the wait, which is in *waiting* meanwhile, was
    cancelled.

    Several threads or tasks may upgrade the same hold. Their upgrade is one conversion, and the
    last one that gives up converts back.
    """
    env = registry.env
    if env.blocks_thread and env.now() < deadline:
        readers = shared_thread.holds_beside(registry, env.owner(), hold.claim.name)
        if others := [each for each in readers if each is not hold]:
            raise shared_thread.refusal(hold.claim._replace(mode="exclusive"), others)
    wait = Upgrade(hold)
    waiting = set() if waiting is None else waiting
    waiting.add(wait)
    try:
        done = await _upgrade(registry, wait, deadline)
    finally:
        waiting.discard(wait)
    if wait.cancelled and not done:
        raise AcquireCancelled(hold.claim.name)
    return done


async def _upgrade(registry: HoldRegistry, wait: Upgrade, deadline: float) -> bool:
    hold = wait.hold
    hold.upgrading += 1
    registry.in_flight.active += 1
    try:
        while True:
            hold.check(registry.env.now(), registry.store)
            if hold.claim.mode == "shared":
                # Its update lease was released meanwhile.
                raise WouldDeadlock(hold.claim.name, "exclusive")
            if hold.conversions != hold.upgrade_number:
                # A pending conversion is superseded: it must not be repeated under this number.
                hold.conversions += 1
                hold.upgrade_number, hold.conversion_pending = hold.conversions, False
            number = hold.conversions
            retry, reply = await _request(registry, hold, "exclusive", deadline)
            if hold.conversions != number:
                continue  # Another conversion was requested, which this reply does not show.
            _apply(registry, hold, reply)
            if hold.claim.mode == "exclusive":
                return True
            over = registry.env.now() >= deadline
            if not (over or wait.cancelled or registry.closed):
                until = min(deadline, hold.valid_until, retry.sent_at + reply.retry_after)
                await registry.backend.await_wakeup(hold.claim, until)
            if over or wait.cancelled:
                if hold.upgrading == 1 and hold.conversions == number:
                    await weaken(registry, hold, "update")
                return False
            if registry.closed:
                raise ClientClosed(f"the client was closed: {hold.claim.name!r} is not upgraded")
    except BaseException as error:
        if isinstance(error, StoreError):
            with_cause(registry, hold, registry.env.now(), error)
        if hold.state is State.HELD and hold.upgrading == 1 and hold.claim.mode == "update":
            convert_later(registry, hold, "update")
        raise
    finally:
        hold.upgrading -= 1
        if not hold.upgrading:
            registry.backend.forget(hold.claim)
        registry.in_flight.exit()


async def weaken(registry: HoldRegistry, hold: Hold, mode: Mode) -> None:
    """Convert to a weaker mode. If the store does not answer, the renewer goes on asking."""
    # From now on the owner counts on no more than this, whether it is applied or not.
    _begin_weakening(hold, mode)
    number = hold.conversions
    hold.weakening += 1
    try:
        now = registry.env.now()
        _, reply = await _request(registry, hold, mode, now + registry.op_timeout)
        if hold.conversions == number:
            hold.conversion_pending = False
            _apply(registry, hold, reply)
    except StoreError:
        return
    finally:
        hold.weakening -= 1
        if hold.conversion_pending:
            registry.wake_renewer(hold.convert_at)


def with_cause(registry: HoldRegistry, hold: Hold, now: float, error: StoreError) -> None:
    """LeaseLost instead of *error*, if the hold has ended while the store did not answer."""
    try:
        hold.check(now, registry.store)
    except LeaseLost as lost:
        raise lost from error


def convert_later(registry: HoldRegistry, hold: Hold, mode: Mode) -> None:
    """Have the renewer convert the hold to a weaker mode."""
    _begin_weakening(hold, mode)
    registry.wake_renewer(hold.convert_at)


def _begin_weakening(hold: Hold, mode: Mode) -> None:
    hold.conversions += 1
    hold.claim = hold.claim._replace(mode=mode)
    hold.conversion_pending, hold.convert_at = True, 0.0


async def finish(registry: HoldRegistry, hold: Hold) -> bool:
    """Repeat a conversion once whose outcome is unknown; return whether the store answered."""
    now = registry.env.now()
    until = now + min(registry.op_timeout, timing.TRY_TIMEOUT)
    number, mode = hold.conversions, hold.claim.mode
    request = Convert(hold.claim, number, mode)
    try:
        reply = await registry.backend.request(request, until)
    except StoreError:
        return False
    if hold.conversions == number:
        hold.conversion_pending = False
        hold.token = max(hold.token, reply.held.token if reply.held else 0)
    return True


async def _request(
    registry: HoldRegistry, hold: Hold, mode: Mode, deadline: float
) -> tuple[Retry, Converted]:
    request, now = Convert(hold.claim, hold.conversions, mode), registry.env.now()
    give_up = min(timing.answer_by(now, deadline, registry.op_timeout), hold.valid_until)
    retry = Retry(registry.env, registry.op_timeout, give_up)
    reply = await retry.until_answered(partial(registry.backend.request, request))
    return retry, reply


def _apply(registry: HoldRegistry, hold: Hold, reply: Converted) -> None:
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
