"""The renewer: one operation per client and protocol. It renews every lease, calls the callbacks of
lost ones, and sends the pending releases.

It sleeps until the earliest time at which a hold needs it, and is woken only for an earlier one. So
a lock that is acquired and released thousands of times within this time costs it nothing. Renewals
that are due at about the same time are sent as one request.

A renewal has three outcomes (hazard C10). The hold is renewed; or the store says that it is gone,
and it is lost at once; or there is no answer, and the renewal is repeated until the hold is not
valid any more, and then it is lost, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from leaselock._core import conversion, timing, validity
from leaselock._core.backend import Renew
from leaselock._core.effects import FOREVER, CallUser, Sleep, Spawn
from leaselock._core.events import LATE, hold_event
from leaselock._core.hold import CLIENT_CLOSED, TAKEN, Hold, State
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from leaselock._core.backend import Claim
    from leaselock._core.events import EventKind
    from leaselock._core.hold import Callback
    from leaselock._core.hold_registry import HoldRegistry

# How many renewals are sent as one request.
BATCH = 500


class Renewer:
    """Renews the holds of one registry."""

    def __init__(self, registry: HoldRegistry) -> None:
        self.registry = registry
        # How often in a row a renewal, a conversion, and the start of a callback have failed.
        self.failures = self.failed_conversions = self.not_started = 0
        # When to start the callbacks that could not be started.
        self.start_at = FOREVER

    async def start(self) -> None:
        """Start the renewer, unless it runs."""
        await self.registry.renewing.start(self.keep, "renewer")

    async def keep(self) -> None:
        """Run until the client is closed."""
        registry = self.registry
        while not registry.closed:
            await self._rest()
            # A store that does not answer a release must not delay the report of a loss.
            await self._notify_lost()
            if registry.pending_releases:
                await registry.pending_releases.send(registry.backend, self._due())
            await self._finish_conversions()
            await self._renew()

    async def _rest(self) -> None:
        registry = self.registry
        # Keep a planned time even if its hold is gone: otherwise every acquire after a release
        # would wake the renewer.
        promised = registry.planned if registry.planned > registry.env.now() else FOREVER
        registry.planned = min(
            self._due(), registry.pending_releases.next_try(), self.start_at, promised
        )
        await registry.backend.wait_and_listen(registry.changed, registry.planned)
        registry.changed.clear()

    def _due(self) -> float:
        """When a hold needs the renewer; at once, if its loss is to be reported."""
        return min(self._danger(), min(map(_due, self.registry.held()), default=FOREVER))

    def _danger(self) -> float:
        """When the next callback for a lease in danger is due."""
        holds = self.registry.with_danger_callbacks
        return min((hold.danger_at() for hold in holds), default=FOREVER)

    async def _finish_conversions(self) -> None:
        env = self.registry.env
        for hold in self.registry.held():
            if hold.conversion_pending and hold.next_conversion() <= env.now():
                if await conversion.finish(self.registry, hold):
                    self.failed_conversions = 0
                else:
                    self.failed_conversions += 1
                    hold.convert_at = env.now() + timing.pause(
                        self.failed_conversions, env.random()
                    )

    async def _renew(self) -> None:
        now = self.registry.env.now()
        due = [hold for hold in self.registry.held() if self._is_due(hold, now)]
        before = self.failures
        for start in range(0, len(due), BATCH):
            await self._renew_batch(due[start : start + BATCH])
        if due and self.failures == before:
            self.failures = 0

    def _is_due(self, hold: Hold, now: float) -> bool:
        # A renewal that failed waits for its pause: the renewer is woken for other reasons, too.
        early = 0.0
        if not hold.retrying:
            early = validity.renew_early(self.registry.backend.capabilities, hold.claim.lease)
        if hold.next_check > now + early:
            return False
        return hold.valid_until < hold.max_valid_until and hold.is_valid(now)

    async def _renew_batch(self, holds: list[Hold]) -> None:
        registry = self.registry
        sent_at = registry.env.now()
        shortest = min(hold.valid_until for hold in holds) - sent_at
        until = sent_at + min(registry.op_timeout, shortest / validity.RENEWALS_PER_LEASE)
        # A store that does not answer must not delay the callbacks for a lease in danger.
        until = min(until, max(self._danger(), (sent_at + until) / 2))
        claims = [self._wanted(hold, sent_at) for hold in holds]
        try:
            answers = await registry.backend.request(Renew(claims), until)
        except StoreError as error:
            self._try_again(holds)
            self._report("renewal_failed", holds, str(error))
            return
        unknown = [hold for hold, renewed in zip(holds, answers, strict=True) if renewed is None]
        # With what was left of each lease until now.
        self._report("renewed", [h for h, renewed in zip(holds, answers, strict=True) if renewed])
        for hold, claim, renewed in zip(holds, claims, answers, strict=True):
            if renewed is not None:
                self._renewed(hold, sent_at, claim.lease) if renewed else self._taken(hold)
        if unknown:
            self._try_again(unknown)

    def _report(self, kind: EventKind, holds: list[Hold], reason: str = "") -> None:
        """Have an event reported for each hold, by another operation: a listener may be slow."""
        registry, now = self.registry, self.registry.env.now()
        listeners = registry.listeners
        if listeners.of_rare():
            for hold in holds:
                # Where holds end with a session, a renewal makes one valid for less than its lease.
                end = validity.valid_until(registry.backend.capabilities, now, hold.claim.lease)
                left, lease = hold.valid_until - now, end - now
                rare = kind != "renewed" or left < lease * LATE
                due = listeners.of_rare() if rare else listeners.all
                if due:
                    event = hold_event(kind, hold, now, left, reason)._replace(lease=lease)
                    registry.due_events += [(listener, event) for listener in due]
            if registry.due_events:
                registry.changed.set()

    def _try_again(self, holds: list[Hold]) -> None:
        """Repeat the renewal after a pause, as one request. Towards the end of a lease the pauses
        shrink with the time that is left, so that a store that returns is asked in time.
        """
        self.failures += 1
        env = self.registry.env
        now = env.now()
        left = min(hold.valid_until for hold in holds) - now
        pause = timing.pause(self.failures, env.random())
        pause = max(min(pause, left / validity.RENEWALS_PER_LEASE), timing.RENEWAL_PAUSE)
        for hold in holds:
            # A hold that was extended to the end of its fixed lease meanwhile is not renewed again.
            final = hold.valid_until >= hold.max_valid_until
            hold.next_check = hold.valid_until if final else min(hold.valid_until, now + pause)
            hold.retrying = True

    def _wanted(self, hold: Hold, sent_at: float) -> Claim:
        """The claim to renew: of a fixed lease, and near the end of *max_hold*, what is left."""
        can = self.registry.backend.capabilities
        left = validity.lease_for(can, sent_at, hold.max_valid_until)
        if hold.renew and left >= hold.claim.lease:
            return hold.claim
        return hold.claim._replace(lease=left)

    def _renewed(self, hold: Hold, sent_at: float, lease: float) -> None:
        hold.confirmed(validity.valid_until(self.registry.backend.capabilities, sent_at, lease))
        hold.retrying = False
        self.registry.schedule(hold, sent_at)

    def _taken(self, hold: Hold) -> None:
        # If its time has run out meanwhile, that is the reason. While the hold is being released
        # the answer is out of date.
        hold.expire(self.registry.env.now())
        if hold.state is State.HELD:
            hold.lose(TAKEN)

    async def _notify_lost(self) -> None:
        registry, now = self.registry, self.registry.env.now()
        for hold in registry.held():
            if now >= hold.valid_until:
                hold.expire(now)
            if hold.state is State.LOST:
                registry.stop_renewing(hold)
                registry.collect_callbacks(hold)
                self._release_lost(hold)
            elif hold.danger_callbacks:
                registry.due_callbacks += hold.take_danger_callbacks(now)
        await self._call_back()

    async def _call_back(self) -> None:
        """Start the callbacks of lost holds, each as an operation of its own, and one that
        reports events. If that fails, try again later: the holds are renewed meanwhile.
        """
        registry, env = self.registry, self.registry.env
        callbacks, events = registry.due_callbacks, registry.due_events
        observers = registry.due_observers
        try:
            while callbacks:
                callback = callbacks.pop(0)
                # One that cannot be started has not returned, either.
                outstanding, key = registry.pending_releases.callbacks, id(callback)
                outstanding.add(key)
                try:
                    await Spawn(self._call(callback, outstanding, key), "lost")
                except BaseException:
                    callbacks.insert(0, callback)
                    raise
            if events:
                await registry.reporting.start(self._report_events, "events")
            while observers:
                await observers[0].start()
                del observers[0]
        except Exception as error:
            self.not_started += 1
            self.start_at = env.now() + timing.pause(self.not_started, env.random())
            if self.not_started == 1:
                await CallUser(_raise, error)
        else:
            self.not_started, self.start_at = 0, FOREVER

    async def _call(self, callback: Callback, outstanding: set[int], key: int) -> None:
        """Call one callback, as an operation of its own: one that is slow, or ends its thread or
        task, does not keep the others from being called.
        """
        try:
            await CallUser(*callback)
        finally:
            outstanding.discard(key)
            if not outstanding and self.registry.pending_releases:
                self.registry.wake_renewer(0.0)

    async def _report_events(self) -> None:
        """Report the events of renewals in their order. A listener may end this operation: then the
        renewer starts another one.
        """
        registry = self.registry
        events = registry.due_events
        try:
            while events:
                await CallUser(*events.popleft())
        finally:
            if events:
                registry.wake_renewer(0.0)

    def _release_lost(self, hold: Hold) -> None:
        # A hold that ends with its session may still exist: the session may be found again.
        if self.registry.backend.capabilities.session_timeout < FOREVER:
            self.registry.release_later(hold.claim, lost=True)

    async def finish(self, until: float) -> None:
        """Release everything, as far as the store answers before *until*; the client closes."""
        registry = self.registry
        for hold in registry.held():
            if hold.lose(CLIENT_CLOSED) and hold.owned:
                registry.release_later(hold.claim)
            registry.collect_callbacks(hold)
            registry.remove(hold)
        pending = registry.pending_releases
        while pending and registry.env.now() < until:
            await pending.send(registry.backend, FOREVER)
            if pending:
                await Sleep(min(until, pending.retry_at()))
        # By the closing thread or task: at the end of the interpreter no other one can be started.
        while registry.due_callbacks:
            await CallUser(*registry.due_callbacks.pop(0))


def _due(hold: Hold) -> float:
    if hold.state is State.LOST:
        return 0.0
    if hold.conversion_pending:
        return min(hold.next_check, hold.next_conversion())
    return hold.next_check


def _raise(error: Exception) -> NoReturn:
    """Have the driver report an error as it reports one of the user's functions."""
    raise error
