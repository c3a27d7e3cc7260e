"""The wait until an update hold is exclusive.

Several threads or tasks may upgrade the same hold. Their upgrade is one conversion (`conversion`),
which they share (`SharedUpgrade`): one of them asks the store and listens, for a store expects one
waiter with the id of the claim; the others wait for its replies. When it gives up, another one
asks. The last one that gives up converts back.

    wait 1  asks ── listens ── deadline: asks once more ── refused: gives up
    wait 2     follows ───────────────────────────────────┴ asks ── listens ── granted
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from leaselock._core.client import conversion, shared_thread, timing
from leaselock._core.client.conversion_state import SharedUpgrade
from leaselock._core.client.hold import State
from leaselock._core.client.lease_reference import UnderWay, no_operation
from leaselock._core.contract.effects import Wait
from leaselock.errors import (
    AcquireCancelled,
    ClientClosed,
    NotHeld,
    StoreError,
    WouldDeadlock,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock._core.client.claim_registry import ClaimRegistry
    from leaselock._core.client.hold import Hold
    from leaselock._core.contract.backend import Claim, Mode


def _never() -> bool:
    return False


async def upgrade(
    registry: ClaimRegistry,
    hold: Hold,
    deadline: float,
    lock: object,
    is_released: Callable[[], bool] = _never,
) -> bool:
    """Make an update hold exclusive, when the present readers have released; return whether that
    was so before the deadline. AcquireCancelled if the wait was cancelled by the *lock* object. The
    wait ends when the lease *is_released*, too.
    """
    env, wait = registry.env, UpgradeWait(registry, hold, deadline, lock, is_released)
    if env.blocks_thread and env.now() < deadline:
        owner, claim = env.owner(), hold.claim._replace(mode="exclusive")
        readers = shared_thread.holds_beside(registry, owner, claim.name)
        if others := [each for each in readers if each is not hold]:
            raise shared_thread.refusal(claim, others)
        wait.beside = shared_thread.holds_of_others(registry, owner, claim.name)
    done = await wait.run()
    if wait.cancelled and not done:
        raise AcquireCancelled(hold.claim.name)
    return done


class UpgradeWait(UnderWay):
    """One wait for a hold to become exclusive. `Mutex.cancel` sets `cancelled`, and wakes it."""

    shared: SharedUpgrade
    """What it has in common with the other waits for the same hold, from `run` on."""

    def __init__(
        self,
        registry: ClaimRegistry,
        hold: Hold,
        deadline: float,
        lock: object,
        is_released: Callable[[], bool],
    ) -> None:
        self.registry = registry
        self.env = registry.env
        self.hold = hold
        self.lock = lock
        self.is_released = is_released
        self.cancelled = False
        self.began = self.env.now()
        self.deadline = deadline
        # A store that does not answer is not waited for much longer than the deadline.
        patience = min(registry.op_timeout, timing.TRY_TIMEOUT)
        self.give_up = max(deadline, self.began) + patience
        # Until when to listen before the store is asked again; None: it is asked now. It is that of
        # this wait: one that takes over from another asks at once.
        self.ask_again_at: float | None = None
        # Holds of other clients that cannot be released while this thread waits.
        self.beside: Sequence[Hold] = ()

    @property
    def claim(self) -> Claim:
        """The claim of the hold."""
        return self.hold.claim

    async def run(self) -> bool:
        """Wait; return whether the hold is exclusive."""
        hold, registry = self.hold, self.registry
        shared = self.shared = hold.upgrade = hold.upgrade or SharedUpgrade()
        shared.waits.add(self)
        try:
            while not self._is_done():
                if self._is_over():
                    if (weaker := self._mode_without()) is not None:
                        await conversion.weaken(registry, hold, weaker)
                    return False
                if shared.asker() is None:
                    await self._ask_or_listen()
                else:
                    await self._follow()
            return True
        except BaseException as error:
            if isinstance(error, StoreError):
                conversion.with_cause(registry, hold, self.env.now(), error)
            if hold.state is State.HELD and (weaker := self._mode_without()) is not None:
                conversion.weaken_later(registry, hold, weaker)
            raise
        finally:
            shared.waits.discard(self)
            if not shared.waits:
                hold.upgrade = None
                registry.backend.forget(hold.claim)
            if registry.idle is not None:
                registry.idle.set()

    def _is_done(self) -> bool:
        """Whether the hold is exclusive. An error if it cannot become so any more."""
        hold, registry = self.hold, self.registry
        hold.check(self.env.now(), registry.store)
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

    def _is_over(self) -> bool:
        """Whether to give up. At the deadline the store is asked once more: the answer that counts
        is to a request that was sent after this wait began, and came after the deadline.
        """
        shared = self.shared
        refused = shared.asked_at >= self.began and shared.answered_at >= self.deadline
        late = self.env.now() >= self.give_up
        return refused or late or self.cancelled or self.is_released()

    # --- the one that asks ------------------------------------------------------------------------

    async def _ask_or_listen(self) -> None:
        """Ask the store; or wait until asking again may help."""
        shared, hold = self.shared, self.hold
        shared.asker = weakref.ref(self)
        try:
            if self.ask_again_at is None:
                self.ask_again_at = await self._ask()
                await self._check_beside()
            else:
                until = min(self.deadline, hold.valid_until, self.ask_again_at)
                self.ask_again_at = None
                await self.registry.backend.await_wakeup(hold.claim, until)
        finally:
            shared.asker = no_operation
            shared.notify()

    async def _ask(self) -> float | None:
        """Ask the store to make the hold exclusive; return when to ask again, None for at once."""
        registry, hold, shared = self.registry, self.hold, self.shared
        if not self._is_upgrading():
            # A pending conversion is superseded: it must not be repeated under this number.
            hold.conversions += 1
            shared.conversion, hold.pending_conversion = hold.conversions, None
        asked_at = self.env.now()
        retry, reply = await conversion.request(registry, hold, "exclusive", self.deadline)
        if not self._is_upgrading() or hold.state is not State.HELD:
            # Another conversion was requested, which this reply does not show, or the release.
            return None
        conversion.apply(registry, hold, reply)
        shared.asked_at, shared.answered_at = asked_at, self.env.now()
        return retry.sent_at + reply.retry_after

    async def _check_beside(self) -> None:
        """Raise WouldDeadlock if the upgrade waits for a hold that needs this thread to go on."""
        if not self.beside or self.claim.mode == "exclusive":
            return
        claim = self.claim._replace(mode="exclusive")
        if await shared_thread.is_blocked(self.registry, claim, self.beside):
            raise shared_thread.refusal(claim, self.beside)

    # --- the others -------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Wait for a reply to the one that asks. At the deadline, let it ask once more."""
        until = min(self.deadline, self.hold.valid_until)
        if self.env.now() >= self.deadline:
            self.registry.backend.wake([self.claim.id])
            until = self.give_up
        await Wait(self.shared.changed, until)

    # --- giving up --------------------------------------------------------------------------------

    def _mode_without(self) -> Mode | None:
        """The mode to convert back to if this wait ends without the upgrade. None if the hold stays
        as it is: others wait for the upgrade, have it, or nothing was asked since the last
        conversion.
        """
        hold = self.hold
        mode = conversion.strongest(hold.modes or ("exclusive",))  # without a lease it is released
        others = len(self.shared.waits) > 1
        return None if others or mode == "exclusive" or not self._is_upgrading() else mode

    def _is_upgrading(self) -> bool:
        """Whether no other conversion was requested since the upgrade."""
        return self.hold.conversions == self.shared.conversion
