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
from leaselock._core.effects import Wait
from leaselock._core.hold import TAKEN, State, UpgradeState
from leaselock._core.timing import Retry
from leaselock.errors import (
    AcquireCancelled,
    ClientClosed,
    LeaseLost,
    NotHeld,
    StoreError,
    WouldDeadlock,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from leaselock._core.backend import Claim, Converted, Mode
    from leaselock._core.hold import Hold
    from leaselock._core.hold_registry import HoldRegistry


def strongest(modes: Iterable[Mode]) -> Mode:
    """The strongest of some modes of one lock."""
    return max(modes, key=STRENGTH.__getitem__)


class Upgrade:
    """One wait for a hold to become exclusive. Its owner sets `cancelled` and wakes the claim."""

    __slots__ = ("beside", "cancelled", "hold", "is_released")

    def __init__(self, hold: Hold, is_released: Callable[[], bool]) -> None:
        self.hold = hold
        self.is_released = is_released
        self.cancelled = False
        # Holds of other clients that cannot be released while this thread waits.
        self.beside: Sequence[Hold] = ()

    @property
    def claim(self) -> Claim:
        """The claim of the hold."""
        return self.hold.claim

    def is_done(self, registry: HoldRegistry) -> bool:
        """Whether the hold is exclusive. An error if it cannot become so any more."""
        hold = self.hold
        hold.check(registry.env.now(), registry.store)
        if hold.state is not State.HELD:
            raise NotHeld(hold.claim.name, f"{hold.claim.name!r} was released already")
        if self.is_released():
            return False
        if hold.claim.mode == "shared":
            # Its update lease was released meanwhile.
            raise WouldDeadlock(hold.claim.name, "exclusive")
        if hold.claim.mode != "exclusive" and registry.closed:
            raise ClientClosed(f"the client was closed: {hold.claim.name!r} is not upgraded")
        return hold.claim.mode == "exclusive"


def _never() -> bool:
    return False


async def upgrade(
    registry: HoldRegistry,
    hold: Hold,
    deadline: float,
    waiting: set[Any] | None = None,
    is_released: Callable[[], bool] = _never,
) -> bool:
    """Make an update hold exclusive, when the present readers have released; return whether that
    was so before the deadline. AcquireCancelled if the wait, which is in *waiting* meanwhile, was
    cancelled. The wait ends when the lease *is_released*, too.
    """
    env, wait = registry.env, Upgrade(hold, is_released)
    if env.blocks_thread and env.now() < deadline:
        owner, claim = env.owner(), hold.claim._replace(mode="exclusive")
        readers = shared_thread.holds_beside(registry, owner, claim.name)
        if others := [each for each in readers if each is not hold]:
            raise shared_thread.refusal(claim, others)
        wait.beside = shared_thread.holds_of_others(registry, owner, claim.name)
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
    """Wait until the hold is exclusive.

    Several threads or tasks may upgrade the same hold. Their upgrade is one conversion: one of them
    asks the store and listens, for a store expects one waiter with the id of the claim; the others
    wait for its replies. When it gives up, another one asks. The last one converts back.
    """
    hold, env = wait.hold, registry.env
    state = hold.upgrade = hold.upgrade or UpgradeState()
    state.waits += 1
    registry.in_flight.active += 1
    # At the deadline, the reply that counts is to a request that is sent from now on.
    first_request, recheck_at = state.sent + 1, None
    give_up = max(deadline, env.now()) + min(registry.op_timeout, timing.TRY_TIMEOUT)
    try:
        while True:
            if wait.is_done(registry):
                return True
            refused = state.answered >= first_request and state.answered_at >= deadline
            over = refused or env.now() >= give_up
            if over or wait.cancelled or wait.is_released():
                if (weaker := _mode_without(hold, state)) is not None:
                    await weaken(registry, hold, weaker)
                return False
            if state.asking:
                await _follow(registry, hold, state, deadline, give_up)
                continue
            state.asking = True
            try:
                if recheck_at is None:
                    recheck_at = await _ask(registry, hold, state, deadline)
                    await _check_beside(registry, wait)
                else:
                    until = min(deadline, hold.valid_until, recheck_at)
                    recheck_at = None
                    await registry.backend.await_wakeup(hold.claim, until)
            finally:
                state.asking = False
                state.notify()
    except BaseException as error:
        if isinstance(error, StoreError):
            with_cause(registry, hold, env.now(), error)
        if hold.state is State.HELD and (weaker := _mode_without(hold, state)) is not None:
            convert_later(registry, hold, weaker)
        raise
    finally:
        state.waits -= 1
        if not state.waits:
            hold.upgrade = None
            registry.backend.forget(hold.claim)
        registry.in_flight.exit()


def _mode_without(hold: Hold, state: UpgradeState) -> Mode | None:
    """The mode to convert back to if a wait ends without the upgrade. None if the hold stays as it
    is: others wait for the upgrade, have it, or nothing was asked since the last conversion.
    """
    mode = strongest(hold.modes)
    keeps = state.waits > 1 or mode == "exclusive" or not _is_upgrading(hold)
    return None if keeps else mode


def _is_upgrading(hold: Hold) -> bool:
    """Whether no other conversion was requested since the upgrade."""
    return hold.conversions == hold.upgrade_number


async def _ask(
    registry: HoldRegistry, hold: Hold, state: UpgradeState, deadline: float
) -> float | None:
    """Ask the store to make a hold exclusive; return when to ask again, None for at once."""
    if not _is_upgrading(hold):
        # A pending conversion is superseded: it must not be repeated under this number.
        hold.conversions += 1
        hold.upgrade_number, hold.conversion_pending = hold.conversions, False
    number = hold.conversions
    state.sent += 1
    sent = state.sent
    retry, reply = await _request(registry, hold, "exclusive", deadline)
    if hold.conversions != number or hold.state is not State.HELD:
        # Another conversion was requested, which this reply does not show, or the release.
        return None
    _apply(registry, hold, reply)
    state.answered, state.answered_at = sent, registry.env.now()
    return retry.sent_at + reply.retry_after


async def _check_beside(registry: HoldRegistry, wait: Upgrade) -> None:
    """Raise WouldDeadlock if the upgrade waits for a hold that needs this thread to go on."""
    if not wait.beside or wait.claim.mode == "exclusive":
        return
    claim = wait.claim._replace(mode="exclusive")
    if await shared_thread.is_blocked(registry, claim, wait.beside):
        raise shared_thread.refusal(claim, wait.beside)


async def _follow(
    registry: HoldRegistry, hold: Hold, state: UpgradeState, deadline: float, give_up: float
) -> None:
    """Wait for a reply to the one that asks. At the deadline, let it ask once more."""
    until = min(deadline, hold.valid_until)
    if registry.env.now() >= deadline:
        registry.backend.wake([hold.claim.id])
        until = give_up
    await Wait(state.changed, until)


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
    send = partial(registry.backend.request, request)
    reply = await registry.about_hold(partial(retry.until_answered, send))
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
